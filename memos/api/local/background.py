"""Serves an application on loopback while a program does its own work, told to tools in the data folder."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from memos.api.endpoint import Endpoint, announced, new_token
from memos.errors import BackendUnavailable

_LOOPBACK = "127.0.0.1"
_STOP_WITHIN_S = 5


@contextmanager
def in_background(home: Path, make: Callable[[str, Callable[[], bool]], ASGIApp]) -> Iterator[Endpoint]:
    """Serve what `make` returns for a token and for what says that the server ends, in a thread, until the end.

    Raises: BackendUnavailable (no port is free).
    """
    token = new_token()
    try:
        listening = socket.create_server((_LOOPBACK, 0))
    except OSError as error:
        raise BackendUnavailable(f"Cannot listen on loopback ({error.strerror}).") from error
    with listening:
        config = uvicorn.Config(
            make(token, lambda: server.should_exit), log_config=None, access_log=False, server_header=False,
            lifespan="on", timeout_graceful_shutdown=_STOP_WITHIN_S,
        )  # fmt: skip
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listening],), name="memos-local", daemon=True)
        thread.start()
        endpoint = Endpoint(f"http://{_LOOPBACK}:{listening.getsockname()[1]}", token, os.getpid())
        try:
            with announced(home, endpoint):
                yield endpoint
        finally:
            server.should_exit = True
            thread.join()
