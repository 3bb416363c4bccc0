"""Which methods of the façade can be called by name from another process of the same person; knows no HTTP.

Every public method of `MemOS` and of its parts can, but those that open or close it, and what needs the folder alone.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter

from memos.core.types import Fact
from memos.errors import InvalidInput, shown
from memos.kernel.access.service import Keys, Sharing, Users
from memos.kernel.adapters.service import Adapters
from memos.kernel.chat.chat import Chat, ChatStream
from memos.kernel.chat.results import ChatResult
from memos.kernel.conversations import Exchanges
from memos.kernel.cubes import Cubes
from memos.kernel.documents import Documents
from memos.kernel.events import Events
from memos.kernel.images import Images
from memos.kernel.knowledge import Knowledge
from memos.kernel.kv import Kv
from memos.kernel.memos import MemOS
from memos.kernel.profiles import Profiles
from memos.kernel.retention import Retention
from memos.kernel.review import Review
from memos.kernel.statistics import Overview
from memos.kernel.tasks import Tasks
from memos.kernel.tools import ToolMemory
from memos.kernel.totals import Totals
from memos.kernel.transfer import Travel

PARTS: Mapping[str, type] = MappingProxyType(
    {
        "": MemOS, "cubes": Cubes, "users": Users, "keys": Keys, "sharing": Sharing, "tasks": Tasks,
        "profile": Profiles, "events": Events, "images": Images, "retention": Retention, "review": Review,
        "tools": ToolMemory, "documents": Documents, "knowledge": Knowledge, "chat": Chat, "totals": Totals,
        "exchanges": Exchanges, "travel": Travel, "kv": Kv,
        "adapters": Adapters,
    }
)  # fmt: skip
"""The parts of the façade by the names they have there; without a name, itself."""

ALONE = frozenset({"reembed"})
"""Methods that another process cannot call: its settings say what they do, so the folder has to be its own."""

_NEVER = frozenset({"open", "close"}) | ALONE
_VALUES: Mapping[str, type] = MappingProxyType({kind.__name__: kind for kind in (Fact, Overview)})


@dataclass(frozen=True, slots=True)
class Call:
    """One method. It `streams` when it returns an iterator; `progress` and `stops` are parameters of its own for that.

    `paths` are parameters that may be paths, `given` what its result is, of an iterator each entry; an answer
    that comes piece by piece `ends` with something more.
    """

    part: str
    method: str
    signature: inspect.Signature
    given: Any
    streams: bool
    ends: type | None
    progress: str | None
    stops: str | None
    paths: frozenset[str]

    def bound(self, memos: Any) -> Callable[..., Any]:
        """Return the method of an installation."""
        found: Callable[..., Any] = getattr(getattr(memos, self.part) if self.part else memos, self.method)
        return found


@cache
def names() -> frozenset[str]:
    """Return what can be called, such as `add`, `tasks.list` and, a part that is called itself, `chat`."""
    return frozenset(
        part if method == "__call__" else f"{part}.{method}" if part else method
        for part, kind in PARTS.items()
        for method, found in inspect.getmembers(kind, inspect.isfunction)
        if method == "__call__" or not (method.startswith("_") or method in _NEVER)
    )


@cache
def call_named(name: str) -> Call:
    """Return what a name calls. Raises: InvalidInput (nothing that can be called)."""
    if name not in names():
        raise InvalidInput("call", f"{shown(name)} is nothing that can be called here")
    part, method = (name, "__call__") if name in PARTS else (name.rpartition(".")[0], name.rpartition(".")[2])
    function = getattr(PARTS[part], method)
    signature = inspect.signature(function)
    mine = list(signature.parameters.values())[1:]
    hints = get_type_hints(function)
    given, ends = hints.pop("return"), None
    streams = given is ChatStream or get_origin(given) is Iterator
    if streams:
        given, ends = (str, ChatResult) if given is ChatStream else (get_args(given)[0], None)
    return Call(
        part, method, signature.replace(parameters=mine), given, streams, ends,
        next((each.name for each in mine if each.name == "on_progress"), None),
        next((each.name for each in mine if threading.Event in get_args(hints[each.name])), None),
        frozenset(each.name for each in mine if Path in get_args(hints[each.name])),
    )  # fmt: skip


@cache
def adapter(name: str, *, end: bool = False) -> TypeAdapter[Any]:
    """Return what makes typed values of a call's results, or of what it ends with."""
    return TypeAdapter(cast(Any, call_named(name).ends) if end else call_named(name).given)


def value_of(kind: str, its: dict[str, Any]) -> Any:
    """Return an argument that has fields; what is part of another is made with that. Raises: ValueError."""
    return TypeAdapter(_VALUES[kind]).validate_python(its) if kind in _VALUES else its
