"""Fixtures of the HTTP tests: an application over a real installation, with an admin and two users who have keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from httpx2 import Response
from starlette.testclient import TestClient

from memos import MemOS, Settings
from memos.api.app import create_app
from memos.api.console.view import csrf_token
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


class Console:
    """Somebody's browser without scripts, signed in to the console."""

    def __init__(self, http: TestClient, key: str) -> None:
        self.http = TestClient(http.app, follow_redirects=False, raise_server_exceptions=False)
        answer = self.http.post("/console/sign-in", data={"key": key})
        assert answer.status_code == 303, answer.text
        self.csrf = csrf_token(answer.cookies["memos_session"])

    def get(self, path: str, status: int = 200, **query: Any) -> str:
        """Return a page."""
        answer = self.http.get(f"/console{path}", params=query)
        assert answer.status_code == status, answer.text
        return answer.text

    def post(self, path: str, **fields: Any) -> Response:
        """Submit a form of a page."""
        return self.http.post(f"/console{path}", data={"csrf": self.csrf, **fields})

    def done(self, path: str, **fields: Any) -> str:
        """Submit a form, and return the page that its answer leads to."""
        answer = self.post(path, **fields)
        assert answer.status_code == 303, answer.text
        page = self.http.get(answer.headers["location"])
        assert page.status_code == 200, page.text
        return page.text


@pytest.fixture
def ana_at_console(server: Server) -> Console:
    """Return Ana's browser."""
    return Console(server.http, server.ana)
