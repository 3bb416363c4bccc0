"""One search from question to hydrated hits; the index proposes, the ledger decides what may come back."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np
import sqlalchemy as sa

from memos.clock import to_micros
from memos.errors import BackendUnavailable, ModelError
from memos.filters import And, Condition, Node, Not, Op, Or, fields_of, matches
from memos.memcube.ledger import items
from memos.memcube.ledger.engine import Ledger
from memos.memcube.projection import Projection
from memos.memcube.vectors import VectorFollower
from memos.model import Arm, Hit, Item, Scope, SearchResult, Status
from memos.ports import ArmQuery, Embedder, SparseEncoder, SparseVector, Vector, VectorIndex, VectorSearch
from memos.search.context import assemble
from memos.search.fusion import Candidate, Fused, fuse

_OVERSAMPLE = 4
_MIN_CANDIDATES = 50
_MAX_CANDIDATES = 5_000
_WIDEN = 10
# Items not in the index yet that one search scores itself; newer ones first.
_MAX_UNINDEXED = 256
_LEDGER_PAGE = 1_000
_FOUND_STATUSES = (Status.ACTIVE, Status.ARCHIVED)


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """One question: `filter` is parsed, `as_of` a record time, `reference_time` when it is asked."""

    query: str
    scope: Scope
    top_k: int
    filter: Node | None
    as_of: datetime | None
    reference_time: datetime
    token_budget: int | None
    explain: bool


@dataclass(frozen=True, slots=True)
class Searcher:
    """Search over one installation."""

    ledger: Ledger
    index: VectorIndex
    follower: VectorFollower
    projection: Projection
    embedder: Embedder
    terms: SparseEncoder

    def search(self, request: SearchRequest) -> SearchResult:
        """Return at most `top_k` distinct hits, best first, with their sources."""
        clock = _StageClock()
        with clock.stage("embed"):
            dense = self.embedder.embed_query(request.query)
            terms = self.terms.encode_query(request.query)
        wanted = _wanted(request)
        limit = min(_MAX_CANDIDATES, max(_MIN_CANDIDATES, request.top_k * _OVERSAMPLE))
        while True:
            with clock.stage("recall"):
                arms, missing = self._recall(request, wanted, dense, terms, limit)
            with clock.stage("fuse"):
                fused = fuse(arms)
            with clock.stage("hydrate"):
                hits = self._hydrate(request, wanted, fused)
            full = any(len(candidates) >= limit for candidates in arms.values())
            if len(hits) >= request.top_k or not full or limit == _MAX_CANDIDATES:
                break
            # Duplicates, or the chunks of one long text, took every place: look further.
            limit = min(_MAX_CANDIDATES, limit * _WIDEN)
        text, tokens = "", 0
        if request.token_budget is not None:
            hits, text, tokens = assemble(hits, request.token_budget)
        return SearchResult(request.query, hits, text, tokens, missing, clock.timings_ms)

    def _recall(
        self, request: SearchRequest, wanted: Node, dense: Vector, terms: SparseVector, limit: int
    ) -> tuple[dict[str, list[Candidate]], tuple[str, ...]]:
        queries = [ArmQuery(Arm.TURN, dense), ArmQuery(Arm.WINDOW, dense)]
        if len(terms.indices):
            queries += [ArmQuery(Arm.TURN_BM25, terms), ArmQuery(Arm.WINDOW_BM25, terms)]
        as_of = None if request.as_of is None else to_micros(request.as_of)
        missing: tuple[str, ...] = ()
        try:
            pushed = self._push_down(request, wanted)
            found = self.index.search(VectorSearch(request.scope.cubes, tuple(queries), limit, pushed, as_of))
        except BackendUnavailable:
            found, missing = [[] for _ in queries], tuple(query.arm for query in queries)
        arms = {
            query.arm.value: [Candidate(f"{point.item}:{point.version}", point.score) for point in points]
            for query, points in zip(queries, found, strict=True)
        }
        unindexed = self._unindexed(request, wanted, all_recent=bool(missing))
        if unindexed:
            self._score_unindexed(arms, unindexed, dense, terms)
        return arms, missing

    def _push_down(self, request: SearchRequest, node: Node) -> Node:
        """Replace conditions the index cannot judge (memory text, entities, `like`) by the ids they hold for."""
        match node:
            case And():
                return And(tuple(self._push_down(request, part) for part in node.parts))
            case Or():
                return Or(tuple(self._push_down(request, part) for part in node.parts))
            case Not():
                return Not(self._push_down(request, node.part))
            case Condition() if node.field in ("memory", "entities") or node.op is Op.LIKE:
                ids = tuple(item.id for item in self._every(request) if matches(node, items.record_of(item)))
                return Condition("id", Op.IN, ids)
        return node

    def _every(self, request: SearchRequest) -> Iterator[Item]:
        for cube in request.scope.cubes:
            yield from every_item(self.ledger, cube, tuple(Status), request.as_of)

    def _unindexed(self, request: SearchRequest, wanted: Node, *, all_recent: bool) -> list[Item]:
        """Return what the index does not show yet or, when it is down, the newest items."""
        ids = self.projection.pending(request.scope.cubes, _MAX_UNINDEXED)
        with self.ledger.read() as connection:
            states = list(items.current(connection, request.scope.cubes, ids, request.as_of).values())
            if all_recent:
                states += items.newest(connection, request.scope.cubes, _MAX_UNINDEXED, request.as_of)
        distinct = {state.id: state for state in states}
        return [state for state in distinct.values() if matches(wanted, items.record_of(state))]

    def _score_unindexed(
        self, arms: dict[str, list[Candidate]], states: Sequence[Item], dense: Vector, terms: SparseVector
    ) -> None:
        """Score in this process what the index does not hold: cosine joins its arm, terms make an arm of their own.

        Without the index there is no IDF, so these term scores must not be compared with the index's.
        """
        texts = [self.follower.first_turn(state) for state in states]
        documents = [self.terms.encode_document(text) for text in texts]
        arms["unindexed_terms"] = [
            Candidate(_key(state), _dot(document, terms)) for state, document in zip(states, documents, strict=True)
        ]
        # A text the embedder refuses (it is parked for that) must not take the others' answer away.
        with suppress(ModelError):
            cosines = self.embedder.embed_documents(texts) @ dense
            arms.setdefault(Arm.TURN.value, []).extend(
                Candidate(_key(state), float(cosine)) for state, cosine in zip(states, cosines, strict=True)
            )

    def _hydrate(self, request: SearchRequest, wanted: Node, fused: Sequence[Fused]) -> tuple[Hit, ...]:
        """Read candidates from the ledger in pages until `top_k` distinct ones passed every check."""
        hits: dict[tuple[str, str, str], Hit] = {}
        for start in range(0, len(fused), _MIN_CANDIDATES):
            page = fused[start : start + _MIN_CANDIDATES]
            with self.ledger.read() as connection:
                states = self._states(connection, request, page)
                sources = items.sources_of(connection, {state.id for state in states.values()})
            for entry in page:
                state = states.get(entry.version_key)
                if state is None or not matches(wanted, items.record_of(state)):
                    continue
                same = (state.cube, state.speaker.casefold(), " ".join(state.memory.casefold().split()))
                if same in hits:
                    kept = hits[same]
                    if state.id != kept.item.id and state.id not in kept.duplicates:
                        hits[same] = replace(kept, duplicates=(*kept.duplicates, state.id))
                elif len(hits) < request.top_k:
                    found = sources.get(state.id, ())
                    arms = entry.arms if request.explain else ()
                    hits[same] = Hit(replace(state, sources=found), entry.score, found, (), arms)
            if len(hits) >= request.top_k:
                break
        return tuple(hits.values())

    def _states(self, connection: sa.Connection, request: SearchRequest, page: Sequence[Fused]) -> dict[str, Item]:
        """Return what the ledger says of the proposed items now, or said at the moment asked for, by version key."""
        ids = {entry.version_key.rsplit(":", 1)[0] for entry in page}
        states = items.current(connection, request.scope.cubes, ids, request.as_of)
        return {_key(state): state for state in states.values()}


def _wanted(request: SearchRequest) -> Node:
    """Add to the caller's filter what every search leaves out unless asked: other statuses, and what has ended."""
    named = fields_of(request.filter)
    parts: list[Node] = [] if request.filter is None else [request.filter]
    if "status" not in named:
        parts.append(Condition("status", Op.IN, tuple(str(status) for status in _FOUND_STATUSES)))
    if not named & {"valid_to", "status"}:
        ended = Condition("valid_to", Op.LTE, to_micros(request.reference_time))
        parts.append(Not(ended))
    return And(tuple(parts))


def every_item(ledger: Ledger, cube: str, statuses: Sequence[str], at: datetime | None = None) -> Iterator[Item]:
    """Yield a cube's items as they are, or stood at a moment, oldest first, a page at a time."""
    after = None
    while True:
        with ledger.read() as connection:
            page = items.in_cube(connection, cube, statuses, items.Page(after, _LEDGER_PAGE), at)
        yield from page
        if len(page) < _LEDGER_PAGE:
            return
        after = (page[-1].created_at, page[-1].id)


def _key(item: Item) -> str:
    return f"{item.id}:{item.version}"


def _dot(document: SparseVector, query: SparseVector) -> float:
    shared = np.isin(document.indices, query.indices)
    return float(document.values[shared].sum())


class _StageClock:
    """Milliseconds by stage."""

    def __init__(self) -> None:
        self.timings_ms: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.timings_ms[name] = self.timings_ms.get(name, 0.0) + (time.perf_counter() - started) * 1000
