"""Fixtures of the clients' tests: both clients behind one way of calling them, and a server that misbehaves."""

from __future__ import annotations

import asyncio
import inspect
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import uvicorn

from memos import MemOS, Settings
from memos.api.app import create_app
from memos.api.client import AsyncMemOSClient, MemOSClient
from memos.core.settings import IndexSettings, LimitSettings
from tests.api.client.flaky import Flaky
from tests.api.keys import keys_of
from tests.fakes import WordEmbedder

KEY = "mst_test"


class Awaited:
    """An asynchronous client, called as if it waited."""

    def __init__(self, target: Any, runner: asyncio.Runner) -> None:
        self._target, self._runner = target, runner

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        if inspect.iscoroutinefunction(value):
            return lambda *given, **named: self._shown(self._runner.run(value(*given, **named)))
        if callable(value):
            return lambda *given, **named: Awaited(value(*given, **named), self._runner)
        return Awaited(value, self._runner) if hasattr(value, "_connection") else value

    def _shown(self, result: Any) -> Any:
        return Awaited(result, self._runner) if hasattr(result, "__anext__") else result

    def __iter__(self) -> Iterator[Any]:
        while True:
            try:
                yield self._runner.run(anext(self._target))
            except StopAsyncIteration:
                return


Open = Callable[..., Any]


class Listening(NamedTuple):
    """A server of ours that listens, and keys for it."""

    url: str
    memos: MemOS
    admin: str
    ana: str
    ben: str


@pytest.fixture(scope="session")
def listening(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listening]:
    """One server for all tests of the clients: they must not expect it to be empty."""
    settings = Settings(index=IndexSettings(wait_s=30), limits=LimitSettings(min_free_bytes=1_000_000))
    home = tmp_path_factory.mktemp("listening")
    with MemOS.open(home, settings=settings, embedder=WordEmbedder()) as memos, socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1024)
        server = uvicorn.Server(uvicorn.Config(create_app(memos), log_config=None, access_log=False, lifespan="on"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        yield Listening(f"http://127.0.0.1:{listener.getsockname()[1]}", memos, *keys_of(memos))
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def flaky() -> Iterator[Flaky]:
    with Flaky() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.over.set()
        server.shutdown()
        thread.join()


@pytest.fixture(params=["blocking", "asynchronous"])
def opened(request: pytest.FixtureRequest) -> Iterator[Open]:
    """What opens a client, each kind in its turn; those it opened are closed afterwards."""
    if request.param == "blocking":
        clients: list[MemOSClient] = []

        def open_(url: str, key: str = KEY, **options: Any) -> Any:
            clients.append(MemOSClient(key, url, **options))
            return clients[-1]

        yield open_
        for client in clients:
            client.close()
        return
    with asyncio.Runner() as runner:
        waiting: list[AsyncMemOSClient] = []

        def open_async(url: str, key: str = KEY, **options: Any) -> Any:
            waiting.append(AsyncMemOSClient(key, url, **options))
            return Awaited(waiting[-1], runner)

        yield open_async
        for late in waiting:
            runner.run(late.aclose())
