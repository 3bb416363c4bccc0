"""Clients of a server: `MemOSClient` and `AsyncMemOSClient`, with their results and errors.

Importing them imports neither the server nor a storage engine. The distribution `hippocube-client` has them as
`memos_client`, without the rest of hippocube.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memos.api.client import values
from memos.api.client.calls import Options
from memos.api.client.clients import AsyncMemOSClient, MemOSClient
from memos.api.client.connections import AsyncStreamed, Streamed
from memos.errors import (
    BackendTimeout,
    BackendUnavailable,
    Conflict,
    ConnectionLost,
    IntegrityError,
    InvalidInput,
    LimitReached,
    MemosError,
    ModelError,
    NotFound,
    PermissionDenied,
)
from memos.version import __version__

if TYPE_CHECKING:
    from memos.api.values import (
        AddReceipt,
        Cube,
        EraseReceipt,
        Event,
        FeedbackReceipt,
        Hit,
        Item,
        Relation,
        SearchResult,
        Source,
        Task,
        Version,
    )

__all__ = [
    "AddReceipt",
    "AsyncMemOSClient",
    "AsyncStreamed",
    "BackendTimeout",
    "BackendUnavailable",
    "Conflict",
    "ConnectionLost",
    "Cube",
    "EraseReceipt",
    "Event",
    "FeedbackReceipt",
    "Hit",
    "IntegrityError",
    "InvalidInput",
    "Item",
    "LimitReached",
    "MemOSClient",
    "MemosError",
    "ModelError",
    "NotFound",
    "Options",
    "PermissionDenied",
    "Relation",
    "SearchResult",
    "Source",
    "Streamed",
    "Task",
    "Version",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(values, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
