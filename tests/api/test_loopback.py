"""A server on loopback answers requests for this machine alone, and keeps pages of other sites away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from memos import MemOS, Settings
from memos.api.app import create_app
from memos.core.settings import ServerSettings
from tests.fakes import WordEmbedder

HERE = (
    "localhost",
    "localhost:8765",
    "LOCALHOST.",
    "a.localhost:1",
    "127.0.0.1:8765",
    "127.8.9.1",
    "[::1]:8765",
    "[::ffff:127.0.0.1]",
    "memory.example.org",
    "memory.example.org:8443",
)
ELSEWHERE = (
    "evil.example",
    "evil.example:8765",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "10.0.0.1",
    "[::ffff:10.0.0.1]",
    "[2001:db8::1]",
    "0.0.0.0",
    "localhost@evil.example",
    "evil.example#localhost",
    "localhost:port",
    "",
    "localhost/x",
    "2130706433",
    "x" * 5_000,
)


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    home: Path = tmp_path_factory.mktemp("loopback")
    settings = Settings(server=ServerSettings(cors_origins=("https://memory.example.org",)))
    with (
        MemOS.open(home, settings=settings, embedder=WordEmbedder()) as memos,
        TestClient(create_app(memos, loopback=True, lazy=True), base_url="http://localhost") as client,
    ):
        yield client


@pytest.mark.parametrize("host", HERE)
def test_names_of_this_machine_and_of_its_proxy_are_answered(http: TestClient, host: str) -> None:
    assert http.get("/health", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("host", ELSEWHERE)
@pytest.mark.parametrize("path", ["/health", "/metrics", "/console/sign-in", "/api/v1/me", "/mcp"])
def test_a_name_that_was_led_here_is_refused_everywhere(http: TestClient, host: str, path: str) -> None:
    answer = http.get(path, headers={"Host": host})
    assert (answer.status_code, answer.json()["error"]["code"]) == (421, "refused")


def test_two_hosts_are_one_too_many(http: TestClient) -> None:
    assert http.get("/health", headers=[("Host", "localhost"), ("Host", "evil.example")]).status_code == 421


def test_pages_of_other_sites_are_refused_and_programs_are_not(http: TestClient) -> None:
    def ask(origin: str) -> int:
        return http.post("/api/v1/search", json={"query": "x"}, headers={"Origin": origin}).status_code

    for origin in (
        "http://evil.example",
        "https://localhost.evil.example",
        "null",
        "HTTP://evil.example:80",
        "http://",
    ):
        assert ask(origin) == 403, origin
    for origin in (
        "http://localhost:3000",
        "http://127.0.0.1:8765",
        "https://memory.example.org",
        "vscode-webview://x",
    ):
        assert ask(origin) == 401, origin
