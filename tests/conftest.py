"""Fixtures every test may use: a fast embedder, an open installation, its settings."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from memos import MemOS, Settings
from memos.backends import child
from memos.core.settings import IndexSettings, LimitSettings
from memos.memcube.ledger import engine as sqlite
from memos.memcube.ledger import migrate, postgres
from tests import compiled, forks, migrated
from tests.fakes import WordEmbedder
from tests.servers.fixtures import neo4j_server, postgres_server

__all__ = ["neo4j_server", "postgres_server"]

hypothesis.settings.register_profile("more", max_examples=1_000)

# Minutes each, most of them waiting for processes: begun last, one of them would keep a whole run waiting.
_LONG = (
    "test_long_tier_crash.py", "test_tiers.py", "test_crash.py", "test_packaging.py", "test_fine_reading.py",
    "test_documents_crash.py", "test_project.py", "test_processes.py", "test_moving_to_servers.py", "test_llama.py",
    "test_fleet.py", "test_erase.py", "test_documents.py", "test_threads.py", "test_faults.py",
    "test_against_a_dict.py",
)  # fmt: skip


def pytest_configure() -> None:
    """Let programs that tests start be interrupted, also where the shell that runs the tests in the background cannot.

    What a shell starts with `&` ignores interrupts, and so does all that it starts in turn.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the longest files first."""
    order = {name: place for place, name in enumerate(_LONG)}
    items.sort(key=lambda item: order.get(item.path.name, len(_LONG)))


@pytest.fixture(autouse=True, scope="session")
def _quick_openings() -> Iterator[None]:
    """Fork the engines' processes, copy new tables, share compiled statements; programs that tests start do not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(child, "started", forks.started)
        patch.setattr(migrate, "upgrade", migrated.upgrade)
        patch.setattr(sqlite, "prepare_sqlite", compiled.prepare)
        patch.setattr(postgres, "make_engine", compiled.make_engine)
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
