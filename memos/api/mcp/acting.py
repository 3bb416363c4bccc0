"""The identity an MCP message acts for: that of its own key, not of its session. Knows no tool."""

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
from memos.kernel.access.guard import acting_as
from memos.kernel.memos import MemOS


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The installation a tool works on, and the identity it acts for."""

    memos: MemOS
    actor: str
    home: str


_CONTEXT: ContextVar[ToolContext] = ContextVar("memos_mcp_acting")

ContextResolver = Callable[[Request | None], AbstractContextManager[ToolContext]]
"""Enters the context of a message, and limits calls in the block to the rights of its key."""


def current_context() -> ToolContext:
    """Return the context of the current message."""
    return _CONTEXT.get()


def by_request_key(memos: MemOS) -> ContextResolver:
    """Let each message act for the identity of its own key."""

    @contextmanager
    def resolve(request: Request | None) -> Iterator[ToolContext]:
        caller = None if request is None else getattr(request.state, "caller", None)
        if not isinstance(caller, Caller):  # nothing gets here past the keys
            raise MCPError(INTERNAL_ERROR, "The message has no key.")
        # Each time: the session may have begun with another key.
        with acting_as(caller):
            identity = resolve_identity(memos, caller)
            yield ToolContext(memos, identity.actor, identity.home)

    return resolve


def always_as(memos: Callable[[], MemOS], identity: RequestIdentity) -> ContextResolver:
    """Let every message act for one user."""

    @contextmanager
    def resolve(_: Request | None) -> Iterator[ToolContext]:
        yield ToolContext(memos(), identity.actor, identity.home)

    return resolve


def context_middleware(resolver: ContextResolver) -> ServerMiddleware[Any]:
    """Return the middleware that sets the context of each message."""

    async def around(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        with resolver(ctx.request) as context:
            token = _CONTEXT.set(context)
            try:
                return await call_next(ctx)
            finally:
                _CONTEXT.reset(token)

    return around
