"""Compare two texts word by word, for people to read."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import NamedTuple

# With the space after it: a text has too many spaces to compare each with each.
_WORD = re.compile(r"(?:\w+|[^\w\s])\s*|\s+")
# Longer texts are compared by line, since time grows with the product of the lengths.
_MOST_WORDS = 4_000
# From here on very frequent words are not looked for.
_MANY_WORDS = 400
_SAME_SHARE = 0.3


class Piece(NamedTuple):
    """A piece of a comparison: `same`, `added` or `removed`."""

    kind: str
    text: str


def word_diff(before: str, after: str) -> list[Piece]:
    """Compare two texts word by word; very long ones line by line."""
    old, new = _WORD.findall(before), _WORD.findall(after)
    if max(len(old), len(new)) > _MOST_WORDS:
        old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    if not _alike(old, new):
        return [Piece("removed", before), Piece("added", after)]
    pieces: list[Piece] = []
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=max(len(old), len(new)) > _MANY_WORDS)
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag == "equal":
            pieces.append(Piece("same", "".join(old[a:b])))
            continue
        if b > a:
            pieces.append(Piece("removed", "".join(old[a:b])))
        if d > c:
            pieces.append(Piece("added", "".join(new[c:d])))
    return pieces


def _alike(old: Sequence[str], new: Sequence[str]) -> bool:
    """Return True if enough words are the same that the differences say more than both texts whole."""
    words, others = ({each.casefold() for each in text if each[:1].isalnum()} for text in (old, new))
    return len(words & others) >= _SAME_SHARE * max(len(words), len(others))
