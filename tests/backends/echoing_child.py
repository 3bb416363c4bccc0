"""What a child of `test_child.py` does: it says again what it was told, after a while."""

from __future__ import annotations

import time
from multiprocessing.connection import Connection
from typing import Any

from memos.backends.child import serve


def main(number: int) -> None:
    """Serve a socket by its number."""
    serve(Connection(number), handle)


def handle(method: str, arguments: tuple[Any, ...]) -> Any:
    """Return the first argument after as many seconds as the second."""
    said, wait_s = arguments
    time.sleep(wait_s)
    return said
