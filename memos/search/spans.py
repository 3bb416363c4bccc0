"""Which time a question asks about: what it names, and what it says of that ("the week before 3 May"). Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from memos.core.clock import to_micros
from memos.core.filters import And, Condition, Node, Op, Or
from memos.core.text.times import TimeExpression

_CHARS_BEFORE = 40
"""Characters before a time that are looked at; longer phrases say something else."""

_UNITS = {"day": 1, "weekend": 7, "week": 7, "month": 31, "year": 366}
_UNIT = "(?P<unit>day|weekend|week|month|year)s?"
_BESIDE = re.compile(rf"\b(?:(?P<count>\d{{1,2}}) )?{_UNIT} (?P<side>before|after|following|prior to) (?:the )?$", re.I)
_FROM = re.compile(r"\bsince (?:the )?(?:start of |beginning of )?$|自从?$", re.I)
_AFTER = re.compile(r"\b(?:after|following) (?:the )?$", re.I)
_BEFORE = re.compile(r"\b(?:before|prior to|until|till|up to) (?:the )?$|(?:直到|截止?到?)$", re.I)
_LEADS = re.compile(r"(?:in|during|since|until|early|late|of|by) ", re.I)
"""What a month or a year is found with, and is no part of it."""

_BETWEEN = re.compile(r"^\s*(?:,\s*\d{4}\s*)?(?:and|to|until|through|-|–|到|至)\s*(?:the )?$", re.I)
_BETWEEN_OPENS = re.compile(r"\b(?:between|from) (?:the )?$|从$", re.I)
_PART = re.compile(
    r"\b(?:(?P<nth>first|second|third|fourth|last|1st|2nd|3rd|4th) (?P<piece>half|week|weekend) (?:of|in) "
    r"|(?P<third>early|mid|late)[ -](?:in )?|(?:the )?(?P<end>beginning|start|middle|end) of )(?:the )?$",
    re.I,
)
_OF = re.compile(r"^ (?:of|in) (?:the )?$|^ $", re.I)
_PIECE = re.compile(r"^last week(?:end)?$", re.I)
_NTH = {"first": 0, "1st": 0, "second": 1, "2nd": 1, "third": 2, "3rd": 2, "fourth": 3, "4th": 3, "last": -1}
_THIRDS = {"early": 0, "beginning": 0, "start": 0, "mid": 1, "middle": 1, "late": 2, "end": 2}


class Span(NamedTuple):
    """The moments from `since` up to, not including, `until`; None where that side is open."""

    since: datetime | None
    until: datetime | None


def asked_spans(text: str, times: Sequence[TimeExpression], asked_at: datetime) -> tuple[Span, ...]:
    """Return the spans of time that a question asks about, by the times that stand in it, in order.

    What was before, after or since a time reaches to the asking (`asked_at`, aware) at most.
    """
    found: list[Span] = []
    taken = False
    for place, time in enumerate(times):
        follows = text[time.end : times[place + 1].start] if place + 1 < len(times) else ""
        # "The last week of May" is no week before today.
        if taken or (_OF.search(follows) and _PIECE.search(time.text)):
            taken = False
            continue
        leads = _LEADS.match(time.text)
        begin = time.start + (leads.end() if leads else 0)
        before = text[max(0, begin - _CHARS_BEFORE) : begin]
        after = times[place + 1] if place + 1 < len(times) else None
        if after is not None and _BETWEEN_OPENS.search(before) and _BETWEEN.match(follows):
            found.append(Span(time.valid_from, max(time.valid_to, after.valid_to)))
            taken = True
        else:
            found.append(_span(before, time, asked_at.astimezone(UTC)))
    return tuple(found)


def of_spans(spans: Sequence[Span]) -> Node:
    """Return the filter for what was said, began or was so in one of these spans."""
    parts: list[Node] = []
    for span in spans:
        for begin, end in (("said_at", "said_at"), ("valid_from", "valid_from"), ("valid_from", "valid_to")):
            sides = []
            if span.until is not None:
                sides.append(Condition(begin, Op.LT, to_micros(span.until)))
            if span.since is not None:
                is_same = begin == end
                sides.append(Condition(end, Op.GTE if is_same else Op.GT, to_micros(span.since)))
            parts.append(And(tuple(sides)))
    return Or(tuple(parts))


def _span(before: str, time: TimeExpression, asked_at: datetime) -> Span:
    """Return what a question asks about by what stands before a time in it."""
    since, until = time.valid_from, time.valid_to
    if beside := _BESIDE.search(before):
        length = int(beside["count"] or 1) * _UNITS[beside["unit"].casefold()]
        if beside["side"].casefold() in ("before", "prior to"):
            return Span(_moved(since, -length), since)
        return Span(until, _moved(until, length))
    if part := _PART.search(before):
        return _part(part, since, until)
    if _FROM.search(before):
        return Span(since, max(until, asked_at))
    if _AFTER.search(before):
        return Span(until, max(until, asked_at))
    if _BEFORE.search(before):
        return Span(None, since)
    return Span(since, until)


def _part(part: re.Match[str], since: datetime, until: datetime) -> Span:
    """Return a half, a week or a third of a longer time; of a day nothing but the day."""
    whole = until - since
    if whole <= timedelta(days=7):
        return Span(since, until)
    if part["nth"] is None:
        third = whole / 3
        place = _THIRDS[(part["third"] or part["end"]).casefold()]
        return Span(since + place * third, since + (place + 1) * third)
    length = whole / 2 if part["piece"].casefold() == "half" else timedelta(days=7)
    place = _NTH[part["nth"].casefold()]
    if place < 0:
        return Span(until - length, until)
    return Span(min(since + place * length, until - length), min(since + (place + 1) * length, until))


def _moved(moment: datetime, days: int) -> datetime | None:
    try:
        return moment + timedelta(days=days)
    except OverflowError:  # beyond the calendar
        return None
