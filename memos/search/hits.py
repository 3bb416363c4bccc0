"""Assemble hits into a text for a prompt, dated and cited, untrusted ones fenced, within a token budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import sqlalchemy as sa

from memos.core.text import rendering
from memos.core.text.rendering import NOTICE, is_untrusted, speaker_of, wrap_untrusted
from memos.core.tokens import estimate_tokens
from memos.core.types import Hit, ItemType
from memos.memcube.ledger import items
from memos.search.question import Intent, Question
from memos.search.rank import Recalled


def prefer_tool_calls(connection: sa.Connection, question: Question, pool: Sequence[Recalled]) -> Mapping[str, str]:
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


def assemble(hits: Sequence[Hit], token_budget: int, *, by_time: bool = False) -> tuple[tuple[Hit, ...], str, int]:
    """Return the hits that fit (in order, skipping what is too long), their text and its estimated tokens.

    With `by_time` those that fit stand in the order they were said in, what has no time after the others.
    """
    # The number that a line gets by its time may be longer than that of its place.
    fitting, used = _fitting(hits, token_budget, widest=len(hits) if by_time else 0)
    if by_time:
        # Of one moment by their ids, which are in the order in which they were stored.
        fitting.sort(key=lambda hit: (_at(hit) is None, _at(hit) or hit.item.created_at, hit.item.id))
    told = any(is_untrusted(hit.sources) for hit in fitting)
    lines = [_line(number, hit) for number, hit in enumerate(fitting, start=1)]
    return tuple(fitting), "\n".join([NOTICE, *lines] if told else lines), used


def _fitting(hits: Sequence[Hit], token_budget: int, widest: int) -> tuple[list[Hit], int]:
    chosen: list[Hit] = []
    used, told = 0, False
    for hit in hits:
        doubtful = is_untrusted(hit.sources)
        notice = doubtful and not told
        line = _line(widest or len(chosen) + 1, hit)
        cost = estimate_tokens(line + "\n") + (estimate_tokens(NOTICE + "\n") if notice else 0)
        if used + cost <= token_budget:
            told = told or notice
            chosen.append(hit)
            used += cost
    return chosen, used


def _line(number: int, hit: Hit) -> str:
    shown = rendering.with_speaker(hit.item.speaker, hit.item.memory)
    if is_untrusted(hit.sources):
        shown = wrap_untrusted(hit.item.memory, speaker_of(hit.item, hit.sources))
    return rendering.citation(number, _at(hit), rendering.marked(hit.standing, shown))


def _at(hit: Hit) -> datetime | None:
    return hit.sources[0].at if hit.sources else hit.item.valid_from
