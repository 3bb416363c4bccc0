"""The server's log: one line of JSON an entry on standard error, with the request's id; never a key or a memory's text.

What an exception says is left out above `debug`, since libraries quote what they were given; its type and places stay.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Any, TextIO

from memos.api.requests import request_id

_KNOWN = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "color_message"}
# They log each call with its address, which may hold what was asked, or each step of theirs.
_TALKATIVE = (
    "alembic",
    "apscheduler",
    "httpx2",
    "httpx",
    "httpcore",
    "httpcore2",
    "openai",
    "neo4j",
    "qdrant_client",
    "urllib3",
)
_PLACES = 12


class JsonLines(logging.Formatter):
    """Makes a record one line of JSON; with `quotes` the messages of exceptions are in it."""

    def __init__(self, *, quotes: bool = False) -> None:
        super().__init__()
        self._quotes = quotes

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        told: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(), "logger": record.name, "message": record.getMessage(),
            "request_id": request_id.get(),
        }  # fmt: skip
        told |= {name: value for name, value in vars(record).items() if name not in _KNOWN}
        if record.exc_info and record.exc_info[1] is not None:
            told["error"] = self._error(record.exc_info[1])
        return json.dumps(told, ensure_ascii=True, default=lambda value: type(value).__name__)

    def _error(self, error: BaseException) -> dict[str, Any]:
        # Without the source lines that tracebacks quote, and without messages.
        frames = traceback.extract_tb(error.__traceback__, limit=-_PLACES)
        told: dict[str, Any] = {
            "type": f"{type(error).__module__}.{type(error).__qualname__}",
            "where": [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames],
        }
        if self._quotes:
            told["says"] = str(error)
        cause = error.__cause__ or error.__context__
        return told if cause is None else {**told, "cause": f"{type(cause).__module__}.{type(cause).__qualname__}"}


def to_stream(level: str, stream: TextIO | None = None) -> logging.Handler:
    """Send all that is logged from this level on to a stream, standard error by default; return what does it."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines(quotes=level == "debug"))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(level.upper())
    logging.captureWarnings(capture=True)
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.WARNING)
    return handler
