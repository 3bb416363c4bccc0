"""Assembles hits into a text for a prompt, dated and cited, under a token budget. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from memos.model import Hit
from memos.text import render
from memos.tokens import estimate_tokens


def assemble(hits: Sequence[Hit], token_budget: int) -> tuple[tuple[Hit, ...], str, int]:
    """Return the hits that fit (in order, skipping what is too long), their text and its estimated tokens."""
    chosen: list[Hit] = []
    lines: list[str] = []
    used = 0
    for hit in hits:
        at = hit.sources[0].at if hit.sources else hit.item.valid_from
        line = render.citation(len(chosen) + 1, at, hit.item.speaker, hit.item.memory)
        cost = estimate_tokens(line + "\n")
        if used + cost <= token_budget:
            chosen.append(hit)
            lines.append(line)
            used += cost
    return tuple(chosen), "\n".join(lines), used
