"""Finds the marks by which an answer cites memories, `[m3]` or `[m1, m4]`, and takes them out as it comes in. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection

_MARKS = re.compile(r"[ \t]{0,8}\[m\d{1,4}(?:\s{0,3}[,;]\s{0,3}m?\d{1,4}){0,50}\]")
# What may be the beginning of one; a model that writes on for longer than this means something else.
_BEGUN = re.compile(r"[ \t]{0,8}(?:\[(?:m[\dm,;\s]{0,300})?)?\Z")
_LONGEST = 310


class Marks:
    """Takes an answer in pieces, gives it on without the marks it knows (or, `kept`, with them), and counts these."""

    def __init__(self, known: Collection[str], *, kept: bool = False) -> None:
        self._known = set(known)
        self._kept = kept
        self._held = ""
        self._begun = False
        self.cited: dict[str, None] = {}
        """The known marks so far, in the order of their first use."""

    def feed(self, piece: str) -> str:
        """Return what of the text so far can be shown."""
        text = self._held + piece
        begun = _BEGUN.search(text, max(0, len(text) - _LONGEST))
        held = len(text) if begun is None else begun.start()
        self._held = text[held:]
        return self._told(text[:held])

    def end(self) -> str:
        """Return what was held back; white space at the end is left out."""
        text, self._held = self._held, ""
        return self._told(text).rstrip()

    def _told(self, text: str) -> str:
        told = _MARKS.sub(self._cite, text)
        told = told if self._begun else told.lstrip()
        self._begun = self._begun or bool(told)
        return told

    def _cite(self, found: re.Match[str]) -> str:
        known = [mark for number in re.findall(r"\d+", found[0]) if (mark := f"m{int(number)}") in self._known]
        self.cited |= dict.fromkeys(known)
        return found[0] if self._kept or not known else ""


def without_marks(text: str, known: Collection[str], *, kept: bool = False) -> tuple[str, tuple[str, ...]]:
    """Return a whole answer without its marks, and those it has."""
    marks = Marks(known, kept=kept)
    told = marks.feed(text) + marks.end()
    return told.rstrip(), tuple(marks.cited)
