"""Names of a question: those that were merged with others in a cube, and vectors with them.

A search for one of two merged names finds what names the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import sqlalchemy as sa

from memos.core.ports import Vector
from memos.memcube.ledger import entities
from memos.memcube.ledger.entities import fold

_WORD = re.compile(r"[^\W_]+(?:[-.’'][^\W_]+)*")
_OF = re.compile(r"(?:['’]s|(?<=s)['’])\Z", re.I)
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]+")
_CHARS = 600
_MOST_PARTS = 500  # of a question that may be a name
_WORDS = 4  # of a name
_SIGNS = 4  # of a name in a script without spaces
_MOST_OTHERS = 8
_MOST_POSSIBLE = 32  # names of a question that are looked up where many people speak


class MergedName(NamedTuple):
    """A name in a question, where it stands, and the names that were merged with it."""

    start: int
    end: int
    name: str
    others: tuple[str, ...]

    @property
    def every(self) -> tuple[str, ...]:
        """Return the name and the others."""
        return (self.name, *self.others)


def merged_names(connection: sa.Connection, cubes: Sequence[str], text: str) -> tuple[MergedName, ...]:
    """Return the names in a question that have others in these cubes, in order; of two in one place, the longer."""
    if not entities.has_aliases(connection, cubes):
        return ()
    places = list(dict.fromkeys(_parts(text[:_CHARS])))[:_MOST_PARTS]
    same = entities.same_as(connection, cubes, {fold(text[start:end]) for start, end in places})
    found: list[MergedName] = []
    for start, end in sorted(places, key=lambda place: (place[0] - place[1], place[0])):
        others = same.get(fold(text[start:end]))
        if others and all(end <= each.start or start >= each.end for each in found):
            found.append(MergedName(start, end, text[start:end], others[:_MOST_OTHERS]))
    return tuple(sorted(found))


def _parts(text: str) -> Iterator[tuple[int, int]]:
    """Yield the places of words, and of several words, that may be a name."""
    words = [(match.start(), match.start() + len(_OF.sub("", match.group()))) for match in _WORD.finditer(text)]
    for length in range(1, _WORDS + 1):
        for place in range(len(words) - length + 1):
            yield words[place][0], words[place + length - 1][1]
    for run in _UNSPACED.finditer(text):
        for length in range(2, _SIGNS + 1):
            for start in range(run.start(), run.end() - length + 1):
                yield start, start + length


def possible_names(text: str) -> list[str]:
    """Return what in a question may be the name of a speaker: as written if capitalised, else a word in title case."""
    parts = [text[start:end] for start, end in _parts(text[:_CHARS])]
    names = [part for part in parts if not any(part.split()[place][0].islower() for place in (0, -1))]
    words = [part.title() for part in parts if part[0].islower() and " " not in part]
    return list(dict.fromkeys([*names, *words]))[:_MOST_POSSIBLE]


def spelled_otherwise(text: str, merged: Sequence[MergedName], most: int) -> list[str]:
    """Return a question with other names in the places of the merged ones, at most `most` times."""
    number = min(most, max((len(each.others) for each in merged), default=0))
    return [_with_others(text, merged, place) for place in range(number)]


def _with_others(text: str, merged: Sequence[MergedName], place: int) -> str:
    for each in reversed(merged):
        text = text[: each.start] + each.others[place % len(each.others)] + text[each.end :]
    return text


_NAME_SHARE = np.float32(0.6)


def with_names(dense: Vector, names: Sequence[Vector]) -> Vector | None:
    """Approximate the vector of the question with its names, by a sum instead of a second run; None without names.

    On LoCoMo's questions its cosine with that vector is 0.90, and 0.78 without them.
    """
    if not names:
        return None
    both = dense + _NAME_SHARE * np.mean(names, axis=0)
    vector: Vector = both / np.linalg.norm(both)
    return vector


def mean_of(vectors: Sequence[Vector]) -> Vector:
    """Return the unit vector in the middle of several."""
    both = np.mean(vectors, axis=0)
    vector: Vector = both / (np.linalg.norm(both) or 1.0)
    return vector
