"""Fixtures every test may use: a fast embedder, an open installation, its settings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memos import MemOS, Settings
from memos.settings import IndexSettings, LimitSettings
from tests.fakes import WordEmbedder
from tests.servers.fixtures import neo4j_server, postgres_server

__all__ = ["neo4j_server", "postgres_server"]


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
