"""Run a search from the question to whole hits: the index proposes candidates, the ledger decides what comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from operator import attrgetter
from threading import Semaphore
from typing import NamedTuple

import numpy as np
import sqlalchemy as sa

from memos.core.clock import from_micros, to_micros
from memos.core.filters import And, Condition, Node, Not, Op, Or, is_ledgers, matches
from memos.core.ports import (
    ArmQuery,
    Embedder,
    Graph,
    ScoredPoint,
    SparseEncoder,
    SparseVector,
    Vector,
    VectorIndex,
    VectorSearch,
)
from memos.core.telemetry import StageClock
from memos.core.text.languages import has_other_script
from memos.core.text.rendering import assemble
from memos.core.types import DERIVED, STANDING_OF, Arm, Hit, ItemType, LinkKind, SearchResult, Status
from memos.errors import BackendUnavailable, ModelError
from memos.memcube.indexing.followers import VectorFollower, standing_arm
from memos.memcube.indexing.projection import Projection
from memos.memcube.judge import Cosines, Judge, reads_other_scripts
from memos.memcube.ledger import items, relations
from memos.memcube.ledger import queries as ledger_queries
from memos.memcube.ledger.engine import Ledger
from memos.memcube.ledger.timeline import LIKELY
from memos.memcube.standing import Replacement, standing_of, standings
from memos.search.candidates import CandidateReader, candidates_of, item_of, read_candidates, with_successors
from memos.search.merged_names import (
    MergedName,
    mean_of,
    merged_names,
    possible_names,
    spelled_otherwise,
    with_names,
)
from memos.search.passages import passages
from memos.search.question import Intent, Question, Rules, SearchRequest, of_spans, read_question, without_speaker_names
from memos.search.rank import (
    Fused,
    PreferenceCandidates,
    Ranked,
    Recalled,
    fuse,
    named_speakers,
    reorder,
    score_candidates,
    select_preferences,
)
from memos.search.relevance import Relevance
from memos.search.rerank import ARM, CANDIDATES, WEIGHT, TimedReranker, apply_scores, candidate_text
from memos.search.succession import by_succession

# Ids that are pushed down at once; four arms over 50,000 points took 60 ms with them, 870 ms with 50,000.
MOST_PUSHED = 2_000
_OVERFETCH = 4
# Fetching this many points took 180 to 270 ms, less than pushing 20,000 ids.
_MOST_FETCHED = 5_000


def recall(
    ledger: Ledger, index: VectorIndex, request: VectorSearch, meanwhile: Callable[[], None] | None = None
) -> list[list[ScoredPoint]]:
    """Return `index.search` as if the index had every field; `meanwhile` is called then, if the ledger is not asked."""
    parts = list(_conjuncts(request.filter))
    judged = [part for part in parts if not _needs_ledger(part)]
    if len(judged) == len(parts):
        return index.search(request, meanwhile)
    ids = _matching(ledger, request, limit=MOST_PUSHED + 1)
    if len(ids) > MOST_PUSHED:
        found = _overfetched(ledger, index, replace(request, filter=And(tuple(judged))), request.filter)
        if found is not None:
            return found
        ids = _matching(ledger, request, limit=None)
    return index.search(replace(request, filter=Condition("id", Op.IN, tuple(ids))))


def _conjuncts(node: Node | None) -> Iterable[Node]:
    match node:
        case None:
            return
        case And():
            for part in node.parts:
                yield from _conjuncts(part)
        case _:
            yield node


def _needs_ledger(node: Node) -> bool:
    match node:
        case Condition():
            return is_ledgers(node)
        case Not():
            return _needs_ledger(node.part)
        case And() | Or():
            return any(_needs_ledger(part) for part in node.parts)


def _matching(ledger: Ledger, request: VectorSearch, limit: int | None) -> list[str]:
    at = None if request.as_of is None else from_micros(request.as_of)
    with ledger.read() as connection:
        return items.matching_ids(connection, request.cubes, request.filter, at=at, limit=limit)


def _overfetched(
    ledger: Ledger, index: VectorIndex, wider: VectorSearch, wanted: Node | None
) -> list[list[ScoredPoint]] | None:
    """Return as many points of each arm that pass as it may find, or None when too many would have to be fetched."""
    at = None if wider.as_of is None else from_micros(wider.as_of)
    limits = [arm.limit(wider.limit) for arm in wider.arms]
    wider = replace(wider, arms=tuple(replace(arm, most=None) for arm in wider.arms))
    fetch = wider.limit * _OVERFETCH
    while fetch <= _MOST_FETCHED:
        arms = index.search(replace(wider, limit=fetch))
        with ledger.read() as connection:
            ids = {point.item for arm in arms for point in arm}
            passing = items.passing(connection, wider.cubes, wanted, ids, at=at)
        kept = [[point for point in arm if point.item in passing] for arm in arms]
        # No point further down an arm is missing: there are enough before it, or it has no more.
        if all(len(left) >= limit or len(arm) < fetch for left, arm, limit in zip(kept, arms, limits, strict=True)):
            return [left[:limit] for left, limit in zip(kept, limits, strict=True)]
        fetch *= _OVERFETCH
    return None


_OVERSAMPLE = 4
_MIN_CANDIDATES = 40
MAX_CANDIDATES = 5_000  # most points of one arm that a search looks at
_WIDEN = 10
# Candidates read from the ledger and ranked again: beyond them no boost reaches the first ten.
_MIN_POOL = 20
# Points among which are the few items that are looked at of what may be lifted.
_MOST_STANDING = 20
# Items not in the index yet that one search scores itself; newer ones first.
_MAX_UNINDEXED = 256
# Among what is missing: more wait for the index than a search scores itself, so it has not looked at all.
UNINDEXED = "unindexed"
_NEIGHBOURS = 10
_AS_GOOD = 1e-4  # of a BM25 score, whose sums differ in their last digits
# What others order by, and recalls nothing by itself.
_BESIDE = (Arm.STANDING, Arm.OF_SELF, Arm.NAMED)
_UNREAD_WEIGHT = 0.5  # of the vector arms for a question in a script that the embedder does not read
_MOST_VARIANTS = 3  # of a question with other names in it that are embedded, each about two milliseconds
# Items read whole before they are ranked: two words' candidates in three are among the ten hits of a usual search.
_LIKELY_HITS = 12

Arms = dict[str, list[ScoredPoint] | None]


class _Vectors(NamedTuple):
    """The vector of a question, and approximately of the question with its speakers' names if those were removed.

    It is of zeros where the embedder is away.
    """

    question: Vector
    with_names: Vector | None
    many_speak: bool

    @property
    def turn(self) -> Vector:
        """The vector for turns: among many people with the names, since a turn has the name of who speaks."""
        return self.with_names if self.with_names is not None and self.many_speak else self.question


class LexicalRecall(NamedTuple):
    """The recall that needs no vector; `near` is None when the graph is down.

    `terms` are those of the question and of the names that were merged with its own, of which `asked` are its own.
    """

    question: Question
    terms: SparseVector
    asked: int
    waiting: list[str]
    restarts: int
    arms: Arms
    near: list[str] | None


class _Search(NamedTuple):
    rules: Rules
    reader: CandidateReader
    vectors: _Vectors
    lexical: LexicalRecall
    dated: list[Fused]


@dataclass(frozen=True, slots=True)
class RankedCandidates:
    """A search before the cut; `newer` and `preferences` reorder `scored`, which are by score alone."""

    candidates: CandidateReader
    question: Question
    terms: int
    rules: Rules
    ranked: tuple[Ranked, ...]
    copies: Mapping[str, tuple[str, ...]]
    missing: tuple[str, ...]
    scored: tuple[Ranked, ...]
    newer: Mapping[str, str]
    preferences: PreferenceCandidates
    replaced: Sequence[Replacement]
    vector: Vector
    query_terms: SparseVector

    def relevance(self) -> Relevance:
        if Intent.FORMER in self.question.intents or self.question.of_then:
            return Relevance(self.ranked, self.question, self.terms)
        outdated = {entry.item.id for entry in self.ranked if entry.item.outdated}
        sure = [Replacement(older, newer, 1.0) for older, newer in self.newer.items() if older in outdated]
        return Relevance(self.ranked, self.question, self.terms, [*self.replaced, *sure])


@dataclass(frozen=True, slots=True)
class Searcher:
    """Searches one installation; without a reranker no request may ask for one."""

    ledger: Ledger
    index: VectorIndex
    graph: Graph
    follower: VectorFollower
    projection: Projection
    embedder: Embedder
    terms: SparseEncoder
    helper: Executor
    turns: Semaphore
    judge: Judge
    reranker: TimedReranker | None = None

    def search(self, request: SearchRequest, clock: StageClock | None = None) -> SearchResult:
        clock = clock or StageClock()
        hits: tuple[Hit, ...] = ()
        with self.turn(clock), self.ledger.read() as connection:
            found = self.find(connection, request, limit_of(request.top_k), clock)
            texts = self.rerank_texts(request, found)
            if not texts:
                with clock.stage("hydrate"):
                    hits = self.hits(found.candidates, request, found)
        if texts:
            found = self.reranked(request, found, texts, clock)
            with self.turn(clock), self.ledger.read() as connection, clock.stage("hydrate"):
                hits = self.hits(candidates_of(connection, request, found.rules), request, found)
        text, tokens = "", 0
        if request.token_budget is not None:
            hits, text, tokens = assemble(
                hits, request.token_budget, by_time=found.question.asks_order, query=request.query
            )
        return SearchResult(request.query, hits, text, tokens, found.missing, clock.timings_ms)

    @contextmanager
    def turn(self, clock: StageClock) -> Iterator[None]:
        """Wait while too many searches run; released, with the connection, while a reranker reads."""
        with clock.stage("wait"):
            self.turns.acquire()
        try:
            yield
        finally:
            self.turns.release()

    def find(
        self, connection: sa.Connection, request: SearchRequest, limit: int, clock: StageClock
    ) -> RankedCandidates:
        """Recall at most `limit` points an arm, and more while too few distinct candidates pass."""
        rules = Rules.of(request)
        with clock.stage("embed"):
            vectors, helped = self._embed(connection, request, rules, limit)
        with clock.stage("recall"):
            lexical = helped.result()
            former = Intent.FORMER in lexical.question.intents
            reader = candidates_of(connection, request, rules, former=former)
            queries = _dense_arms(vectors, lexical.question)
            arms = self._recall(request, rules, queries, limit, partial(_prefetch, reader, lexical))
            arms |= lexical.arms
            dated = self._dated(connection, request, rules, vectors, lexical, limit)
        search = _Search(rules, reader, vectors, lexical, dated)
        while True:
            found, full = self._rank(connection, request, search, arms, limit, clock)
            if len(found.ranked) >= request.top_k or not full or limit == MAX_CANDIDATES:
                return found
            # Duplicates, or the chunks of one long text, took every place: look further.
            limit = min(MAX_CANDIDATES, limit * _WIDEN)
            with clock.stage("recall"):
                arms = self._recall(request, rules, (*queries, *_term_arms(lexical.terms)), limit)

    def _embed(
        self, connection: sa.Connection, request: SearchRequest, rules: Rules, limit: int
    ) -> tuple[_Vectors, Future[LexicalRecall]]:
        # Before another thread has the interpreter: 0.2 ms, beside the helper 0.6 to 1.
        speakers, many = ledger_queries.speakers(connection, request.scope.cubes, possible_names(request.query))
        merged = merged_names(connection, request.scope.cubes, request.query)
        text, names = without_speaker_names(request.query, speakers)
        # Half of a search needs no vector, and the embedder leaves the interpreter to others.
        try:
            helped = self.helper.submit(self._recall_without_vector, request, rules, limit, merged)
        except RuntimeError as error:  # its threads were ended meanwhile
            raise BackendUnavailable("This MemOS was closed; open it again with MemOS.open().") from error
        others = spelled_otherwise(request.query, merged, _MOST_VARIANTS) if merged else []
        alike = dict.fromkeys(without_speaker_names(each, speakers)[0] for each in others)
        try:
            dense = self.embedder.embed_query(text)
            if merged:
                dense = mean_of([dense, *(self.embedder.embed_query(each) for each in alike if each != text)])
            named = with_names(dense, [self.embedder.embed_query(name) for name in names])
        except BackendUnavailable:  # one behind an endpoint: words are left
            dense, named = np.zeros(self.embedder.fingerprint.dimension, dtype=np.float32), None
        return _Vectors(dense, named, many), helped

    def _rank(
        self,
        connection: sa.Connection,
        request: SearchRequest,
        search: _Search,
        arms: Arms,
        limit: int,
        clock: StageClock,
    ) -> tuple[RankedCandidates, bool]:
        lexical = search.lexical
        if self.index.restart_count != lexical.restarts:
            # The engine died under this search and was started again without what it had not flushed.
            lexical = lexical._replace(waiting=self._waiting(request))
        question = lexical.question
        near = lexical.near or []
        with clock.stage("recall"):
            missing = [arm for arm, points in arms.items() if points is None and arm not in _BESIDE]
            recalled = {arm: points or [] for arm, points in arms.items()}
            self._add_unindexed(
                connection, request, search.rules, recalled, search.vectors, lexical, down=bool(missing)
            )
            standing = [self._comparable(recalled.pop(arm.value, []), question) for arm in STANDING_OF]
            preferences = select_preferences(question, *standing)
            named = recalled.pop(Arm.NAMED.value, [])
        with clock.stage("fuse"):
            unread = has_other_script(question.text) and not reads_other_scripts(self.embedder.fingerprint)
            fused = fuse(recalled, lexical.asked, _UNREAD_WEIGHT if unread else 1.0)
        with clock.stage("hydrate"):
            early = [*near, *preferences.items(), *map(item_of, search.dated)]
            pool = read_candidates(search.reader, self._enough(request), fused, early)
            newer = dict(_prefer_tool_calls(connection, question, pool))
            former = Intent.FORMER in question.intents
            if request.as_of is None and not former:
                newer |= with_successors(search.reader, pool)
            replaced, repeated = ([], []) if request.as_of is not None else _replacements(connection, pool)
            if request.as_of is None and (beyond := _unrecalled(connection, pool, replaced, former=former)):
                self._recall_these(request, search, recalled, beyond)
                fused = fuse(recalled, lexical.asked, _UNREAD_WEIGHT if unread else 1.0)
                early += beyond
                pool = read_candidates(search.reader, self._enough(request), fused, early)
                replaced, repeated = _replacements(connection, pool)
        with clock.stage("rank"):
            absent = _absent(connection, pool, question)
            scored = score_candidates(pool, question, near, newer, search.dated, named, absent)
            scored = by_succession(scored, question, replaced, self.judge, repeated)
            ranked, copies = _collapse(connection, reorder(scored, question, newer, preferences), request.as_of)
        if lexical.near is None:
            missing.append("graph")
        if len(lexical.waiting) > _MAX_UNINDEXED:
            missing.append(UNINDEXED)
        found = RankedCandidates(
            candidates=search.reader,
            question=question,
            terms=lexical.asked,
            rules=search.rules,
            ranked=ranked,
            copies=copies,
            missing=tuple(missing),
            scored=tuple(scored),
            newer=newer,
            preferences=preferences,
            replaced=replaced,
            vector=search.vectors.question,
            query_terms=lexical.terms,
        )
        return found, any(len(points) >= limit for points in recalled.values())

    def _comparable(self, points: Sequence[ScoredPoint], question: Question) -> Sequence[ScoredPoint]:
        """Return points with cosines on the scale of English, on which the bounds are set."""
        if not points:
            return points
        shift = Cosines.of(self.embedder.fingerprint).shift(question.text)
        return [point._replace(score=point.score + shift) for point in points] if shift else points

    def _recall_these(
        self, request: SearchRequest, search: _Search, recalled: dict[str, list[ScoredPoint]], ids: Sequence[str]
    ) -> None:
        """Score these items with each arm, and insert them into the arms by score."""
        these = replace(search.rules, pushed=Condition("id", Op.IN, tuple(ids)))
        queries = (*_dense_arms(search.vectors, search.lexical.question)[:2], *_term_arms(search.lexical.terms))
        for arm, points in self._recall(request, these, queries, len(ids)).items():
            known = {point.key for point in recalled.get(arm, ())}
            more = [point for point in points or () if point.key not in known]
            recalled[arm] = sorted([*recalled.get(arm, ()), *more], key=_score, reverse=True)

    def rerank_texts(self, request: SearchRequest, found: RankedCandidates) -> dict[str, str]:
        """Return the texts for the reranker by id, best first; empty unless reranking is requested."""
        if not request.rerank or self.reranker is None:
            return {}
        first = [entry.item for entry in found.ranked[:CANDIDATES]]
        before = found.candidates.said_before(first)
        return {item.id: candidate_text(item, before[item.id]) for item in first}

    def reranked(
        self, request: SearchRequest, found: RankedCandidates, texts: Mapping[str, str], clock: StageClock
    ) -> RankedCandidates:
        """Return the candidates as the reranker orders them; without scores as they were, with it listed as missing."""
        if not texts or self.reranker is None:
            return found
        with clock.stage(ARM):
            scores = self.reranker.scores(request.query, list(texts.values()))
        with self.turn(clock), self.ledger.read() as connection:
            if scores is None:  # this one looked at more candidates, by which the others were ordered
                plain = self.find(connection, replace(request, rerank=False), limit_of(request.top_k), clock)
                return replace(plain, missing=(*plain.missing, ARM))
            with clock.stage("rank"):
                by_id = dict(zip(texts, scores, strict=True))
                scored = apply_scores(found.scored, by_id, WEIGHT)
                order = reorder(scored, found.question, found.newer, found.preferences)
                ranked, copies = _collapse(connection, order, request.as_of)
        return replace(found, ranked=ranked, copies=copies, scored=tuple(scored))

    def _recall_without_vector(
        self, request: SearchRequest, rules: Rules, limit: int, merged: tuple[MergedName, ...]
    ) -> LexicalRecall:
        asked = terms = self.terms.encode_query(request.query)
        if merged:
            terms = self.terms.encode_query(
                " ".join([request.query, *(name for each in merged for name in each.others)])
            )
        # First what waits, then the index: what is applied in between is seen twice, never missed.
        restarts = self.index.restart_count
        waiting = self._waiting(request)
        arms = self._recall(request, rules, _term_arms(terms), limit)
        question = read_question(request.query, request.reference_time, request.zone).with_merged(merged)
        near = self._graph_neighbours(request, arms)
        return LexicalRecall(question, terms, len(asked.indices), waiting, restarts, arms, near)

    def _waiting(self, request: SearchRequest) -> list[str]:
        return self.projection.pending(request.scope.cubes, _MAX_UNINDEXED + 1)

    def _enough(self, request: SearchRequest) -> int:
        return max(_MIN_POOL, request.top_k * 2, CANDIDATES if request.rerank and self.reranker is not None else 0)

    def _recall(
        self,
        request: SearchRequest,
        rules: Rules,
        queries: tuple[ArmQuery, ...],
        limit: int,
        meanwhile: Callable[[], None] | None = None,
    ) -> Arms:
        if not queries:
            return {}
        as_of = None if request.as_of is None else to_micros(request.as_of)
        arms: Arms = {query.arm.value: None for query in queries}
        # A vector of zeros is none.
        asked = tuple(query for query in queries if isinstance(query.query, SparseVector) or query.query.any())
        wanted = VectorSearch(request.scope.cubes, asked, limit, rules.pushed, as_of, rules.live)
        with suppress(BackendUnavailable):
            found = recall(self.ledger, self.index, wanted, meanwhile) if asked else []
            arms |= {query.arm.value: points for query, points in zip(asked, found, strict=True)}
        return arms

    def _dated(
        self,
        connection: sa.Connection,
        request: SearchRequest,
        rules: Rules,
        vectors: _Vectors,
        lexical: LexicalRecall,
        limit: int,
    ) -> list[Fused]:
        if not lexical.question.spans:
            return []
        of_then = rules.narrowed(of_spans(lexical.question.spans))
        queries = (ArmQuery(Arm.DATED, vectors.question), *_term_arms(lexical.terms)[:1])
        arms = self._recall(request, of_then, queries, limit)
        recalled = {arm: found or [] for arm, found in arms.items()}
        recalled[Arm.TURN.value] = recalled.pop(Arm.DATED.value)
        self._add_unindexed(connection, request, of_then, recalled, vectors, lexical, down=None in arms.values())
        for arm in _BESIDE:
            recalled.pop(arm.value, None)
        found = fuse(recalled, lexical.asked)
        # What has nothing to do with the words was said then all the same; where nothing has, all is as good.
        rest = dict.fromkeys(point.key for points in recalled.values() for point in points)
        for fused in found:
            rest.pop(fused.version_key, None)
        return [*found, *(Fused(key, 0.0 if found else 1.0, ()) for key in rest)][: max(_MIN_POOL, request.top_k)]

    def _add_unindexed(
        self,
        connection: sa.Connection,
        request: SearchRequest,
        rules: Rules,
        arms: dict[str, list[ScoredPoint]],
        vectors: _Vectors,
        lexical: LexicalRecall,
        *,
        down: bool,
    ) -> None:
        """Score in this process what the index lacks or, when it is down, the newest items.

        Cosines join their arm. Without the index there is no IDF, so terms become an arm of their own.
        """
        down = down and bool(vectors.question.any())
        if not lexical.waiting and not down:
            return
        cubes = request.scope.cubes
        states = items.current(connection, cubes, lexical.waiting[:_MAX_UNINDEXED], request.as_of)
        if down:
            states |= {state.id: state for state in items.newest(connection, cubes, _MAX_UNINDEXED, request.as_of)}
        hidden = items.unsearchable(connection, [state.id for state in states.values() if state.record_id is not None])
        wanted = [
            state
            for state in states.values()
            if state.id not in hidden and matches(rules.wanted, items.record_of(state))
        ]
        if not wanted:
            return
        keys = [f"{state.id}:{state.version}" for state in wanted]
        chunks = [self.follower.first_chunk(state) for state in wanted]
        texts = [chunk.turn for chunk in chunks]
        documents = [self.terms.encode_document(text) for text in texts]
        shared = [document.values[np.isin(document.indices, lexical.terms.indices)].sum() for document in documents]
        by_terms = [ScoredPoint(key, float(sum_)) for key, sum_ in zip(keys, shared, strict=True)]
        arms["unindexed_terms"] = sorted(by_terms, key=_score, reverse=True)
        if not vectors.question.any():
            return
        # A text the embedder refuses (it is parked for that) must not take the others' answer away.
        with suppress(ModelError, BackendUnavailable):
            given = self.embedder.embed_documents(texts)
            by_arm = {Arm.TURN: _by_cosine(keys, given, vectors.turn)}
            for point, chunk in zip(_by_cosine(keys, given, vectors.question), chunks, strict=True):
                if (own := standing_arm(chunk)) is not None:
                    by_arm.setdefault(own, []).append(point)
            if vectors.with_names is not None:
                by_arm[Arm.NAMED] = _by_cosine(keys, given, vectors.with_names)
            for arm, more in by_arm.items():
                arms[arm.value] = sorted([*arms.get(arm.value, ()), *more], key=_score, reverse=True)

    def _graph_neighbours(self, request: SearchRequest, arms: Arms) -> list[str] | None:
        """Return items adjacent to the best lexical candidate, none at another moment; None when the graph is down."""
        best = arms.get(Arm.WINDOW_BM25.value) or arms.get(Arm.TURN_BM25.value)
        if not best or request.as_of is not None:
            return []
        try:
            return self.graph.adjacent(request.scope.cubes, best_of(best), _NEIGHBOURS)
        except BackendUnavailable:
            return None

    def hits(self, reader: CandidateReader, request: SearchRequest, found: RankedCandidates) -> tuple[Hit, ...]:
        best = found.ranked[: request.top_k]
        states = reader.whole([entry.item.id for entry in best])
        # Of an earlier moment there are none: they are those of now.
        related = relations.by_item(reader.connection, states) if request.explain and request.as_of is None else {}
        relevance = found.relevance()
        # A fact may stand as a message does that was not recalled.
        facts = [state for state in states.values() if state.type in DERIVED and request.as_of is None]
        stands = standings(reader.connection, facts, request.reference_time) if facts else {}
        read = passages(list(states.values()), found.vector, found.query_terms, self.follower, self.index, self.terms)
        hits = (
            Hit(
                state,
                entry.score,
                relevance.of(entry),
                state.sources,
                found.copies.get(state.id, ()),
                entry.arm_scores if request.explain else (),
                entry.all_boosts if request.explain else (),
                *(stands.get(state.id) or standing_of(state, found.replaced, request.reference_time)),
                relations=related.get(state.id, ()),
                passage=read.get(state.id),
            )
            for entry in best
            # What was changed or erased since it was ranked is not what was asked for any more.
            if (state := states.get(entry.item.id)) is not None and state.version == entry.item.version
        )
        return tuple(hit for hit in hits if hit.relevance >= request.min_relevance)


_score = attrgetter("score")


def best_of(found: Sequence[ScoredPoint]) -> str:
    """Return the item an arm ranks first; among ties the oldest, since the index's order changes with a rebuild."""
    return min(point.item for point in found if point.score > found[0].score - _AS_GOOD)


def _prefetch(reader: CandidateReader, lexical: LexicalRecall) -> None:
    likely = fuse({arm: found or [] for arm, found in lexical.arms.items()}, lexical.asked)[:_MIN_POOL]
    ids = [*map(item_of, likely)]
    reader.briefs([*ids, *(lexical.near or ())])
    reader.whole(ids[:_LIKELY_HITS])


def _absent(connection: sa.Connection, pool: Sequence[Recalled], question: Question) -> set[str]:
    """Return the conversations of the pool in which nobody speaks or is spoken of whom the question names."""
    speakers = {entry.item.speaker for entry in pool}
    named = {speaker for speaker in named_speakers(pool, question) if question.surely_names(speaker)}
    if not named or len(speakers) <= len(named) + 1:  # all talk with each other
        return set()
    here = {entry.item.conversation for entry in pool if entry.item.speaker in named}
    rest = {entry.item.conversation for entry in pool if entry.item.conversation is not None} - here
    return ledger_queries.conversations_without(connection, rest, list(named)) if rest else set()


def _replacements(
    connection: sa.Connection, pool: Sequence[Recalled]
) -> tuple[list[Replacement], list[tuple[str, str]]]:
    """Return what replaces items of the pool, and which older item which newer one says again.

    A fact that is the whole of one message shares the replacements of the message.
    """
    replaced, repeated = [], []
    for older, newer, confidence, at, kind in relations.replacements(connection, [entry.item.id for entry in pool]):
        if kind == LinkKind.SAME:
            repeated.append((older, newer))
        else:
            replaced.append(Replacement(older, newer, confidence, at))
    if superseded := [entry.item.id for entry in pool if entry.item.status == Status.SUPERSEDED]:
        newer_of = items.superseded_by(connection, superseded)
        replaced += [Replacement(older, newer, 1.0) for older, newer in newer_of.items()]
    same = _facts_of_messages(connection, pool) if replaced else {}
    if not same:
        return replaced, repeated
    shared = [
        each._replace(older=older, newer=newer)
        for each in replaced
        for older in (each.older, *same.get(each.older, ()))
        for newer in (each.newer, *same.get(each.newer, ()))
    ]
    return shared, repeated


_FRONT = 5  # best candidates whose replacements are looked up
_MOST_STEPS = 4  # from a statement to what replaced it, and on to what replaced that
_MOST_UNRECALLED = 8


def _unrecalled(
    connection: sa.Connection, pool: Sequence[Recalled], replaced: Sequence[Replacement], *, former: bool
) -> list[str]:
    """Return the ids of items outside of the pool that probably replaced its best candidates.

    With `former`, of those that its best candidates replaced.
    """
    known = {entry.item.id for entry in pool}
    best = [entry.item.id for entry in sorted(pool, key=lambda entry: -entry.fused.score)[:_FRONT]]
    seen, front, found = set(best), best, list[str]()
    for step in range(_MOST_STEPS):
        if step or former:
            rows = relations.replacements(connection, front, of_newer=former)
            replaced = [Replacement(older, newer, confidence) for older, newer, confidence, *_ in rows]
        likely = sorted((each for each in replaced if each.confidence >= LIKELY), key=lambda each: -each.confidence)
        links = [(each.newer, each.older) if former else each[:2] for each in likely]
        front = list(dict.fromkeys(end for start, end in links if start in seen and end not in seen))
        found += [id_ for id_ in front if id_ not in known]
        seen.update(front)
        if not front or len(found) >= _MOST_UNRECALLED:
            break
    return found[:_MOST_UNRECALLED]


def _facts_of_messages(connection: sa.Connection, pool: Sequence[Recalled]) -> dict[str, list[str]]:
    """Return the ids of facts that are the whole of a message, by the id of the message."""
    words = {entry.item.id: _words(entry.item) for entry in pool}
    facts = {entry.item.id: words[entry.item.id] for entry in pool if entry.item.type in DERIVED - {ItemType.PROFILE}}
    same: dict[str, list[str]] = {}
    for fact, message in items.whole_messages(connection, facts, lambda _: words).items():
        same.setdefault(message, []).append(fact)
    return same


def _collapse(
    connection: sa.Connection, ranked: Sequence[Ranked], at: datetime | None
) -> tuple[tuple[Ranked, ...], dict[str, tuple[str, ...]]]:
    alike: dict[tuple[str, ...], list[Ranked]] = {}
    kept: list[Ranked] = []
    copies: dict[str, tuple[str, ...]] = {}
    for entry in ranked:
        others = alike.setdefault(_words(entry.item), [])
        same = _same(connection, entry.item, [other.item for other in others], at)
        if same is None:
            others.append(entry)
            kept.append(entry)
        elif same != entry.item.id:
            copies[same] = (*copies.get(same, ()), entry.item.id)
    return _merge_fact_with_message(connection, kept, copies), copies


def _merge_fact_with_message(
    connection: sa.Connection, kept: Sequence[Ranked], copies: dict[str, tuple[str, ...]]
) -> tuple[Ranked, ...]:
    """Merge a fact and the single message it was read from into one hit, keeping the better.

    A trait repeats a fact, so it gives way to either.
    """
    derived = [entry.item.id for entry in kept if entry.item.type in DERIVED]
    if not derived:
        return tuple(kept)
    origin_of = {fact: next(iter(its)) for fact, its in items.origins_of(connection, derived).items() if len(its) == 1}
    best: dict[str, str] = {}
    for entry in kept:
        if entry.item.type != ItemType.PROFILE:
            best.setdefault(origin_of.get(entry.item.id, entry.item.id), entry.item.id)
    shown = []
    for entry in kept:
        item = entry.item
        first = best.get(origin_of.get(item.id, item.id), item.id)
        # Two facts of one message are two; each of them and the message is one.
        gives_way = item.type == ItemType.PROFILE or item.id not in origin_of or first == origin_of[item.id]
        if first == item.id or not gives_way:
            shown.append(entry)
        else:
            copies[first] = (*copies.get(first, ()), item.id)
    return tuple(shown)


def _same(
    connection: sa.Connection, item: items.Brief, others: Sequence[items.Brief], at: datetime | None
) -> str | None:
    """Return which of the similar items say the same, comparing the whole of long texts."""
    if not others:
        return None
    if item.length <= items.BRIEF_CHARS:
        return others[0].id
    states = items.current(connection, [item.cube], [item.id, *(other.id for other in others)], at)
    mine = states.get(item.id)
    same = (id_ for id_, state in states.items() if id_ != item.id and mine is not None and state.memory == mine.memory)
    return next(same, None)


def _by_cosine(keys: Sequence[str], given: Vector, asked: Vector) -> list[ScoredPoint]:
    return [ScoredPoint(key, float(cosine)) for key, cosine in zip(keys, given @ asked, strict=True)]


def _dense_arms(vectors: _Vectors, question: Question) -> tuple[ArmQuery, ...]:
    of_self = [Arm.OF_SELF] if question.is_request else []
    named = vectors.with_names
    own = [ArmQuery(Arm.TURN, vectors.turn), ArmQuery(Arm.WINDOW, vectors.question)]
    own += [ArmQuery(arm, vectors.question, _MOST_STANDING) for arm in (Arm.STANDING, *of_self)]
    return tuple(own) if named is None else (*own, ArmQuery(Arm.NAMED, named))


def _term_arms(terms: SparseVector) -> tuple[ArmQuery, ...]:
    return tuple(ArmQuery(arm, terms) for arm in (Arm.TURN_BM25, Arm.WINDOW_BM25)) if len(terms.indices) else ()


def limit_of(top_k: int) -> int:
    return min(MAX_CANDIDATES, max(_MIN_CANDIDATES, top_k * _OVERSAMPLE))


def _words(item: items.Brief) -> tuple[str, ...]:
    """Return the key under which hits look alike: cube, speaker, words, and the length if longer than its brief.

    Two records are two, whatever they say.
    """
    if item.type == ItemType.RECORD:
        return (item.id,)
    length = str(item.length) if item.length > items.BRIEF_CHARS else ""
    return item.cube, item.speaker.casefold(), " ".join(item.memory.casefold().split()), length


def _prefer_tool_calls(connection: sa.Connection, question: Question, pool: Sequence[Recalled]) -> Mapping[str, str]:
    """Return by message the best recalled call that it is part of, or that was made for what it asks.

    Nothing unless the question asks whether something was done before, and with what result.
    """
    if Intent.DONE not in question.intents:
        return {}
    calls = [entry for entry in pool if entry.item.type == ItemType.TOOL_TRAJECTORY]
    if not calls:
        return {}
    links = items.links_from(connection, [entry.item.id for entry in calls])
    found: dict[str, str] = {}
    for entry in sorted(calls, key=lambda entry: (-entry.fused.score, entry.item.id)):
        for _, message in links.get(entry.item.id, ()):
            found.setdefault(message, entry.item.id)
    return found
