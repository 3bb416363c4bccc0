"""How the server reads HTTP/1.1: by httptools where that is installed, with the refusals of h11, else by h11."""

from __future__ import annotations

import asyncio
import re
from typing import Any

MOST_HEAD_BYTES = 64 * 1024
"""Largest request line with headers, as h11 has it; httptools has no limit of its own."""

_HEAD_END = re.compile(rb"\r?\n\r?\n")
_UPGRADE = re.compile(rb"(?<=\n)(?=upgrade[ \t]*:)", re.IGNORECASE)

try:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
except ImportError:
    HTTP: str | type[asyncio.Protocol] = "h11"
else:

    class _Protocol(HttpToolsProtocol):
        """Refuses a request whose headers do not end, or without `Host`, and ignores offers of another protocol."""

        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            self._in_head = True
            self._head_bytes = 0

        def data_received(self, data: bytes) -> None:
            if self._in_head and _UPGRADE.search(data):
                # The parser takes the body of such a request, which Java sends first to any server, for the other
                # protocol. Nothing here speaks another one.
                end = found.end() if (found := _HEAD_END.search(data)) else len(data)
                data = _UPGRADE.sub(b"x-", data[:end]) + data[end:]
            self._head_bytes += len(data)
            super().data_received(data)
            if self._head_bytes > MOST_HEAD_BYTES and not self.transport.is_closing():
                self.send_400_response("The headers of the request are too large.")

        def on_headers_complete(self) -> None:
            self._in_head, self._head_bytes = False, 0
            if self.parser.get_http_version() == "1.1" and not any(name == b"host" for name, _ in self.headers):
                raise ValueError("no Host")  # answered with 400 by the caller
            super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            self._head_bytes = 0
            super().on_body(body)

        def on_message_complete(self) -> None:
            self._in_head, self._head_bytes = True, 0
            super().on_message_complete()

    HTTP = _Protocol
