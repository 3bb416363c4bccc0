"""Activation memory over HTTP: shown, composed, warmed and dropped by who may; all of it by admins; a real model."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pydantic import TypeAdapter
from starlette.testclient import TestClient

from memos import MemOS, Settings
from memos.api.app import create_app
from memos.api.serving import first_key
from memos.core.ports import ChatRequest
from memos.core.settings import ChatSettings, LimitSettings, TaskSettings
from tests.api.conftest import Server
from tests.api.keys import keys_of
from tests.api.model_here import noted, opened, saved, settled
from tests.api.running import running
from tests.fakes import WordEmbedder
from tests.support.scripted_chat import ScriptedChat

ROOT = "/api/v1/activation"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Iterator[Server]:
    """A server with a model."""
    with (
        opened(tmp_path_factory.mktemp("here"), model) as memos,
        TestClient(create_app(memos), raise_server_exceptions=False) as http,
    ):
        yield Server(memos, http, *keys_of(memos))


def ask(server: Server, method: str, path: str = "", who: str = "ana", **given: Any) -> httpx2.Response:
    return server.http.request(method, ROOT + path, headers=server.headers(who), **given)


def as_json(value: Any) -> Any:
    """Return a value of the façade as an answer has it: every field, under its name."""
    return TypeAdapter(dict[str, Any]).dump_python(asdict(value), mode="json")


def test_what_prompts_begin_with_is_composed_shown_dropped_and_warmed(here: Server) -> None:
    cube, ids = noted(here.memos, "ana")
    body = {"cube": cube}
    composing = ask(here, "POST", "/compose", json=body)
    assert composing.status_code == 202
    assert (composing.json()["cube"], here.memos.tasks.get(composing.json()["task"]).kind) == (cube, "compose")
    settled(here.memos)
    shown = ask(here, "GET", params=body).json()
    assert shown == as_json(here.memos.kv.show(cube, actor="ana"))
    assert [entry["item"] for entry in shown["entries"]] == ids
    assert "hive at number 7" in shown["text"]
    kept = shown["blocks"]["host"]
    assert kept > 0
    assert ask(here, "POST", "/drop", json=body).json() == {"cube": cube, "blocks": kept}
    assert ask(here, "GET", params=body).json() == {**shown, "blocks": {}}
    warmed = ask(here, "POST", "/warm", json=body).json()
    assert (warmed["cube"], warmed["tokens"]) == (cube, shown["tokens"])
    assert warmed["seconds"] > 0
    assert ask(here, "GET", params=body).json() == shown
    here.memos.update(ids[0], "Note 0: that hive is gone.", actor="ana")
    settled(here.memos)
    assert ask(here, "GET", params=body).json()["entries"][0]["changed"]


def test_the_time_to_the_first_token_is_measured_without_and_with_what_is_kept(here: Server) -> None:
    cube, _ = noted(here.memos, "ana")
    body = {"cube": cube}
    assert ask(here, "GET", "/first-token", params=body).json() is None
    told = ask(here, "POST", "/first-token", json=body).json()
    assert min(told["without_s"], told["with_s"], told["tokens"]) > 0
    assert ask(here, "GET", "/first-token", params=body).json() == told
    assert ask(here, "GET", "/first-token", "ben", params=body).status_code == 404
    assert ask(here, "POST", "/first-token", "ben", json=body).status_code == 404
    here.memos.cubes.create("bare", actor="ana")
    assert ask(here, "POST", "/first-token", json={"cube": "bare"}).status_code == 409
    models = here.http.get("/api/v1/models", headers=here.headers("ana")).json()
    assert [(each["purpose"], each["place"], each["usable"]) for each in models] == [
        ("chat", "process", True), ("reader", "process", True), ("vision", None, False), ("training", "process", True)
    ]  # fmt: skip


def test_who_reads_a_cube_may_warm_it_and_nobody_else_learns_that_it_is_there(here: Server) -> None:
    cube, _ = noted(here.memos, "ana")
    body = {"cube": cube}
    calls: list[tuple[str, str, dict[str, Any]]] = [
        ("GET", "", {"params": body}), *(("POST", path, {"json": body}) for path in ("/warm", "/compose", "/drop"))
    ]  # fmt: skip
    kept = here.memos.kv.show(cube, actor="ana").blocks
    assert [ask(here, *call, "ben", **given).status_code for *call, given in calls] == [404] * 4
    here.memos.sharing.grant(cube, "ben", "reader", actor="ana")
    assert [ask(here, *call, "ben", **given).status_code for *call, given in calls] == [200, 200, 403, 403]
    assert here.memos.kv.show(cube, actor="ana").blocks == kept


def test_all_of_it_is_told_and_verified_for_admins_alone(here: Server) -> None:
    noted(here.memos, "ana")
    told = ask(here, "GET", "/stats", "admin")
    assert told.json() == as_json(here.memos.kv.stats())
    assert next(tier for tier in told.json()["tiers"] if tier["tier"] == "host")["blocks"] > 0
    assert ask(here, "POST", "/verify", "admin").json() == {"damaged": []}
    for who, params in (("ana", {}), ("admin", {"user": "ana"})):
        for method, path in (("GET", "/stats"), ("POST", "/verify")):
            refused = ask(here, method, path, who, params=params)
            assert (refused.status_code, refused.json()["error"]["code"]) == (403, "permission_denied")


def test_after_a_restart_the_disk_has_it_and_what_is_damaged_there_is_removed(tmp_path: Path, model: Path) -> None:
    home = tmp_path / "home"
    with opened(home, model) as memos:
        key = {"Authorization": f"Bearer {first_key(memos)}"}
        memos.users.create("ana")
        cube, ids = noted(memos, "ana")
        memos.kv.warm(cube, actor="ana")  # the second use brings it to the disk
    files = list((home / "activation").glob("*/*.safetensors"))
    with (
        opened(home, model, workers=0) as memos,
        TestClient(create_app(memos), raise_server_exceptions=False) as http,
    ):
        shown = http.get(ROOT, params={"cube": cube}, headers=key).json()
        assert ([entry["item"] for entry in shown["entries"]], shown["blocks"]) == (ids, {"disk": len(files)})
        last = next(block for block, _, _ in reversed(memos.kv.activations.blocks(cube)))
        [damaged] = [file for file in files if file.stem == last.key]
        damaged.write_bytes(damaged.read_bytes()[:-8] + b"\0\1\2\3\4\5\6\7")
        assert http.post(f"{ROOT}/verify", headers=key).json() == {"damaged": [last.key]}
        assert not damaged.exists()
        assert http.post(f"{ROOT}/verify", headers=key).json() == {"damaged": []}
        tiers = http.get(f"{ROOT}/stats", headers=key).json()["tiers"]
        assert {tier["tier"]: tier["blocks"] for tier in tiers} == {"device": 0, "host": 0, "disk": len(files) - 1}


def test_without_a_model_nothing_is_kept_and_the_error_says_what_to_set(server: Server) -> None:
    cube, _ = noted(server.memos, "ana")
    body = {"cube": cube}
    refused = ask(server, "POST", "/warm", json=body)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "backend_unavailable")
    assert "MEMOS_CHAT_MODEL__PREFIX_CACHE" in refused.json()["error"]["message"]
    assert ask(server, "POST", "/compose", json=body).status_code == 202
    settled(server.memos)
    shown = ask(server, "GET", params=body).json()
    assert shown == {"cube": cube, "entries": [], "tokens": 0, "room": 0, "text": "", "blocks": {}}
    assert ask(server, "POST", "/drop", json=body).json() == {"cube": cube, "blocks": 0}
    assert ask(server, "POST", "/first-token", json=body).status_code == 503
    models = server.http.get("/api/v1/models", headers=server.headers("ana")).json()
    assert "MEMOS_CHAT_MODEL__BASE_URL" in next(each["told"] for each in models if each["purpose"] == "chat")
    assert [each["usable"] for each in models] == [False] * 4
    told = ask(server, "GET", "/stats", "admin").json()
    assert told == {"tiers": [], "misses": 0, "dropped_writes": 0, "damaged": 0, "forgotten": 0}


def test_many_slow_warmings_hold_up_nobody_else(tmp_path: Path) -> None:
    gate, asked = threading.Event(), threading.Semaphore(0)

    def slowly(_: ChatRequest) -> str:
        asked.release()
        assert gate.wait(60)
        return "Yes."

    settings = Settings(
        limits=LimitSettings(min_free_bytes=1_000_000),
        tasks=TaskSettings(workers=0),
        chat_model=ChatSettings(base_url="http://127.0.0.1:9/v1", model="any", prefix_cache="on"),
    )
    with (
        MemOS.open(tmp_path, settings=settings, embedder=WordEmbedder(), chat_model=ScriptedChat(slowly)) as memos,
        running(memos) as url,
    ):
        key = {"Authorization": f"Bearer {first_key(memos)}"}
        statuses = list[int]()

        def warm() -> None:
            statuses.append(httpx2.post(f"{url}{ROOT}/warm", json={}, headers=key, timeout=60).status_code)

        threads = [threading.Thread(target=warm) for _ in range(60)]
        try:
            for thread in threads:
                thread.start()
            assert asked.acquire(timeout=30)
            found = httpx2.post(f"{url}/api/v1/search", json={"query": "secret"}, headers=key, timeout=30)
            assert found.status_code == 200
        finally:
            gate.set()
            for thread in threads:
                thread.join()
        assert statuses == [200] * 60
