"""A folder shared by long programs: one has it open and lends it; when that ends, another takes its place."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from memos.api import endpoint
from memos.api.endpoint import Endpoint, announced, new_token
from memos.api.local.client import served
from memos.api.local.routes import alone
from memos.api.loopback import LoopbackOnly
from memos.core.closing import Closing
from memos.core.settings import Settings
from memos.errors import BackendUnavailable
from memos.kernel.memos import MemOS

_LOOPBACK = "127.0.0.1"
_STOP_WITHIN_S = 5


@contextmanager
def in_background(home: Path, make: Callable[[str, Callable[[], bool]], ASGIApp]) -> Iterator[Endpoint]:
    """Serve an application on loopback in a thread; it is made for a token and for `stopping`."""
    token = new_token()
    try:
        listening = socket.create_server((_LOOPBACK, 0))
    except OSError as error:
        raise BackendUnavailable(f"Cannot listen on loopback ({error.strerror}).") from error
    with listening:
        config = uvicorn.Config(
            LoopbackOnly(make(token, lambda: server.should_exit)),
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="on",
            timeout_graceful_shutdown=_STOP_WITHIN_S,
        )
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


# Long enough for another one to open a folder of a million memories, or for a command to end.
_PATIENCE_S = 20.0
_LOOK_EVERY_S = 0.2


class SharedInstallation(Closing):
    """The installation of a folder, however it can be reached. Call it for each use. Thread-safe; close it."""

    def __init__(self, data_dir: Path | None, settings: Settings) -> None:
        self._home = settings.home if data_dir is None else data_dir
        self._settings = settings
        self._lock = threading.Lock()
        self._closing = ExitStack()
        self._memos: MemOS | None = None
        self._through: Endpoint | None = None

    def __call__(self) -> MemOS:
        with self._lock:
            if self._memos is None or self._gone():
                self._closing.close()
                self._memos, self._through = None, None
                self._memos = self._reach()
            return self._memos

    def close(self) -> None:
        with self._lock:
            self._closing.close()
            self._memos = None

    def _gone(self) -> bool:
        return self._through is not None and (
            endpoint.find(self._home) != self._through or not _runs(self._through.pid)
        )

    def _reach(self) -> MemOS:
        until = time.monotonic() + _PATIENCE_S
        while True:
            through = endpoint.find(self._home)
            if through is not None and (memos := served(self._home)) is not None:
                self._through = through
                return self._closing.enter_context(memos)
            try:
                return self._opened()
            except BackendUnavailable:  # perhaps in use by one that has not said yet where it listens
                if time.monotonic() > until:
                    raise
                time.sleep(_LOOK_EVERY_S)

    def _opened(self) -> MemOS:
        memos = MemOS.open(self._home, settings=self._settings)
        settings = memos.settings
        with ExitStack() as stack:
            stack.enter_context(memos)
            if settings.needs_folder:
                stack.enter_context(in_background(memos.home, lambda token, stopping: alone(memos, token, stopping)))
            self._closing = stack.pop_all()
        return memos


def _runs(pid: int) -> bool:
    with suppress(PermissionError):  # it runs, and is somebody else's
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
    return True
