"""The protocol on standard input and output: nothing else is written there, logs go to standard error."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from memos.api.callers import Who
from memos.api.mcp.acting import always
from memos.api.mcp.server import create
from memos.kernel import MemOS


def run(memos: Callable[[], MemOS], whose: Who) -> None:
    """Answer messages, all for one user, until standard input ends; `memos` is asked for each anew."""
    anyio.run(create(always(memos, whose)).run_stdio_async)
