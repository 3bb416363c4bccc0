"""Requests of `/api/openmem/v1` as the public `MemOSClient` has them, with its names and shortcuts.

What changes something may be repeated only with an idempotency key.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict, TypeVar
from urllib.parse import quote

from memos.api.client import values
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
) -> Call[values.MessagesAnswer]:
    """Return the last messages of a conversation. Raises: InvalidInput, NotFound, PermissionDenied."""
    return _post("get/message", _required(locals(), "user_id"), _model(values.MessagesAnswer), repeatable=True)


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
) -> Call[values.TaskAnswer]:
    """Store messages. They are searchable at once; `task_id` follows their extraction into facts.

    The same request sent again within a minute is stored once. Raises: InvalidInput, PermissionDenied.
    """
    fields = _required(locals(), "messages")
    if not user_id and not agent_id:
        raise ClientUsageError("user_id", "or agent_id is required")
    return _once("add/message", fields, _model(values.TaskAnswer))


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
) -> Call[values.SearchAnswer]:
    """Find memories of a user or an agent. Raises: InvalidInput, PermissionDenied."""
    fields = _required(locals(), "query")
    _require_one(user_id, agent_id)
    return _post("search/memory", fields, _model(values.SearchAnswer), repeatable=True)


def get_memory(
    user_id: str | None = None,
    include_preference: bool = True,
    page: int = 1,
    size: int = 10,
    agent_id: str | None = None,
    include_tool_memory: bool = True,
    include_memory_view: list[str] | None = None,
    filter: dict[str, Any] | None = None,
) -> Call[values.MemoryAnswer]:
    """Return a page of the memories of a user or an agent. Raises: InvalidInput, PermissionDenied."""
    fields = dict(locals())
    _require_one(user_id, agent_id)
    if isinstance(size, int) and size > _LARGEST_PAGE:
        raise ClientUsageError("size", f"must be at most {_LARGEST_PAGE}")
    return _post("get/memory", fields, _model(values.MemoryAnswer), repeatable=True)


def get_memory_by_id(memid: str) -> Call[Plain]:
    """Return one memory. Raises: NotFound."""
    _required(locals(), "memid")
    return Call("GET", f"{_ROOT}/get/memory/{segment('memid', memid)}", plain, repeatable=True)


def create_knowledgebase(
    knowledgebase_name: str, knowledgebase_description: str | None = None
) -> Call[values.KnowledgebaseAnswer]:
    """Create a knowledge base. Raises: InvalidInput, PermissionDenied."""
    return _once("create/knowledgebase", _required(locals(), "knowledgebase_name"), _model(values.KnowledgebaseAnswer))


def delete_knowledgebase(knowledgebase_id: str) -> Call[values.SuccessAnswer]:
    """Delete a knowledge base with its documents. Raises: NotFound, PermissionDenied."""
    return _post("delete/knowledgebase", _required(locals(), "knowledgebase_id"), _model(values.SuccessAnswer))


def add_knowledgebase_file_json(knowledgebase_id: str, file: list[dict[str, Any]]) -> Call[values.AddedFilesAnswer]:
    """Add files given as base64, or as URLs that the server may fetch. Raises: InvalidInput, NotFound."""
    return _post(
        "add/knowledgebase-file", _required(locals(), "knowledgebase_id", "file"), _model(values.AddedFilesAnswer)
    )


def add_knowledgebase_file_form(
    knowledgebase_id: str, files: Sequence[str | Path], type: str | None = None
) -> Call[values.AddedFilesAnswer]:
    """Upload files by their paths. Raises: InvalidInput (also if a file does not exist), NotFound."""
    _required(locals(), "knowledgebase_id", "files")
    paths = tuple(existing("files", path) for path in ([files] if isinstance(files, str | Path) else files))
    query = {"knowledgebase_id": knowledgebase_id} | ({} if type is None else {"type": type})
    return Call("POST", f"{_ROOT}/add/knowledgebase-file", _model(values.AddedFilesAnswer), query=query, files=paths)


def delete_knowledgebase_file(file_ids: list[str]) -> Call[values.SuccessAnswer]:
    """Delete files of knowledge bases. Raises: NotFound, PermissionDenied."""
    return _post("delete/knowledgebase-file", _required(locals(), "file_ids"), _model(values.SuccessAnswer))


def get_knowledgebase_file(
    file_ids: list[str] | None = None,
    knowledgebase_id: str | None = None,
    type: str | None = None,
    page: int | None = None,
    page_size: int | None = None,
) -> Call[values.FilesAnswer]:
    """Return files of a knowledge base with their state. Raises: InvalidInput, NotFound."""
    fields = dict(locals())
    if bool(file_ids) == bool(knowledgebase_id):
        raise ClientUsageError("file_ids", "or knowledgebase_id is required, and not both")
    return _post("get/knowledgebase-file", fields, _model(values.FilesAnswer), repeatable=True)


def get_task_status(task_id: str) -> Call[values.StatusAnswer]:
    """Return the state of a task. Raises: NotFound."""
    fields = _required(locals(), "task_id")

    def read(reply: Reply) -> values.StatusAnswer:
        answer = _model(values.StatusAnswer)(reply)
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
) -> Call[values.TaskAnswer]:
    """Correct what is remembered, in plain words. Raises: InvalidInput, PermissionDenied."""
    return _once("add/feedback", _required(locals(), "feedback_content", "user_id"), _model(values.TaskAnswer))


def delete_memory(
    user_ids: list[str] | None = None,
    memory_ids: list[str] | None = None,
    *,
    user_id: str | None = None,
    agent_id: str | None = None,
    filter: dict[str, Any] | None = None,
    memory_type: str | None = None,
) -> Call[values.SuccessAnswer]:
    """Delete memories by exactly one condition. Raises: InvalidInput, NotFound, PermissionDenied."""
    if user_id is None and user_ids and not memory_ids:
        if len(user_ids) != 1:
            raise ClientUsageError("user_ids", "takes one user")
        user_id = user_ids[0]
    given = {"memory_ids": memory_ids or None, "user_id": user_id or None, "agent_id": agent_id or None}
    if sum(value is not None for value in (*given.values(), filter)) != 1:
        raise ClientUsageError("memory_ids", "or user_id, agent_id or filter is required, exactly one of them")
    fields = {**given, "filter": filter, "memory_type": memory_type}
    return _post("delete/memory", fields, _model(values.SuccessAnswer))


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
) -> Call[values.ChatAnswer] | Stream[str]:
    """Answer a question from memory; with `stream` the answer is streamed, each piece as JSON text.

    Raises: InvalidInput, PermissionDenied, ModelError, BackendUnavailable (also if no language model is configured).
    """
    fields = _required(locals(), "user_id", "conversation_id", "query")
    call = _post("chat", fields, _model(values.ChatAnswer))
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
