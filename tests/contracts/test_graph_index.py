"""The contract of a `GraphIndex`, for the graph on a Neo4j server."""

from __future__ import annotations

import hashlib
import itertools
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from memos.backends.graph.neo4j import Neo4jGraph
from memos.core.ports import GraphNode
from memos.core.settings import Neo4jSettings
from tests.support.graphs import neighbours
from tests.support.servers.neo4j_server import Neo4jServer

Factory = Callable[[Path], Neo4jGraph]


@pytest.fixture
def factory(neo4j_server: Neo4jServer) -> Factory:
    """Open one installation for each folder's name, so that one server is enough for all tests."""
    there = Neo4jSettings(url=neo4j_server.url, password=SecretStr(neo4j_server.password))
    return lambda folder: Neo4jGraph.open(there, f"t{hashlib.sha256(str(folder).encode()).hexdigest()[:16]}")


@pytest.fixture
def graph(factory: Factory, tmp_path: Path) -> Iterator[Neo4jGraph]:
    opened = factory(tmp_path / "graph")
    yield opened
    opened.close()


def node(
    number: int,
    *,
    cube: str = "a",
    previous: int | None = None,
    entities: tuple[str, ...] = (),
    links: tuple[tuple[str, int], ...] = (),
    revision: int = 1,
) -> GraphNode:
    targets = tuple((kind, f"m{target}") for kind, target in links)
    before = None if previous is None else f"m{previous}"
    return GraphNode(f"m{number}", cube, revision, f"conv-{cube}", before, entities, targets)


def around(graph: Neo4jGraph, *seeds: int, cubes: tuple[str, ...] = ("a",)) -> list[tuple[str, int]]:
    found = neighbours(graph, cubes, [f"m{seed}" for seed in seeds])
    return [(neighbour.id, neighbour.hops) for neighbour in found]


def test_neighbours_are_one_and_two_hops_away_in_either_direction(graph: Neo4jGraph) -> None:
    graph.upsert([node(n, previous=n - 1 if n else None) for n in range(6)])
    assert around(graph, 2) == [("m1", 1), ("m3", 1), ("m0", 2), ("m4", 2)]


def test_a_shared_entity_is_one_hop(graph: Neo4jGraph) -> None:
    graph.upsert([node(1, entities=("e1",)), node(2, entities=("e1", "e2")), node(3, entities=("e2",))])
    assert around(graph, 1) == [("m2", 1), ("m3", 2)]


def test_links_are_followed_and_more_paths_come_first(graph: Neo4jGraph) -> None:
    graph.upsert(
        [node(1, entities=("e",), links=(("SUPERSEDES", 2),)), node(2, entities=("e",)), node(3, entities=("e",))]
    )
    assert around(graph, 1) == [("m2", 1), ("m3", 1)]


def test_other_cubes_are_never_reached(graph: Neo4jGraph) -> None:
    graph.upsert([node(1, cube="a", entities=("shared",)), node(2, cube="b", entities=("shared",))])
    assert around(graph, 1) == []
    assert around(graph, 1, cubes=("a", "b")) == [("m2", 1)]


def test_an_upsert_replaces_exactly_the_nodes_own_edges(graph: Neo4jGraph) -> None:
    graph.upsert([node(1), node(2, previous=1, entities=("e",)), node(3, previous=2), node(4, entities=("e",))])
    graph.upsert([node(2, revision=2)])
    assert around(graph, 2) == [("m3", 1)]
    assert sorted((s.item, s.revision) for s in graph.scan("a")) == [("m1", 1), ("m2", 2), ("m3", 1), ("m4", 1)]


def test_repeating_an_upsert_changes_nothing(graph: Neo4jGraph) -> None:
    nodes = [node(1, entities=("e",)), node(2, previous=1, entities=("e",), links=(("RELATES", 1),))]
    for _ in range(3):
        graph.upsert(nodes)
    [neighbour] = neighbours(graph, ["a"], ["m1"])
    assert (neighbour.id, neighbour.paths) == ("m2", 3)


def test_an_edge_may_name_an_item_that_comes_later(graph: Neo4jGraph) -> None:
    graph.upsert([node(2, previous=1)])
    assert [s.item for s in graph.scan("a")] == ["m2"]
    assert around(graph, 2) == []
    graph.upsert([node(1)])
    assert around(graph, 2) == [("m1", 1)]


def test_deleting_takes_edges_along(graph: Neo4jGraph) -> None:
    graph.upsert([node(n, previous=n - 1 if n else None, entities=("e",) if n in (0, 2) else ()) for n in range(3)])
    graph.delete(["m1", "unknown"])
    assert sorted(s.item for s in graph.scan("a")) == ["m0", "m2"]
    assert around(graph, 0) == [("m2", 1)]
    graph.delete(["m0", "m2"])
    assert graph.cubes() == []


def test_marks_and_nodes_survive_reopening(factory: Factory, tmp_path: Path) -> None:
    graph = factory(tmp_path / "graph")
    assert graph.mark() == 0
    graph.upsert([node(1)])
    graph.flush(5)
    graph.close()
    again = factory(tmp_path / "graph")
    assert again.mark() == 5
    assert again.cubes() == ["a"]
    again.close()
    again.close()


def test_empty_calls_are_fine(graph: Neo4jGraph) -> None:
    graph.upsert([])
    graph.delete([])
    assert graph.adjacent([], "m1", 10) == []


def test_no_more_than_the_limit_is_returned(graph: Neo4jGraph) -> None:
    graph.upsert([node(n, previous=n - 1 if n else None) for n in range(9)])
    assert graph.adjacent(["a"], "m4", 0) == []
    assert len(graph.adjacent(["a"], "m4", 1)) == 1


def test_adjacent_goes_along_next_and_links_but_not_through_names(graph: Neo4jGraph) -> None:
    graph.upsert([node(1, entities=("e",)), node(2, previous=1), node(3, entities=("e",))])
    graph.upsert([node(4, links=(("RELATES", 2), ("SUPERSEDES", 2))), node(5, cube="b", links=(("DERIVED_FROM", 2),))])
    assert sorted(graph.adjacent(["a"], "m2", 9)) == ["m1", "m4"]
    assert sorted(graph.adjacent(["a", "b"], "m2", 9)) == ["m1", "m4", "m5"]
    assert graph.adjacent(["a"], "m3", 9) == []
    assert graph.adjacent(["a"], "unknown", 9) == []


def test_no_path_leads_through_another_cube_or_an_item_not_known_yet(graph: Neo4jGraph) -> None:
    graph.upsert([node(1, entities=("x",)), node(2, cube="b", entities=("x", "y")), node(3, entities=("y",))])
    graph.upsert([node(4, previous=9), node(5, links=(("RELATES", 9),))])
    assert around(graph, 1) == []
    assert around(graph, 1, cubes=("a", "b")) == [("m2", 1), ("m3", 2)]
    assert around(graph, 4) == []


def test_several_seeds_count_together_and_are_left_out(graph: Neo4jGraph) -> None:
    graph.upsert([node(1, entities=("e",)), node(2, entities=("e",)), node(3, entities=("e",)), node(4, previous=1)])
    found = neighbours(graph, ["a"], ["m1", "m2", "m1"])
    assert [(near.id, near.hops, near.paths) for near in found] == [("m3", 1, 2), ("m4", 1, 1)]


def test_the_last_of_equal_ids_in_one_call_counts(graph: Neo4jGraph) -> None:
    graph.upsert([node(1, entities=("e",)), node(2, entities=("e",)), node(1, revision=7)])
    assert sorted((s.item, s.revision) for s in graph.scan("a")) == [("m1", 7), ("m2", 1)]
    assert around(graph, 2) == []


def test_naming_an_item_leaves_it_as_it_is(graph: Neo4jGraph) -> None:
    graph.upsert([node(1, cube="b", revision=4, entities=("e",))])
    graph.upsert([node(2, previous=1, links=(("RELATES", 1),))])
    assert [(s.item, s.revision) for s in graph.scan("b")] == [("m1", 4)]


def test_an_item_can_move_to_another_cube(graph: Neo4jGraph) -> None:
    graph.upsert([node(1, cube="a"), node(2, cube="a", previous=1)])
    graph.upsert([node(1, cube="b", revision=2)])
    assert graph.cubes() == ["a", "b"]
    assert [s.item for s in graph.scan("a")] == ["m2"]
    assert around(graph, 2) == []
    assert around(graph, 2, cubes=("b",)) == [("m1", 1)]


def test_a_deleted_item_comes_back_without_what_others_named(graph: Neo4jGraph) -> None:
    graph.upsert([node(1, entities=("e",)), node(2, previous=1, entities=("e",), links=(("RELATES", 1),))])
    graph.delete(["m1"])
    graph.upsert([node(1)])
    assert around(graph, 1) == []
    graph.upsert([node(2, previous=1)])
    assert around(graph, 1) == [("m2", 1)]


def test_names_and_talks_that_were_deleted_can_be_named_again(graph: Neo4jGraph) -> None:
    for _ in range(2):
        graph.upsert([node(1, entities=("e",)), node(2, entities=("e",))])
        assert around(graph, 1) == [("m2", 1)]
        graph.delete(["m1", "m2"])
        assert (graph.cubes(), around(graph, 1)) == ([], [])


ODD = [
    "", " ", "it's", 'say "so"', "back\\slash", "line\nbreak", "nul\0nul", "$id", "{id}", "`tick`", "日本語", "é",
    "e\u0301", "\U0001f600", "\uffff", "x" * 2_000, "'}) DETACH DELETE n //",
]  # fmt: skip


def test_ids_are_taken_as_they_are(graph: Neo4jGraph) -> None:
    graph.upsert([GraphNode(one, "a", 1, one, None, (one,), ()) for one in ODD])
    assert sorted(s.item for s in graph.scan("a")) == sorted(ODD)
    pairs = list(itertools.pairwise(one for one in ODD if one))
    graph.upsert([GraphNode(later, later, 2, None, before, (), ()) for before, later in pairs])
    assert graph.cubes() == sorted({"a", *(later for _, later in pairs)})
    for before, later in pairs:
        assert later in graph.adjacent(ODD, before, 9)
        assert [(s.item, s.revision) for s in graph.scan(later)] == [(later, 2)]
    graph.delete(ODD)
    assert graph.cubes() == []


def test_threads_that_write_the_same_items_leave_what_one_would(graph: Neo4jGraph) -> None:
    nodes = [
        node(n, previous=n - 1 if n else None, entities=(f"e{n % 3}", "all"), links=(("RELATES", (n * 7) % 30),))
        for n in range(30)
    ]
    graph.upsert(nodes)
    expected = [neighbours(graph, ["a"], [f"m{n}"]) for n in range(30)]
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        chance = random.Random(seed)
        try:
            for _ in range(6):
                some = chance.sample(nodes, 12)
                graph.delete([one.id for one in some[:3]])
                graph.upsert(some)
                graph.adjacent(["a"], "m1", 10)
        except BaseException as error:  # noqa: BLE001 - reported by the main thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    graph.upsert(nodes)  # brings back what another one's deletion took
    assert [neighbours(graph, ["a"], [f"m{n}"]) for n in range(30)] == expected


def test_two_graphs_know_nothing_of_each_other(factory: Factory, tmp_path: Path) -> None:
    one, two = factory(tmp_path / "one"), factory(tmp_path / "two")
    one.upsert([node(1, entities=("e",)), node(2, previous=1, entities=("e",))])
    two.upsert([node(1, entities=("e",), revision=5), node(3, previous=2)])
    one.flush(3)
    assert (one.mark(), two.mark()) == (3, 0)
    assert around(two, 1) == around(two, 3) == []
    two.delete(["m1", "m2", "m3"])
    assert (one.cubes(), two.cubes()) == (["a"], [])
    assert around(one, 1) == [("m2", 1)]
    one.close()
    two.close()
