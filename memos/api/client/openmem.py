"""Requests of `/api/openmem/v1` as the public `MemOSClient` has them, and their answers, with its names and shortcuts.

What changes something may be repeated only with an idempotency key. Fields of newer servers are kept.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, field_validator

from memos.api.client.calls import (
    Call,
    ClientUsageError,
    Model,
    Reply,
    Stream,
    as_model,
    encoded,
    failure,
    repeatable_with,
    strange,
)
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


class Plain(TypedDict):
    """An answer that the public client returns as a dictionary."""

    code: int
    message: str
    data: Any


T = TypeVar("T")

_ROOT = "/api/openmem/v1"
_LARGEST_PAGE = 50
# Servers of this protocol know an equal add again for a minute; what is under way takes some of it.
_KNOWN_AGAIN_S = 40.0


def get_message(
    user_id: str,
    conversation_id: str | None = None,
    conversation_limit_number: int | None = None,
    message_limit_number: int | None = None,
    source: str | None = None,
) -> Call[MessagesAnswer]:
    """Return the last messages of a conversation. Raises: InvalidInput, NotFound, PermissionDenied."""
    return _post("get/message", _required(locals(), "user_id"), _model(MessagesAnswer), repeatable=True)


def add_message(
    messages: list[dict[str, Any]],
    user_id: str | list[str] | None = None,
    conversation_id: str | None = None,
    info: dict[str, Any] | None = None,
    source: str | None = None,
    app_id: str | None = None,
    agent_id: str | list[str] | None = None,
    async_mode: bool = True,
    tags: list[str] | None = None,
    allow_public: bool = False,
    allow_knowledgebase_ids: list[str] | None = None,
    allow_memory_view: list[str] | None = None,
) -> Call[TaskAnswer]:
    """Store messages. They are searchable at once; `task_id` follows their extraction into facts.

    The same request sent again within a minute is stored once. Raises: InvalidInput, PermissionDenied.
    """
    fields = _required(locals(), "messages")
    if not user_id and not agent_id:
        raise ClientUsageError("user_id", "or agent_id is required")
    return _once("add/message", fields, _model(TaskAnswer))


def search_memory(
    query: str,
    user_id: str | None = None,
    conversation_id: str | None = None,
    agent_id: str | None = None,
    memory_limit_number: int = 6,
    include_preference: bool = True,
    knowledgebase_ids: list[str] | None = None,
    filter: dict[str, Any] | None = None,
    source: str | None = None,
    include_tool_memory: bool = False,
    preference_limit_number: int = 6,
    tool_memory_limit_number: int = 6,
    relativity: float | None = None,
    include_skill: bool = False,
    skill_limit_number: int = 6,
    include_memory_view: list[str] | None = None,
    context_format: str = "memory",
) -> Call[SearchAnswer]:
    """Find memories of a user or an agent. Raises: InvalidInput, PermissionDenied."""
    fields = _required(locals(), "query")
    _require_one(user_id, agent_id)
    return _post("search/memory", fields, _model(SearchAnswer), repeatable=True)


def get_memory(
    user_id: str | None = None,
    include_preference: bool = True,
    page: int = 1,
    size: int = 10,
    agent_id: str | None = None,
    include_tool_memory: bool = True,
    include_memory_view: list[str] | None = None,
    filter: dict[str, Any] | None = None,
) -> Call[MemoryAnswer]:
    """Return a page of the memories of a user or an agent. Raises: InvalidInput, PermissionDenied."""
    fields = dict(locals())
    _require_one(user_id, agent_id)
    if isinstance(size, int) and size > _LARGEST_PAGE:
        raise ClientUsageError("size", f"must be at most {_LARGEST_PAGE}")
    return _post("get/memory", fields, _model(MemoryAnswer), repeatable=True)


def get_memory_by_id(memid: str) -> Call[Plain]:
    """Return one memory. Raises: NotFound."""
    _required(locals(), "memid")
    return Call("GET", f"{_ROOT}/get/memory/{segment('memid', memid)}", plain, repeatable=True)


def create_knowledgebase(
    knowledgebase_name: str, knowledgebase_description: str | None = None
) -> Call[KnowledgebaseAnswer]:
    """Create a knowledge base. Raises: InvalidInput, PermissionDenied."""
    return _once("create/knowledgebase", _required(locals(), "knowledgebase_name"), _model(KnowledgebaseAnswer))


def delete_knowledgebase(knowledgebase_id: str) -> Call[SuccessAnswer]:
    """Delete a knowledge base with its documents. Raises: NotFound, PermissionDenied."""
    return _post("delete/knowledgebase", _required(locals(), "knowledgebase_id"), _model(SuccessAnswer))


def add_knowledgebase_file_json(knowledgebase_id: str, file: list[dict[str, Any]]) -> Call[AddedFilesAnswer]:
    """Add files given as base64, or as URLs that the server may fetch. Raises: InvalidInput, NotFound."""
    return _post("add/knowledgebase-file", _required(locals(), "knowledgebase_id", "file"), _model(AddedFilesAnswer))


def add_knowledgebase_file_form(
    knowledgebase_id: str, files: Sequence[str | Path], type: str | None = None
) -> Call[AddedFilesAnswer]:
    """Upload files by their paths. Raises: InvalidInput (also if a file does not exist), NotFound."""
    _required(locals(), "knowledgebase_id", "files")
    paths = tuple(existing("files", path) for path in ([files] if isinstance(files, str | Path) else files))
    query = {"knowledgebase_id": knowledgebase_id} | ({} if type is None else {"type": type})
    return Call("POST", f"{_ROOT}/add/knowledgebase-file", _model(AddedFilesAnswer), query=query, files=paths)


def delete_knowledgebase_file(file_ids: list[str]) -> Call[SuccessAnswer]:
    """Delete files of knowledge bases. Raises: NotFound, PermissionDenied."""
    return _post("delete/knowledgebase-file", _required(locals(), "file_ids"), _model(SuccessAnswer))


def get_knowledgebase_file(
    file_ids: list[str] | None = None,
    knowledgebase_id: str | None = None,
    type: str | None = None,
    page: int | None = None,
    page_size: int | None = None,
) -> Call[FilesAnswer]:
    """Return files of a knowledge base with their state. Raises: InvalidInput, NotFound."""
    fields = dict(locals())
    if bool(file_ids) == bool(knowledgebase_id):
        raise ClientUsageError("file_ids", "or knowledgebase_id is required, and not both")
    return _post("get/knowledgebase-file", fields, _model(FilesAnswer), repeatable=True)


def get_task_status(task_id: str) -> Call[StatusAnswer]:
    """Return the state of a task. Raises: NotFound."""
    fields = _required(locals(), "task_id")

    def read(reply: Reply) -> StatusAnswer:
        answer = _model(StatusAnswer)(reply)
        if answer.data.task_id is not None:
            return answer
        return answer.model_copy(update={"data": answer.data.model_copy(update={"task_id": task_id})})

    return _post("get/status", fields, read, repeatable=True)


def add_feedback(
    user_id: str,
    conversation_id: str | None = None,
    feedback_content: str | None = None,
    agent_id: str | None = None,
    app_id: str | None = None,
    feedback_time: str | None = None,
    allow_public: bool = False,
    allow_knowledgebase_ids: list[str] | None = None,
) -> Call[TaskAnswer]:
    """Correct what is remembered, in plain words. Raises: InvalidInput, PermissionDenied."""
    return _once("add/feedback", _required(locals(), "feedback_content", "user_id"), _model(TaskAnswer))


def delete_memory(
    user_ids: list[str] | None = None,
    memory_ids: list[str] | None = None,
    *,
    user_id: str | None = None,
    agent_id: str | None = None,
    filter: dict[str, Any] | None = None,
    memory_type: str | None = None,
) -> Call[SuccessAnswer]:
    """Delete memories by exactly one condition. Raises: InvalidInput, NotFound, PermissionDenied."""
    if user_id is None and user_ids and not memory_ids:
        if len(user_ids) != 1:
            raise ClientUsageError("user_ids", "takes one user")
        user_id = user_ids[0]
    given = {"memory_ids": memory_ids or None, "user_id": user_id or None, "agent_id": agent_id or None}
    if sum(value is not None for value in (*given.values(), filter)) != 1:
        raise ClientUsageError("memory_ids", "or user_id, agent_id or filter is required, exactly one of them")
    fields = {**given, "filter": filter, "memory_type": memory_type}
    return _post("delete/memory", fields, _model(SuccessAnswer))


def update_memory(
    memory_id: str, content: str | None = None, title: str | None = None, status: str | None = None
) -> Call[Plain]:
    """Change a memory; its earlier versions are kept. Raises: InvalidInput, NotFound, PermissionDenied."""
    fields = _required(locals(), "memory_id")
    if not content and not title and not status:
        raise ClientUsageError("content", "or title or status is required")
    return _post("update/memory", fields, plain)


def extract_memory(
    messages: list[dict[str, Any]], extraction_types: list[str] | None = None, model: str | None = None
) -> Call[Plain]:
    """Return the memories that messages contain; nothing is stored. Raises: InvalidInput, ModelError."""
    return _post("extract/memory", _required(locals(), "messages"), plain)


def rerank(query: str, documents: list[str], model: str | None = None, top_n: int | None = None) -> Call[Plain]:
    """Order texts by how well they answer a question. Raises: InvalidInput."""
    fields = _required(locals(), "query", "documents")
    if isinstance(top_n, int) and top_n <= 0:
        raise ClientUsageError("top_n", "must be greater than 0")
    return _post("rerank", fields, plain, repeatable=True)


def bind_profile_template(bind_list: list[dict[str, Any]]) -> Call[Plain]:
    """Set the profile template of users and agents. Raises: InvalidInput, NotFound."""
    return _post("bind/profile_template", _required(locals(), "bind_list"), plain)


def edit_profile(
    profile_template_id: str,
    user_id: str | None = None,
    agent_id: str | None = None,
    metadata: dict[str, Any] | None = None,
    remove_fields: list[str] | None = None,
) -> Call[Plain]:
    """Set and remove fields of a profile. Raises: InvalidInput, NotFound, PermissionDenied."""
    fields = _required(locals(), "profile_template_id")
    _require_one(user_id, agent_id)
    if metadata is None and not remove_fields:
        raise ClientUsageError("metadata", "or remove_fields is required")
    return _post("edit/profile", fields, plain)


def delete_profile(profile_template_id: str, user_id: str | None = None, agent_id: str | None = None) -> Call[Plain]:
    """Remove a profile. Raises: InvalidInput, NotFound, PermissionDenied."""
    fields = _required(locals(), "profile_template_id")
    _require_one(user_id, agent_id)
    return _post("delete/profile", fields, plain)


def chat(
    user_id: str,
    conversation_id: str,
    query: str,
    internet_search: bool = False,
    force_stop: bool = False,
    use_mem_os_cube: bool = False,
    source: str | None = None,
    system_prompt: str | None = None,
    model_name: str | None = None,
    knowledgebase_ids: list[str] | None = None,
    filter: dict[str, Any] | None = None,
    add_message_on_answer: bool = True,
    app_id: str | None = None,
    agent_id: str | None = None,
    async_mode: bool = True,
    tags: list[str] | None = None,
    info: dict[str, Any] | None = None,
    allow_public: bool = False,
    allow_knowledgebase_ids: list[str] | None = None,
    max_tokens: int = 8192,
    temperature: float | None = 0.7,
    top_p: float | None = 0.95,
    include_preference: bool = True,
    preference_limit_number: int = 6,
    memory_limit_number: int = 6,
    stream: bool = False,
    include_tool_memory: bool = False,
    tool_memory_limit_number: int = 6,
    relativity: float | None = None,
) -> Call[ChatAnswer] | Stream[str]:
    """Answer a question from memory; with `stream` the answer is streamed, each piece as JSON text.

    Raises: InvalidInput, PermissionDenied, ModelError, BackendUnavailable (also if no language model is configured).
    """
    fields = _required(locals(), "user_id", "conversation_id", "query")
    call = _post("chat", fields, _model(ChatAnswer))
    return Stream(call, lambda _, data: data) if stream else call


def plain(reply: Reply) -> Plain:
    """Return an answer as the dictionary it is. Raises: MemosError."""
    try:
        found = json.loads(reply.body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("code"), int):
        raise strange(reply.status, reply.headers, "not JSON with a `code`")
    if found["code"] not in (0, 200):
        raise failure(reply.status, reply.headers, reply.body)
    return Plain(code=found["code"], message=str(found.get("message", "")), data=found.get("data"))


def segment(name: str, value: str) -> str:
    """Return a value as one segment of a path. Raises: InvalidInput."""
    try:
        if not isinstance(value, str) or value in ("", ".", ".."):
            raise ClientUsageError(name, "must be an id")
        return quote(value, safe="")
    except UnicodeEncodeError:
        raise ClientUsageError(name, "must be valid Unicode") from None


def existing(name: str, path: str | Path) -> Path:
    """Return the path of an existing file. Raises: InvalidInput."""
    try:
        if (found := Path(path).expanduser()).is_file():
            return found
    except (TypeError, ValueError, OSError, RuntimeError):
        pass
    raise ClientUsageError(name, f"no such file: {str(path)!r:.200}")


def _once(path: str, fields: Mapping[str, Json], read: Callable[[Reply], T]) -> Call[T]:
    """Return a call that has its effect once: the server recognises an equal body for a minute."""
    call = _post(path, fields, read, headers=repeatable_with(None), repeatable=True)
    return replace(call, again_within_s=_KNOWN_AGAIN_S)


def _post(
    path: str,
    fields: Mapping[str, Json],
    read: Callable[[Reply], T],
    *,
    headers: Mapping[str, str] | None = None,
    repeatable: bool = False,
) -> Call[T]:
    body = encoded({name: value for name, value in fields.items() if value is not None})
    return Call("POST", f"{_ROOT}/{path}", read, headers=headers or {}, body=body, repeatable=repeatable)


def _model(model: type[Model]) -> Callable[[Reply], Model]:
    def read(reply: Reply) -> Model:
        plain(reply)
        return as_model(model)(reply)

    return read


def _required(fields: Mapping[str, Json], *names: str) -> dict[str, Json]:
    """Return a call's fields, of which the named ones must be given."""
    for name in names:
        if not fields[name]:
            raise ClientUsageError(name, "is required")
    return dict(fields)


def _require_one(user_id: str | None, agent_id: str | None) -> None:
    if bool(user_id) == bool(agent_id):
        raise ClientUsageError("user_id", "or agent_id is required, and not both")
