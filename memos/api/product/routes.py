"""Routes of `/product`: memories, cubes, background tasks, and chats that answer from memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Query, Request
from pydantic import Field
from starlette.responses import Response, StreamingResponse

from memos.api.dialects import (
    RequestIdentity,
    chat_options,
    chat_response,
    min_relevance_of,
    resolve_identity,
    typed_event,
)
from memos.api.families import CurrentCaller, CurrentMemos
from memos.api.product.shapes import Body, bucket, buckets, done, identity_and_cubes, memory, memory_type, types_named
from memos.api.streaming import CurrentRunner, ServerEvent, event_stream, poll, poll_for
from memos.api.wording import message_of
from memos.core.clock import new_id
from memos.core.identities import Caller
from memos.core.message_shapes import shape_messages
from memos.core.types import AddReceipt, Item, Json, Mode, Status, TaskState
from memos.errors import InvalidInput, NotFound
from memos.kernel.chat.results import ChatOptions, ChatResult
from memos.kernel.idempotency import Progress
from memos.kernel.memos import MemOS
from memos.kernel.search import Kind, narrowed_to_kind
from memos.version import __version__

router = APIRouter()

_AT_ONCE = 1_000
_ADDED = "Memory added"
# A slower model continues in the background; its facts become searchable later.
_LONGEST_S = 600


class AddBody(Body):
    """Content to remember."""

    user_id: str
    messages: Any
    session_id: str | None = None
    task_id: str | None = None
    writable_cube_ids: list[str] | None = None
    async_mode: str = "async"
    mode: str | None = None
    custom_tags: list[str] | None = None
    info: dict[str, Any] | None = None
    chat_history: Any = None
    is_feedback: bool = False


@router.post("/add", name="add")
async def add_memory(body: AddBody, request: Request, memos: CurrentMemos, caller: CurrentCaller) -> dict[str, Any]:
    """Store messages; with `sync` and `fine` this answers when they are read into facts too."""
    if body.async_mode not in {"async", "sync"}:
        raise InvalidInput("async_mode", "must be async or sync")
    if body.mode not in {None, "fast", "fine"}:
        raise InvalidInput("mode", "must be fast or fine")
    if body.is_feedback:
        return done(await to_thread.run_sync(partial(_corrected, memos, caller, body)), "Feedback processed")
    acting, cubes = await to_thread.run_sync(
        partial(identity_and_cubes, memos, caller, body.user_id, body.writable_cube_ids)
    )
    finely = body.async_mode == "async" or body.mode == "fine"
    receipts = []
    for cube in cubes:
        storing = partial(
            memos.add,
            body.messages,
            cube=cube,
            actor=acting.actor,
            conversation=body.session_id,
            tags=body.custom_tags or [],
            info=body.info,
            mode=Mode.FINE if finely else Mode.ROUGH,
            idempotency_key=None if body.task_id is None else task_key(body.task_id),
        )
        receipts.append(await to_thread.run_sync(storing))
    if body.async_mode == "sync":
        for receipt in receipts:
            if receipt.task is not None:
                task = partial(memos.tasks.get, receipt.task, actor=acting.actor)
                async for found in poll_for(request, task, _LONGEST_S):
                    if found.ended:
                        break
    return done(await to_thread.run_sync(partial(_stored, memos, acting.actor, receipts)), _ADDED)


def task_key(task_id: str) -> str:
    return f"task:{task_id}"


def _stored(memos: MemOS, actor: str, receipts: Sequence[AddReceipt]) -> list[dict[str, Any]]:
    """Return what was stored, and what has been extracted from it so far."""
    found: list[Item] = []
    for receipt in receipts:
        for item in receipt.item_ids:
            found.append(memos.get(item, cube=receipt.cube, actor=actor))
            found.extend(memos.memories.derived(item, cube=receipt.cube, actor=actor))
    return [_told(item) for item in {item.id: item for item in found}.values()]


def _told(item: Item) -> dict[str, Any]:
    return {"memory": item.memory, "memory_id": item.id, "memory_type": memory_type(item), "cube_id": item.cube}


class DeleteBody(Body):
    """Memories to delete: exactly one of ids, files, or a selection by filter, user or session."""

    writable_cube_ids: list[str] | None = None
    memory_ids: list[str] | None = None
    file_ids: list[str] | None = None
    filter: dict[str, Any] | None = None
    user_id: str | None = None
    session_id: str | None = None


@router.post("/delete_memory", name="delete")
def delete_memory(body: DeleteBody, memos: CurrentMemos, caller: CurrentCaller) -> dict[str, Any]:
    """Delete memories, or files with what was read of them; `memos memory rollback` brings memories back for a time."""
    chosen = body.filter is not None or body.user_id is not None or body.session_id is not None
    if [bool(body.memory_ids), bool(body.file_ids), chosen].count(True) != 1:
        raise InvalidInput("memory_ids", "pass exactly one of memory_ids, file_ids, or filter, user_id and session_id")
    acting, cubes = identity_and_cubes(memos, caller, body.user_id, body.writable_cube_ids)
    actor = acting.actor if body.user_id else caller.identity.id
    if body.memory_ids:
        if body.writable_cube_ids and {memos.get(id_, actor=actor).cube for id_ in body.memory_ids} - set(cubes):
            raise NotFound("memory", "in these cubes", "Pass the cubes that hold the memories, or none.")
        memos.delete(body.memory_ids, actor=actor)
    elif body.file_ids:
        for file in body.file_ids:
            memos.documents.delete(file, actor=actor)
    else:
        session: list[Json] = [] if body.session_id is None else [{"conversation": body.session_id}]
        wanted = {"and": [*session, *([body.filter] if body.filter else [])]} if session or body.filter else None
        for cube in cubes:
            memos.chat.check_store(cube, actor=actor)  # also where nothing is found
            while found := memos.memories.list(cube=cube, actor=actor, filter=wanted, limit=_AT_ONCE):
                memos.delete([item.id for item in found], cube=cube, actor=actor)
    return done({"status": "success"})


class FeedbackBody(Body):
    """A correction."""

    user_id: str
    feedback_content: str
    history: Any = None
    session_id: str | None = None
    retrieved_memory_ids: list[str] | None = None
    feedback_time: Any = None
    writable_cube_ids: list[str] | None = None
    async_mode: str = "async"
    corrected_answer: bool = False
    info: dict[str, Any] | None = Field(None)


@router.post("/feedback")
def feedback(body: FeedbackBody, memos: CurrentMemos, caller: CurrentCaller) -> dict[str, Any]:
    """Take a correction in plain words; what it replaces is superseded and stays in history."""
    acting, cubes = identity_and_cubes(memos, caller, body.user_id, body.writable_cube_ids)
    return done([_correct(memos, acting.actor, cube, body) for cube in cubes], "Feedback processed")


def _correct(memos: MemOS, actor: str, cube: str, body: FeedbackBody) -> dict[str, Any]:
    mine = [id_ for id_ in body.retrieved_memory_ids or [] if memos.get(id_, actor=actor).cube == cube]
    about = {"conversation": body.session_id, "item_ids": mine, "chat_time": body.feedback_time}
    receipt = memos.feedback(body.feedback_content, cube=cube, actor=actor, **about)
    record: dict[str, Any] = {"add": [], "update": []}
    new = memos.memories.history(receipt.item_id, cube=cube, actor=actor)[-1].after
    if new.status is Status.DELETED:  # a request to forget repeats what it names, and is deleted whatever it found
        record["delete"] = [{"id": gone} for gone in receipt.forgotten]
        done = "Forgotten." if receipt.forgotten else "Nothing found to forget."
        return {"answer": done if body.corrected_answer else "", "record": record}
    if not receipt.edited:
        record["add"].append({"id": new.id, "text": new.memory, "source_doc_id": None})
    for old in receipt.superseded:
        origin = memos.get(old, cube=cube, actor=actor).memory
        told = {"id": new.id, "text": new.memory, "source_doc_id": None, "archived_id": old, "origin_memory": origin}
        record["update"].append(told)
    for changed in receipt.edited:
        record["update"].append(_edit_record(memos, changed, cube, actor))
    count = len(record["update"])
    answer = f"Noted: {count} replaced." if count else "Noted."
    return {"answer": answer if body.corrected_answer else "", "record": record}


def _edit_record(memos: MemOS, item: str, cube: str, actor: str) -> dict[str, Any]:
    last = memos.memories.history(item, cube=cube, actor=actor)[-1]
    origin = None if last.before is None else last.before.memory
    return {"id": item, "text": last.after.memory, "source_doc_id": None, "archived_id": None, "origin_memory": origin}


def _corrected(memos: MemOS, caller: CurrentCaller, body: AddBody) -> list[dict[str, Any]]:
    said = shape_messages(body.messages).messages
    last = said[-1] if isinstance(said, list) and said else None
    words = last.get("content") if isinstance(last, dict) else last
    if not isinstance(words, str):
        raise InvalidInput("messages", "must end with the correction as text if is_feedback is set")
    correction = FeedbackBody(user_id=body.user_id, feedback_content=words, session_id=body.session_id)
    acting, cubes = identity_and_cubes(memos, caller, body.user_id, body.writable_cube_ids)
    made = [_correct(memos, acting.actor, cube, correction) for cube in cubes]
    return [
        _told(memos.get(changed["id"], cube=cube, actor=acting.actor))
        for cube, each in zip(cubes, made, strict=True)
        for changed in (each["record"]["add"] or each["record"]["update"])
    ]


_PER_CUBE = 10_000
_MOST_IDS = 1_000
_KINDS = {"text_mem": Kind.MEMORY, "pref_mem": Kind.PREFERENCE, "tool_mem": Kind.TOOL, "skill_mem": Kind.SKILL}
# What clients mean by saying nothing. The best few stay whatever their relevance: a short question in other words than
# the memory's has little of it, and no answer at all would look as if nothing was remembered.
_RELEVANT = 0.15
_AT_LEAST = 3
_PREFERENCES = "What is known of what the user wants; follow it where it bears on the request."


class SearchBody(Body):
    """A question."""

    query: str
    user_id: str
    readable_cube_ids: list[str] | None = None
    mode: str = "fast"
    session_id: str | None = None
    top_k: int = Field(10, ge=1)
    relativity: float | None = None
    dedup: str | None = None
    include_preference: bool = True
    pref_top_k: int = Field(6, ge=0)
    search_tool_memory: bool = True
    tool_mem_top_k: int = Field(6, ge=0)
    include_skill_memory: bool = True
    skill_mem_top_k: int = Field(3, ge=0)
    filter: dict[str, Any] | None = None
    internet_search: bool = False
    search_memory_type: str | None = None
    reference_time: Any = None
    rerank: bool | None = None


@router.post("/search", name="search")
def search_memories(body: SearchBody, memos: CurrentMemos, caller: CurrentCaller) -> dict[str, Any]:
    """Return what is found of each kind, by cube."""
    if body.internet_search:
        raise InvalidInput("internet_search", "is not supported; leave it out")
    if body.mode not in {"fast", "fine", "mixture"}:
        raise InvalidInput("mode", "must be fast, fine or mixture")
    if body.dedup not in {None, "no", "sim", "mmr"}:
        raise InvalidInput("dedup", "must be no, sim or mmr")
    acting, cubes = identity_and_cubes(memos, caller, body.user_id, body.readable_cube_ids)
    limits: dict[str, int] = {
        Kind.MEMORY: body.top_k,
        Kind.PREFERENCE: body.pref_top_k if body.include_preference else 0,
        Kind.TOOL: body.tool_mem_top_k if body.search_tool_memory else 0,
        Kind.SKILL: body.skill_mem_top_k if body.include_skill_memory else 0,
    }
    found = memos.search.recall(
        body.query,
        limits,
        cubes=cubes,
        actor=acting.actor,
        filter=body.filter,
        min_relevance=min_relevance_of(body.relativity),
        reference_time=body.reference_time,
        rerank=None if body.rerank else body.rerank,
    )
    if body.relativity is None:
        found = {
            kind: tuple(hit for place, hit in enumerate(hits) if place < _AT_LEAST or hit.relevance >= _RELEVANT)
            for kind, hits in found.items()
        }
    data: dict[str, Any] = {name: buckets(cubes, found[kind]) for name, kind in _KINDS.items()}
    preferences = [hit.item.memory for hit in found[Kind.PREFERENCE]]
    data |= {"act_mem": [], "para_mem": [], "pref_string": "\n".join(f"- {text}" for text in preferences)}
    data["pref_note"] = _PREFERENCES if preferences else ""
    return done(data)


class GetBody(Body):
    """A selection of memories of a cube."""

    mem_cube_id: str
    user_id: str | None = None
    include_preference: bool = True
    include_tool_memory: bool = True
    include_skill_memory: bool = True
    filter: dict[str, Any] | None = None
    page: int | None = Field(None, ge=1)
    page_size: int | None = Field(None, ge=1, le=_PER_CUBE)


@router.post("/get_memory")
def get_memories(body: GetBody, memos: CurrentMemos, caller: CurrentCaller) -> dict[str, Any]:
    """Return a cube's memories of each kind, all or a page of each."""
    acting = resolve_identity(memos, caller, body.user_id, new=False)
    size = body.page_size or _PER_CUBE
    skipped = ((body.page or 1) - 1) * size
    asked = (True, body.include_preference, body.include_tool_memory, body.include_skill_memory)
    data = {}
    for (name, kind), wanted in zip(_KINDS.items(), asked, strict=True):
        found: list[Item] = []
        if wanted:
            chosen = narrowed_to_kind(kind, body.filter)
            found = memos.memories.list(
                cube=body.mem_cube_id, actor=acting.actor, filter=chosen, limit=size, offset=skipped
            )
        data[name] = [bucket(body.mem_cube_id, [memory(item) for item in found])]
    return done(data)


@router.get("/get_memory/{memory_id}")
def get_memory(memory_id: str, memos: CurrentMemos, caller: CurrentCaller) -> dict[str, Any]:
    """Return one memory."""
    return done(memory(memos.get(memory_id, actor=caller.identity.id)))


@router.post("/get_memory_by_ids")
def get_memory_by_ids(memory_ids: list[str], memos: CurrentMemos, caller: CurrentCaller) -> dict[str, Any]:
    """Return memories in the order of their ids; all or none."""
    if len(memory_ids) > _MOST_IDS:
        raise InvalidInput("memory_ids", f"has {len(memory_ids):,} ids, more than the limit of {_MOST_IDS:,}")
    return done({"memories": [memory(memos.get(id_, actor=caller.identity.id)) for id_ in memory_ids]})


class GetAllBody(Body):
    """A selection of memories from a user's cubes."""

    user_id: str
    memory_type: str = "text_mem"
    mem_cube_ids: list[str] | None = None
    search_query: str | None = None
    search_type: str | None = None


@router.post("/get_all")
def get_all(body: GetAllBody, memos: CurrentMemos, caller: CurrentCaller) -> dict[str, Any]:
    """Return every memory of cubes with how they hang together, or those a query finds."""
    acting, cubes = identity_and_cubes(memos, caller, body.user_id, body.mem_cube_ids)
    if body.memory_type in {"act_mem", "para_mem"}:
        return done([{"cube_id": cube, "memories": [], "memory_statistics": {}} for cube in cubes])
    kind = _KINDS.get(body.memory_type)
    if kind is None and not (types := types_named(body.memory_type)):
        raise InvalidInput("memory_type", f"must be one of {', '.join([*_KINDS, 'act_mem', 'para_mem'])}")
    chosen = narrowed_to_kind(kind) if kind is not None else {"type": {"in": types}}
    shown = []
    for cube in cubes:
        if body.search_query:
            hits = memos.search(body.search_query, cubes=[cube], actor=acting.actor, top_k=100, filter=chosen).hits
            items = [hit.item for hit in hits]
        else:
            items = memos.memories.list(cube=cube, actor=acting.actor, filter=chosen, limit=_PER_CUBE)
        shown.append(
            {"cube_id": cube, "memories": [_graph(items)], "memory_statistics": Counter(map(memory_type, items))}
        )
    return done(shown)


def _graph(items: list[Item]) -> dict[str, Any]:
    ids = {item.id for item in items}
    edges = [
        {"source": item.superseded_by, "target": item.id, "type": "SUPERSEDES"}
        for item in items
        if item.superseded_by in ids
    ]
    return {"nodes": [memory(item) for item in items], "edges": edges}


cubes_router = APIRouter()
scheduler_router = APIRouter(prefix="/scheduler")

_SUGGESTED = 5
_LOOKED_AT = 50


class CubeBody(Body):
    """A cube to make, or one that is there."""

    cube_name: str | None = None
    owner_id: str | None = None
    user_id: str | None = None
    cube_path: str | None = None
    cube_id: str | None = None
    mem_cube_id: str | None = None


@cubes_router.post("/create_cube")
def create_cube(body: CubeBody, memos: CurrentMemos, caller: CurrentCaller) -> dict[str, Any]:
    """Make an empty cube. `cube_path` means nothing: an installation keeps its cubes itself."""
    acting = resolve_identity(memos, caller, body.owner_id or body.user_id)
    cube = body.cube_id or body.mem_cube_id or new_id()
    made = memos.cubes.create(cube, actor=acting.actor, description=body.cube_name or "")
    return done({"cube_id": made.id, "cube_name": made.description, "owner_id": made.owner}, "Cube created")


@cubes_router.post("/register_cube")
def register_cube(body: CubeBody, memos: CurrentMemos, caller: CurrentCaller) -> dict[str, Any]:
    """Return the cube with this id; create it if it does not exist."""
    acting = resolve_identity(memos, caller, body.owner_id or body.user_id)
    cube = body.cube_id or body.mem_cube_id or body.cube_name or acting.home
    try:
        found = memos.cubes.get(cube, actor=acting.actor)
    except NotFound:
        found = memos.cubes.create(cube, actor=acting.actor, description=body.cube_name or "")
    return done({"cube_id": found.id, "cube_name": found.description, "owner_id": found.owner}, "Cube registered")


class SuggestionsBody(Body):
    """For whom to suggest questions."""

    user_id: str
    mem_cube_id: str | None = None
    language: str | None = None


@cubes_router.post("/suggestions")
def suggestions(body: SuggestionsBody, memos: CurrentMemos, caller: CurrentCaller) -> dict[str, Any]:
    """Suggest questions that memory can answer: about what is newest in it."""
    acting = resolve_identity(memos, caller, body.user_id, new=False)
    cube = body.mem_cube_id or acting.home
    stats = memos.cubes.get(cube, actor=acting.actor)
    newest = memos.memories.list(
        cube=cube, actor=acting.actor, limit=_LOOKED_AT, offset=max(0, stats.items - _LOOKED_AT)
    )
    names: dict[str, None] = {}
    for item in reversed(newest):
        names.update(dict.fromkeys(item.entities))
    query = "关于{name}都说了什么？" if body.language == "zh" else "What was said about {name}?"
    return done({"query": [query.format(name=name) for name in list(names)[:_SUGGESTED]]})


@cubes_router.get("/health")
async def health() -> dict[str, str]:
    """Report that the server is up."""
    return {"status": "healthy", "service": "hippocube", "version": __version__}


_STATUS = {
    TaskState.WAITING: "waiting",
    TaskState.RUNNING: "in_progress",
    TaskState.DONE: "completed",
    TaskState.FAILED: "failed",
    TaskState.DEAD: "failed",
    TaskState.CANCELLED: "cancelled",
}
_PROGRESS = {Progress.RUNNING: "in_progress", Progress.COMPLETED: "completed", Progress.FAILED: "failed"}
_MOST_TASKS = 1_000

User = Annotated[str, Query()]
Seconds = Annotated[float, Query(gt=0, le=3600, alias="timeout_seconds")]


@scheduler_router.get("/status", name="status")
def task_status(
    memos: CurrentMemos, caller: CurrentCaller, user_id: User, task_id: str | None = None
) -> dict[str, Any]:
    """Return a user's tasks, or the one with an id that the client chose or received."""
    acting = resolve_identity(memos, caller, user_id, new=False)
    if task_id is None:
        tasks = memos.tasks.list(cubes=[acting.home], actor=acting.actor, limit=_MOST_TASKS)
        return done([{"task_id": task.id, "status": _STATUS[task.state]} for task in tasks])
    return done([{"task_id": task_id, "status": _status_of(memos, acting, task_id)}])


@scheduler_router.get("/allstatus")
def every_status(memos: CurrentMemos, caller: CurrentCaller) -> dict[str, Any]:
    """Return how many tasks are in each state, of the cubes that the key may read."""
    return done({"scheduler_summary": _task_counts(memos, caller.identity.id, None)})


@scheduler_router.get("/task_queue_status")
def queue_status(memos: CurrentMemos, caller: CurrentCaller, user_id: User) -> dict[str, Any]:
    """Return how many tasks of a user wait, run and have ended."""
    acting = resolve_identity(memos, caller, user_id, new=False)
    counts = _task_counts(memos, acting.actor, [acting.home])
    left = counts["waiting"] + counts["in_progress"]
    return done({"user_name": user_id, "remaining_tasks_count": left, **counts})


@scheduler_router.post("/wait", name="wait")
async def wait_for_tasks(
    request: Request, memos: CurrentMemos, caller: CurrentCaller, user_name: User, timeout_seconds: Seconds = 120.0
) -> dict[str, Any]:
    """Answer when none of a user's tasks waits or runs, or after the time given."""
    acting = await poll(request, partial(resolve_identity, memos, caller, user_name, new=False))
    left = 0
    async for counts in poll_for(request, partial(_task_counts, memos, acting.actor, [acting.home]), timeout_seconds):
        left = counts["waiting"] + counts["in_progress"]
        if not left:
            break
    return done({"status": "timeout" if left else "idle", "timed_out": bool(left), "running_tasks": left})


@scheduler_router.get("/wait/stream", name="wait_stream")
async def stream_tasks(
    request: Request, memos: CurrentMemos, caller: CurrentCaller, user_name: User, timeout_seconds: Seconds = 120.0
) -> StreamingResponse:
    """Tell how many of a user's tasks are left, as it changes, until there are none or the time is over."""
    acting = await poll(request, partial(resolve_identity, memos, caller, user_name, new=False))
    count = partial(_task_counts, memos, acting.actor, [acting.home])

    async def told() -> AsyncIterator[ServerEvent | None]:
        seen: int | None = None
        async for counts in poll_for(request, count, timeout_seconds):
            left = counts["waiting"] + counts["in_progress"]
            if left == seen:
                yield None
                continue
            seen = left
            yield ServerEvent("status", {"running_tasks": left, "status": "running" if left else "idle"})
            if not left:
                return
        yield ServerEvent("status", {"running_tasks": seen, "status": "timeout"})

    return event_stream(told())


def _task_counts(memos: MemOS, actor: str, cubes: list[str] | None) -> dict[str, int]:
    counts = dict.fromkeys(_STATUS.values(), 0)
    for state, count in memos.tasks.counts(cubes=cubes, actor=actor).items():
        counts[_STATUS[state]] += count
    return counts


def _status_of(memos: MemOS, acting: RequestIdentity, task_id: str) -> str:
    """Return the status of one of our tasks, or of an add under the client's own id. Raises: NotFound."""
    try:
        return _STATUS[memos.tasks.get(task_id, actor=acting.actor).state]
    except NotFound:
        receipt = memos.memories.receipt(task_key(task_id), cube=acting.home, actor=acting.actor)
    return _PROGRESS[memos.submissions.read_so_far(receipt.item_ids)]


chat_router = APIRouter(prefix="/chat")


class ChatBody(Body):
    """A question to answer, and the memory to answer from."""

    user_id: str
    query: str
    readable_cube_ids: list[str] | None = None
    writable_cube_ids: list[str] | None = None
    history: list[Any] | None = None
    mode: str | None = None
    system_prompt: str | None = None
    top_k: int = Field(10, ge=1)
    session_id: str | None = None
    include_preference: bool = True
    pref_top_k: int = Field(6, ge=0)
    model_name_or_path: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    add_message_on_answer: bool = True
    relativity: float = 0.0
    filter: dict[str, Any] | None = None


@chat_router.post("/complete")
async def complete(
    body: ChatBody, request: Request, memos: CurrentMemos, caller: CurrentCaller, runner: CurrentRunner
) -> dict[str, Any]:
    """Answer a question with what is remembered, and remember the exchange."""
    options = await to_thread.run_sync(partial(_chat_options, memos, caller, body))
    result = await runner.complete(request, lambda: memos.chat.steps(body.query, **options))
    return done({"response": result.text, "reasoning": ""})


@chat_router.post("/stream")
async def stream(body: ChatBody, memos: CurrentMemos, caller: CurrentCaller, runner: CurrentRunner) -> Response:
    """Answer as it comes in: events `{type, data}` of type text, reference, end or error."""
    options = await to_thread.run_sync(partial(_chat_options, memos, caller, body))
    pieces = await runner.start(lambda: memos.chat.stream(body.query, **options))
    text, error = partial(typed_event, "text"), lambda failure: typed_event("error", message_of(failure))
    return chat_response(pieces, text=text, end=_end_events, error=error)


def _chat_options(memos: MemOS, caller: Caller, body: ChatBody) -> ChatOptions:
    acting, cubes = identity_and_cubes(memos, caller, body.user_id, body.readable_cube_ids)
    return chat_options(
        body,
        cubes=cubes,
        actor=acting.actor,
        conversation=body.session_id,
        history=body.history or [],
        min_relevance=min_relevance_of(body.relativity),
        working=body.include_preference,
        store=body.add_message_on_answer,
        store_in=body.writable_cube_ids[0] if body.writable_cube_ids else acting.home,
        mode=Mode.ROUGH,
    )


def _end_events(result: ChatResult) -> str:
    cited = [{"memory_id": each.item, "memory": each.memory} for each in result.cited]
    return typed_event("reference", cited) + typed_event("end", result.text)
