"""Token counts, and an estimate for uncounted text."""

from __future__ import annotations

from typing import NamedTuple

_ASCII_CHARS_PER_TOKEN = 4

IMAGE_TOKENS = 765
"""Tokens of one image as it is sent, at most 1,024 pixels a side.

Source: https://platform.openai.com/docs/guides/images-vision (85 and 170 for each of four tiles); other models differ.
"""


class Tokens(NamedTuple):
    """Tokens of one model call; `estimated` says that the endpoint did not report them."""

    # `cached` are those of the prompt that the model had in memory, None where nothing is said of it.

    prompt: int = 0
    completion: int = 0
    estimated: bool = False
    cached: int | None = None


def estimate_tokens(text: str) -> int:
    """Return an upper-leaning estimate: 4 ASCII characters or 1 other character a token."""
    # Source: https://help.openai.com/en/articles/4936856 (about 4 characters of English a token); a Chinese character
    # costs about one.
    ascii_chars = sum(character < "\x80" for character in text)
    return -(-ascii_chars // _ASCII_CHARS_PER_TOKEN) + len(text) - ascii_chars
