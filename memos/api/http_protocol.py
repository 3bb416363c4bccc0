"""The HTTP/1.1 parser of the server: httptools with the limits of h11, or h11 where httptools is not installed."""

from __future__ import annotations

import asyncio
import re
from typing import Any

MOST_HEAD_BYTES = 64 * 1024
"""Maximum size of a request line with its headers, the limit of h11; httptools has none."""

_HEAD_END = re.compile(rb"\r?\n\r?\n")
_UPGRADE = re.compile(rb"(?<=\n)(?=upgrade[ \t]*:)", re.IGNORECASE)

try:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
except ImportError:
    HTTP: str | type[asyncio.Protocol] = "h11"
else:

    class _Protocol(HttpToolsProtocol):
        """Reject requests with oversized headers or without `Host`, and ignore `Upgrade`."""

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
