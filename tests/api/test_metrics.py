"""/metrics: what was done is counted, and neither ids nor names nor texts of anybody are told."""

from __future__ import annotations

import json
import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from memos.api.observability import Metrics
from tests.api.conftest import Server

SECRET = "sk-test-4f9a8b7c6d5e4f3a2b1c0d9e8f7a6b5c"


def numbers(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def of(found: dict[tuple[str, tuple[tuple[str, str], ...]], float], name: str, **labels: str) -> float:
    return found.get((name, tuple(sorted(labels.items()))), 0)


def test_requests_stages_and_the_installation_are_counted_without_anybodys_data(server: Server) -> None:
    before = numbers(server.http.get("/metrics").text)
    added = server.http.post(
        "/api/v1/memories", json={"messages": f"The yak named Zebulon; {SECRET}"}, headers=server.headers("ana")
    )
    item = added.json()["item_ids"][0]
    assert server.http.get(f"/api/v1/memories/{item}", headers=server.headers("ana")).status_code == 200
    assert server.http.get(f"/api/v1/memories/{item}", headers=server.headers("ben")).status_code == 404
    server.http.post("/api/v1/search", json={"query": "Zebulon"}, headers=server.headers("ana"))
    server.http.post("/api/v1/search", json={"query": "Zebulon", "cubes": ["no"]}, headers=server.headers("ana"))
    server.http.request("FROB", "/api/v1/search", headers=server.headers("ana"))
    server.http.get(f"/api/v1/nowhere/{item}", headers=server.headers("ana"))
    server.http.get("/Zebulon")
    answer = server.http.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    found = numbers(answer.text)

    def grown(name: str, **labels: str) -> float:
        return of(found, name, **labels) - of(before, name, **labels)

    route = "/api/v1/memories/{item}"
    assert grown("memos_requests_total", route=route, method="GET", status="2xx") == 1
    assert grown("memos_requests_total", route=route, method="GET", status="4xx") == 1
    assert grown("memos_request_seconds_count", route=route) == 2
    assert grown("memos_requests_total", route="/api/v1/search", method="other", status="4xx") == 1
    assert grown("memos_requests_total", route="none", method="GET", status="4xx") == 1
    assert grown("memos_calls_total", operation="search", ended="done") == 1
    assert grown("memos_calls_total", operation="search", ended="failed") == 1
    for operation, stage in (("add", "store"), ("add", "index"), ("search", "embed"), ("search", "recall")):
        assert grown("memos_stage_seconds_count", operation=operation, stage=stage) == 1
    assert of(found, "memos_ledger_up") == 1
    assert of(found, "memos_requests_under_way") == 1  # this one
    for told in (item, "Zebulon", "yak", SECRET, "ana", "ben", server.ana, server.admin, "mst_", "nowhere"):
        assert not re.search(rf'"[^"]*\b{re.escape(told)}\b', answer.text), told


def test_the_totals_tell_tiers_tasks_events_and_caches_of_the_ledger(server: Server) -> None:
    server.memos.add("one", cube="ana")
    before = server.memos.statistics.totals()
    server.memos.add(["two", "three"], cube="ana")
    server.memos.search("two", cubes=["ana"])
    server.memos.search("two", cubes=["ana"])
    after = server.memos.statistics.totals()
    assert after.messages - before.messages == 2
    assert after.events.get("add", 0) - before.events.get("add", 0) == 1
    assert set(after.tiers) == {"short", "mid", "long", "archive"}
    assert set(after.outbox) == {("vector", "parked"), ("vector", "waiting")}
    assert after.caches["embeddings"][0] > before.caches["embeddings"][0]


def test_every_number_of_the_dashboard_is_one_that_is_told(server: Server) -> None:
    server.memos.add("one", cube="ana")
    server.memos.search("one", cubes=["ana"])
    folder = Path(__file__).parents[2] / "deploy/grafana/dashboards"
    panels = json.loads((folder / "hippocube.json").read_text(encoding="utf-8"))["panels"]
    asked = {
        name for panel in panels for target in panel["targets"] for name in re.findall(r"memos_\w+", target["expr"])
    }
    assert len(asked) > 10
    told = "\n" + server.http.get("/metrics").text
    assert [name for name in asked if f"\n# HELP {name.removesuffix('_bucket')} " not in told] == []


def test_two_applications_do_not_count_together(server: Server) -> None:
    one, other = Metrics(server.memos), Metrics(server.memos)
    one.began()
    assert of(numbers(bytes(one.response().body).decode()), "memos_requests_under_way") == 1
    assert of(numbers(bytes(other.response().body).decode()), "memos_requests_under_way") == 0
