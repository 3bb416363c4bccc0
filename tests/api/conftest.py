"""Fixtures of the HTTP tests: an application over a real installation, with an admin and two users who have keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from starlette.testclient import TestClient

from memos import MemOS, Settings
from memos.api.app import create_app
from memos.core.settings import IndexSettings, LimitSettings
from tests.api.keys import keys_of
from tests.fakes import WordEmbedder


class Server(NamedTuple):
    """An application under test; `admin`, `ana` and `ben` are keys."""

    memos: MemOS
    http: TestClient
    admin: str
    ana: str
    ben: str

    def headers(self, who: str) -> dict[str, str]:
        """Return the headers that carry somebody's key."""
        return {"Authorization": f"Bearer {getattr(self, who)}"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for the tests of a module: they must not expect it to be empty."""
    settings = Settings(index=IndexSettings(wait_s=30), limits=LimitSettings(min_free_bytes=1_000_000))
    home: Path = tmp_path_factory.mktemp("server")
    with (
        MemOS.open(home, settings=settings, embedder=WordEmbedder()) as memos,
        TestClient(create_app(memos, local_token="local-token"), raise_server_exceptions=False) as http,
    ):
        yield Server(memos, http, *keys_of(memos))
