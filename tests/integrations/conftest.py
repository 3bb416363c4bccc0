"""Fixtures of the contract that every integration keeps; its tests run where their framework is installed."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest

from memos import MemOS
from memos.api.client import MemOSClient
from memos.api.serving import first_key
from memos.core.clock import new_id
from memos.integrations import AgentMemory
from tests.api.running import running
from tests.integrations.contract import Learned, Server, learned_of, over

INTEGRATIONS = Path(__file__).parents[2] / "memos" / "integrations"


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Ignore tests of a framework that is not installed, unless they are named, as `make test-integrations` does."""
    name = collection_path.stem.removeprefix("test_")
    if name == "installed":
        return None if "INTEGRATIONS" in os.environ else True
    if name in ("memory", "transcript") or not (INTEGRATIONS / f"{name}.py").exists():
        return None
    try:
        import_module(f"memos.integrations.{name}")
    except ImportError:
        return True
    return None


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with MemOS.open(tmp_path_factory.mktemp("server")) as memos, running(memos) as url:
        yield Server(memos, url, str(first_key(memos)))


@pytest.fixture
def user() -> str:
    return f"ana-{new_id()}"


@pytest.fixture(params=["memos", "client"])
def kind(request: pytest.FixtureRequest) -> str:
    """Over an installation in this process, and over a client of a server."""
    return str(request.param)


@pytest.fixture
def memory(kind: str, server: Server) -> Iterator[AgentMemory]:
    with over(server.memos, server, kind) as memory:
        yield memory


@pytest.fixture(scope="module")
def learned(
    request: pytest.FixtureRequest, server: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Learned]:
    with learned_of(request.module, server, tmp_path_factory.mktemp("learned") / "home") as learned:
        yield learned


@pytest.fixture
def away(kind: str, tmp_path: Path) -> Iterator[AgentMemory]:
    """A memory that is not there: its installation is closed, or nothing listens at its server's address."""
    if kind == "memos":
        memos = MemOS.open(tmp_path / "closed")
        memos.close()
        with AgentMemory(memos) as memory:
            yield memory
        return
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        with MemOSClient("mst_key", url) as client, AgentMemory(client) as memory:
            yield memory


@pytest.fixture
def count(server: Server) -> Callable[[str], int]:
    """Count the memories of a user."""

    def counted(user: str) -> int:
        home = server.memos.users.get(user).home
        return len(server.memos.memories.list(cube=str(home), limit=1000))

    return counted
