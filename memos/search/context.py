"""Assembles hits into a text for a prompt, dated and cited, under a token budget. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from memos.model import Hit
from memos.text import render

_ASCII_CHARS_PER_TOKEN = 4


def estimate_tokens(text: str) -> int:
    """Return an upper-leaning estimate: 4 ASCII characters or 1 other character a token.

    Source: https://help.openai.com/en/articles/4936856 (about 4 characters of English a token); a Chinese
    character costs about one.
    """
    ascii_chars = sum(character < "\x80" for character in text)
    return -(-ascii_chars // _ASCII_CHARS_PER_TOKEN) + len(text) - ascii_chars


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
