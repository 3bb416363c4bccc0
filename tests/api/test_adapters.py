"""Adapters over HTTP: looked at, handed out and forgotten by who may; trained in tests/test_adapters."""

from __future__ import annotations

import io
import logging
import zipfile
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import httpx2
import pytest

from memos.core.clock import new_id
from memos.core.lora import ADAPTER_FILE
from memos.kernel.adapters.transfer import EXPORTED
from memos.memcube.parametric.forgetting import FOLDER
from tests.api.conftest import Server
from tests.support.adapters import SIZE, active, with_a_model, with_card, with_files

ROOT = "/api/v1/adapters"


@pytest.fixture
def learned(server: Server) -> tuple[str, list[str], str]:
    """A cube of Ana's, its memories, and an adapter that saw them."""
    memos, cube = server.memos, new_id()
    memos.cubes.create(cube, actor="ana")
    ids = [memos.add(text, cube=cube, actor="ana").item_ids[0] for text in ("I live in Lyon.", "I keep bees.")]
    memos.adapters.allow(cube, actor="ana")
    return cube, ids, _made(server, cube, ids)


def _made(server: Server, cube: str, ids: list[str]) -> str:
    assert server.memos.home is not None
    id_ = active(server.memos.ledger, ids, cube=cube)
    with_card(with_files(server.memos.home / FOLDER, id_))
    return id_


def ask(server: Server, method: str, path: str, who: str = "ana", **given: Any) -> httpx2.Response:
    return server.http.request(method, ROOT + path, headers=server.headers(who), **given)


def test_they_are_looked_at_and_put_to_answer(server: Server, learned: tuple[str, list[str], str]) -> None:
    cube, ids, first = learned
    second = _made(server, cube, ids[1:])
    told = ask(server, "GET", "", params={"cube": cube}).json()
    assert [(each["id"], each["state"], each["facts"]) for each in told] == [
        (second, "active", 1), (first, "retired", 2)
    ]  # fmt: skip
    assert ask(server, "GET", f"/{second}").json() == told[0]
    assert ask(server, "POST", f"/{first}/activate").json()["state"] == "active"
    assert ask(server, "POST", f"/{second}/activate").json()["state"] == "active"
    assert ask(server, "DELETE", f"/{second}").status_code == 204
    assert ask(server, "GET", f"/{second}").status_code == 404
    shown = ask(server, "GET", "/preview", params={"cube": cube}).json()
    assert (shown["allowed"], shown["memories"], shown["left_out"]) == (True, [], {"no fact about somebody": 2})


def test_files_are_sent_whole_or_not_at_all(server: Server, learned: tuple[str, list[str], str]) -> None:
    _, ids, id_ = learned
    answer = ask(server, "GET", f"/{id_}/export")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/zip")
    assert int(answer.headers["content-length"]) == len(answer.content)
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert set(archive.namelist()) == set(EXPORTED)
        assert archive.read(ADAPTER_FILE) == b"weights"
    server.memos.update(ids[0], "I live in Porto.", actor="ana")
    answer = ask(server, "GET", f"/{id_}/export")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "conflict")


def test_memories_are_forgotten_and_learned_again(
    server: Server, learned: tuple[str, list[str], str], caplog: pytest.LogCaptureFixture
) -> None:
    cube, ids, id_ = learned
    with caplog.at_level(logging.DEBUG):
        done = ask(server, "POST", "/forget", json={"cube": cube, "item_ids": ids[:1]})
    assert done.json() == {
        "cube": cube, "items": ids[:1], "adapters": [id_], "files": len(EXPORTED), "size_bytes": SIZE + len("# Adapter")
    }  # fmt: skip
    assert "Lyon" not in caplog.text
    assert ask(server, "GET", "", params={"cube": cube}).json() == []
    again = ask(server, "POST", "/allow", json={"cube": cube, "item_ids": ids})
    assert again.json() == {"cube": cube, "allowed": True, "removed": 0}
    for wrong in ([], ["none"], ["x" * 100], [3]):
        assert ask(server, "POST", "/forget", json={"cube": cube, "item_ids": wrong}).status_code in (400, 404)


def test_consent_is_given_and_taken_back_with_what_was_learned(
    server: Server, learned: tuple[str, list[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cube, _, _ = learned
    monkeypatch.setattr(server.memos, "adapters", with_a_model(server.memos))
    assert ask(server, "POST", "/disallow", json={"cube": cube}).json() == {
        "cube": cube, "allowed": False, "removed": 1
    }  # fmt: skip
    refused = ask(server, "POST", "/train", json={"cube": cube})
    assert refused.status_code == 409
    assert "is not allowed" in refused.text
    assert ask(server, "POST", "/allow", json={"cube": cube}).json()["allowed"]
    assert "ready for training" in ask(server, "POST", "/train", json={"cube": cube}).text


def test_a_route_that_was_removed_says_what_does_the_same(server: Server, learned: tuple[str, list[str], str]) -> None:
    for method, path in (("POST", "/retrain"), ("POST", "/rollback"), ("POST", "/learn-again"), ("GET", "/x/diff")):
        told = ask(server, method, path)
        assert (told.status_code, told.json()["error"]["code"]) == (404, "not_found")
        assert "It was removed: " in told.text


def test_who_reads_a_cube_decides_nothing_about_it(server: Server, learned: tuple[str, list[str], str]) -> None:
    cube, ids, id_ = learned
    server.memos.sharing.grant(cube, "ben", "editor", actor="ana")
    assert ask(server, "GET", f"/{id_}", "ben").json()["model"] == "local:tiny"
    assert ask(server, "GET", f"/{id_}").json()["model"] == "local:/models/tiny"
    body = {"cube": cube}
    for method, path, given in (
        ("POST", "/allow", body), ("POST", "/disallow", body), ("POST", "/train", body),
        ("POST", "/forget", {**body, "item_ids": ids}), ("POST", f"/{id_}/activate", None),
        ("GET", f"/{id_}/export", None), ("DELETE", f"/{id_}", None),
    ):  # fmt: skip
        assert ask(server, method, path, "ben", json=given).status_code == 403, path
    assert [each["state"] for each in ask(server, "GET", "", params=body).json()] == ["active"]


def test_many_decide_at_once_about_one_cube(server: Server, learned: tuple[str, list[str], str]) -> None:
    cube, ids, first = learned
    made = [first, *(_made(server, cube, ids[:count]) for count in (1, 2, 1))]
    body, chance = {"cube": cube}, Random(7)
    calls: list[tuple[str, str, dict[str, Any]]] = [
        ("GET", "", {"params": body}), ("POST", "/allow", {"json": body}),
        ("POST", "/disallow", {"json": body}), ("POST", "/forget", {"json": {**body, "item_ids": ids[:1]}}),
        ("POST", "/allow", {"json": {**body, "item_ids": ids[:1]}}), ("GET", "/preview", {"params": body}),
        *(("POST", f"/{id_}/activate", {}) for id_ in made), *(("GET", f"/{id_}/export", {}) for id_ in made),
        ("DELETE", f"/{made[2]}", {}),
    ]  # fmt: skip
    wanted = [chance.choice(calls) for _ in range(96)]
    with ThreadPoolExecutor(8) as many:
        told = list(many.map(lambda call: ask(server, call[0], call[1], **call[2]), wanted))
    odd = [each.text for each in told if each.status_code not in (200, 202, 204, 404, 409)]
    assert not odd
    assert {200, 404, 409} & {each.status_code for each in told}
    states = [each["state"] for each in ask(server, "GET", "", params=body).json()]
    assert states.count("active") <= 1
    assert server.memos.maintenance.verify().clean
    # What was decided last holds, whatever was under way.
    assert ask(server, "POST", "/disallow", json=body).status_code == 200
    assert ask(server, "GET", "", params=body).json() == []
    assert server.memos.home is not None
    assert not [id_ for id_ in made if (server.memos.home / FOLDER / id_).exists()]


def test_a_cube_goes_while_many_decide_about_it(server: Server, learned: tuple[str, list[str], str]) -> None:
    cube, ids, first = learned
    body = {"cube": cube}
    calls: list[tuple[str, str, dict[str, Any]]] = [
        ("POST", "/allow", {"json": body}), ("POST", f"/{first}/activate", {}), ("GET", f"/{first}/export", {}),
        ("POST", "/forget", {"json": {**body, "item_ids": ids[:1]}}), ("GET", "", {"params": body}),
    ]  # fmt: skip
    with ThreadPoolExecutor(8) as many:
        told = [many.submit(ask, server, method, path, **given) for method, path, given in calls * 3]
        server.memos.cubes.drop(cube, actor="ana")
        told += [many.submit(ask, server, method, path, **given) for method, path, given in calls * 3]
        found = [each.result() for each in told]
    assert not [each.text for each in found if each.status_code not in (200, 404, 409)]
    assert all(each.status_code == 404 for each in found[-len(calls) :])
    assert server.memos.home is not None
    assert not (server.memos.home / FOLDER / first).exists()
    assert server.memos.maintenance.verify().clean
