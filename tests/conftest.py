"""Fixtures every test may use: a fast embedder, an open installation, its settings."""

from __future__ import annotations

import gc
import os
import shutil
import signal
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from memos import MemOS, Settings
from memos.backends import child
from memos.backends.encoders import minilm
from memos.backends.encoders.cache import CachedEmbedder
from memos.backends.encoders.minilm import MiniLmEmbedder
from memos.core.ports import Embedder
from memos.core.settings import IndexSettings, LimitSettings
from memos.memcube.encryption import vault
from memos.memcube.ledger import engine as sqlite
from memos.memcube.ledger import postgres
from memos.memcube.ledger.engine import Ledger
from tests.fakes import WordEmbedder
from tests.support import compiled, forks
from tests.support.servers import qdrant_server
from tests.support.servers.fixtures import neo4j_server, one_server, postgres_server, vector_server

__all__ = ["neo4j_server", "one_server", "postgres_server", "vector_server"]

TESTS = Path(__file__).parent

hypothesis.settings.register_profile("more", max_examples=1_000)

# What is in them needs servers, models in PyTorch, killed processes or minutes.
_HEAVY_FOLDERS = ("benchmarks", "browser", "models", "processes", "servers")
_IN_SHORT = ("test_signing_in", "test_start", "test_walk")
_SERVER_FIXTURES = {"neo4j_server", "postgres_server", "vector_server"}
_SERVER_PARAMETERS = {"pgvector", "postgresql"}


def pytest_configure() -> None:
    """Let programs that tests start be interrupted, also where the shell that runs the tests in the background cannot.

    What a shell starts with `&` ignores interrupts, and so does all that it starts in turn.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import the heavy folders where heavy tests are not run."""
    heavy = collection_path.parent == TESTS and collection_path.name in _HEAVY_FOLDERS
    return True if heavy and config.getoption("markexpr") == "not heavy" else None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark as heavy what needs a server, or lies in a folder of heavy tests."""
    folder = item.path.relative_to(TESTS).parts[0]
    fixtures = set(getattr(item, "fixturenames", ()))
    callspec = getattr(item, "callspec", None)
    parameters = {value for value in callspec.params.values() if isinstance(value, str)} if callspec else set()
    if folder in _HEAVY_FOLDERS or fixtures & _SERVER_FIXTURES or parameters & _SERVER_PARAMETERS:
        item.add_marker(pytest.mark.heavy)
    # What a page does in detail; that each loads, every way, and a newcomer's walk run with the others.
    if folder == "browser" and item.path.stem not in _IN_SHORT and "every" not in item.name:
        item.add_marker(pytest.mark.browser)


# Files that take a minute or more: begun first, so that none is left to one process at the end.
_LONG = frozenset({"test_project.py", "test_blocks.py", "test_chaos.py", "test_walk.py", "test_typescript.py"})


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest files."""
    items.sort(key=lambda item: item.path.name not in _LONG)


def pytest_collection_finish() -> None:
    """Keep the garbage collector from walking thousands of tests and all modules each time."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which Qdrant server was asked, if tests of servers ran."""
    ran = (
        report.nodeid for reports in terminalreporter.stats.values() for report in reports if hasattr(report, "nodeid")
    )
    if any(nodeid.startswith(("tests/contracts/", "tests/servers/")) for nodeid in ran):
        terminalreporter.write_line(f"Qdrant server: {qdrant_server.description()}")


def _remembering(**options: Any) -> Embedder:
    """Return the default embedder with a cache for all installations: many tests tell the same sentences."""
    return CachedEmbedder(MiniLmEmbedder(**options), capacity=100_000)


@pytest.fixture(autouse=True, scope="session")
def _quick_openings() -> Iterator[None]:
    """Fork the engines' processes, share compiled statements and the default embedder's weights.

    Programs that tests start do not.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(child, "started", forks.started)
        patch.setattr(sqlite, "prepare_sqlite", compiled.prepare)
        patch.setattr(postgres, "make_engine", compiled.make_engine)
        patch.setattr(Ledger, "seal", compiled.seal)
        patch.setattr(minilm, "MiniLmEmbedder", cache(_remembering))
        yield
    forks.stop()


@pytest.fixture
def settings() -> Settings:
    """Settings that flush by hand and do not mind a small disk."""
    return Settings(index=IndexSettings(wait_s=30), limits=LimitSettings(min_free_bytes=1_000_000))


@pytest.fixture
def embedder() -> WordEmbedder:
    return WordEmbedder()


@pytest.fixture
def memos(tmp_path: Path, settings: Settings, embedder: WordEmbedder) -> Iterator[MemOS]:
    with MemOS.open(tmp_path / "home", settings=settings, embedder=embedder) as opened:
        yield opened


@pytest.fixture
def private_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give encrypted installations a folder in memory of the test's own, and check that it can be removed."""
    if not vault._is_in_memory(Path("/dev/shm")):
        pytest.skip("there is no /dev/shm in memory, without which nothing is encrypted")
    folder = Path(f"/dev/shm/hippocube-tests-{os.getpid()}-{tmp_path.name}")
    folder.mkdir()
    monkeypatch.setattr(vault, "_MEMORY", (folder,))
    yield folder
    shutil.rmtree(folder)
