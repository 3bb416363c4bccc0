"""Run the HTTP application, or only background tasks, until a signal to stop (`memos serve`, `memos task work`)."""

from __future__ import annotations

import logging
import os
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
import uvicorn

from memos.api.app import create_app
from memos.api.endpoint import Endpoint, announced, find, new_token
from memos.api.http_protocol import HTTP
from memos.api.local.client import served
from memos.api.loopback import is_loopback
from memos.core.settings import Settings
from memos.errors import BackendUnavailable, Conflict, InvalidInput
from memos.kernel.memos import MemOS

if TYPE_CHECKING:
    from memos.api.tracing import Tracing

ADMIN = "admin"
_FIRST_KEY = "first key"
_KEEP_ALIVE_S = 75
"""Longer than clients keep an idle connection (5 s httpx, 60 s many proxies), so that they are who ends it: a request
sent at the moment the server closes is lost."""
STOP_WITHIN_S = 20
"""Seconds that running requests get to finish after SIGTERM; then they are answered 503."""

log = logging.getLogger("memos.serving")


@dataclass(frozen=True, slots=True)
class Started:
    """A server that listens; `key` is the first key, shown once, and `sign_in` a one-time link to the console."""

    url: str
    key: str | None
    loopback: bool
    sign_in: str


def serve(home: Path | None, settings: Settings, announce: Callable[[Started], None]) -> None:
    """Serve an installation until SIGINT or SIGTERM; requests under way finish first."""
    # uvicorn sends itself the signal again once requests have ended: the installation must still be closed then.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    listening = _listen(settings.server.host, settings.server.port)
    with suppress(KeyboardInterrupt), listening, _tracing() as tracing, MemOS.open(home, settings=settings) as memos:
        if memos.scratch is not None:
            tempfile.tempdir = str(memos.scratch)  # where large requests are put aside
        token = new_token()
        config = uvicorn.Config(
            create_app(
                memos,
                local_token=token,
                tracing=tracing,
                stopping=lambda: server.should_exit,
                lazy=True,
                loopback=is_loopback(settings.server.host),
            ),
            http=HTTP,
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="on",
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=STOP_WITHIN_S,
        )
        url = _url(listening)
        key = first_key(memos)
        own_folder = settings.needs_folder
        server = uvicorn.Server(config)
        endpoint = Endpoint(_url(listening, local=True), token, os.getpid())
        with announced(memos.home, endpoint) if own_folder else nullcontext():
            sign_in = sign_in_link(endpoint.url, memos)
            announce(Started(url, key, is_loopback(settings.server.host), sign_in))
            server.run(sockets=[listening])


def work(home: Path | None, settings: Settings, announce: Callable[[str], None]) -> None:
    """Run background tasks until SIGINT or SIGTERM, without serving requests; unfinished tasks are released."""
    if settings.tasks.workers == 0:
        raise InvalidInput("MEMOS_TASKS__WORKERS", "is 0, so a worker has nothing to do; set it to 1 or more")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt), _tracing() as tracing, MemOS.open(home, settings=settings) as memos:
        if tracing is not None:
            memos.listeners.add(tracing.hear)
        announce(memos.ledger.description)
        threading.Event().wait()


@contextmanager
def _tracing() -> Iterator[Tracing | None]:
    if not (otlp_endpoint := os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")):
        yield None
        return
    try:
        from memos.api.tracing import exporting  # noqa: PLC0415 - the extra `tracing`
    except ImportError as error:
        raise InvalidInput(
            "OTEL_EXPORTER_OTLP_ENDPOINT", "needs the extra `tracing`: pip install '.[tracing]' in the clone"
        ) from error
    tracing = exporting(otlp_endpoint)
    try:
        yield tracing
    finally:
        tracing.close()


def sign_in_link(url: str, memos: MemOS) -> str:
    """Return the address that signs the local owner in to the console of a server, once."""
    return f"{url}/console/sign-in?link={memos.sessions.create_link().secret}"


def sign_in_link_of(home: Path) -> str | None:
    """Return that address for the server of a folder, None if none runs. Raises: BackendUnavailable."""
    endpoint, memos = find(home), served(home)
    if endpoint is None or memos is None:
        return None
    with memos:
        if httpx2.get(f"{endpoint.url}/health", trust_env=False).status_code != 200:
            raise BackendUnavailable(
                f"Process {endpoint.pid} has {home} open and serves no console (`memos mcp`); stop it, then repeat."
            )
        return sign_in_link(endpoint.url, memos)


def first_key(memos: MemOS) -> str | None:
    """Create an admin with a key in an installation without users and return the key, None if there are users."""
    if memos.users.list(limit=1):
        return None
    try:
        memos.users.create(ADMIN, admin=True)
    except Conflict:  # another process just created it, and printed its key
        return None
    return memos.keys.create(ADMIN, _FIRST_KEY).secret


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(2048)
        except OSError:
            listening.close()
            raise
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise BackendUnavailable(
            f"Cannot listen on {host} port {port} ({reason}): choose another with --host, --port or MEMOS_SERVER__PORT."
        ) from error
    return listening


def _url(listening: socket.socket, *, local: bool = False) -> str:
    host, port = listening.getsockname()[:2]
    if local and host in ("0.0.0.0", "::"):  # noqa: S104 - compares, does not bind
        host = "127.0.0.1" if host == "0.0.0.0" else "::1"  # noqa: S104
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
