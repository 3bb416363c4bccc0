"""For whom a message of the protocol acts: told by its own key, not by its session. Knows no tool."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerMiddleware, ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR
from starlette.requests import Request

from memos.api.dialects import RequestIdentity, resolve_identity
from memos.core.identities import Caller
from memos.kernel.access.guard import calling
from memos.kernel.memos import MemOS


@dataclass(frozen=True, slots=True)
class Acting:
    """The installation a call is made on, and for whom."""

    memos: MemOS
    actor: str
    home: str


_ACTING: ContextVar[Acting] = ContextVar("memos_mcp_acting")

Finding = Callable[[Request | None], AbstractContextManager[Acting]]
"""Finds for whom a message acts, and holds what happens inside to what it may do."""


def acting() -> Acting:
    """Return for whom the call acts that is being made."""
    return _ACTING.get()


def by_key(memos: MemOS) -> Finding:
    """Return what lets each message act for the key that came with it."""

    @contextmanager
    def found(request: Request | None) -> Iterator[Acting]:
        caller = None if request is None else getattr(request.state, "caller", None)
        if not isinstance(caller, Caller):  # nothing gets here past the keys
            raise MCPError(INTERNAL_ERROR, "The message has no key.")
        # Anew, whatever context the session began in: it may have been another's.
        with calling(caller):
            whose = resolve_identity(memos, caller)
            yield Acting(memos, whose.actor, whose.home)

    return found


def always(memos: Callable[[], MemOS], whose: RequestIdentity) -> Finding:
    """Return what lets every message act for one user."""

    @contextmanager
    def found(_: Request | None) -> Iterator[Acting]:
        yield Acting(memos(), whose.actor, whose.home)

    return found


def acting_for(finding: Finding) -> ServerMiddleware[Any]:
    """Return what the protocol's server runs around each message."""

    async def around(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        with finding(ctx.request) as found:
            token = _ACTING.set(found)
            try:
                return await call_next(ctx)
            finally:
                _ACTING.reset(token)

    return around
