"""Explain at which stage of a search an expected item was dropped."""

from __future__ import annotations

from dataclasses import replace

from memos.core.filters import And, Condition, Node, Not, Op, Or, matches
from memos.core.telemetry import StageClock
from memos.core.text.rendering import assemble
from memos.core.types import Item, Status, WhyNot
from memos.memcube.ledger import items
from memos.search.candidates import candidates_of
from memos.search.question import Rules, SearchRequest
from memos.search.searcher import (
    MAX_CANDIDATES,
    UNINDEXED,
    RankedCandidates,
    Searcher,
    limit_of,
)


def why_not(searcher: Searcher, request: SearchRequest, state: Item) -> WhyNot:
    """Return the stage at which an item, as it stands in the ledger, left the search, and what would keep it."""
    if state.status is Status.DELETED:
        return WhyNot(state.id, "ledger", f"it is deleted; restore it with `memos memory rollback {state.id}`")
    with searcher.ledger.read() as connection:
        if items.unsearchable(connection, [state.id]):
            return WhyNot(state.id, "index", "it was put with index=False, which leaves it out of searches")
    wanted = Rules.of(request).wanted
    if not matches(wanted, items.record_of(state)):
        return WhyNot(state.id, "filter", f"it does not match the filter: {'; '.join(_failing(wanted, state))}")
    # First as the search itself runs, so that both say the same; then as far as a search can look.
    clock = StageClock()
    with searcher.turn(clock), searcher.ledger.read() as connection:
        found = searcher.find(connection, request, limit_of(request.top_k), clock)
        texts = searcher.rerank_texts(request, found)
    found = searcher.reranked(request, found, texts, clock)
    told = _place(searcher, request, found, state)
    if told is None:
        wide = replace(request, top_k=MAX_CANDIDATES, rerank=False)
        with searcher.turn(clock), searcher.ledger.read() as connection:
            found = searcher.find(connection, wide, MAX_CANDIDATES, clock)
        told = _place(searcher, request, found, state, at_least=request.top_k + 1)
    if told is not None:
        return told
    if state.id in searcher.projection.pending(request.scope.cubes, MAX_CANDIDATES):
        return WhyNot(state.id, "index", "it is not in the vector index yet; check with `memos data verify`")
    down = [arm for arm in found.missing if arm != UNINDEXED]
    missing = f" ({', '.join(down)} did not answer)" if down else ""
    return WhyNot(
        state.id, "recall", f"it is not among the {MAX_CANDIDATES:,} best candidates of any search arm{missing}"
    )


def _place(
    searcher: Searcher, request: SearchRequest, found: RankedCandidates, state: Item, at_least: int = 1
) -> WhyNot | None:
    """Return what became of an item in one run of the search, None when it is no candidate; a wider run orders anew."""
    for place, entry in enumerate(found.ranked, start=1):
        if entry.item.id == state.id:
            return _ranked(searcher, request, found, place, max(place, at_least))
        if state.id in found.copies.get(entry.item.id, ()):
            reason = f"memory {entry.item.id} at place {place} says the same and is shown in its place"
            return WhyNot(state.id, "duplicate", reason, place)
    return None


def _ranked(searcher: Searcher, request: SearchRequest, found: RankedCandidates, at: int, place: int) -> WhyNot:
    entry = found.ranked[at - 1]
    if place > request.top_k:
        last = found.ranked[request.top_k - 1]
        reason = (
            f"it is at place {place} of {len(found.ranked):,} with {entry.score:.3f}; the last of the "
            f"{request.top_k} hits has {last.score:.3f}"
        )
        return WhyNot(entry.item.id, "rank", reason, place, entry.score, entry.arm_scores, entry.all_boosts)
    if (its := found.relevance().of(entry)) < request.min_relevance:
        reason = f"it is at place {place}, but has a relevance of {its:.3f}, less than {request.min_relevance:g}"
        return WhyNot(entry.item.id, "relevance", reason, place, entry.score, entry.arm_scores, entry.all_boosts)
    if request.token_budget is not None:
        with searcher.ledger.read() as connection:
            hits = searcher.hits(candidates_of(connection, request, found.rules), request, found)
        kept, _, used = assemble(hits, request.token_budget, by_time=found.question.asks_order, query=request.query)
        if entry.item.id not in {hit.item.id for hit in kept}:
            reason = f"it is at place {place}, but does not fit into {request.token_budget} tokens ({used} used)"
            return WhyNot(entry.item.id, "budget", reason, place, entry.score, entry.arm_scores, entry.all_boosts)
    reason = f"it is found, at place {place}"
    return WhyNot(entry.item.id, "found", reason, place, entry.score, entry.arm_scores, entry.all_boosts)


def _failing(node: Node, state: Item) -> list[str]:
    record = items.record_of(state)
    if matches(node, record):
        return []
    match node:
        case And():
            return [told for part in node.parts for told in _failing(part, state)]
        case Or():
            return [" or ".join(told for part in node.parts for told in _failing(part, state)) or "an empty 'or'"]
        case Not():
            return [f"not ({_told(node.part)})"]
        case Condition():
            if node.field == "status":
                by = f" by {state.superseded_by}" if state.superseded_by else ""
                return [f"{_told(node)}: it is {state.status}{by}; to find it, filter by status"]
            return [f"{_told(node)} (it has {record.get(node.field)!r})"]


def _told(node: Node) -> str:
    match node:
        case Condition():
            value = list(node.value) if node.op in (Op.IN, Op.NIN) and isinstance(node.value, tuple) else node.value
            return f"{node.field} {node.op} {value!r}"
        case Not():
            return f"not ({_told(node.part)})"
        case And():
            return " and ".join(_told(part) for part in node.parts)
        case Or():
            return " or ".join(_told(part) for part in node.parts)
