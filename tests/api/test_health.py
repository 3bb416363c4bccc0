"""The doctor, the settings in effect and slow calls over HTTP: for admins, without secrets, and of one's own cubes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from memos import MemOS, Settings
from memos.api.app import create_app
from memos.core.settings import IndexSettings, LimitSettings
from tests.api.conftest import Server
from tests.api.keys import keys_of
from tests.fakes import WordEmbedder

SECRET = "sk-health-0123456789abcdef"


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server whose settings come from everywhere."""
    config = tmp_path / "memos.toml"
    config.write_text(
        'retention_days = 3\n[chat_model]\nbase_url = "http://127.0.0.1:1/v1"\nmodel = "m"\n',
        encoding="utf-8",
    )
    monkeypatch.setenv("MEMOS_CHAT_MODEL__API_KEY", SECRET)
    monkeypatch.setenv("MEMOS_SERVER__PORT", "2222")
    limits = LimitSettings(min_free_bytes=1_000_000)
    settings = Settings(config=config, time_zone="Europe/Paris", index=IndexSettings(wait_s=30), limits=limits)
    with (
        MemOS.open(tmp_path / "home", settings=settings, embedder=WordEmbedder()) as memos,
        TestClient(create_app(memos), raise_server_exceptions=False) as http,
    ):
        yield Server(memos, http, *keys_of(memos))


def get(server: Server, path: str, who: str = "admin") -> Any:
    return server.http.get(f"/api/v1{path}", headers=server.headers(who))


def test_each_setting_says_where_it_comes_from_and_secrets_are_masked(configured: Server) -> None:
    answer = get(configured, "/settings")
    assert SECRET not in answer.text
    told = {each["name"]: each for each in answer.json()}
    origins = {name: each["origin"] for name, each in told.items()}
    assert (told["server.port"]["value"], told["server.port"]["variable"]) == (2222, "MEMOS_SERVER__PORT")
    assert origins["server.port"] == origins["chat_model.api_key"] == "environment"
    assert origins["retention_days"] == origins["chat_model.base_url"] == "file"
    assert origins["time_zone"] == origins["index.wait_s"] == origins["home"] == "argument"
    assert (origins["embed.model"], told["embed.model"]["value"]) == ("default", "minilm")
    assert told["chat_model.base_url"]["value"] == "http://127.0.0.1:1/v1"
    assert (told["chat_model.api_key"]["secret"], told["cube_passphrase"]["value"]) == (True, None)
    assert all(each["description"] for each in told.values())


def test_the_doctor_looks_at_what_is_open(configured: Server) -> None:
    answer = get(configured, "/doctor")
    assert SECRET not in answer.text
    found = answer.json()
    states = {(each["what"], each["state"]) for each in found}
    assert {("server", "good"), ("ledger", "good"), ("embedder", "good"), ("models", "bad")} <= states
    assert any("asked in" in each["told"] for each in found if each["what"] == "embedder")


@pytest.mark.parametrize("path", ["/doctor", "/settings"])
def test_only_admins_see_the_installation(server: Server, path: str) -> None:
    assert get(server, path, "ana").status_code == 403
    assert get(server, path).status_code == 200


def test_slow_calls_are_of_cubes_one_reads_and_forget_what_was_asked_with_an_erasure(server: Server) -> None:
    memos = server.memos
    item = memos.add("The heron nests at the mill.", cube="ana", actor="ana").item_ids[0]
    memos.search("Where does the heron nest?", cubes=["ana"], actor="ana")
    calls = get(server, "/slow-calls", "ana").json()
    asked = next(call for call in calls if call["question"] == "Where does the heron nest?")
    assert (asked["operation"], asked["cubes"], asked["failed"]) == ("search", ["ana"], False)
    assert asked["seconds"] * 1000 >= sum(asked["stages_ms"].values()) * 0.5
    assert {"add", "search"} <= {call["operation"] for call in calls}
    assert "heron" in get(server, "/slow-calls").text
    assert "ana" not in get(server, "/slow-calls", "ben").text
    memos.erase(item, cube="ana", actor="ana")
    assert "heron" not in get(server, "/slow-calls").text
    assert [call["question"] for call in get(server, "/slow-calls", "ana").json()].count(None) >= 2
