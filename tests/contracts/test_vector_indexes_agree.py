"""The embedded index and those on servers answer the same search alike, up to the embedded one's 8-bit vectors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memos.backends.pgvector.index import PgVectorIndex
from memos.backends.qdrant.embedded import QdrantEdgeIndex
from memos.backends.qdrant.server import QdrantServerIndex
from memos.core.filters import parse
from memos.core.ports import ArmQuery, ScoredPoint, VectorIndex, VectorPoint, VectorSearch
from memos.core.types import Arm
from tests.contracts.test_vector_index import BM25, DIMENSION, FILTERS, RECORDS, point
from tests.support.servers.qdrant_rest import server_settings

Pair = tuple[VectorIndex, VectorIndex]

# What a cosine of vectors of 8 numbers may be off by when each number has 8 bits.
DENSE_NOISE = 0.02
TERM_NOISE = 1e-4
WORDS = ["cello", "garden", "rare", "common", "我对花生过敏", "2023"]
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map(" ".join)
MOMENTS = [500, 1_000, 1_500, 2_000, 2_500]


@st.composite
def points(draw: st.DrawFn, number: int) -> VectorPoint:
    """One point with any text, vectors, filter fields and time of standing."""
    fields: dict[str, Any] = {**draw(RECORDS), "recorded_from": draw(st.sampled_from(MOMENTS))}
    until = draw(st.none() | st.sampled_from(MOMENTS))
    if until is not None:
        fields["recorded_to"] = until
    else:
        fields["live"] = draw(st.sampled_from([0, 1]))
    made = point(number, draw(TEXTS), cube=draw(st.sampled_from(["a", "b", "c"])), **fields)
    numbers = np.random.default_rng(draw(st.integers(0, 2**32))).normal(size=(2, DIMENSION)).astype(np.float32)
    return VectorPoint(made.id, made.payload, numbers[0], numbers[1], made.turn_terms, made.window_terms)


@st.composite
def searches(draw: st.DrawFn) -> VectorSearch:
    """One search of all arms."""
    vector = np.random.default_rng(draw(st.integers(0, 2**32))).normal(size=DIMENSION).astype(np.float32)
    terms = BM25.encode_query(draw(TEXTS))
    raw = draw(st.none() | FILTERS)
    return VectorSearch(
        cubes=tuple(draw(st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, unique=True))),
        arms=tuple(ArmQuery(arm, terms if "bm25" in arm else vector / np.linalg.norm(vector)) for arm in Arm),
        limit=draw(st.sampled_from([1, 3, 50])),
        filter=None if raw is None else parse(raw),
        as_of=draw(st.none() | st.sampled_from(MOMENTS)),
        live=draw(st.booleans()),
    )


@pytest.fixture(scope="module", params=["qdrant_server", "pgvector"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with ExitStack() as stack:
        embedded = QdrantEdgeIndex.open(tmp_path_factory.mktemp("agree") / "index", DIMENSION)
        stack.callback(embedded.close)
        served: VectorIndex
        if request.param == "pgvector":
            url = request.getfixturevalue("vector_server").url()
            served = PgVectorIndex.open(url, "agree", DIMENSION)
        else:
            served = QdrantServerIndex.open(stack.enter_context(server_settings()), "agree", DIMENSION)
        stack.callback(served.close)
        yield embedded, served


def agree(one: list[ScoredPoint], other: list[ScoredPoint], limit: int, noise: float) -> None:
    """Check that two lists say the same, but for what noise may have put in another order or over an edge."""
    ranks = max(len(one), len(other))
    ones, others = ([p.score for p in found] + [0.0] * (ranks - len(found)) for found in (one, other))
    assert ones == pytest.approx(others, abs=noise)
    scores, theirs = {p.key: p.score for p in one}, {p.key: p.score for p in other}
    for key in scores.keys() & theirs.keys():
        assert scores[key] == pytest.approx(theirs[key], abs=noise)
    last = min(ones[-1], others[-1]) if ranks == limit else 0.0
    for key in scores.keys() ^ theirs.keys():
        assert scores.get(key, theirs.get(key, 0.0)) <= last + 2 * noise


@pytest.mark.heavy
@settings(max_examples=60, deadline=None)
@given(
    told=st.integers(0, 12).flatmap(lambda count: st.tuples(*(points(number) for number in range(count)))),
    asked=st.lists(searches(), min_size=1, max_size=5),
)
def test_the_same_points_and_searches_give_the_same_hits(
    pair: Pair, told: tuple[VectorPoint, ...], asked: list[VectorSearch]
) -> None:
    for index in pair:
        index.prune({f"item-{number}": None for number in range(12)})
        index.upsert(told)
    assert pair[0].cubes() == pair[1].cubes()
    for cube in pair[0].cubes():
        assert set(pair[0].scan(cube)) == set(pair[1].scan(cube))
    for search in asked:
        for arm, one, other in zip(search.arms, *(index.search(search) for index in pair), strict=True):
            agree(one, other, search.limit, TERM_NOISE if "bm25" in arm.arm else DENSE_NOISE)


def test_the_comparison_can_fail() -> None:
    one = [ScoredPoint("x:1", 0.9), ScoredPoint("y:1", 0.5)]
    agree(one, [ScoredPoint("x:1", 0.9), ScoredPoint("z:1", 0.5)], 2, 0.02)
    for other in ([ScoredPoint("x:1", 0.9)], [ScoredPoint("y:1", 0.9), ScoredPoint("x:1", 0.5)]):
        with pytest.raises(AssertionError):
            agree(one, other, 2, 0.02)
