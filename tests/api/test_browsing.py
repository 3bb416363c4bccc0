"""What people look through memories with: counts, sorted pages, passages, places, tags and previews of erasures."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from memos import MemOS
from memos.api.console.comparing import word_diff
from tests.api.conftest import Server
from tests.fakes import HeldClock, WordEmbedder


def _get(server: Server, path: str, who: str = "ana", **query: Any) -> Any:
    answer = server.http.get(f"/api/v1{path}", params=query, headers=server.headers(who))
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.fixture(scope="module")
def talk(server: Server) -> list[str]:
    days = [f"2025-0{number}-03T10:00:00Z" for number in range(1, 7)]
    said = [
        {"role": "user", "content": f"Line {number} of the talk about otters.", "chat_time": day}
        for number, day in enumerate(days, 1)
    ]
    return list(server.memos.add(said, cube="ana", actor="ana", conversation="otters", tags=["zoo"]).item_ids)


def test_facets_count_what_passes_the_filter(server: Server, talk: list[str]) -> None:
    wanted = json.dumps({"conversation": "otters"})
    told = _get(server, "/memories/facets", filter=wanted)
    counts = {facet["name"]: {each["value"]: each["count"] for each in facet["values"]} for facet in told["facets"]}
    assert (told["counted"], told["more"]) == (6, False)
    assert counts["type"] == {"message": 6}
    assert counts["tag"] == {"zoo": 6}
    assert list(counts["month"]) == ["2025-06", "2025-05", "2025-04", "2025-03", "2025-02", "2025-01"]
    few = _get(server, "/memories/facets", filter=wanted, by=["month"], limit=2)
    assert [facet["name"] for facet in few["facets"]] == ["month"]
    assert (len(few["facets"][0]["values"]), few["facets"][0]["more"]) == (2, 4)
    none = _get(server, "/memories/facets", filter=json.dumps({"memory": {"like": "no such word"}}))
    assert none["counted"] == 0
    wrong = server.http.get("/api/v1/memories/facets?by=colour", headers=server.headers("ana"))
    assert (wrong.status_code, wrong.json()["error"]["field"]) == (400, "by")


@pytest.mark.parametrize("sort", ["created_at", "-created_at", "-said_at", "updated_at", "-confidence", "-heat"])
def test_pages_continue_where_the_last_one_ended(server: Server, talk: list[str], sort: str) -> None:
    query = {"filter": json.dumps({"conversation": "otters"}), "sort": sort}
    whole = [item["id"] for item in _get(server, "/memories", **query)]
    assert sorted(whole) == sorted(talk)
    pages = [item["id"] for item in _get(server, "/memories", **query, limit=4)]
    pages += [item["id"] for item in _get(server, "/memories", **query, limit=4, after=pages[-1])]
    assert pages == whole


def test_a_page_after_something_unknown_says_so(server: Server, talk: list[str]) -> None:
    for query, field in ({"after": "nothing"}, "after"), ({"sort": "colour"}, "sort"):
        answer = server.http.get("/api/v1/memories", params=query, headers=server.headers("ana"))
        assert (answer.status_code, answer.json()["error"]["field"]) == (400, field)
    of_ben = server.memos.add("Ben swims.", cube="ben", actor="ben").item_ids[0]
    answer = server.http.get("/api/v1/memories", params={"after": of_ben}, headers=server.headers("ana"))
    assert answer.status_code == 400


def test_passages_show_what_was_said_around(server: Server, talk: list[str]) -> None:
    [passage] = _get(server, f"/memories/{talk[2]}/passages", around=2)
    assert (passage["item"], passage["text"]) == (talk[2], "Line 3 of the talk about otters.")
    assert [each["item"] for each in passage["before"]] == talk[:2]
    assert [each["item"] for each in passage["after"]] == talk[3:5]
    for link in _get(server, f"/memories/{talk[2]}/links"):
        assert talk[2] in (link["from_id"], link["to_id"])


def test_places_tell_of_use_and_pins(server: Server, talk: list[str]) -> None:
    cold = _get(server, f"/memories/{talk[3]}/places")
    assert (cold["heat"], cold["curve"], cold["pinned"]) == (0, [], False)
    server.memos.tiers.pin(talk[3], cube="ana", actor="ana")
    server.memos.tiers.mark_used([talk[3]], cube="ana", actor="ana")
    server.memos._scheduler.accesses.flush()
    warm = _get(server, f"/memories/{talk[3]}/places")
    assert warm["pinned"]
    assert warm["heat"] > 0
    heats = [point["heat"] for point in warm["curve"]]
    assert heats == sorted(heats, reverse=True)
    assert heats[-1] < heats[0]


def test_heat_over_time_shows_the_days_of_use(tmp_path: Path) -> None:
    start = datetime(2026, 3, 1, 12, tzinfo=UTC)
    clock = HeldClock(start)
    with MemOS.open(tmp_path, embedder=WordEmbedder(), clock=clock) as memos:
        [item] = memos.add("Otters sleep hand in hand.").item_ids
        used = ((0, 3), (1, 1), (40, 2))  # days after the first, and how often
        for day, times in used:
            clock.at = start + timedelta(days=day)
            for _ in range(times):
                memos.tiers.mark_used([item])
            memos._scheduler.accesses.flush()
        places = memos.browse.places(item)
    heats = [(point.at, point.heat) for point in places.curve]
    assert heats[0][0] == start
    assert abs(heats[-1][0] - clock.now() - timedelta(days=14)) < timedelta(seconds=1)
    second = max(heat for at, heat in heats if at < clock.now() - timedelta(days=30))
    faded = min(heat for at, heat in heats if at < clock.now() - timedelta(days=1))
    last = max(heat for at, heat in heats if at >= clock.now() - timedelta(days=1))
    assert second > heats[0][1]  # the second day adds to what the first left
    assert faded < 0.2 * heats[0][1]
    assert last == pytest.approx(places.heat, rel=0.1)
    assert heats[-1][1] < last


def test_tags_are_added_and_removed_in_one_step(server: Server, talk: list[str]) -> None:
    body = {"item_ids": talk[:2], "add": ["river"], "remove": ["zoo"]}
    changed = server.http.post("/api/v1/memories/tag", json=body, headers=server.headers("ana")).json()
    assert changed["item_ids"] == talk[:2]
    assert _get(server, f"/memories/{talk[0]}")["tags"] == ["river"]
    again = server.http.post("/api/v1/memories/tag", json=body, headers=server.headers("ana")).json()
    assert again["item_ids"] == []
    foreign = server.http.post("/api/v1/memories/tag", json=body, headers=server.headers("ben"))
    assert foreign.status_code == 404
    [event] = _get(server, f"/memories/{talk[0]}/events")
    assert (event["kind"], event["body"]) == ("update", {"from": 1, "to": 2})


def test_a_preview_names_what_an_erasure_takes_along(server: Server) -> None:
    receipt = server.memos.add("My sister lives in Bergen.", cube="ana", actor="ana", mode="fine")
    assert receipt.task is not None
    server.memos.tasks.wait(receipt.task)
    body = {"item_ids": list(receipt.item_ids)}
    told = server.http.post("/api/v1/memories/erase/preview", json=body, headers=server.headers("ana")).json()
    links = _get(server, f"/memories/{receipt.item_ids[0]}/links")
    assert told["derived"]
    assert {each["from_id"] for each in links if each["kind"] == "DERIVED_FROM"} == set(told["derived"])
    erased = server.http.post("/api/v1/memories/erase", json=body, headers=server.headers("ana")).json()
    assert sorted(erased["item_ids"]) == sorted([*told["item_ids"], *told["derived"]])


def test_what_is_deleted_is_counted_by_status_alone(server: Server) -> None:
    ids = server.memos.add([{"role": "user", "content": text} for text in ("Moss grows.", "Moss dries.")],
                           cube="ana", actor="ana", conversation="moss").item_ids  # fmt: skip
    server.memos.delete(ids[0], actor="ana")
    told = _get(server, "/memories/facets", filter=json.dumps({"conversation": "moss"}), by=["status", "type"])
    counts = {facet["name"]: {each["value"]: each["count"] for each in facet["values"]} for facet in told["facets"]}
    assert told["counted"] == 1
    assert counts == {"type": {"message": 1}, "status": {"active": 1, "deleted": 1}}


@pytest.mark.parametrize(
    ("before", "after", "pieces"),
    [
        ("I live in Oslo.", "I live in Rome.", ["same", "removed", "added", "same"]),
        ("I live in Oslo.", "The weather was fine", ["removed", "added"]),
        ("same", "same", ["same"]),
        ("", "new", ["added"]),
    ],
)
def test_texts_are_compared_by_word(before: str, after: str, pieces: list[str]) -> None:
    found = word_diff(before, after)
    assert [piece.kind for piece in found if piece.text] == pieces
    assert "".join(piece.text for piece in found if piece.kind != "added") == before
    assert "".join(piece.text for piece in found if piece.kind != "removed") == after


def test_long_texts_are_compared_quickly() -> None:
    lines = "\n".join(f"line {number} of a long text" for number in range(3_000))
    words = " ".join(f"w{number % 400}" for number in range(3_900))
    began = time.perf_counter()
    for before, after in ((lines, lines.replace("line 7 ", "line seven ")), (words, words.replace("w7 ", "seven "))):
        assert len(word_diff(before, after)) > 2
    assert time.perf_counter() - began < 2
