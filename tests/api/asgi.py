"""Speaks ASGI to an application directly: a request whose answer goes on, and whose client may go in the middle."""

from __future__ import annotations

import json
from types import TracebackType
from typing import Any, Self

import anyio
from anyio.abc import TaskGroup


class Ongoing:
    """A GET that is being answered; `begun` is set with the first bytes, `over` when the application is done."""

    def __init__(self, app: Any, path: str, key: str, query: str = "") -> None:
        self._app = app
        self._scope = {
            "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1", "method": "GET",
            "scheme": "http", "path": path, "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
            "headers": [(b"authorization", f"Bearer {key}".encode()), (b"host", b"test")],
            "client": ("test", 1), "server": ("test", 80), "state": {},
        }  # fmt: skip
        self.gone, self.begun, self.over = anyio.Event(), anyio.Event(), anyio.Event()
        self.told = anyio.Event()
        self.status = 0
        self.body = b""

    def start(self, group: TaskGroup) -> Self:
        """Send the request."""
        group.start_soon(self._run)
        return self

    async def until(self, text: str) -> None:
        """Wait until the answer has a text in it."""
        while text.encode() not in self.body:
            self.told = anyio.Event()
            await self.told.wait()

    def json(self) -> Any:
        """Return an answer that is over."""
        return json.loads(self.body)

    async def _run(self) -> None:
        asked = False

        async def receive() -> dict[str, Any]:
            nonlocal asked
            if not asked:
                asked = True
                return {"type": "http.request", "body": b"", "more_body": False}
            await self.gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            self.status = message.get("status", self.status)
            self.body += message.get("body", b"")
            if self.body:
                self.begun.set()
            self.told.set()

        await self._app(self._scope, receive, send)
        self.over.set()


class Waiters:
    """Requests that wait, in a task group that ends with the block, whatever still waits."""

    def __init__(self) -> None:
        self.group = anyio.create_task_group()

    async def __aenter__(self) -> TaskGroup:
        return await self.group.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self.group.cancel_scope.cancel()
        return await self.group.__aexit__(kind, error, trace)
