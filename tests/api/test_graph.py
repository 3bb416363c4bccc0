"""People and things, merged names and the timeline over HTTP; and that they follow erasures, dumps and backups."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from memos import MemOS, Settings
from memos.kernel.relocation import restore
from tests.api.conftest import Server
from tests.fakes import WordEmbedder
from tests.support.servers.postgres_server import PostgresServer

_SAID = [
    ("I live in Paris.", "2025-01-14T09:00:00Z"),
    ("Zoe and I went to the opera with Bruno.", "2025-02-03T09:00:00Z"),
    ("I moved to Lyon.", "2025-05-17T09:00:00Z"),
    ("We had tea with Bruno Keller and Zoe.", "2025-06-01T09:00:00Z"),
]


def _tell(memos: MemOS, cube: str, actor: str) -> list[str]:
    ids = []
    for text, at in _SAID:
        message = {"role": "user", "name": "Ana", "content": text, "chat_time": at}
        ids += memos.add([message], cube=cube, actor=actor, conversation="life").item_ids
    memos.review.decide(ids[2], ids[0], holds=True, cube=cube, actor=actor)
    return ids


@pytest.fixture(scope="module")
def ids(server: Server) -> list[str]:
    return _tell(server.memos, "ana", "ana")


def _get(server: Server, path: str, who: str = "ana", **params: Any) -> Any:
    return server.http.get(f"/api/v1{path}", params=params, headers=server.headers(who)).json()


@pytest.mark.usefixtures("ids")
def test_people_and_things_are_listed_by_page(server: Server) -> None:
    everybody = _get(server, "/graph/entities")["entities"]
    assert (everybody[0]["name"], everybody[0]["kind"], everybody[0]["memories"]) == ("Ana", "person", 4)
    first = _get(server, "/graph/entities", limit=2)
    rest = _get(server, "/graph/entities", after=first["after"])
    assert [one["id"] for one in first["entities"] + rest["entities"]] == [one["id"] for one in everybody]
    assert [one["name"] for one in _get(server, "/graph/entities", text="KELL")["entities"]] == ["Bruno Keller"]
    assert {one["name"] for one in _get(server, "/graph/entities", kind="thing")["entities"]} >= {"Paris", "Zoe"}
    assert _get(server, "/graph/entities", after="wrong")["error"]["field"] == "after"
    assert _get(server, "/graph/entity", name="nobody")["error"]["code"] == "not_found"


def test_relations_have_sources_and_say_whether_they_hold(server: Server, ids: list[str]) -> None:
    around = _get(server, "/graph/neighbours", name="ana")
    edges = {(edge["relation"], edge["target"]): edge for edge in around["edges"]}
    assert edges["residence", "paris"]["standing"] == "replaced"
    assert edges["residence", "lyon"]["item"] == ids[2]
    assert edges["mentions", "zoe"]["count"] == 2
    assert not edges["mentions", "zoe"]["stated"]
    view = _get(server, "/graph")
    assert {edge["relation"] for edge in view["edges"]} >= {"residence", "mentions", "named with"}
    assert view["complete"]


def test_a_search_for_a_merged_name_finds_what_names_the_other(server: Server) -> None:
    memos = server.memos
    memos.cubes.create("merged", actor="ana")
    said = ["Rob Miller plays the cello.", "Bobby lives in Bergen.", "Tom plays the piano.", "The sea is calm."]
    ids = memos.add([{"role": "user", "content": text} for text in said], cube="merged", actor="ana").item_ids
    memos.add({"role": "user", "name": "Elise", "content": "Last year was Rome."}, cube="merged", actor="ana")
    memos.add("Lisl paints.", cube="merged", actor="ana")

    def first(question: str, cube: str = "merged") -> str:
        found = _get_hits(server, question, cube)
        return str(found[0]["item"]["memory"])

    assert first("Where is the home of Rob Miller?") == said[0]
    alias = memos.graph.merge("Bobby", "Rob Miller", cube="merged", actor="ana")
    memos.graph.merge("Lisl", "Elise", cube="merged", actor="ana")
    everything = [hit["item"]["memory"] for hit in _get_hits(server, "Where is the home of Rob Miller?", "merged")]
    assert set(everything[:2]) == {*said[:2]}
    assert first("What is Bobby’s cello?") == said[0]
    assert first("Where was Lisl?") == "Last year was Rome."
    told = server.http.post(
        "/api/v1/search/why-not",
        json={"query": "Bobby’s cello", "cubes": ["merged"], "item": ids[0]},
        headers=server.headers("ana"),
    )
    assert told.json()["stage"] == "found"
    both = memos.add("Bobby signs as Rob Miller.", cube="merged", actor="ana")
    assert memos.graph.entity("bobby", cube="merged", actor="ana").memories == 3, both
    assert memos.graph.entities(cube="merged", actor="ana", text="rob").entities[0].memories == 3
    memos.graph.split(alias.id, cube="merged", actor="ana")
    assert first("Where is the home of Bobby?") in (said[1], "Bobby signs as Rob Miller.")
    assert first("Where was Lisl?") == "Last year was Rome."


def _get_hits(server: Server, question: str, cube: str) -> Any:
    body = {"query": question, "cubes": [cube]}
    return server.http.post("/api/v1/search", json=body, headers=server.headers("ana")).json()["hits"]


def test_names_are_merged_and_split_again(server: Server, ids: list[str]) -> None:
    key = server.headers("ana")
    one = server.http.post("/api/v1/graph/aliases", json={"name": "Bruno", "into": "bruno keller"}, headers=key).json()
    merged = _get(server, "/graph/entity", name="BRUNO")
    assert (merged["name"], merged["memories"], merged["aliases"]) == ("Bruno Keller", 2, ["Bruno"])
    again = server.http.post("/api/v1/graph/aliases", json={"name": "Bruno Keller", "into": "Bruno"}, headers=key)
    assert again.status_code == 409
    other = server.http.post("/api/v1/graph/aliases", json={"name": "Bruno Keller", "into": "Zoe"}, headers=key).json()
    assert _get(server, "/graph/entity", name="Bruno")["name"] == "Zoe"
    refused = server.http.delete(f"/api/v1/graph/aliases/{other['id']}", headers=server.headers("ben"))
    assert refused.status_code == 404
    assert server.http.delete(f"/api/v1/graph/aliases/{other['id']}", headers=key).status_code == 200
    assert _get(server, "/graph/entity", name="Bruno")["name"] == "Bruno Keller"
    assert server.http.delete(f"/api/v1/graph/aliases/{one['id']}", headers=key).status_code == 200
    assert _get(server, "/graph/entity", name="Bruno")["memories"] == 1
    kinds = [event.kind for event in server.memos.events.list("ana", actor="ana", limit=1000)]
    assert (kinds.count("merge"), kinds.count("split")) == (2, 2)


def test_a_day_shows_what_held_then(server: Server, ids: list[str]) -> None:
    def values(at: str, **more: Any) -> set[str]:
        return {
            held["item"]["value"] for held in _get(server, "/timeline/day", at=at, kind="values", **more)["memories"]
        }

    assert values("2025-01-13") == set()
    assert values("2025-01-14") == {"Paris"}
    assert values("2025-05-17") == {"Lyon"}
    assert values("2025-05-17", stored=True) == set()
    first = _get(server, "/timeline/day", limit=1)
    rest = _get(server, "/timeline/day", after=first["after"])
    assert [held["item"]["id"] for held in first["memories"] + rest["memories"]] == [ids[3], ids[2], ids[1]]
    assert [held["item"]["id"] for held in _get(server, "/timeline/day", about="zoe")["memories"]] == [ids[3], ids[1]]


def test_two_days_differ(server: Server, ids: list[str]) -> None:
    diff = _get(server, "/timeline/difference", since="2025-02-01", until="2025-05-20")
    assert [held["item"]["id"] for held in diff["added"]] == [ids[2], ids[1]]
    assert [(each["item"]["id"], each["by"]["id"], each["sure"]) for each in diff["replaced"]] == [
        (ids[0], ids[2], True)
    ]
    assert diff["ended"] == []
    assert _get(server, "/timeline/difference", since="2026-02-01", until="2025-05-20")["error"]["field"] == "since"


def test_a_life_is_a_line(server: Server, ids: list[str]) -> None:
    for name in ("ana", "residence"):
        [line] = _get(server, "/timeline/life", name=name)["lines"]
        entries = [(entry["value"], entry["item"], entry["until"] is None) for entry in line["entries"]]
        assert (line["subject"], line["property"]) == ("Ana", "residence")
        assert entries == [("Paris", ids[0], False), ("Lyon", ids[2], True)]
    assert _get(server, "/timeline/span")["first"].startswith("2025-01-14")
    assert sum(step["memories"] for step in _get(server, "/timeline/span")["steps"]) == 4


@pytest.mark.usefixtures("ids")
def test_another_tenant_gets_nothing(server: Server) -> None:
    for path in ("/graph", "/graph/entities", "/graph/aliases", "/timeline/span", "/timeline/day"):
        assert _get(server, path, "ben", cube="ana")["error"]["code"] == "not_found"
        assert "Lyon" not in str(_get(server, path, "ben"))


def test_names_follow_changes_erasures_dumps_and_backups(tmp_path: Path) -> None:
    with MemOS.open(tmp_path / "one", embedder=WordEmbedder()) as memos:
        ids = _tell(memos, "default", "owner")
        memos.graph.merge("Bruno", "Bruno Keller")
        memos.delete(ids[3])
        assert memos.graph.entity("Bruno").memories == 1
        memos.memories.rollback(ids[3])
        memos.update(ids[1], "Zoe and I went to the opera with Bruno and Carla.")
        assert memos.graph.entity("Carla").memories == 1
        memos.transfer.dump("default", tmp_path / "it.memcube")
        memos.maintenance.backup(tmp_path / "backup")
        assert memos.maintenance.verify().clean
        with memos.ledger.write() as connection:
            connection.exec_driver_sql("DELETE FROM mentions WHERE name = 'carla'")
        assert [each.kind for each in memos.maintenance.verify().differences] == ["names"]
        assert memos.maintenance.verify(repair=True).clean
        assert memos.graph.entity("Carla").memories == 1

        receipt = memos.erase(ids[3])
        assert receipt.removed["entity_aliases"] == 1
        assert memos.graph.aliases() == ()
        assert "keller" not in str([one.id for one in memos.graph.entities().entities])
    # The backup is older than the erasure, which a restore repeats.
    restore(tmp_path / "backup", Settings(home=tmp_path / "three"), embedder=WordEmbedder())
    with MemOS.open(tmp_path / "three", embedder=WordEmbedder()) as memos:
        assert memos.graph.entity("Carla").memories == 1
        assert memos.graph.aliases() == ()
        assert memos.maintenance.verify().clean
    with MemOS.open(tmp_path / "two", embedder=WordEmbedder()) as memos:
        memos.transfer.load(tmp_path / "it.memcube", cube="trusted", trust=True)
        memos.transfer.load(tmp_path / "it.memcube", cube="strange")
        assert memos.graph.entity("Bruno", cube="trusted").name == "Bruno Keller"
        assert memos.graph.entity("Bruno", cube="strange").name == "Bruno"
        memos.cubes.drop("trusted")
        with memos.ledger.read() as connection:
            assert connection.exec_driver_sql("SELECT count(*) FROM entity_aliases").scalar() == 0
            assert connection.exec_driver_sql("SELECT count(*) FROM mentions WHERE cube_id = 'trusted'").scalar() == 0


def test_postgresql_answers_the_same(tmp_path: Path, postgres_server: PostgresServer) -> None:
    settings = Settings(home=tmp_path, ledger_url=SecretStr(postgres_server.url()))
    with MemOS.open(settings=settings, embedder=WordEmbedder()) as memos:
        ids = _tell(memos, "default", "owner")
        memos.graph.merge("Bruno", "Bruno Keller")
        assert memos.graph.entity("Bruno").memories == 2
        assert {(edge.relation, edge.target) for edge in memos.graph.neighbours("ana").edges} >= {("residence", "lyon")}
        assert memos.graph.view().complete
        day = memos.timeline.day("2025-05-17", kind="values")
        assert [held.item.value for held in day.memories] == ["Lyon"]
        assert [held.item.id for held in memos.timeline.day("2025-01-14", stored=True).memories] == []
        diff = memos.timeline.difference("2025-02-01", "2025-05-20")
        assert [(each.item.id, each.by and each.by.id) for each in diff.replaced] == [(ids[0], ids[2])]
        assert [line.property for line in memos.timeline.life("residence").lines] == ["residence"]
        assert sum(step.memories for step in memos.timeline.span().steps) == 4
        memos.erase(ids[3])
        assert memos.graph.aliases() == ()
        assert memos.maintenance.verify().clean
