"""The contract of a `VectorIndex`, run over every implementation."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memos.backends.encoders.bm25 import QdrantBm25
from memos.backends.pgvector.index import PgVectorIndex
from memos.backends.qdrant.embedded import QdrantEdgeIndex
from memos.backends.qdrant.server import QdrantServerIndex
from memos.core.filters import Condition, Op, matches, parse
from memos.core.ports import ArmQuery, VectorIndex, VectorPoint, VectorSearch
from memos.core.types import Arm
from memos.errors import InvalidInput
from tests.support.servers.qdrant_rest import server_settings

DIMENSION = 8
BM25 = QdrantBm25()

Factory = Callable[[Path], VectorIndex]


@pytest.fixture(params=["qdrant_edge", "qdrant_server", "pgvector"])
def factory(request: pytest.FixtureRequest) -> Iterator[Factory]:
    """Yield what opens an index in a folder, or on a server under the folder's name."""
    if request.param == "qdrant_edge":
        yield lambda folder: QdrantEdgeIndex.open(folder, DIMENSION)
        return
    if request.param == "pgvector":
        url = request.getfixturevalue("vector_server").url()
        yield lambda folder: PgVectorIndex.open(url, folder.name, DIMENSION)
        return
    with server_settings() as server:
        yield lambda folder: QdrantServerIndex.open(server, folder.name, DIMENSION)


@pytest.fixture
def index(factory: Factory, tmp_path: Path) -> Iterator[VectorIndex]:
    opened = factory(tmp_path / "index")
    yield opened
    opened.close()


def test_what_is_held_of_points_is_their_revision_and_both_vectors(index: VectorIndex) -> None:
    one, two = point(1, revision=3), point(2)
    index.upsert([one, two])
    held = index.held([one.id, two.id, str(uuid.UUID(int=99))])
    assert {id_: found.revision for id_, found in held.items()} == {one.id: 3, two.id: 1}
    assert np.allclose(held[one.id].turn, one.turn, atol=1e-2)  # an index may keep them less exactly
    assert np.allclose(held[one.id].window, one.window, atol=1e-2)
    assert index.held([]) == {}
    assert (index.count(["item-1", "item-2", "item-9"]), index.count([])) == (2, 0)
    index.prune({"item-1": None})
    assert index.count(["item-1"]) == 0


def axis(number: int) -> np.ndarray:
    vector = np.zeros(DIMENSION, dtype=np.float32)
    vector[number % DIMENSION] = 1
    return vector


def point(number: int, text: str = "word", *, cube: str = "a", revision: int = 1, **payload: Any) -> VectorPoint:
    base = {
        "cube": cube, "item": f"item-{number}", "chunk": 0, "version": 1, "revision": revision,
        "recorded_from": 1_000, "info": {},
    }  # fmt: skip
    return VectorPoint(
        id=str(uuid.UUID(int=number + 1)),
        payload={**base, **payload},
        turn=axis(number),
        window=axis(number + 1),
        turn_terms=BM25.encode_document(text),
        window_terms=BM25.encode_document(f"{text} around"),
    )


def ask(index: VectorIndex, arm: Arm, query: Any, **options: Any) -> list[str]:
    options = {"cubes": ("a",), "limit": 100, **options}
    [found] = index.search(VectorSearch(arms=(ArmQuery(arm, query),), **options))
    assert [p.score for p in found] == sorted((p.score for p in found), reverse=True)
    assert all(p.score > 0 for p in found)
    return [p.item for p in found]


def test_points_are_found_at_once_by_every_arm(index: VectorIndex) -> None:
    index.upsert([point(1, "cello music"), point(2, "garden walk")])
    assert ask(index, Arm.TURN, axis(1)) == ["item-1"]
    assert ask(index, Arm.WINDOW, axis(3)) == ["item-2"]
    assert ask(index, Arm.TURN_BM25, BM25.encode_query("cellos")) == ["item-1"]
    assert ask(index, Arm.WINDOW_BM25, BM25.encode_query("around")) in (["item-1", "item-2"], ["item-2", "item-1"])


def test_what_stands_and_what_is_of_its_speaker_are_asked_by_their_turn_vectors_alone(index: VectorIndex) -> None:
    said = [point(1, standing=1), point(2, standing=1), point(3, standing=0), point(4), point(5, cube="b")]
    index.upsert([*said, point(6, standing=2), point(7, standing=2)])
    near = (axis(1) + axis(2) * 0.5 + axis(3) + axis(4) + axis(7) * 0.5 - axis(6) * 0.5) / np.float32(2)
    assert ask(index, Arm.STANDING, near) == ["item-1", "item-2"]
    assert ask(index, Arm.STANDING, axis(3)) == []
    assert ask(index, Arm.STANDING, near, cubes=("b",)) == []
    assert ask(index, Arm.OF_SELF, near) == ["item-7"], "what points away is not found"
    arms = (Arm.TURN, Arm.STANDING, Arm.OF_SELF)
    found = index.search(VectorSearch(("a",), tuple(ArmQuery(arm, near) for arm in arms), 10))
    assert [len(its) for its in found] == [5, 2, 1]
    few = (ArmQuery(Arm.STANDING, near, most=1), ArmQuery(Arm.TURN, near), ArmQuery(Arm.TURN, near, most=20))
    assert [len(its) for its in index.search(VectorSearch(("a",), few, 3))] == [1, 3, 3]


def test_of_a_time_also_what_points_away_is_found_and_with_names_only_what_is_near(index: VectorIndex) -> None:
    index.upsert([point(1), point(2, said_at=5), point(3, said_at=5), point(4, cube="b", said_at=5)])
    then = Condition("said_at", Op.EQ, 5)
    away = axis(1) - axis(2) * np.float32(0.5)
    arms = [ArmQuery(arm, away) for arm in (Arm.TURN, Arm.NAMED, Arm.DATED)]
    found = index.search(VectorSearch(("a",), tuple(arms), 10, then))
    assert [[point.item for point in its] for its in found] == [[], [], ["item-3", "item-2"]]
    assert ask(index, Arm.NAMED, axis(1)) == ["item-1"]


def test_turn_vectors_of_points_that_are_there_come_back(index: VectorIndex) -> None:
    points = [point(1, "cello music"), point(2, "garden walk")]
    index.upsert(points)
    found = index.turns([points[1].id, str(uuid.uuid4()), points[0].id])
    assert set(found) == {points[0].id, points[1].id}
    for held in points:
        assert found[held.id].dtype == np.float32
        assert float(found[held.id] @ held.turn) == pytest.approx(1, abs=0.02)
    assert index.turns([]) == {}


def test_several_arms_come_back_in_the_order_asked(index: VectorIndex) -> None:
    index.upsert([point(1, "cello"), point(2, "garden")])
    arms = (ArmQuery(Arm.TURN_BM25, BM25.encode_query("garden")), ArmQuery(Arm.TURN, axis(1)))
    first, second = index.search(VectorSearch(("a",), arms, 10))
    assert ([p.item for p in first], [p.item for p in second]) == (["item-2"], ["item-1"])


def test_what_is_done_meanwhile_is_done_at_most_once_and_changes_no_answer(index: VectorIndex) -> None:
    index.upsert([point(1), point(2)])
    request = VectorSearch(("a",), (ArmQuery(Arm.TURN, axis(1)), ArmQuery(Arm.WINDOW, axis(1))), 10)
    calls: list[str] = []
    assert index.search(request, lambda: calls.append("called")) == index.search(request)
    assert len(calls) <= 1


def test_chinese_and_japanese_words_are_terms(index: VectorIndex) -> None:
    index.upsert([point(1, "我对花生过敏"), point(2, "今天天气很好"), point(3, "大阪に引っ越しました")])
    assert ask(index, Arm.TURN_BM25, BM25.encode_query("花生")) == ["item-1"]
    assert ask(index, Arm.TURN_BM25, BM25.encode_query("大阪")) == ["item-3"]


def test_a_search_names_its_cubes_and_sees_no_other(index: VectorIndex) -> None:
    index.upsert([point(1, cube="a"), point(9, cube="b")])
    assert ask(index, Arm.TURN, axis(1)) == ["item-1"]
    assert ask(index, Arm.TURN, axis(1), cubes=("b",)) == ["item-9"]
    assert sorted(ask(index, Arm.TURN, axis(1), cubes=("a", "b"))) == ["item-1", "item-9"]
    with pytest.raises(InvalidInput, match="cube"):
        ask(index, Arm.TURN, axis(1), cubes=())


def test_a_rare_word_of_another_cube_does_not_change_the_ranking_here(index: VectorIndex) -> None:
    index.upsert([point(n, "common rare" if n == 1 else "common common") for n in range(1, 4)])
    [before] = index.search(VectorSearch(("a",), (ArmQuery(Arm.TURN_BM25, BM25.encode_query("rare common")),), 5))
    index.upsert([point(n, "rare", cube="b") for n in range(50, 90)])
    [after] = index.search(VectorSearch(("a",), (ArmQuery(Arm.TURN_BM25, BM25.encode_query("rare common")),), 5))
    assert [(p.item, round(p.score, 5)) for p in before] == [(p.item, round(p.score, 5)) for p in after]


def test_only_versions_that_stood_then_are_found_as_of_a_moment(index: VectorIndex) -> None:
    index.upsert([point(1, recorded_from=1_000, recorded_to=2_000), point(9, recorded_from=2_000)])
    assert ask(index, Arm.TURN, axis(1)) == ["item-9"]
    assert ask(index, Arm.TURN, axis(1), as_of=1_999) == ["item-1"]
    assert ask(index, Arm.TURN, axis(1), as_of=2_000) == ["item-9"]
    assert ask(index, Arm.TURN, axis(1), as_of=999) == []


def test_writing_a_point_again_replaces_it(index: VectorIndex) -> None:
    for revision in (1, 1, 2):
        index.upsert([point(1, revision=revision)])
    assert [(s.item, s.revision) for s in index.scan("a")] == [("item-1", 2)]


def test_pruning_keeps_only_the_given_revision(index: VectorIndex) -> None:
    stale = point(100, item="item-1", revision=1)
    index.upsert([point(1, revision=2), stale, point(2), point(3)])
    index.prune({"item-1": 2, "item-2": None})
    assert sorted((s.item, s.revision) for s in index.scan("a")) == [("item-1", 2), ("item-3", 1)]


def test_a_flush_remembers_its_mark_over_reopening(factory: Factory, tmp_path: Path) -> None:
    index = factory(tmp_path / "index")
    assert index.mark() == 0
    index.upsert([point(1)])
    index.flush(7)
    index.close()
    again = factory(tmp_path / "index")
    assert again.mark() == 7
    assert ask(again, Arm.TURN, axis(1)) == ["item-1"]
    assert again.cubes() == ["a"]
    again.close()
    again.close()


def test_empty_writes_and_an_empty_index_are_fine(index: VectorIndex) -> None:
    index.upsert([])
    index.prune({})
    assert ask(index, Arm.TURN, axis(1)) == []
    assert list(index.scan("nowhere")) == []
    assert index.cubes() == []


WORDS = st.sampled_from(["x", "y", "", "é", "a b"])
SCALARS = st.one_of(WORDS, st.booleans(), st.integers(-3, 3), st.sampled_from([0.5, 1.0, -2.5]))
RECORDS = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["message", "summary"]),
        "key": WORDS.filter(bool),
        "tags": st.lists(WORDS.filter(bool), max_size=3),
        "confidence": st.sampled_from([0.0, 0.5, 1.0]),
        "created_at": st.integers(0, 5),
        "valid_to": st.integers(0, 5),
        "info": st.dictionaries(
            st.sampled_from(["n", "a.b", "c-d"]), st.one_of(SCALARS, st.lists(SCALARS, max_size=3)), max_size=3
        ),
    },
)
_INFO = st.sampled_from(["info.n", "a.b", "c-d"])


def _condition() -> st.SearchStrategy[Any]:
    info = st.one_of(
        st.tuples(_INFO, st.sampled_from(["eq", "ne", "contains"]), SCALARS),
        st.tuples(_INFO, st.sampled_from(["gt", "gte", "lt", "lte"]), st.integers(-3, 3)),
        st.tuples(_INFO, st.sampled_from(["in", "nin"]), st.lists(SCALARS, min_size=1, max_size=3)),
    )
    text = st.tuples(st.just("key"), st.sampled_from(["eq", "ne"]), WORDS)
    kind = st.tuples(st.just("type"), st.sampled_from(["eq", "ne"]), st.sampled_from(["message", "summary", "skill"]))
    tags = st.tuples(st.just("tags"), st.sampled_from(["contains", "eq", "ne"]), WORDS)
    number = st.tuples(st.just("confidence"), st.sampled_from(["eq", "ne", "gt", "lte"]), st.sampled_from([0, 0.5, 1]))
    exists = st.tuples(
        st.sampled_from(["key", "tags", "valid_to", "confidence", "info.n", "a.b"]), st.just("exists"), st.booleans()
    )
    ids = st.tuples(
        st.just("id"), st.sampled_from(["in", "nin"]), st.lists(st.sampled_from(["item-0", "item-1"]), min_size=1)
    )
    return st.one_of(info, text, kind, tags, number, exists, ids).map(lambda t: {t[0]: {t[1]: t[2]}})


FILTERS = st.recursive(
    _condition(),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"and": parts}),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"or": parts}),
        inner.map(lambda part: {"not": part}),
    ),
    max_leaves=5,
)


@pytest.mark.heavy
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(records=st.lists(RECORDS, min_size=1, max_size=6), raws=st.lists(FILTERS, min_size=1, max_size=8))
def test_a_filter_means_in_the_index_what_it_means_in_python(
    index: VectorIndex, records: list[dict[str, Any]], raws: list[Any]
) -> None:
    index.prune({f"item-{number}": None for number in range(6)})
    same = np.ones(DIMENSION, dtype=np.float32)
    points = []
    for number, record in enumerate(records):
        made = point(number, **record)
        points.append(VectorPoint(made.id, made.payload, same, same, made.turn_terms, made.window_terms))
    index.upsert(points)
    for raw in raws:
        node = parse(raw)
        expected = {
            f"item-{number}"
            for number, record in enumerate(records)
            if matches(
                node,
                {
                    **{name: value for name, value in record.items() if name != "info"},
                    **{f"info.{name}": value for name, value in record.get("info", {}).items()},
                    "id": f"item-{number}",
                },
            )
        }
        assert set(ask(index, Arm.TURN, same, filter=node)) == expected, raw
