"""One search from question to hydrated hits; the index proposes, the ledger decides what may come back."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from zoneinfo import ZoneInfo

import numpy as np

from memos.clock import to_micros
from memos.errors import BackendUnavailable, ModelError
from memos.filters import And, Condition, Node, Not, Op, fields_of, matches
from memos.memcube.ledger import items
from memos.memcube.ledger.engine import Ledger
from memos.memcube.projection import Projection
from memos.memcube.vectors import VectorFollower
from memos.model import Arm, ArmScore, Hit, Item, ItemType, Scope, SearchResult, Source, Status
from memos.ports import ArmQuery, Embedder, GraphIndex, SparseEncoder, SparseVector, Vector, VectorIndex, VectorSearch
from memos.search.context import assemble
from memos.search.fusion import Candidate, Fused, fuse
from memos.search.pushdown import recall
from memos.search.question import Question, read_question
from memos.search.rank import Ranked, Recalled, rank
from memos.search.relevance import relevance

_OVERSAMPLE = 4
_MIN_CANDIDATES = 100
MAX_CANDIDATES = 5_000
"""Most points of one arm that a search looks at."""

_WIDEN = 10
# Candidates read from the ledger and ranked again: beyond them no boost reaches the first ten.
_MIN_POOL = 60
# Items not in the index yet that one search scores itself; newer ones first.
_MAX_UNINDEXED = 256
_SEEDS = 3
_NEIGHBOURS = 10
_FOUND_STATUSES = (Status.ACTIVE, Status.ARCHIVED)
# A message tells of something; that it is over does not make the message wrong. A fact that ended is.
_TOLD = (ItemType.MESSAGE, ItemType.DOCUMENT, ItemType.SUMMARY)


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """One question: `filter` is parsed, `as_of` a record time, `reference_time` when it is asked, in `zone`."""

    query: str
    scope: Scope
    top_k: int
    filter: Node | None
    as_of: datetime | None
    reference_time: datetime
    zone: ZoneInfo
    token_budget: int | None
    explain: bool


@dataclass(frozen=True, slots=True)
class _Encoded:
    """A question as the arms take it."""

    dense: Vector
    terms: SparseVector

    def arms(self) -> tuple[ArmQuery, ...]:
        """Return one query an arm; a question without an indexable term asks no term arm."""
        dense = (ArmQuery(Arm.TURN, self.dense), ArmQuery(Arm.WINDOW, self.dense))
        if not len(self.terms.indices):
            return dense
        return (*dense, ArmQuery(Arm.TURN_BM25, self.terms), ArmQuery(Arm.WINDOW_BM25, self.terms))


@dataclass(frozen=True, slots=True)
class Found:
    """What one search knows before it cuts: all ranked candidates, which collapsed into which, what is missing."""

    question: Question
    wanted: Node
    ranked: tuple[Ranked, ...]
    copies: Mapping[str, tuple[str, ...]]
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Searcher:
    """Search over one installation."""

    ledger: Ledger
    index: VectorIndex
    graph: GraphIndex
    follower: VectorFollower
    projection: Projection
    embedder: Embedder
    terms: SparseEncoder

    def search(self, request: SearchRequest) -> SearchResult:
        """Return at most `top_k` distinct hits, best first, with their sources."""
        clock = StageClock()
        limit = min(MAX_CANDIDATES, max(_MIN_CANDIDATES, request.top_k * _OVERSAMPLE))
        found = self.find(request, limit, clock)
        with clock.stage("hydrate"):
            hits = self._hits(request, found)
        text, tokens = "", 0
        if request.token_budget is not None:
            hits, text, tokens = assemble(hits, request.token_budget)
        return SearchResult(request.query, hits, text, tokens, found.missing, clock.timings_ms)

    def find(self, request: SearchRequest, limit: int, clock: StageClock) -> Found:
        """Recall at most `limit` points an arm, and more while too few distinct candidates come through."""
        with clock.stage("analyse"):
            question = read_question(request.query, request.reference_time, request.zone)
        with clock.stage("embed"):
            asked = _Encoded(self.embedder.embed_query(request.query), self.terms.encode_query(request.query))
        wanted = _wanted(request)
        while True:
            with clock.stage("recall"):
                arms, missing = self._recall(request, wanted, asked, limit)
            with clock.stage("fuse"):
                fused = fuse(arms)
            with clock.stage("hydrate"):
                pool = self._pool(request, wanted, fused)
            with clock.stage("graph"):
                pool, reached = self._neighbours(request, wanted, pool)
            with clock.stage("rank"):
                ranked, copies = _collapse(rank(pool, question, reached))
            full = any(len(candidates) >= limit for candidates in arms.values())
            if len(ranked) >= request.top_k or not full or limit == MAX_CANDIDATES:
                return Found(question, wanted, ranked, copies, missing if reached is not None else (*missing, "graph"))
            # Duplicates, or the chunks of one long text, took every place: look further.
            limit = min(MAX_CANDIDATES, limit * _WIDEN)

    def _recall(
        self, request: SearchRequest, wanted: Node, asked: _Encoded, limit: int
    ) -> tuple[dict[str, list[Candidate]], tuple[str, ...]]:
        as_of = None if request.as_of is None else to_micros(request.as_of)
        missing: tuple[str, ...] = ()
        queries = asked.arms()
        try:
            found = recall(self.ledger, self.index, VectorSearch(request.scope.cubes, queries, limit, wanted, as_of))
        except BackendUnavailable:
            found, missing = [[] for _ in queries], tuple(query.arm for query in queries)
        arms = {
            query.arm.value: [Candidate(f"{point.item}:{point.version}", point.score) for point in points]
            for query, points in zip(queries, found, strict=True)
        }
        unindexed = self._unindexed(request, wanted, all_recent=bool(missing))
        if unindexed:
            self._score_unindexed(arms, unindexed, asked)
        return arms, missing

    def _unindexed(self, request: SearchRequest, wanted: Node, *, all_recent: bool) -> list[Item]:
        """Return what the index does not show yet or, when it is down, the newest items."""
        ids = self.projection.pending(request.scope.cubes, _MAX_UNINDEXED)
        if not ids and not all_recent:
            return []
        with self.ledger.read() as connection:
            states = list(items.current(connection, request.scope.cubes, ids, request.as_of).values())
            if all_recent:
                states += items.newest(connection, request.scope.cubes, _MAX_UNINDEXED, request.as_of)
        distinct = {state.id: state for state in states}
        return [state for state in distinct.values() if matches(wanted, items.record_of(state))]

    def _score_unindexed(self, arms: dict[str, list[Candidate]], states: Sequence[Item], asked: _Encoded) -> None:
        """Score in this process what the index does not hold: cosine joins its arm, terms make an arm of their own.

        Without the index there is no IDF, so these term scores must not be compared with the index's.
        """
        texts = [self.follower.first_turn(state) for state in states]
        documents = [self.terms.encode_document(text) for text in texts]
        arms["unindexed_terms"] = [
            Candidate(_key(state), float(document.values[np.isin(document.indices, asked.terms.indices)].sum()))
            for state, document in zip(states, documents, strict=True)
        ]
        # A text the embedder refuses (it is parked for that) must not take the others' answer away.
        with suppress(ModelError):
            cosines = self.embedder.embed_documents(texts) @ asked.dense
            arms.setdefault(Arm.TURN.value, []).extend(
                Candidate(_key(state), float(cosine)) for state, cosine in zip(states, cosines, strict=True)
            )

    def _pool(self, request: SearchRequest, wanted: Node, fused: Sequence[Fused]) -> list[Recalled]:
        """Read candidates from the ledger, a page at a time, until enough of them passed every check."""
        enough = max(_MIN_POOL, request.top_k * 2)
        pool: list[Recalled] = []
        distinct: set[tuple[str, str, str]] = set()
        for start in range(0, len(fused), enough):
            page = fused[start : start + enough]
            states = self._states(request, [entry.version_key.rsplit(":", 1)[0] for entry in page])
            for entry in page:
                state = states.get(entry.version_key)
                if state is not None and matches(wanted, items.record_of(state)):
                    pool.append(Recalled(state, entry))
                    distinct.add(_words(state))
            if len(distinct) >= enough:
                break
        return pool

    def _states(self, request: SearchRequest, ids: Collection[str]) -> dict[str, Item]:
        """Return what the ledger says of items now, or said at the moment asked for, by version key."""
        with self.ledger.read() as connection:
            states = items.current(connection, request.scope.cubes, set(ids), request.as_of)
        return {_key(state): state for state in states.values()}

    def _neighbours(
        self, request: SearchRequest, wanted: Node, pool: list[Recalled]
    ) -> tuple[list[Recalled], dict[str, ArmScore] | None]:
        """Add what the graph has near the best candidates; None when the graph is down or shows another moment."""
        if not pool or request.as_of is not None:
            return pool, {}
        seeds = [entry.item.id for entry in pool[:_SEEDS]]
        try:
            near = self.graph.neighbours(request.scope.cubes, seeds, _NEIGHBOURS, hops=1)
        except BackendUnavailable:
            return pool, None
        reached = {
            neighbour.id: ArmScore("graph", place, float(neighbour.paths), neighbour.paths / near[0].paths)
            for place, neighbour in enumerate(near, start=1)
        }
        known = {entry.item.id for entry in pool}
        fresh = self._states(request, [item_id for item_id in reached if item_id not in known])
        added = [
            Recalled(state, Fused(key, 0.0, ()))
            for key, state in fresh.items()
            if matches(wanted, items.record_of(state))
        ]
        return pool + added, reached

    def _hits(self, request: SearchRequest, found: Found) -> tuple[Hit, ...]:
        best = found.ranked[: request.top_k]
        with self.ledger.read() as connection:
            sources = items.sources_of(connection, [entry.item.id for entry in best])
        hits = (hit_of(entry, sources.get(entry.item.id, ()), found.copies.get(entry.item.id, ())) for entry in best)
        return tuple(hit if request.explain else replace(hit, arms=(), boosts=()) for hit in hits)


def hit_of(entry: Ranked, sources: tuple[Source, ...], copies: tuple[str, ...]) -> Hit:
    """Return a ranked candidate as a hit."""
    item = replace(entry.item, sources=sources)
    return Hit(item, entry.score, relevance(entry), sources, copies, entry.arms, entry.boosts)


def _collapse(ranked: Sequence[Ranked]) -> tuple[tuple[Ranked, ...], dict[str, tuple[str, ...]]]:
    """Keep the best of what one speaker said in the same words in one cube; name the others with it."""
    kept: dict[tuple[str, str, str], Ranked] = {}
    copies: dict[str, tuple[str, ...]] = {}
    for entry in ranked:
        first = kept.setdefault(_words(entry.item), entry)
        if first.item.id != entry.item.id:
            copies[first.item.id] = (*copies.get(first.item.id, ()), entry.item.id)
    return tuple(kept.values()), copies


def _words(item: Item) -> tuple[str, str, str]:
    """Return what makes two hits say the same: cube, speaker and words."""
    return item.cube, item.speaker.casefold(), " ".join(item.memory.casefold().split())


def _wanted(request: SearchRequest) -> Node:
    """Add to the caller's filter what every search leaves out unless asked: other statuses, facts that have ended."""
    named = fields_of(request.filter)
    parts: list[Node] = [] if request.filter is None else [request.filter]
    if "status" not in named:
        parts.append(Condition("status", Op.IN, tuple(str(status) for status in _FOUND_STATUSES)))
    if not named & {"valid_to", "status"}:
        ended = Condition("valid_to", Op.LTE, to_micros(request.reference_time))
        fact = Condition("type", Op.NIN, tuple(str(kind) for kind in _TOLD))
        parts.append(Not(And((fact, ended))))
    return And(tuple(parts))


def _key(item: Item) -> str:
    return f"{item.id}:{item.version}"


class StageClock:
    """Milliseconds by stage."""

    def __init__(self) -> None:
        self.timings_ms: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add what happens inside to the stage's time."""
        started = time.perf_counter()
        yield
        self.timings_ms[name] = self.timings_ms.get(name, 0.0) + (time.perf_counter() - started) * 1000
