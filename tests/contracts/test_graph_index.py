"""The contract of a `GraphIndex`, run over every implementation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from memos.backends.ladybug import HUB_MENTIONS, LadybugGraph
from memos.ports import GraphIndex, GraphNode

Factory = Callable[[Path], GraphIndex]
FACTORIES: dict[str, Factory] = {"ladybug": LadybugGraph.open}


@pytest.fixture(params=sorted(FACTORIES))
def factory(request: pytest.FixtureRequest) -> Factory:
    return FACTORIES[request.param]


@pytest.fixture
def graph(factory: Factory, tmp_path: Path) -> Iterator[GraphIndex]:
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


def around(graph: GraphIndex, *seeds: int, cubes: tuple[str, ...] = ("a",), limit: int = 50) -> list[tuple[str, int]]:
    found = graph.neighbours(cubes, [f"m{seed}" for seed in seeds], limit)
    return [(neighbour.id, neighbour.hops) for neighbour in found]


def test_neighbours_are_one_and_two_hops_away_in_either_direction(graph: GraphIndex) -> None:
    graph.upsert([node(n, previous=n - 1 if n else None) for n in range(6)])
    assert around(graph, 2) == [("m1", 1), ("m3", 1), ("m0", 2), ("m4", 2)]


def test_a_shared_entity_is_one_hop(graph: GraphIndex) -> None:
    graph.upsert([node(1, entities=("e1",)), node(2, entities=("e1", "e2")), node(3, entities=("e2",))])
    assert around(graph, 1) == [("m2", 1), ("m3", 2)]


def test_links_are_followed_and_more_paths_come_first(graph: GraphIndex) -> None:
    graph.upsert(
        [node(1, entities=("e",), links=(("SUPERSEDES", 2),)), node(2, entities=("e",)), node(3, entities=("e",))]
    )
    assert around(graph, 1) == [("m2", 1), ("m3", 1)]
    assert around(graph, 1, limit=1) == [("m2", 1)]


def test_other_cubes_are_never_reached(graph: GraphIndex) -> None:
    graph.upsert([node(1, cube="a", entities=("shared",)), node(2, cube="b", entities=("shared",))])
    assert around(graph, 1) == []
    assert around(graph, 1, cubes=("a", "b")) == [("m2", 1)]


def test_an_upsert_replaces_exactly_the_nodes_own_edges(graph: GraphIndex) -> None:
    graph.upsert([node(1), node(2, previous=1, entities=("e",)), node(3, previous=2), node(4, entities=("e",))])
    graph.upsert([node(2, revision=2)])
    assert around(graph, 2) == [("m3", 1)]
    assert sorted((s.item, s.revision) for s in graph.scan("a")) == [("m1", 1), ("m2", 2), ("m3", 1), ("m4", 1)]


def test_repeating_an_upsert_changes_nothing(graph: GraphIndex) -> None:
    nodes = [node(1, entities=("e",)), node(2, previous=1, entities=("e",), links=(("RELATES", 1),))]
    for _ in range(3):
        graph.upsert(nodes)
    [neighbour] = graph.neighbours(["a"], ["m1"], 10)
    assert (neighbour.id, neighbour.paths) == ("m2", 3)


def test_an_edge_may_name_an_item_that_comes_later(graph: GraphIndex) -> None:
    graph.upsert([node(2, previous=1)])
    assert [s.item for s in graph.scan("a")] == ["m2"]
    assert around(graph, 2) == []
    graph.upsert([node(1)])
    assert around(graph, 2) == [("m1", 1)]


def test_deleting_takes_edges_along(graph: GraphIndex) -> None:
    graph.upsert([node(n, previous=n - 1 if n else None, entities=("e",) if n in (0, 2) else ()) for n in range(3)])
    graph.delete(["m1", "unknown"])
    assert sorted(s.item for s in graph.scan("a")) == ["m0", "m2"]
    assert around(graph, 0) == [("m2", 1)]
    graph.delete(["m0", "m2"])
    assert graph.cubes() == []


def test_a_name_everybody_says_links_nobody(graph: GraphIndex) -> None:
    graph.upsert([node(n, entities=("hub", "rare") if n < 2 else ("hub",)) for n in range(HUB_MENTIONS + 5)])
    assert around(graph, 0) == [("m1", 1)]


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


def test_empty_calls_are_fine(graph: GraphIndex) -> None:
    graph.upsert([])
    graph.delete([])
    assert graph.neighbours(["a"], [], 10) == []
