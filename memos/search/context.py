"""Assembles hits into a text for a prompt, dated and cited, untrusted ones fenced, under a token budget. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from memos.model import Hit
from memos.text import render
from memos.text.fencing import NOTICE, fenced, is_untrusted, speaker_of
from memos.tokens import estimate_tokens


def assemble(hits: Sequence[Hit], token_budget: int) -> tuple[tuple[Hit, ...], str, int]:
    """Return the hits that fit (in order, skipping what is too long), their text and its estimated tokens."""
    chosen: list[Hit] = []
    lines: list[str] = []
    used, told = 0, False
    for hit in hits:
        at = hit.sources[0].at if hit.sources else hit.item.valid_from
        doubtful = is_untrusted(hit.sources)
        speaker, memory = hit.item.speaker, hit.item.memory
        shown = fenced(memory, speaker_of(hit.item, hit.sources)) if doubtful else render.said(speaker, memory)
        line = render.citation(len(chosen) + 1, at, shown)
        notice = doubtful and not told
        cost = estimate_tokens(line + "\n") + (estimate_tokens(NOTICE + "\n") if notice else 0)
        if used + cost <= token_budget:
            told = told or notice
            chosen.append(hit)
            lines.append(line)
            used += cost
    return tuple(chosen), "\n".join([NOTICE, *lines] if told else lines), used
