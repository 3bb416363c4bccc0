"""`/local`: methods of `MemOS` by name, for who can read the data folder; answers are lines of JSON."""

from __future__ import annotations

import inspect
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import anyio
from fastapi import APIRouter, Depends, FastAPI, Header, Request
from pydantic import TypeAdapter
from starlette.responses import Response

from memos.api import serialization
from memos.api.auth import is_local
from memos.api.endpoint import PATH, PROOF_PATH, proof
from memos.api.families import CurrentCaller, CurrentMemos, create_group
from memos.api.hooks import routes as hooks
from memos.api.streaming import NdjsonResponse, ProgressWriter
from memos.api.v1.common import error_response
from memos.core.aliases import own_signature
from memos.core.types import Fact
from memos.errors import InvalidInput, MemosError, PermissionDenied, shown
from memos.kernel.access.audit import Audit
from memos.kernel.access.service import Keys, Sharing, Users
from memos.kernel.access.sessions import Sessions
from memos.kernel.activity import Activity
from memos.kernel.adapters.service import AdapterService
from memos.kernel.browsing import Browsing
from memos.kernel.chat.chat import Chat, ChatStream
from memos.kernel.chat.results import ChatResult
from memos.kernel.conversations import Conversations
from memos.kernel.cubes import Cubes, KnowledgeBases
from memos.kernel.documents import Documents, Images
from memos.kernel.erasures import Erasures
from memos.kernel.evaluation import EvaluationService
from memos.kernel.events import Events
from memos.kernel.graph import Graph
from memos.kernel.health import Health
from memos.kernel.kv import KvService
from memos.kernel.maintenance import Maintenance
from memos.kernel.memories import Memories
from memos.kernel.memos import MemOS
from memos.kernel.profiles import Profiles
from memos.kernel.records import Records
from memos.kernel.retention import Retention
from memos.kernel.review import Review
from memos.kernel.search import SearchService
from memos.kernel.statistics import Overview, Statistics
from memos.kernel.subjects import Subjects
from memos.kernel.tasks import Tasks
from memos.kernel.tiers import Tiers
from memos.kernel.timeline import Timeline
from memos.kernel.tools import Tools
from memos.kernel.transfer import Transfer
from memos.scheduler.task import give_up_waits_on
from memos.version import __version__

PARTS: Mapping[str, type] = MappingProxyType(
    {
        "activity": Activity,
        "adapters": AdapterService,
        "browse": Browsing,
        "audit": Audit,
        "chat": Chat,
        "conversations": Conversations,
        "cubes": Cubes,
        "documents": Documents,
        "erasures": Erasures,
        "evaluation": EvaluationService,
        "events": Events,
        "graph": Graph,
        "health": Health,
        "images": Images,
        "keys": Keys,
        "knowledge": KnowledgeBases,
        "kv": KvService,
        "maintenance": Maintenance,
        "memories": Memories,
        "profiles": Profiles,
        "records": Records,
        "retention": Retention,
        "review": Review,
        "search": SearchService,
        "sessions": Sessions,
        "sharing": Sharing,
        "statistics": Statistics,
        "subjects": Subjects,
        "tasks": Tasks,
        "tiers": Tiers,
        "timeline": Timeline,
        "tools": Tools,
        "transfer": Transfer,
        "users": Users,
    }
)
"""The services of `MemOS` by their names."""

INTERNAL = frozenset(
    {
        "cubes.create_home",
        "kv.job",
        "maintenance.finish_erasure",
        "maintenance.forget_calls",
        "maintenance.forget_if_due",
        "maintenance.jobs",
        "maintenance.optimise",
        "maintenance.purge",
        "maintenance.signed",
        "maintenance.start",
        "maintenance.use_current_embedder",
        "memories.read",
        "search.close",
        "search.measured",
        "search.related",
        "search.related_facts",
        "search.wants_reranker",
    }
)
"""Methods that services call on each other; nobody else does."""

ALONE = frozenset({"maintenance.reembed"})
"""Methods that another process cannot call: its settings say what they do, so the folder has to be its own."""

_NEVER = INTERNAL | ALONE
_VALUES: Mapping[str, type] = MappingProxyType({kind.__name__: kind for kind in (Fact, Overview)})


@dataclass(frozen=True, slots=True)
class Call:
    part: str
    method: str
    signature: inspect.Signature
    given: Any  # type of its result, or of each entry if it streams
    streams: bool
    ends: Any  # type of what a streamed answer ends with, None for nothing
    progress: str | None  # its parameter that takes progress
    stops: str | None  # its parameter that takes an event to stop by
    paths: frozenset[str]  # its parameters that may be paths


@cache
def names() -> frozenset[str]:
    """Return the names that can be called, such as `memories.add`, `tasks.list` and the callable service `chat`."""
    return frozenset(
        part if method == "__call__" else f"{part}.{method}"
        for part, kind in PARTS.items()
        for method, found in inspect.getmembers(kind, inspect.isfunction)
        if method == "__call__" or not (method.startswith("_") or f"{part}.{method}" in _NEVER)
    )


@cache
def call_named(name: str) -> Call:
    if name not in names():
        raise InvalidInput("call", f"{shown(name)} cannot be called here")
    part, method = (name, "__call__") if name in PARTS else (name.rpartition(".")[0], name.rpartition(".")[2])
    function = getattr(PARTS[part], method)
    signature = own_signature(function)
    mine = list(signature.parameters.values())[1:]
    hints = get_type_hints(function)
    given, ends = hints.pop("return"), None
    streams = given is ChatStream or get_origin(given) is Iterator
    if streams:
        given, ends = (str, ChatResult) if given is ChatStream else (get_args(given)[0], None)
    return Call(
        part,
        method,
        signature.replace(parameters=mine),
        given,
        streams,
        ends,
        next((each.name for each in mine if each.name == "on_progress"), None),
        next((each.name for each in mine if threading.Event in get_args(hints[each.name])), None),
        frozenset(each.name for each in mine if Path in get_args(hints[each.name])),
    )


@cache
def adapter(name: str, *, end: bool = False) -> TypeAdapter[Any]:
    return TypeAdapter(call_named(name).ends if end else call_named(name).given)


def value_of(kind: str, its: dict[str, Any]) -> Any:
    return TypeAdapter(_VALUES[kind]).validate_python(its) if kind in _VALUES else its


log = logging.getLogger("memos.api")

SHARED_SETTINGS = ("heat", "limits", "mask_secrets", "retention_days", "server", "time_zone")
"""Settings that tools of the same person go by; none of them is a secret."""

# Apart from the threads of other requests: a person's tools may wait as long as they like.
_CALLS_AT_ONCE = 256
_PROGRESS_EVERY_S = 0.1


def _only_local(caller: CurrentCaller) -> None:
    if not is_local(caller):
        raise PermissionDenied("These routes take only the token in the data folder; use /api/v1 with an API key.")


router = APIRouter(dependencies=[Depends(_only_local)])


def create(memos: MemOS, local_token: str, stopping: Callable[[], bool]) -> FastAPI:
    app = create_group(
        "hippocube local",
        memos,
        error_response,
        local_token=local_token,
        open_paths=frozenset({PROOF_PATH}),
        routers=(router,),
    )
    app.state.limiter, app.state.stopping = None, stopping

    @app.get(PROOF_PATH)
    async def prove(challenge: Annotated[str, Header(max_length=200)]) -> str:
        return proof(local_token, challenge)

    return app


def alone(memos: MemOS, local_token: str, stopping: Callable[[], bool]) -> FastAPI:
    """Return what a process serves that has a folder open for itself: these routes, and those of hooks."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.mount(PATH, create(memos, local_token, stopping))
    app.mount("/hooks", hooks.create(memos, local_token))
    return app


@router.get("/about")
async def about(memos: CurrentMemos) -> dict[str, Any]:
    """Return the server's version and the settings that tools must use."""
    settings = memos.settings.model_dump(mode="json", include=set(SHARED_SETTINGS))
    return {"version": __version__, "settings": settings}


@router.get("/calls")
def calls() -> Response:
    """Return the services, and what a tool has to know of each call, so that it need not import the kernel."""
    return Response(_described(), media_type="application/json")


@cache
def _described() -> bytes:
    described = {name: _description(call_named(name)) for name in sorted(names())}
    return json.dumps({"parts": [*PARTS], "alone": sorted(ALONE), "calls": described}).encode()


def _description(call: Call) -> dict[str, Any]:
    parameters = call.signature.parameters.values()
    return {
        "parameters": [[each.name, int(each.kind), each.default is not each.empty] for each in parameters],
        "streams": call.streams,
        "ends": call.ends is not None,
        "progress": call.progress,
        "stops": call.stops,
        "paths": sorted(call.paths),
    }


@router.post("/call")
async def call(request: Request, memos: CurrentMemos) -> Response:
    """Call one method: `{"call": name, "arguments": {…}, "progress": bool}`."""
    state = request.app.state
    if state.limiter is None:
        state.limiter = anyio.CapacityLimiter(_CALLS_AT_ONCE)
    asked = _read(await request.body())
    return NdjsonResponse(partial(_run, memos, *asked), state.limiter, state.stopping)


def _read(body: bytes) -> tuple[str, dict[str, Any], bool]:
    """Return the name of a call, its arguments, and whether progress is wanted."""
    try:
        told = json.loads(body)
        name, arguments = told["call"], serialization.unpacked(told["arguments"], value_of)
        if not isinstance(name, str) or not isinstance(arguments, dict):
            raise TypeError
        return name, arguments, told.get("progress") is True
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidInput("body", 'must be a call: {"call": name, "arguments": {…}}') from error


def _run(memos: MemOS, name: str, arguments: dict[str, Any], progress: bool, writer: ProgressWriter) -> None:
    try:
        with give_up_waits_on(writer.stop):
            _make(memos, name, arguments, progress, writer)
    except MemosError as error:
        writer.line(serialization.as_json({"error": serialization.error_told(error)}, "result"))
    except Exception as error:  # the caller must learn that it ended; the log says what is wrong
        log.error("local call failed", extra={"call": name}, exc_info=error)
        broken = MemosError("Internal server error; check the server's log.")
        writer.line(serialization.as_json({"error": serialization.error_told(broken)}, "result"))


def _make(memos: MemOS, name: str, arguments: dict[str, Any], progress: bool, writer: ProgressWriter) -> None:
    found = call_named(name)
    extras: dict[str, Any] = {}
    if found.stops is not None:
        extras[found.stops] = writer.stop
    if found.progress is not None and progress:
        extras[found.progress] = _progress(writer)
    arguments |= extras
    try:
        found.signature.bind(**arguments)
    except TypeError as error:
        raise InvalidInput("arguments", f"do not match the parameters of {name}") from error
    result = getattr(getattr(memos, found.part), found.method)(**arguments)
    if not found.streams:
        writer.line(serialization.as_json({"result": result}, "result"))
        return
    with closing(result):
        for entry in result:
            writer.line(serialization.as_json({"entry": entry}, "result"))
            if writer.stop.is_set():
                return
    writer.line(serialization.as_json({"result": None if found.ends is None else result.result}, "result"))


def _progress(writer: ProgressWriter) -> Callable[[int, int], None]:
    told_at = 0.0

    def tell(done: int, total: int) -> None:
        nonlocal told_at
        now = time.monotonic()
        if done >= total or now - told_at >= _PROGRESS_EVERY_S:
            told_at = now
            writer.line(serialization.as_json({"progress": [done, total]}, "result"))

    return tell
