"""Models of the answers of `/api/openmem/v1`. Fields of newer servers are kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, field_validator

from memos.core.types import Json


class Result(BaseModel):
    """Part of an answer."""

    model_config = ConfigDict(frozen=True, extra="allow")


class Detail(Result):
    """A memory, preference, tool memory, skill, message or file, with the server's fields as attributes.

    A field that is missing from the answer is a missing attribute.
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
    """Results of a search."""

    message_detail_list: list[Detail] | None = None
    preference_note: str | None = None


class PageData(Lists):
    """A page of memories."""

    total: int | None = None
    size: int | None = None
    current: int | None = None
    pages: int | None = None


class TaskData(Result):
    """Receipt of an accepted request, with the task that completes it."""

    success: bool
    task_id: str
    status: str


class StatusData(Result):
    """Progress of a task; also a list with one entry, as older servers answered."""

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
    """Outcome of a request: done or not."""

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
    """Base class of all answers."""

    code: int
    message: str


class MessagesAnswer(Answer):
    """Of `get_message`."""

    data: MessageData

    @property
    def messages(self) -> list[Detail]:
        """The messages, oldest first."""
        return self.data.message_detail_list


class ListsAnswer(Answer):
    """Of what gives memories."""

    data: Lists

    @property
    def memories(self) -> list[Detail]:
        """Memories: of a search the best first, of a page in its order."""
        return self.data.memory_detail_list

    @property
    def preferences(self) -> list[Detail] | None:
        """Preferences, in the same order."""
        return self.data.preference_detail_list


class SearchAnswer(ListsAnswer):
    """Of `search_memory`."""

    data: SearchData

    @property
    def tool_memories(self) -> list[Detail] | None:
        """Found tool memories."""
        return self.data.tool_memory_detail_list


class MemoryAnswer(ListsAnswer):
    """Of `get_memory`."""

    data: PageData


class TaskAnswer(Answer):
    """Of `add_message` and `add_feedback`."""

    data: TaskData

    @property
    def success(self) -> bool:
        """True when it was accepted."""
        return self.data.success

    @property
    def task_id(self) -> str:
        """Return the id of the task that completes the request."""
        return self.data.task_id

    @property
    def status(self) -> str:
        """Return the progress of the task: `running`, `completed` or `failed`."""
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
