"""Encryption of a ledger on PostgreSQL: what its files tell without the key, conversions, keys, and erased cubes."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from memos import MemOS, Settings
from memos.core.settings import IndexSettings, LimitSettings
from memos.errors import BackendUnavailable, Conflict, IntegrityError, InvalidInput, MemosError, PermissionDenied
from memos.kernel import doctor, encryption
from memos.kernel.relocation import migrate, restore
from memos.memcube.encryption import vault
from memos.memcube.ledger import schema as t
from memos.memcube.ledger import sealing
from memos.memcube.ledger.columns import sealed_columns
from memos.memcube.ledger.engine import Ledger
from tests.fakes import WordEmbedder
from tests.kernel.test_encryption import SECRET, fill_everywhere, found, texts
from tests.support.servers.postgres_server import PostgresServer

# By what they are called in `fill_everywhere`: names and identifiers, which the database compares and sorts.
CLEAR = {"cube", "Speaker", "tool", "talk", "idempotency", "Town", "Person", "Subject", "id", "title"}


@pytest.fixture(autouse=True)
def _memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    if not vault._is_in_memory(Path("/dev/shm")):
        pytest.skip("there is no /dev/shm in memory, without which nothing is encrypted")
    folder = Path(f"/dev/shm/hippocube-tests-{os.getpid()}-{tmp_path.name}")
    folder.mkdir()
    monkeypatch.setattr(vault, "_MEMORY", (folder,))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def sealed(tmp_path: Path, postgres_server: PostgresServer) -> Settings:
    (tmp_path / "master").write_bytes(os.urandom(32))
    return Settings(
        home=tmp_path / "home",
        ledger_url=postgres_server.url(),
        encryption_key=f"file:{tmp_path / 'master'}",
        index=IndexSettings(wait_s=30),
        limits=LimitSettings(min_free_bytes=1_000_000),
    )


def plain(settings: Settings) -> Settings:
    return settings.model_copy(update={"encryption_key": None})


def opened(settings: Settings) -> MemOS:
    return MemOS.open(settings=settings, embedder=WordEmbedder())


def told_at_rest(server: PostgresServer, settings: Settings, needles: list[str]) -> set[str]:
    """Return which needles stand in the files of the database, in the log of its changes, or in the folder."""
    database = str(settings.ledger_url.get_secret_value()).rsplit("/", 1)[1]  # type: ignore[union-attr]
    server.sql(database, "CHECKPOINT")
    oid = server.sql("postgres", f"SELECT oid FROM pg_database WHERE datname = '{database}'").strip()
    there = found(server._data / "base" / oid, needles) | found(server._data / "pg_wal", needles)
    return {needle for needle, _ in there | found(settings.home, needles)}


def test_of_200_strings_put_in_by_every_route_only_names_are_found_at_rest(
    sealed: Settings, postgres_server: PostgresServer
) -> None:
    with opened(sealed) as memos:
        told = fill_everywhere(memos)
        memos._context.indexes.vector.flush()
        assert memos.maintenance.verify().clean
        left = told_at_rest(postgres_server, sealed, told)
        assert left == {needle for needle in told if needle[5:-3] in CLEAR}
        assert len({text for text in texts(memos) for needle in told if needle in text}) >= 70
