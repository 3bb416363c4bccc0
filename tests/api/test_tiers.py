"""Topics over HTTP: paged by heat, with their messages; moves between tiers with reasons; presets on their history."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from starlette.testclient import TestClient

from memos import MemOS, Settings
from memos.api.app import create_app
from memos.core.settings import IndexSettings, LimitSettings
from memos.memcube.ledger import segments as tiers
from memos.scheduler.rules import TierSettings
from tests.api.conftest import Server
from tests.api.keys import keys_of
from tests.fakes import FixedClock, WordEmbedder

GARDEN = "Tomato plants in our garden need compost"
ENGINE = "My motorcycle engine lost oil today"


@pytest.fixture(scope="module")
def aged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server on which ana spoke of two topics, and asked about one of them often; three months ago."""
    settings = Settings(
        index=IndexSettings(wait_s=30),
        limits=LimitSettings(min_free_bytes=1_000_000),
        heat=TierSettings(short_capacity=1),
    )
    clock = FixedClock(datetime(2026, 3, 1, tzinfo=UTC))
    with (
        pytest.MonkeyPatch.context() as patched,
        MemOS.open(tmp_path_factory.mktemp("aged"), settings=settings, embedder=WordEmbedder(), clock=clock) as memos,
        TestClient(create_app(memos), raise_server_exceptions=False) as http,
    ):
        patched.setattr(tiers, "_GATHERING", timedelta(0))
        server = Server(memos, http, *keys_of(memos))
        for text in (GARDEN, ENGINE):
            messages = [{"role": "user", "content": f"{text}, {number}."} for number in range(2)]
            memos.add(messages, cube="ana", actor="ana", conversation=text[:10])
        memos.tasks.wait(timeout_s=60)
        for _ in range(7):
            memos.search("garden compost tomato", cubes=["ana"], actor="ana", top_k=2)
        memos._scheduler.accesses.flush()
        memos.tiers.analyse(cube="ana", actor="ana", everything=True)
        memos.tasks.wait(timeout_s=60)
        clock.advance(timedelta(days=90))
        yield server


def get(server: Server, path: str, who: str = "ana", **params: Any) -> Any:
    answer = server.http.get(f"/api/v1{path}", headers=server.headers(who), params={"cube": "ana", **params})
    assert answer.status_code == 200, answer.text
    return answer.json()


def topic(server: Server, word: str) -> str:
    found: str = next(each["id"] for each in get(server, "/segments") if word in each["summary"])
    return found


def archived(topics: list[dict[str, Any]]) -> set[str]:
    return {each["id"] for each in topics if each["state"] == "archived"}


def test_topics_are_paged_and_told_with_their_messages(aged: Server) -> None:
    every = [each["id"] for each in get(aged, "/segments")]
    assert len(every) == 2
    assert [each["id"] for each in get(aged, "/segments", limit=1)] == every[:1]
    assert [each["id"] for each in get(aged, "/segments", limit=1, after=every[0])] == every[1:]
    # The background may archive topics meanwhile, and brings none back.
    before = archived(get(aged, "/segments"))
    found = {each["id"] for each in get(aged, "/segments", state="archived")}
    assert before <= found <= archived(get(aged, "/segments"))
    engine = topic(aged, "engine")
    told = get(aged, f"/segments/{engine}")
    assert [item["memory"] for item in told["messages"]] == [f"{ENGINE}, 1.", f"{ENGINE}, 0."]
    newest = get(aged, f"/segments/{engine}", limit=1)
    assert newest["next"] == newest["messages"][0]["id"]
    rest = get(aged, f"/segments/{engine}", limit=1, after=newest["next"])
    assert (rest["messages"][0]["memory"], rest["next"]) == (f"{ENGINE}, 0.", None)
    for path in ("/segments", f"/segments/{engine}", "/moves", "/heat-presets"):
        answer = aged.http.get(f"/api/v1{path}", headers=aged.headers("ben"), params={"cube": "ana"})
        assert answer.status_code == 404
    assert aged.http.get(f"/api/v1/segments/{engine}", headers=aged.headers("ben")).status_code == 404


def test_moves_say_why(aged: Server) -> None:
    engine = topic(aged, "engine")
    body = {"tier": "archive", "cube": "ana"}
    path = f"/api/v1/segments/{engine}/move"
    assert aged.http.post(path, json=body, headers=aged.headers("ana")).status_code == 204
    found = get(aged, "/moves")
    assert found[0]["direction"] == "demotion"
    # The background may have put it away just before.
    assert found[0]["reason"] in ("moved by hand by ana", "cold: below a heat of 0.05")
    assert found[0]["segments"] == [engine]
    assert "engine" in found[0]["topics"][0]
    assert {move["direction"] for move in found} == {"promotion", "demotion", "aging"}
    hot = next(move for move in found if move["tier"] == "long" and move["heat"] >= 5)
    assert hot["reason"] == "hot: a heat of 5 or more"
    assert [move["seq"] for move in get(aged, "/moves", before=found[0]["seq"], limit=2)] == [
        move["seq"] for move in found[1:3]
    ]


def test_presets_are_compared_on_what_is_recorded(aged: Server) -> None:
    told = get(aged, "/heat-presets")
    presets = {each["name"]: each for each in told["presets"]}
    assert [each["in_use"] for each in told["presets"]] == [True, False, False, False, False]
    assert (told["topics"], told["since"] is not None, told["uses"] >= 9) == (2, True, True)
    engine, garden = topic(aged, "engine"), topic(aged, "garden")
    tiers_of = {
        name: {topic["segment"]: topic["tier"] for topic in preset["topics"]} for name, preset in presets.items()
    }
    # Three months later the usual rules have put the engine away; slow ones and those of MemoryOS keep it.
    assert tiers_of["standard"][engine] == "archive"
    assert tiers_of["lasting"][engine] == tiers_of["memoryos"][engine] == "mid"
    assert tiers_of["early"][engine] == "archive"
    assert tiers_of["memoryos"][garden] == "long"
    assert presets["early"]["promotions"] >= presets["standard"]["promotions"] >= 1
    assert presets["standard"]["tiers"] == {"long": 0, "mid": 0, "archive": 2} or tiers_of["standard"][garden] != "mid"
