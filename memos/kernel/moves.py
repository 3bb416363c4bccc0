"""Moves of topics between tiers, read from a cube's events, with their reasons in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

import sqlalchemy as sa

from memos.core.types import Event, Item, Segment
from memos.memcube.ledger import cubes
from memos.memcube.ledger import segments as segment_rows
from memos.scheduler.jobs.segments import ACTOR, summary
from memos.scheduler.rules import HeatRules

_SHOWN_TOPICS = 3
_NAME_CHARS = 80
# Events looked at for one answer, so that a cube with hardly any moves is answered soon too.
_WINDOW = 100_000


@dataclass(frozen=True, slots=True)
class TierMove:
    """Topics, or exchanges of conversations, that moved to another tier."""

    seq: Annotated[int, "Number of its event"]
    at: Annotated[datetime, "When they moved"]
    actor: Annotated[str, "Who moved them; `scheduler` is the background"]
    tier: Annotated[str, "`mid`, `long` or `archive`"]
    direction: Annotated[str, "`promotion`, `demotion`, or `aging`: exchanges that left the short tier"]
    segments: Annotated[tuple[str, ...], "Ids of the topics"]
    topics: Annotated[tuple[str, ...], "First words of at most three topics that are still there"]
    pages: Annotated[int, "Exchanges that moved or were read; 0 for whole topics"]
    heat: Annotated[float | None, "Highest heat of the topics then"]
    reason: Annotated[str, "Why, in words"]


@dataclass(frozen=True, slots=True)
class SegmentContents:
    """A topic with its messages and what was read from them."""

    segment: Annotated[Segment, "The topic"]
    messages: Annotated[tuple[Item, ...], "Its messages, the newest first"]
    facts: Annotated[tuple[Item, ...], "Memories read from these messages"]
    next: Annotated[str | None, "Continue after this message; null at the end"]


def moves_before(
    connection: sa.Connection, cube: str, rules: HeatRules, before: int | None, limit: int, now: datetime
) -> list[TierMove]:
    """Return the last moves before event number `before`, newest first."""
    found = cubes.events_before(connection, cube, "move", before, window=_WINDOW, limit=limit)
    moved = {event.seq: _segments(event) for event in found}
    shown = {id_ for ids in moved.values() for id_ in ids[:_SHOWN_TOPICS]}
    rows = segment_rows.get_segments(connection, sorted(shown))
    words = {id_: _name(summary(connection, row, now)) for id_, row in rows.items() if row.cube == cube}
    return [_move(event, moved[event.seq], words, rules) for event in found]


def _name(told: str) -> str:
    line = told.partition("\n")[0]
    return line if len(line) <= _NAME_CHARS else f"{line[:_NAME_CHARS].rstrip()}…"


def _body(event: Event) -> Mapping[str, Any]:
    return event.body if isinstance(event.body, dict) else {}


def _segments(event: Event) -> tuple[str, ...]:
    body = _body(event)
    if "segment" in body:
        return (str(body["segment"]),)
    pages = body.get("pages")
    named: Iterable[Any] = pages.values() if isinstance(pages, dict) else body.get("segments", ())
    return tuple(dict.fromkeys(map(str, named)))


def _heat(body: Mapping[str, Any]) -> float | None:
    heat = body.get("heat")
    values: Sequence[Any] = list(heat.values()) if isinstance(heat, dict) else [heat]
    return max((float(value) for value in values if isinstance(value, int | float)), default=None)


def _move(event: Event, segments: tuple[str, ...], words: Mapping[str, str], rules: HeatRules) -> TierMove:
    body = _body(event)
    heat, tier = _heat(body), str(body.get("tier", ""))
    pages = len(body.get("pages", ()))
    direction = "demotion" if tier == "archive" else "aging" if tier == "mid" and pages else "promotion"
    topics = tuple(words[id_] for id_ in segments[:_SHOWN_TOPICS] if words.get(id_))
    reason = _reason(event.actor, tier, direction, heat, rules)
    return TierMove(event.seq, event.at, event.actor, tier, direction, segments, topics, pages, heat, reason)


def _reason(actor: str, tier: str, direction: str, heat: float | None, rules: HeatRules) -> str:
    limits = rules.thresholds
    if actor != ACTOR:
        return f"moved by hand by {actor}"
    if direction == "aging":
        return f"older than the last {rules.short_capacity} exchanges, or the conversation was left"
    if tier == "archive":
        cold = heat is not None and heat < limits.demote_below
        return f"cold: below a heat of {limits.demote_below:g}" if cold else f"no room beside {rules.mid_capacity:,}"
    if heat is not None and heat >= limits.promote_above:
        return f"hot: a heat of {limits.promote_above:g} or more"
    return "came back from the archive" if tier == "mid" else "read on request, or before it goes into the archive"
