"""One search from question to hydrated hits; the index proposes, the ledger decides what may come back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from operator import attrgetter
from threading import Semaphore
from typing import NamedTuple

import numpy as np
import sqlalchemy as sa

from memos.core.clock import to_micros
from memos.core.filters import matches
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
from memos.core.types import DERIVED, STANDING_OF, Arm, ArmScore, Boost, Hit, ItemType, SearchResult
from memos.errors import BackendUnavailable, ModelError
from memos.memcube.indexing.followers import VectorFollower, standing_arm
from memos.memcube.indexing.projection import Projection
from memos.memcube.ledger import items
from memos.memcube.ledger import queries as speakers
from memos.memcube.ledger.engine import Ledger
from memos.search.fusion import Fused, fuse
from memos.search.hits import assemble, prefer_tool_calls, relevance
from memos.search.question import Intent, Question, of_spans, read_question, without_speaker_names
from memos.search.rank import Ranked, Recalled, Standing, liftable, settle, vote
from memos.search.recall import Candidates, recall
from memos.search.request import Rules, SearchRequest
from memos.search.rerank import ARM, CANDIDATES, WEIGHT, TimedReranker, shown, with_scores

_OVERSAMPLE = 4
_MIN_CANDIDATES = 40
MAX_CANDIDATES = 5_000
"""Most points of one arm that a search looks at."""

_WIDEN = 10
# Candidates read from the ledger and ranked again: beyond them no boost reaches the first ten.
_MIN_POOL = 20
# Points among which are the few items that are looked at of what may be lifted.
_MOST_STANDING = 20
# Items not in the index yet that one search scores itself; newer ones first.
_MAX_UNINDEXED = 256
UNINDEXED = "unindexed"
"""Among what is missing: more wait for the index than a search scores itself, so it has not looked at all."""

_NEIGHBOURS = 10
_AS_GOOD = 1e-4  # of a BM25 score, whose sums differ in their last digits
# What others order by, and recalls nothing by itself.
_BESIDE = (Arm.STANDING, Arm.OF_SELF, Arm.NAMED)
_NAME_SHARE = np.float32(0.6)
# Items read whole before they are ranked: two words' candidates in three are among the ten hits of a usual search.
_LIKELY_HITS = 12


Arms = dict[str, list[ScoredPoint] | None]


class _Vectors(NamedTuple):
    """A question's vector, and about the one with the names that were left out of it, None where none were."""

    asked: Vector
    named: Vector | None


class LexicalRecall(NamedTuple):
    """What is known without the question's vector; `near` is None when the graph is down."""

    question: Question
    terms: SparseVector
    waiting: list[str]
    arms: Arms
    near: list[str] | None


@dataclass(frozen=True, slots=True)
class Found:
    """What one search knows before it cuts: all ranked candidates, which collapsed into which, what is missing.

    `voted` are all of them by their scores alone, `newer` and `standing` what orders them besides.
    """

    candidates: Candidates
    question: Question
    terms: int
    rules: Rules
    ranked: tuple[Ranked, ...]
    copies: Mapping[str, tuple[str, ...]]
    missing: tuple[str, ...]
    voted: tuple[Ranked, ...]
    newer: Mapping[str, str]
    standing: Standing


@dataclass(frozen=True, slots=True)
class Searcher:
    """Search over one installation; `reranker` is None where none is configured, and no request asks for it then."""

    ledger: Ledger
    index: VectorIndex
    graph: Graph
    follower: VectorFollower
    projection: Projection
    embedder: Embedder
    terms: SparseEncoder
    helper: Executor
    turns: Semaphore
    reranker: TimedReranker | None = None

    def search(self, request: SearchRequest, clock: StageClock | None = None) -> SearchResult:
        """Return at most `top_k` distinct hits, best first, with their sources."""
        clock = clock or StageClock()
        hits: tuple[Hit, ...] = ()
        with self.turn(clock), self.ledger.read() as connection:
            found = self.find(connection, request, limit_of(request.top_k), clock)
            texts = self.texts(request, found)
            if not texts:
                with clock.stage("hydrate"):
                    hits = self.hits(found.candidates, request, found)
        if texts:
            found = self.reranked(request, found, texts, clock)
            with self.turn(clock), self.ledger.read() as connection, clock.stage("hydrate"):
                hits = self.hits(candidates_of(connection, request, found.rules), request, found)
        text, tokens = "", 0
        if request.token_budget is not None:
            hits, text, tokens = assemble(hits, request.token_budget, by_time=found.question.asks_order)
        return SearchResult(request.query, hits, text, tokens, found.missing, clock.timings_ms)

    @contextmanager
    def turn(self, clock: StageClock) -> Iterator[None]:
        """Wait until not too many search at once; nobody keeps a turn, or a connection, while a reranker reads."""
        with clock.stage("wait"):
            self.turns.acquire()
        try:
            yield
        finally:
            self.turns.release()

    def find(self, connection: sa.Connection, request: SearchRequest, limit: int, clock: StageClock) -> Found:
        """Recall at most `limit` points an arm, and more while too few distinct candidates come through."""
        rules = Rules.of(request)
        with clock.stage("embed"):
            # Before another thread has the interpreter: 0.2 ms, beside the helper 0.6 to 1.
            asked, names = without_speaker_names(
                request.query, speakers.frequent_speakers(connection, request.scope.cubes)
            )
            # Half of a search needs no vector, and the embedder leaves the interpreter to others.
            try:
                helped = self.helper.submit(self._beside_embedding, request, rules, limit)
            except RuntimeError as error:  # its threads were ended meanwhile
                raise BackendUnavailable("This MemOS was closed; open it again with MemOS.open().") from error
            dense = self.embedder.embed_query(asked)
            vectors = _Vectors(dense, _with_names(dense, [self.embedder.embed_query(name) for name in names]))
        with clock.stage("recall"):
            beside = helped.result()
            known = candidates_of(connection, request, rules)
            asking = _dense_arms(vectors, beside.question)
            arms = self._recall(request, rules, asking, limit, partial(_read_ahead, known, beside))
            arms |= beside.arms
            dated = self._dated(connection, request, rules, vectors, beside, limit)
        while True:
            with clock.stage("recall"):
                missing = tuple(arm for arm, found in arms.items() if found is None and arm not in _BESIDE)
                recalled = {arm: found or [] for arm, found in arms.items()}
                self._add_unindexed(connection, request, rules, recalled, vectors, beside, down=bool(missing))
                stands = liftable(beside.question, *(recalled.pop(arm.value, []) for arm in STANDING_OF))
                of_them = recalled.pop(Arm.NAMED.value, [])
            with clock.stage("fuse"):
                fused = fuse(recalled, len(beside.terms.indices))
            with clock.stage("hydrate"):
                early = [*(beside.near or []), *stands.items(), *map(_item_of, dated)]
                pool = _pool(known, self._enough(request), fused, early)
                newer = dict(prefer_tool_calls(connection, beside.question, pool))
                if request.as_of is None and Intent.FORMER not in beside.question.intents:
                    newer |= _with_successors(known, pool)
            with clock.stage("rank"):
                voted = vote(pool, beside.question, beside.near or [], newer, dated, of_them)
                order = settle(voted, beside.question, newer, stands)
                ranked, copies = _collapse(connection, order, request.as_of)
            full = any(len(found) >= limit for found in recalled.values())
            if len(ranked) >= request.top_k or not full or limit == MAX_CANDIDATES:
                missing = missing if beside.near is not None else (*missing, "graph")
                missing = missing if len(beside.waiting) <= _MAX_UNINDEXED else (*missing, UNINDEXED)
                return Found(
                    known,
                    beside.question,
                    len(beside.terms.indices),
                    rules,
                    ranked,
                    copies,
                    missing,
                    tuple(voted),
                    newer,
                    stands,
                )
            # Duplicates, or the chunks of one long text, took every place: look further.
            limit = min(MAX_CANDIDATES, limit * _WIDEN)
            with clock.stage("recall"):
                arms = self._recall(request, rules, (*asking, *_term_arms(beside.terms)), limit)

    def texts(self, request: SearchRequest, found: Found) -> dict[str, str]:
        """Return the first candidates as a reranker reads them, by id, best first; none when it is not asked."""
        if not request.rerank or self.reranker is None:
            return {}
        first = [entry.item for entry in found.ranked[:CANDIDATES]]
        before = found.candidates.said_before(first)
        return {item.id: shown(item, before[item.id]) for item in first}

    def reranked(self, request: SearchRequest, found: Found, texts: Mapping[str, str], clock: StageClock) -> Found:
        """Return what was found in the order it has when a reranker has read its texts.

        When there are no scores it is what a search without a reranker finds, and that is told among what is missing.
        """
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
                voted = with_scores(found.voted, by_id, WEIGHT)
                order = settle(voted, found.question, found.newer, found.standing)
                ranked, copies = _collapse(connection, order, request.as_of)
        return replace(found, ranked=ranked, copies=copies, voted=tuple(voted))

    def _beside_embedding(self, request: SearchRequest, rules: Rules, limit: int) -> LexicalRecall:
        """Do what needs no vector: read the question, see what waits, ask the term arms, look around their best."""
        terms = self.terms.encode_query(request.query)
        # First what waits, then the index: what is applied in between is seen twice, never missed.
        waiting = self.projection.pending(request.scope.cubes, _MAX_UNINDEXED + 1)
        arms = self._recall(request, rules, _term_arms(terms), limit)
        question = read_question(request.query, request.reference_time, request.zone)
        return LexicalRecall(question, terms, waiting, arms, self._near_the_best(request, arms))

    def _enough(self, request: SearchRequest) -> int:
        """Return how many distinct candidates are read and ranked, as far as that many are recalled."""
        most = CANDIDATES if request.rerank and self.reranker is not None else 0
        return max(_MIN_POOL, request.top_k * 2, most)

    def _recall(
        self,
        request: SearchRequest,
        rules: Rules,
        queries: tuple[ArmQuery, ...],
        limit: int,
        meanwhile: Callable[[], None] | None = None,
    ) -> Arms:
        """Return each arm's candidates, None for an arm whose index is down; what `meanwhile` does may be left out."""
        if not queries:
            return {}
        as_of = None if request.as_of is None else to_micros(request.as_of)
        wanted = VectorSearch(request.scope.cubes, queries, limit, rules.pushed, as_of, rules.live)
        try:
            found = recall(self.ledger, self.index, wanted, meanwhile)
        except BackendUnavailable:
            return {query.arm.value: None for query in queries}
        return {query.arm.value: points for query, points in zip(queries, found, strict=True)}

    def _dated(
        self,
        connection: sa.Connection,
        request: SearchRequest,
        rules: Rules,
        vectors: _Vectors,
        beside: LexicalRecall,
        limit: int,
    ) -> list[Fused]:
        """Return the best of what was said, or is so, at a time that the question names, which words seldom tell."""
        if not beside.question.spans:
            return []
        of_then = rules.narrowed(of_spans(beside.question.spans))
        queries = (ArmQuery(Arm.DATED, vectors.asked), *_term_arms(beside.terms)[:1])
        arms = self._recall(request, of_then, queries, limit)
        recalled = {arm: found or [] for arm, found in arms.items()}
        recalled[Arm.TURN.value] = recalled.pop(Arm.DATED.value)
        self._add_unindexed(connection, request, of_then, recalled, vectors, beside, down=None in arms.values())
        for arm in _BESIDE:
            recalled.pop(arm.value, None)
        found = fuse(recalled, len(beside.terms.indices))
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
        beside: LexicalRecall,
        *,
        down: bool,
    ) -> None:
        """Score in this process what the index does not show yet or, when it is down, the newest items.

        Cosine joins its arm. Without the index there is no IDF, so terms make an arm of their own.
        """
        if not beside.waiting and not down:
            return
        cubes = request.scope.cubes
        states = items.current(connection, cubes, beside.waiting[:_MAX_UNINDEXED], request.as_of)
        if down:
            states |= {state.id: state for state in items.newest(connection, cubes, _MAX_UNINDEXED, request.as_of)}
        wanted = [state for state in states.values() if matches(rules.wanted, items.record_of(state))]
        if not wanted:
            return
        keys = [f"{state.id}:{state.version}" for state in wanted]
        chunks = [self.follower.first_chunk(state) for state in wanted]
        texts = [chunk.turn for chunk in chunks]
        documents = [self.terms.encode_document(text) for text in texts]
        shared = [document.values[np.isin(document.indices, beside.terms.indices)].sum() for document in documents]
        by_terms = [ScoredPoint(key, float(sum_)) for key, sum_ in zip(keys, shared, strict=True)]
        arms["unindexed_terms"] = sorted(by_terms, key=_score, reverse=True)
        # A text the embedder refuses (it is parked for that) must not take the others' answer away.
        with suppress(ModelError):
            given = self.embedder.embed_documents(texts)
            found = _by_cosine(keys, given, vectors.asked)
            by_arm = {Arm.TURN: found}
            for point, chunk in zip(found, chunks, strict=True):
                if (own := standing_arm(chunk)) is not None:
                    by_arm.setdefault(own, []).append(point)
            if vectors.named is not None:
                by_arm[Arm.NAMED] = _by_cosine(keys, given, vectors.named)
            for arm, more in by_arm.items():
                arms[arm.value] = sorted([*arms.get(arm.value, ()), *more], key=_score, reverse=True)

    def _near_the_best(self, request: SearchRequest, arms: Arms) -> list[str] | None:
        """Return what the graph links to the best candidate by words, or has said beside it; None when it is down.

        The graph knows the present only, so a search of another moment goes without.
        """
        best = arms.get(Arm.WINDOW_BM25.value) or arms.get(Arm.TURN_BM25.value)
        if not best or request.as_of is not None:
            return []
        try:
            return self.graph.adjacent(request.scope.cubes, best_of(best), _NEIGHBOURS)
        except BackendUnavailable:
            return None

    @staticmethod
    def hits(known: Candidates, request: SearchRequest, found: Found) -> tuple[Hit, ...]:
        """Return the best candidates whole, with their sources."""
        best = found.ranked[: request.top_k]
        ids = [entry.item.id for entry in best]
        states = known.whole(ids)
        hits = []
        for entry in best:
            state = states.get(entry.item.id)
            # What was changed or erased since it was ranked is not what was asked for any more.
            if state is not None and state.version == entry.item.version:
                hits.append(
                    Hit(
                        state,
                        entry.score,
                        relevance(entry, found.terms),
                        state.sources,
                        found.copies.get(state.id, ()),
                        arm_scores(entry) if request.explain else (),
                        boosts(entry) if request.explain else (),
                    )
                )
        return tuple(hits)


_score = attrgetter("score")


def best_of(found: Sequence[ScoredPoint]) -> str:
    """Return the item that one arm found best, of several as good the oldest.

    Which of them stands first is the index's own order, and another after a rebuild.
    """
    return min(point.item for point in found if point.score > found[0].score - _AS_GOOD)


def _item_of(fused: Fused) -> str:
    return fused.version_key.rsplit(":", 1)[0]


def candidates_of(connection: sa.Connection, request: SearchRequest, rules: Rules) -> Candidates:
    """Return what reads a search's candidates through a connection."""
    return Candidates(connection, request.scope.cubes, request.filter, request.as_of, rules.hold)


def _read_ahead(known: Candidates, beside: LexicalRecall) -> None:
    """Read what the words found, and what stands near it, while the index looks for what means the same."""
    likely = fuse({arm: found or [] for arm, found in beside.arms.items()}, len(beside.terms.indices))[:_MIN_POOL]
    ids = [*map(_item_of, likely)]
    known.briefs([*ids, *(beside.near or ())])
    known.whole(ids[:_LIKELY_HITS])


def _pool(known: Candidates, enough: int, fused: Sequence[Fused], near: Sequence[str]) -> list[Recalled]:
    """Read candidates from the ledger, a page at a time, until `enough` distinct ones passed every check.

    Those that are `near` come with the first page, with a score of nothing when no arm recalled them.
    """
    early = set(near)
    items_of = list(map(_item_of, fused))
    later = list(zip(fused[enough:], items_of[enough:], strict=True))
    first = [*fused[:enough], *(entry for entry, item in later if item in early)]
    rest = [entry for entry, item in later if item not in early]
    unrecalled = early.difference(items_of)
    pages = [first, *(rest[start : start + enough] for start in range(0, len(rest), enough))]
    pool: list[Recalled] = []
    distinct: set[tuple[str, str, str]] = set()
    for page in pages:
        found = known.briefs({*map(_item_of, page), *unrecalled})
        by_version = {f"{brief.id}:{brief.version}": brief for brief in found}
        for entry in page:
            brief = by_version.get(entry.version_key)
            if brief is not None:
                pool.append(Recalled(brief, entry))
                distinct.add((brief.cube, brief.speaker, brief.memory))
        pool += [Recalled(brief, Fused(brief.id, 0.0, ())) for brief in found if brief.id in unrecalled]
        unrecalled = set()
        if len(distinct) >= enough:
            break
    return pool


def _with_successors(known: Candidates, pool: list[Recalled]) -> Mapping[str, str]:
    """Add what replaced something that was recalled, and return it by what it replaced."""
    outdated = [entry.item.id for entry in pool if entry.item.outdated]
    if not outdated:
        return {}
    newer = items.successors(known.connection, outdated)
    missing = set(newer.values()) - {entry.item.id for entry in pool}
    pool += [Recalled(brief, Fused(brief.id, 0.0, ())) for brief in known.briefs(missing)]
    return newer


def _collapse(
    connection: sa.Connection, ranked: Sequence[Ranked], at: datetime | None
) -> tuple[tuple[Ranked, ...], dict[str, tuple[str, ...]]]:
    """Keep the best of what one speaker said in the same words in one cube; name the others with it."""
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
    return _fold(connection, kept, copies), copies


def _fold(connection: sa.Connection, kept: Sequence[Ranked], copies: dict[str, tuple[str, ...]]) -> tuple[Ranked, ...]:
    """Let a fact and the one message it was read from be one hit, the better of the two: they say the same.

    A trait says again what a fact says, so it gives way to either.
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
    """Return which of some items that look alike says the same: the whole of long texts is compared."""
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
    own = [ArmQuery(arm, vectors.asked) for arm in (Arm.TURN, Arm.WINDOW)]
    own += [ArmQuery(arm, vectors.asked, _MOST_STANDING) for arm in (Arm.STANDING, *of_self)]
    return tuple(own) if vectors.named is None else (*own, ArmQuery(Arm.NAMED, vectors.named))


def _with_names(dense: Vector, names: Sequence[Vector]) -> Vector | None:
    """Return about the vector of the question with its names, which are known by heart: a sum instead of a second run.

    None without names. On LoCoMo's questions its cosine with that vector is 0.90, and 0.78 without them.
    """
    if not names:
        return None
    both = dense + _NAME_SHARE * np.mean(names, axis=0)
    vector: Vector = both / np.linalg.norm(both)
    return vector


def _term_arms(terms: SparseVector) -> tuple[ArmQuery, ...]:
    """Return the term arms' queries; a question without an indexable term asks none."""
    if not len(terms.indices):
        return ()
    return ArmQuery(Arm.TURN_BM25, terms), ArmQuery(Arm.WINDOW_BM25, terms)


def limit_of(top_k: int) -> int:
    """Return how many points of an arm a search looks at first."""
    return min(MAX_CANDIDATES, max(_MIN_CANDIDATES, top_k * _OVERSAMPLE))


def arm_scores(entry: Ranked) -> tuple[ArmScore, ...]:
    """Return a candidate's votes as the public model has them."""
    return tuple(ArmScore(*vote) for vote in entry.votes)


def boosts(entry: Ranked) -> tuple[Boost, ...]:
    """Return a candidate's boosts as the public model has them."""
    return tuple(Boost(name, gave) for name, gave in entry.boosts)


def _words(item: items.Brief) -> tuple[str, ...]:
    """Return what makes two hits look alike: cube, speaker, words, and the length of what is longer than its brief."""
    length = str(item.length) if item.length > items.BRIEF_CHARS else ""
    return item.cube, item.speaker.casefold(), " ".join(item.memory.casefold().split()), length
