"""Refuses requests whose bodies are too large, before they are in memory."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class BodyLimit:
    """Makes reading a body of more than so many bytes an error, whether its header says how long it is or not.

    Routes at `apart` take what is streamed to a file and set bounds of their own.
    """

    def __init__(self, app: ASGIApp, most: int, apart: frozenset[str] = frozenset()) -> None:
        self._app = app
        self._most = most
        self._apart = apart

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, counting its body."""
        if scope["type"] != "http" or scope["path"].removeprefix(scope.get("root_path", "")) in self._apart:
            await self._app(scope, receive, send)
            return
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        taken = int(declared) if declared.isdigit() else 0
        taken = taken if taken > self._most else 0

        async def counted() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > self._most:
                raise HTTPException(413, f"The body has more than the {self._most:,} bytes that are taken here.")
            return message

        await self._app(scope, counted, send)
