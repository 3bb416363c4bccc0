"""Answers of `/api/openmem/v1` as frozen models.

Fields of newer servers are kept. Names and shortcuts (`memories`, `task_id`, `success`) are those of the public client.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypedDict

from pydantic import BaseModel, ConfigDict, field_validator

from memos.core.types import Json


class Result(BaseModel):
    """Part of an answer."""

    model_config = ConfigDict(frozen=True, extra="allow")


class Detail(Result):
    """One memory, preference, tool memory, skill, message or file: the server's fields are its attributes.

    One that an answer does not have is no attribute.
    """

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


class MessageData(Result):
    """The last messages of a conversation."""

    message_detail_list: list[Detail] = []


class Lists(Result):
    """Memories by kind."""

    memory_detail_list: list[Detail] = []
    preference_detail_list: list[Detail] | None = None
    tool_memory_detail_list: list[Detail] | None = None
    skill_detail_list: list[Detail] | None = None
    profile_detail_list: list[Detail] | None = None
    event_detail_list: list[Detail] | None = None


class SearchData(Lists):
    """What a search found."""

    message_detail_list: list[Detail] | None = None
    preference_note: str | None = None


class PageData(Lists):
    """A page of memories."""

    total: int | None = None
    size: int | None = None
    current: int | None = None
    pages: int | None = None


class TaskData(Result):
    """What was accepted, and the task that goes on with it."""

    success: bool
    task_id: str
    status: str


class StatusData(Result):
    """How far a task is; also a list of one such, as older servers answered."""

    task_id: str | None = None
    status: str
    memory_views: Json = None

    def __getitem__(self, place: int) -> StatusData:
        return (self,)[place]

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[StatusData]:  # type: ignore[override]  # a list of one, not of its fields
        return iter((self,))


class SuccessData(Result):
    """Whether it was done."""

    success: bool


class IdData(Result):
    """The id of what was made."""

    id: str


class ReplyData(Result):
    """A model's answer."""

    response: str


class FileData(Result):
    """A page of files."""

    file_detail_list: list[Detail] = []
    total: int | None = None
    page: int | None = None
    page_size: int | None = None


class Answer(Result):
    """What all answers have in common."""

    code: int
    message: str


class MessagesAnswer(Answer):
    """Of `get_message`."""

    data: MessageData

    @property
    def messages(self) -> list[Detail]:
        """The messages, oldest first."""
        return self.data.message_detail_list


class SearchAnswer(Answer):
    """Of `search_memory`."""

    data: SearchData

    @property
    def memories(self) -> list[Detail]:
        """Found memories, best first."""
        return self.data.memory_detail_list

    @property
    def preferences(self) -> list[Detail] | None:
        """Found preferences."""
        return self.data.preference_detail_list

    @property
    def tool_memories(self) -> list[Detail] | None:
        """Found tool memories."""
        return self.data.tool_memory_detail_list


class MemoryAnswer(Answer):
    """Of `get_memory`."""

    data: PageData

    @property
    def memories(self) -> list[Detail]:
        """Memories of this page."""
        return self.data.memory_detail_list

    @property
    def preferences(self) -> list[Detail] | None:
        """Preferences of this page."""
        return self.data.preference_detail_list


class TaskAnswer(Answer):
    """Of `add_message` and `add_feedback`."""

    data: TaskData

    @property
    def success(self) -> bool:
        """True when it was accepted."""
        return self.data.success

    @property
    def task_id(self) -> str:
        """The task that goes on with it."""
        return self.data.task_id

    @property
    def status(self) -> str:
        """How far that is: `running`, `completed` or `failed`."""
        return self.data.status


class StatusAnswer(Answer):
    """Of `get_task_status`."""

    data: StatusData

    @field_validator("data", mode="before")
    @classmethod
    def _of_one(cls, data: Any) -> Any:
        return data[0] if isinstance(data, list) and len(data) == 1 else data

    @property
    def messages(self) -> list[StatusData]:
        """The status as a list of one."""
        return [self.data]


class SuccessAnswer(Answer):
    """Of what deletes."""

    data: SuccessData

    @property
    def success(self) -> bool:
        """True when it was done."""
        return self.data.success


class KnowledgebaseAnswer(Answer):
    """Of `create_knowledgebase`."""

    data: IdData

    @property
    def knowledgebase_id(self) -> str:
        """The id of the knowledge base."""
        return self.data.id


class AddedFilesAnswer(Answer):
    """Of `add_knowledgebase_file_json` and `add_knowledgebase_file_form`: `data` is as the server sent it."""

    data: list[dict[str, Any]]

    @property
    def memories(self) -> list[dict[str, Any]]:
        """The files, under the known client's name for them."""
        return self.data


class FilesAnswer(Answer):
    """Of `get_knowledgebase_file`."""

    data: FileData

    @property
    def files(self) -> list[Detail]:
        """Files of this page."""
        return self.data.file_detail_list


class ChatAnswer(Answer):
    """Of `chat`."""

    data: ReplyData

    @property
    def response(self) -> str:
        """The model's answer."""
        return self.data.response


class Plain(TypedDict):
    """An answer that the public client returns as a dictionary."""

    code: int
    message: str
    data: Any
