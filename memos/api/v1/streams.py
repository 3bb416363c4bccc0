"""How the documentation tells that a route answers with server-sent events. No behaviour."""

from __future__ import annotations

from typing import Any

STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Server-sent events until the time is over or the client goes, or one called `error`",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}
"""For `responses=` of a route that streams."""
