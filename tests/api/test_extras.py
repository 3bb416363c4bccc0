"""A server without the extra `mcp`, or beside a program that needs an older package `mcp`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import version

import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from memos import MemOS
from memos.api.app import create_app
from memos.api.serving import first_key
from memos.cli.app import app
from memos.errors import BackendUnavailable

# What version 1 of the package `mcp` does not bring either.
MISSING = "mcp_types"
MESSAGE = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


@pytest.fixture(autouse=True)
def _without_mcp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, MISSING, None)


@pytest.fixture
def http(memos: MemOS) -> Iterator[TestClient]:
    with TestClient(create_app(memos), raise_server_exceptions=False) as client:
        yield client


def test_without_the_extra_mcp_the_server_says_at_its_address_what_to_install(memos: MemOS, http: TestClient) -> None:
    headers = {"Authorization": f"Bearer {first_key(memos)}"}
    for _ in range(2):
        answer = http.post("/mcp", json=MESSAGE, headers=headers)
        assert answer.status_code == 503
        told = answer.json()["error"]
        assert "pip install '.[mcp]'" in told["message"]
        assert f"{version('mcp')} is installed" in told["message"]
    assert http.post("/mcp", json=MESSAGE).status_code == 401
    assert http.get("/api/v1/me", headers=headers).status_code == 200


def test_without_the_extra_mcp_the_command_says_what_to_install() -> None:
    done = CliRunner().invoke(app, ["mcp"])
    assert done.exit_code == BackendUnavailable.exit_code
    assert "pip install '.[mcp]'" in done.stderr
