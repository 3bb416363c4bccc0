"""`MemOS.search`: finds memories for a question, and orders given texts by how well they answer it."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Final, Unpack
from zoneinfo import ZoneInfo

from memos.core.aliases import SearchAliases, SearchItemAliases
from memos.core.filters import parse
from memos.core.ports import Embedder, Reranker, SparseEncoder, SparseVector
from memos.core.telemetry import Listeners
from memos.core.text.validation import MAX_MESSAGE_BYTES, check_text
from memos.core.tokens import estimate_tokens
from memos.core.types import DEFAULT_CUBE, LOCAL_OWNER, Arm, Hit, ItemType, Json, Scope, SearchResult, WhyNot
from memos.errors import InvalidInput, NotFound
from memos.kernel.context import Context, accept_aliases, retry_read
from memos.kernel.former_names import least_relevance
from memos.kernel.opening import OpenedInstallation
from memos.memcube.judge import judge_for
from memos.memcube.ledger import items
from memos.reader.arguments import fraction_of, member_of, read_time, switch, within
from memos.scheduler.scheduler import Scheduler
from memos.search.explain import why_not
from memos.search.question import MAX_QUERY_CHARS, MAX_TOP_K, SearchRequest
from memos.search.rerank import TimedReranker, checked_scores
from memos.search.searcher import Searcher


class Kind(StrEnum):
    """A kind of memory, as callers see it."""

    MEMORY = "memory"
    PREFERENCE = "preference"
    TOOL = "tool"
    SKILL = "skill"


_APART = {
    Kind.PREFERENCE: (ItemType.PREFERENCE, ItemType.INSTRUCTION),
    Kind.TOOL: (ItemType.TOOL_SCHEMA, ItemType.TOOL_TRAJECTORY),
    Kind.SKILL: (ItemType.SKILL,),
}
# Which items are of each kind; every type is of exactly one.
TYPES: Mapping[Kind, tuple[ItemType, ...]] = {
    Kind.MEMORY: tuple(type_ for type_ in ItemType if not any(type_ in types for types in _APART.values())),
    **_APART,
}


def narrowed_to_kind(kind: Kind, filter_: Mapping[str, Json] | None = None) -> dict[str, Json]:
    """Return the filter narrowed to one kind."""
    mine: dict[str, Json] = {"type": {"in": [str(type_) for type_ in TYPES[kind]]}}
    return mine if not filter_ else {"and": [mine, dict(filter_)]}


# Types of items that working memory takes by what was said last.
FACTS = (ItemType.USER, ItemType.ASSISTANT, ItemType.PROFILE, ItemType.SKILL, ItemType.SUMMARY)
_NEAR_ITEMS = 10
_RELATED_FACTS = 20
# More searches than that take turns: one holds up to three of the ledger's 32 connections, and would wait for its third
# for ever when others held all the rest. More at once are no quicker in one interpreter.
_SEARCHES_AT_ONCE = 8
MOST_TEXTS: Final = 500
# The weights of `memos.search.relevance` for a memory alone: its cosine, and its words by the number of the question's.
_COSINE: Final = 2.739
_TERMS: Final = 1.205
_BIAS: Final = -2.705


@dataclass(frozen=True, slots=True)
class Ranked:
    """A text with its index in the input and a score from 0 to 1."""

    index: int
    score: float


@dataclass(frozen=True, slots=True)
class Reranked:
    """Texts, best first; `tokens` estimates what was read."""

    model: str
    results: tuple[Ranked, ...]
    tokens: int


@dataclass(frozen=True, slots=True)
class _RerankInput:
    query: str
    texts: tuple[str, ...]
    wanted: int


def _checked_input(query: str, documents: Sequence[str], top_n: int | None = None) -> _RerankInput:
    query = check_text("query", query, MAX_QUERY_CHARS * 4)
    if not query.strip():
        raise InvalidInput("query", "must not be empty")
    if isinstance(documents, str) or not isinstance(documents, Sequence) or not documents:
        raise InvalidInput("documents", "must be a list of at least one text")
    if len(documents) > MOST_TEXTS:
        raise InvalidInput("documents", f"has {len(documents):,} texts, more than the limit of {MOST_TEXTS}")
    texts = tuple(check_text(f"documents[{n}]", text, MAX_MESSAGE_BYTES) for n, text in enumerate(documents))
    return _RerankInput(query, texts, len(texts) if top_n is None else within("top_n", top_n, 1, 2**31 - 1))


def _by_reranker(given: _RerankInput, reranker: Reranker) -> Reranked:
    scores = checked_scores(reranker.scores(given.query, given.texts), len(given.texts), reranker.name)
    if min(scores) < 0 or max(scores) > 1:  # a model's own scale
        scores = [_logistic(score) for score in scores]
    return _best(given, scores, reranker.name)


def _by_vectors_and_words(given: _RerankInput, embedder: Embedder, terms: SparseEncoder) -> Reranked:
    cosines = embedder.embed_documents(given.texts) @ embedder.embed_query(given.query)
    asked = terms.encode_query(given.query)
    words = _word_scores(asked, [terms.encode_document(text) for text in given.texts])
    by_term = max(1, len(asked.indices))
    scores = [
        _logistic(_COSINE * float(cosine) + _TERMS * word / by_term + _BIAS)
        for cosine, word in zip(cosines, words, strict=True)
    ]
    return _best(given, scores, embedder.fingerprint.name)


def _best(given: _RerankInput, scores: Sequence[float], model: str) -> Reranked:
    order = sorted(range(len(scores)), key=lambda place: (-scores[place], place))[: given.wanted]
    tokens = estimate_tokens(given.query) + sum(map(estimate_tokens, given.texts))
    return Reranked(model, tuple(Ranked(n, round(scores[n], 6)) for n in order), tokens)


def _logistic(value: float) -> float:
    return 1 / (1 + math.exp(-max(-500.0, min(500.0, value))))


def _word_scores(asked: SparseVector, texts: Sequence[SparseVector]) -> list[float]:
    seen = Counter(int(term) for text in texts for term in text.indices)
    rarity = {
        int(term): math.log(1 + (len(texts) - seen[int(term)] + 0.5) / (seen[int(term)] + 0.5))
        for term in asked.indices
    }
    return [
        sum(float(weight) * rarity.get(int(term), 0.0) for term, weight in zip(text.indices, text.values, strict=True))
        for text in texts
    ]


class SearchService:
    """`MemOS.search`, to be called with a question; `recall`, `explain_missing` and `rerank` are variants of it."""

    def __init__(
        self, context: Context, installation: OpenedInstallation, scheduler: Scheduler, listeners: Listeners
    ) -> None:
        self._context = context
        self._scheduler = scheduler
        self._listeners = listeners
        self._embedder, self._terms = installation.embedder, installation.terms
        self._reranker = installation.reranker
        self._timed_reranker = None if self._reranker is None else TimedReranker(self._reranker)
        self._helpers = ThreadPoolExecutor(_SEARCHES_AT_ONCE, thread_name_prefix="memos-search")
        self._searcher = Searcher(
            ledger=context.ledger,
            index=installation.vector,
            graph=installation.graph,
            follower=installation.vector_follower,
            projection=context.indexes.vector,
            embedder=installation.embedder,
            terms=installation.terms,
            helper=self._helpers,
            turns=threading.BoundedSemaphore(_SEARCHES_AT_ONCE),
            judge=judge_for(installation.embedder.fingerprint),
            reranker=self._timed_reranker,
        )

    def close(self) -> None:
        """Wait for running searches and end their helper threads."""
        self._helpers.shutdown()
        if self._timed_reranker is not None:
            self._timed_reranker.close()

    @accept_aliases
    @retry_read
    def __call__(  # noqa: PLR0913 - the wire contract names them all
        self,
        query: str,
        *,
        cubes: str | Sequence[str] = (DEFAULT_CUBE,),
        actor: str = LOCAL_OWNER,
        top_k: int = 10,
        filter: Mapping[str, Json] | None = None,
        as_of: Json = None,
        reference_time: Json = None,
        token_budget: int | None = None,
        explain: bool = False,
        rerank: bool | None = None,
        min_relevance: float = 0,
        **_aliases: Unpack[SearchAliases],
    ) -> SearchResult:
        """Return the best memories for a question, with sources.

        Args:
           query: The question.
           cubes: The cubes to search, or the name of one; `cube` is taken, too.
           actor: Who asks.
           top_k: The number of hits.
           filter: Only items that pass this filter.
           as_of: Search what was recorded at this time.
           reference_time: When the question is asked, by default now; ended facts are left out, and relative dates
               ("last week") count from it.
           token_budget: Return the hits that fit, with a ready text.
           explain: Add scores of arms and boosts to each hit.
           rerank: Let the reranker read the first candidates; by default if one is configured.
           min_relevance: Leave out hits of less relevance, from 0 to 1.

        Raises:
           InvalidInput: An argument is not valid.
           NotFound: A cube does not exist.
        """
        with self._listeners.call("search") as clock:
            scope = self._context.scopes.check(cubes, actor)
            request = self._request(
                query,
                scope,
                top_k,
                filter,
                as_of,
                reference_time,
                token_budget,
                explain=explain,
                rerank=rerank,
                min_relevance=min_relevance,
            )
            clock.about(scope.cubes, request.query)
            result = self._searcher.search(request, clock)
            self._scheduler.record_found(result.hits)
        return result

    def recall(  # noqa: PLR0913 - what `search` takes
        self,
        query: str,
        limits: Mapping[str, int],
        *,
        cubes: Sequence[str] = (DEFAULT_CUBE,),
        actor: str = LOCAL_OWNER,
        filter: Mapping[str, Json] | None = None,
        min_relevance: float = 0,
        reference_time: Json = None,
        rerank: bool | None = None,
        relevance: float | None = None,
    ) -> dict[Kind, tuple[Hit, ...]]:
        """Return the best memories of each kind in `limits` (memory, preference, tool, skill), up to its number.

        Hits of less than `min_relevance` are left out; `relevance` is its former name. Raises: InvalidInput, NotFound
        (cube).
        """
        wanted = {member_of("limits", kind, Kind): limit for kind, limit in limits.items()}
        search = partial(
            self,
            query,
            cubes=cubes,
            actor=actor,
            reference_time=reference_time,
            rerank=rerank,
            min_relevance=least_relevance(min_relevance, relevance),
        )
        found: dict[Kind, tuple[Hit, ...]] = {}
        for kind, most in wanted.items():
            found[kind] = search(top_k=most, filter=narrowed_to_kind(kind, filter)).hits if most else ()
        return found

    @accept_aliases
    @retry_read
    def explain_missing(  # noqa: PLR0913 - what `search` takes
        self,
        item: str = "",
        query: str = "",
        *,
        cubes: str | Sequence[str] | None = None,
        actor: str = LOCAL_OWNER,
        top_k: int = 10,
        filter: Mapping[str, Json] | None = None,
        as_of: Json = None,
        reference_time: Json = None,
        token_budget: int | None = None,
        rerank: bool | None = None,
        min_relevance: float = 0,
        **_aliases: Unpack[SearchItemAliases],
    ) -> WhyNot:
        """Return the stage at which a search drops an item, or the rank at which it is found.

        Without `cubes` the item's own cube is searched. Raises: InvalidInput, NotFound.
        """
        own = self._context.scopes.check_item(item, None, actor)
        scope = own if cubes is None else self._context.scopes.check(cubes, actor)
        if not set(own.cubes) & set(scope.cubes):
            return WhyNot(item, "cube", f"it is in the cube {own.cubes[0]}, which was not searched")
        request = self._request(
            query,
            scope,
            top_k,
            filter,
            as_of,
            reference_time,
            token_budget,
            explain=True,
            rerank=rerank,
            min_relevance=min_relevance,
        )
        with self._context.ledger.read() as connection:
            state = items.current(connection, scope.cubes, [item], request.as_of).get(item)
            if state is None:
                items.require(connection, scope.cubes, item)
                raise NotFound("item", item, f"It was not stored yet at {request.as_of}.")
        return why_not(self._searcher, request, state)

    why_not = explain_missing

    def rerank(self, query: str, documents: Sequence[str], *, top_n: int | None = None) -> Reranked:
        """Rank texts by the reranker, or by vectors and words. Raises: InvalidInput, ModelError, BackendUnavailable."""
        self._context.lifecycle.check_open()
        given = _checked_input(query, documents, top_n)
        if self._reranker is not None:
            return _by_reranker(given, self._reranker)
        return _by_vectors_and_words(given, self._embedder, self._terms)

    def near(self, text: str, scope: Scope) -> dict[str, float]:
        """Return the items of a scope nearest to a text, best first, with their cosines."""
        query = text[:MAX_QUERY_CHARS]
        found = self(query, cubes=scope.cubes, actor=scope.actor, top_k=_NEAR_ITEMS, rerank=False, explain=True)
        return {hit.item.id: next((arm.score for arm in hit.arms if arm.arm == Arm.TURN), 0.0) for hit in found.hits}

    def related_facts(self, text: str, scope: Scope) -> SearchResult:
        """Search facts and summaries near a text without raising their heat."""
        kinds: dict[str, Json] = {"type": {"in": [str(kind) for kind in FACTS]}}
        request = self._request(text, scope, _RELATED_FACTS, kinds, None, None, None, explain=False, rerank=False)
        return self._searcher.search(request)

    def measured(self, query: str, scope: Scope, top_k: int, *, rerank: bool | None) -> SearchResult:
        """Search without raising heat, and without counting as somebody's search."""
        request = self._request(query, scope, top_k, None, None, None, None, explain=False, rerank=rerank)
        return self._searcher.search(request)

    def _request(  # noqa: PLR0913 - what `search` takes
        self,
        query: str,
        scope: Scope,
        top_k: int,
        raw_filter: Json,
        as_of: Json,
        reference_time: Json,
        token_budget: int | None,
        *,
        explain: bool,
        rerank: bool | None,
        min_relevance: float = 0,
    ) -> SearchRequest:
        now = self._context.clock.now()
        zone = ZoneInfo(scope.time_zone)
        text = check_text("query", query, MAX_QUERY_CHARS * 4)
        if not text.strip():
            raise InvalidInput("query", "must not be empty")
        if len(text) > MAX_QUERY_CHARS:
            raise InvalidInput("query", f"has {len(text):,} characters, more than the limit of {MAX_QUERY_CHARS:,}")
        moment = None if as_of is None else read_time("as_of", as_of, zone, now)
        return SearchRequest(
            query=text,
            scope=scope,
            now=now,
            top_k=within("top_k", top_k, 1, MAX_TOP_K),
            filter=parse(raw_filter),
            as_of=moment,
            reference_time=read_time("reference_time", reference_time, zone, moment or now),
            zone=zone,
            token_budget=None if token_budget is None else within("token_budget", token_budget, 1, 10_000_000),
            explain=switch("explain", explain),
            rerank=self.wants_reranker(rerank),
            min_relevance=fraction_of("min_relevance", min_relevance),
        )

    def wants_reranker(self, rerank: bool | None) -> bool:
        """Return whether a search with this argument uses the reranker. Raises: InvalidInput."""
        if rerank is None:
            return self._reranker is not None
        if not isinstance(rerank, bool):
            raise InvalidInput("rerank", "must be true or false, or left out")
        if rerank and self._reranker is None:
            raise InvalidInput(
                "rerank", "is set, but no reranker is configured; set MEMOS_RERANK__MODEL, or leave it out"
            )
        return rerank


SearchService.__doc__ = f"{SearchService.__doc__}\n\n    {SearchService.__call__.__doc__}"  # what `memos.search?` shows
