"""The installation, identity and visible tools of a message. Imports no kernel, so that stdio answers at once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mcp.server.context import CallNext, HandlerResult, ServerMiddleware, ServerRequestContext
from starlette.requests import Request

if TYPE_CHECKING:
    from memos.api.dialects import RequestIdentity
    from memos.kernel.memos import MemOS


@dataclass(frozen=True)
class ToolContext:
    reach: Callable[[], tuple[MemOS, RequestIdentity]]  # called when a tool first needs them
    all_tools: bool = False  # more than the everyday ones
    read_only: bool = False

    @cached_property
    def _reached(self) -> tuple[MemOS, RequestIdentity]:
        return self.reach()

    @property
    def memos(self) -> MemOS:
        return self._reached[0]

    @property
    def actor(self) -> str:
        return self._reached[1].actor

    @property
    def home(self) -> str:
        return self._reached[1].home

    @property
    def cubes(self) -> list[str]:
        """The cubes that are read when none is named: with a project its own, and the user's."""
        return self._reached[1].cubes()


_CONTEXT: ContextVar[ToolContext] = ContextVar("memos_mcp_context")

ContextResolver = Callable[[Request | None], AbstractContextManager[ToolContext]]
"""Enters the context of a message, and limits calls in the block to the rights of its key."""


def current_context() -> ToolContext:
    return _CONTEXT.get()


def context_middleware(resolver: ContextResolver) -> ServerMiddleware[Any]:
    async def around(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        with resolver(ctx.request) as context:
            token = _CONTEXT.set(context)
            try:
                return await call_next(ctx)
            finally:
                _CONTEXT.reset(token)

    return around
