"""Puts what is recalled into one fenced section of a prompt, dated, marked for citing, under a token budget. Pure."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from datetime import datetime

from memos.core.text import rendering as render
from memos.core.text.rendering import NOTICE, fenced, is_untrusted, memory_section, remembered, speaker_of
from memos.core.tokens import estimate_tokens
from memos.core.types import Hit, Item, ItemType
from memos.kernel.chat.results import Recalled, Reference

_STANDING_SHARE, _RECENT_SHARE = 0.4, 0.35
_LARGEST_ENTRY = 4
"""No one memory takes more than this part of the room."""

_WIDEST_MARK = "m9999"
_RECENT = "Said last in this conversation:"
_CUT = " […]"


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that is shown; a topic is no item."""

    text: str
    at: datetime | None
    speaker: str | None
    untrusted: bool
    item: Item | None = None
    relevance: float | None = None

    @classmethod
    def of(cls, item: Item) -> Entry:
        """Return an item that has its sources as an entry."""
        doubtful = is_untrusted(item.sources)
        at = item.sources[0].at if item.sources else item.valid_from or item.said_at
        if doubtful:
            return cls(item.memory, at, speaker_of(item, item.sources), True, item)
        # A trait names its subject itself.
        return cls(item.memory, at, None if item.type is ItemType.PROFILE else item.speaker, False, item)

    @classmethod
    def found(cls, hit: Hit) -> Entry:
        """Return a hit as an entry."""
        at = hit.sources[0].at if hit.sources else hit.item.valid_from
        doubtful = is_untrusted(hit.sources)
        speaker = speaker_of(hit.item, hit.sources) if doubtful else hit.item.speaker
        return cls(hit.item.memory, at, speaker, doubtful, hit.item, hit.relevance)

    @classmethod
    def topic(cls, text: str, *, untrusted: bool) -> Entry:
        """Return what is being talked of as an entry."""
        return cls(text, None, "conversation" if untrusted else "Topic", untrusted)

    def shown(self, most: int) -> str:
        """Return the entry as a line of the section, its text cut to about so many tokens."""
        text = _cut(self.text, most).replace("\n", "\n  ")
        if self.untrusted:
            told = fenced(text, self.speaker or "")
        else:
            told = text if self.speaker is None else render.said(self.speaker, text)
        return remembered(told)


@dataclass(slots=True)
class _Filling:
    """Lines chosen so far and what is left."""

    left: int
    most: int
    seen: set[str]
    noticed: bool = False

    def take(self, entry: Entry, room: int) -> tuple[Entry, str, int] | None:
        """Return the entry with its line and cost when it fits in the room and says something new."""
        text = entry.shown(self.most)
        line = render.citation(_WIDEST_MARK, entry.at, text)
        notice = entry.untrusted and not self.noticed
        cost = estimate_tokens(line + "\n") + (estimate_tokens(NOTICE + "\n") if notice else 0)
        known = text in self.seen or (entry.item is not None and entry.item.id in self.seen)
        if known or cost > min(room, self.left):
            return None
        self.seen |= {text} if entry.item is None else {text, entry.item.id}
        self.left -= cost
        self.noticed = self.noticed or notice
        return entry, text, cost


def section_of(
    standing: Sequence[Entry], recent: Sequence[Entry], found: Sequence[Entry], budget: int, *, marks: bool,
    marked: int = 0,
) -> Recalled:  # fmt: skip
    """Return a section of at most `budget` estimated tokens.

    Of the room two fifths at most are for what stands, a third for what was said last, newest first; hits get the
    rest. With `marks` each item has one, to be cited by; the first comes after number `marked`.
    """
    room = budget - estimate_tokens(memory_section([]) + "\n\n")
    filling = _Filling(room, max(1, room // _LARGEST_ENTRY), set())
    first = _fill(filling, standing, int(room * _STANDING_SHARE))
    last_room = int(room * _RECENT_SHARE) - estimate_tokens(_RECENT + "\n")
    filling.left -= estimate_tokens(_RECENT + "\n") if recent else 0
    last = _fill(filling, recent[::-1], last_room, whole=True)[::-1]
    middle = _fill(filling, found, filling.left)
    taken = [*first, *middle, *last]
    if not taken:
        return Recalled("", 0, (), False)
    lines: list[str] = [NOTICE] if filling.noticed else []
    shown: list[Reference] = []
    for place, (entry, text) in enumerate(taken):
        if last and place == len(first) + len(middle):
            lines.append(_RECENT)
        if entry.item is None:
            lines.append(f"- {text}")
            continue
        reference = _reference(entry, entry.item, f"m{marked + len(shown) + 1}")
        lines.append(render.citation(reference.mark, entry.at, text) if marks else f"- {render.dated(entry.at, text)}")
        shown.append(reference)
    text = memory_section(lines)
    return Recalled(text, estimate_tokens(text), tuple(shown), filling.noticed)


def known_ids(entries: Sequence[Entry]) -> Set[str]:
    """Return the ids of the items among entries."""
    return {entry.item.id for entry in entries if entry.item is not None}


def _fill(filling: _Filling, entries: Sequence[Entry], room: int, *, whole: bool = False) -> list[tuple[Entry, str]]:
    """Take what fits in order; a `whole` run ends at the first that does not fit."""
    taken: list[tuple[Entry, str]] = []
    for entry in entries:
        found = filling.take(entry, room)
        if found is not None:
            taken.append(found[:2])
            room -= found[2]
        elif whole:
            break
    return taken


def _reference(entry: Entry, item: Item, mark: str) -> Reference:
    return Reference(mark, item.id, item.cube, item.memory, item.speaker, entry.at, entry.relevance)


def _cut(text: str, tokens: int) -> str:
    """Return a text of about so many tokens, its end cut off if need be."""
    if estimate_tokens(text) <= tokens:
        return text
    short, long = 0, len(text)
    while short + 1 < long:
        middle = (short + long) // 2
        if estimate_tokens(text[:middle] + _CUT) <= tokens:
            short = middle
        else:
            long = middle
    return text[:short] + _CUT
