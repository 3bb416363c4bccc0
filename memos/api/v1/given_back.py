"""How files are given back: to be kept, never to be run by a browser. Knows no route."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from starlette.responses import Response

BYTES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The bytes",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}
"""For `responses=` of a route that gives bytes back."""


def attachment(data: bytes, name: str) -> Response:
    """Return bytes under a name."""
    headers = {
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "private, no-store",
    }
    return Response(data, media_type="application/octet-stream", headers=headers)
