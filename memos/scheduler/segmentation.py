"""Which segment a page belongs to, and which of its sentences tell what a segment is about. Pure.

Source: Kang et al., "Memory OS of AI Agent", EMNLP 2025 (arXiv:2506.06326), section 3.2.2: F = cosine + Jaccard.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from memos.core.ports import Vector
from memos.core.text.matching import keywords as keywords_of
from memos.memcube.ledger.segments import KEPT_KEYWORDS

_COMPARED_KEYWORDS = 10
_SPARE = 32
_SENTENCES = 3
_SENTENCE_CHARS = (15, 240)
_SENTENCE = re.compile(r"[^.!?。！？\n]+[.!?。！？]*")


@dataclass(frozen=True, slots=True)
class PageView:
    """A page as it is compared: unit vector float32 (dimension,), keywords."""

    vector: Vector
    keywords: frozenset[str]


@dataclass(frozen=True, slots=True)
class SegmentView:
    """A segment as it is compared: the sum of its pages' vectors, None when it has to be made again."""

    id: str
    vector: Vector | None
    keywords: Mapping[str, int]


class Candidates:
    """The segments a page may join, compared all at once; one that opens or grows is compared as it is then."""

    def __init__(self, segments: Sequence[SegmentView], dimension: int) -> None:
        self._ids: list[str] = []
        self._places: dict[str, int] = {}
        self._vectors = np.zeros((len(segments) + _SPARE, dimension), dtype=np.float32)
        self._keywords: list[frozenset[str]] = []
        # Few segments share a word with a page; only those have a Jaccard index above 0.
        self._with_word: dict[str, set[int]] = {}
        for segment in segments:
            self.put(segment)

    def put(self, segment: SegmentView) -> None:
        """Add a segment, or compare pages with what it has become."""
        place = self._places.setdefault(segment.id, len(self._ids))
        if place == len(self._ids):
            self._ids.append(segment.id)
            self._keywords.append(frozenset())
            if place == len(self._vectors):
                self._vectors = np.vstack([self._vectors, np.zeros_like(self._vectors)])
        for word in self._keywords[place]:
            self._with_word[word].discard(place)
        self._keywords[place] = _main(segment.keywords)
        for word in self._keywords[place]:
            self._with_word.setdefault(word, set()).add(place)
        norm = 0.0 if segment.vector is None else float(np.linalg.norm(segment.vector))
        self._vectors[place] = 0.0 if segment.vector is None or norm == 0 else segment.vector / norm

    def best(self, page: PageView, previous: str | None, least: float) -> str | None:
        """Return the segment the page joins, None when it opens one.

        That of the page before it comes first: a topic goes on unless it changes.
        """
        if not self._ids:
            return None
        scores = self._vectors[: len(self._ids)] @ page.vector
        for place in set().union(*(self._with_word.get(word, ()) for word in page.keywords)):
            scores[place] += _jaccard(page.keywords, self._keywords[place])
        before = self._places.get(previous) if previous is not None else None
        if before is not None and scores[before] >= least:
            return self._ids[before]
        best = int(np.argmax(scores))
        return self._ids[best] if scores[best] >= least else None


def counted(keywords: Mapping[str, int], page: frozenset[str]) -> dict[str, int]:
    """Return a segment's keywords with those of one more page: the most frequent, then the newest."""
    sums = dict.fromkeys(sorted(page), 1) | {word: count + (word in page) for word, count in keywords.items()}
    best = sorted(sums.items(), key=lambda entry: -entry[1])
    return dict(best[:KEPT_KEYWORDS])


@dataclass(frozen=True, slots=True)
class Sentence:
    """A span of one message that may tell what a segment is about."""

    item: str
    start: int
    end: int
    text: str


def sentences(item: str, text: str) -> list[Sentence]:
    """Return the sentences of a message that are neither too short nor too long to stand alone."""
    found = []
    for match in _SENTENCE.finditer(text):
        stripped = match.group().strip()
        if _SENTENCE_CHARS[0] <= len(stripped) <= _SENTENCE_CHARS[1]:
            start = match.start() + match.group().index(stripped)
            found.append(Sentence(item, start, start + len(stripped), stripped))
    if not found and text.strip():
        start = len(text) - len(text.lstrip())
        end = min(len(text.rstrip()), start + _SENTENCE_CHARS[1])
        found.append(Sentence(item, start, end, text[start:end]))
    return found


def telling(candidates: Sequence[Sentence], keywords: Mapping[str, int]) -> list[Sentence]:
    """Return at most 3 sentences, in the given order, that name most of what the segment's pages share.

    Each next one is chosen for the keywords that those before it left out, the pages of a keyword being its weight:
    greedy maximum coverage (Lin & Bilmes, "A Class of Submodular Functions for Document Summarization", ACL 2011).
    """
    words = [set(keywords_of(sentence.text)) & keywords.keys() for sentence in candidates]
    left = dict(keywords)
    chosen: list[int] = []
    while len(chosen) < min(_SENTENCES, len(candidates)):
        gains = [
            -1.0 if place in chosen else sum(left.get(word, 0) for word in found) - len(candidates[place].text) * 1e-4
            for place, found in enumerate(words)
        ]
        place = int(np.argmax(gains))
        if chosen and gains[place] <= 0:
            break
        chosen.append(place)
        for word in words[place]:
            left.pop(word, None)
    return [candidates[place] for place in sorted(chosen)]


def _main(keywords: Mapping[str, int]) -> frozenset[str]:
    return frozenset(sorted(keywords, key=lambda word: -keywords[word])[:_COMPARED_KEYWORDS])


def _jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    both = len(one & other)
    return both / (len(one) + len(other) - both) if both else 0.0
