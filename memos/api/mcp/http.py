"""`/mcp`: MCP over streamable HTTP, each request with its own key: no sessions, so any process can answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from mcp.server.streamable_http_manager import StreamableHTTPASGIApp
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from memos.api.agents import in_project
from memos.api.dialects import RequestIdentity, resolve_identity
from memos.api.families import BODY_BYTES, create_group
from memos.api.mcp import PATH
from memos.api.mcp.context import ContextResolver, ToolContext
from memos.api.mcp.server import create
from memos.api.v1.common import error_response
from memos.core.identities import Caller, Right
from memos.kernel.access.guard import acting_as
from memos.kernel.memos import MemOS


def _by_request_key(memos: MemOS) -> ContextResolver:
    @contextmanager
    def resolve(request: Request | None) -> Iterator[ToolContext]:
        caller = None if request is None else getattr(request.state, "caller", None)
        if request is None or not isinstance(caller, Caller):  # nothing gets here past the keys
            raise MCPError(INTERNAL_ERROR, "The message has no API key.")
        # Each time: the session may have begun with another key.
        with acting_as(caller):
            project = request.query_params.get("project")

            def reach() -> tuple[MemOS, RequestIdentity]:
                identity = resolve_identity(memos, caller)
                return memos, identity if project is None else in_project(memos, identity, project)

            yield ToolContext(
                reach,
                all_tools=request.query_params.get("tools") == "all",
                read_only=Right.WRITE not in caller.key.rights,
            )

    return resolve


class Mcp:
    """The endpoint of the protocol, usable while `running` is entered, and its application."""

    def __init__(self, memos: MemOS, local_token: str | None) -> None:
        self._memos = memos
        self._manager: StreamableHTTPASGIApp | None = None
        self.app = create_group("hippocube mcp", memos, error_response, local_token=local_token)
        self.app.router.routes.append(Route(PATH, endpoint=self))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        server = create(_by_request_key(self._memos))
        server.streamable_http_app(
            stateless_http=True,
            json_response=True,
            max_request_body_size=BODY_BYTES,
            # Who has no key gets nothing, whatever name a browser was led to.
            transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )
        async with server.session_manager.run():
            self._manager = StreamableHTTPASGIApp(server.session_manager)
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert self._manager is not None  # the application's lifespan began it
        await self._manager(scope, receive, send)
