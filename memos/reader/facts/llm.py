"""Asks a model for the facts in messages and keeps of its answer only what the messages bear out.

A quote that is not in its message, a number or address it does not have, an unknown type or subject: refused, counted.
A name or a date that no message has: kept for review.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence, Set
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from importlib import resources
from typing import NamedTuple
from zoneinfo import ZoneInfo

from memos.core.ports import ChatMessage
from memos.core.text.instructions import reads_like_instruction
from memos.core.text.matching import folded
from memos.core.text.preferences import thing_of
from memos.core.text.sentences import sentences
from memos.core.text.statements import key_of
from memos.core.tokens import estimate_tokens
from memos.core.types import TOPIC, UNUSED, Fact, Item, ItemType, Role
from memos.memcube.profiles.extraction import instructions
from memos.memcube.profiles.template import Template
from memos.memcube.profiles.traits import TRAIT
from memos.reader.facts.answer import Found, FoundFact, lessons, relations, topic_of, with_names
from memos.reader.facts.grounding import (
    NO_SUCH_DATE,
    NO_SUCH_NAME,
    SHOWN_CHARS,
    Shown,
    borne_out,
    head,
    is_dated,
    local,
    quoted,
    said_at,
    subject_of,
    trust_in,
    unknown_name,
)

READER = "model/2"
"""The number is that of the prompt, `prompts/facts-2.txt`."""

PENDING = "pending"
"""In `info` of a fact: why it has to wait for a person."""

_SUMMARY_CHARS = 600
_TEXT_CHARS = 1_000
_VALUE_CHARS = 200
_MOST_FACTS = 200
_SHOWS = 0.6
"""Most confidence in what somebody only shows."""
_TYPES = {
    ItemType.USER,
    ItemType.ASSISTANT,
    ItemType.PREFERENCE,
    ItemType.INSTRUCTION,
    ItemType.SKILL,
}
_ATTRIBUTE = re.compile(r"[^\W_][\w :'’.\-]{0,59}")
_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_PARTIAL_DAY = re.compile(r"(\d{4})(?:-(\d{2}))?")


def question(
    messages: Sequence[Item],
    zone: ZoneInfo,
    before: str,
    template: Template | None = None,
    context: Collection[str] = (),
) -> list[ChatMessage]:
    """Return the prompt and the messages as data, each cut at 4,000 characters; a template asks for traits too.

    Messages whose ids are in `context` are marked so and have no number, so that nothing can be taken from them.
    """
    lines, number = [], 0
    for item in messages:
        number += item.id not in context
        lines.append(_line(None if item.id in context else number, item, zone))
    known = f"<before>\n{_escaped(before[:SHOWN_CHARS])}\n</before>\n" if before.strip() else ""
    data = known + "\n".join(["<messages>", *lines, "</messages>"])
    wanted = _prompt() if template is None else f'{_prompt()}\n\nBesides, give "traits". {_of_traits(template)}'
    return [ChatMessage("system", wanted), ChatMessage("user", data)]


def shown_tokens(item: Item) -> int:
    """Return about how many tokens a message takes in a question."""
    return estimate_tokens(_line(1, item, ZoneInfo("UTC")))


class Grounded(NamedTuple):
    """What messages bear out of an answer, and how many entries of it were refused."""

    facts: list[Fact]
    summary: str | None
    rejected: int


def grounded(answer: Found, messages: Sequence[Item], zone: ZoneInfo, context: Sequence[Item] = ()) -> Grounded:
    """Return what the messages bear out; the context only tells whom and what they mean."""
    shown = Shown(messages, zone, context)
    read = [_fact(found, shown) for found in answer.facts[:_MOST_FACTS]]
    read += [*relations(answer.relations, shown, READER), *lessons(answer.lessons, shown, READER)]
    facts = with_names([fact for fact in read if fact is not None], answer.entities, shown)
    topic = topic_of(answer.topic, shown)
    if topic is not None:
        facts = [replace(fact, info={**fact.info, TOPIC: topic}) for fact in facts]
    told = len(answer.facts) + len(answer.relations) + len(answer.lessons)
    return Grounded(facts, _summary(answer.summary, shown), told - len(facts))


def _of_traits(template: Template) -> str:
    example = '{"subject": "Ana", "dimension": "life.residence", "value": "Lyon", "confidence": 0.9, "evidence": '
    return f'{instructions(template, brief=True)}\nOne looks like {example}[{{"message": 1, "quote": "..."}}]}}'


@lru_cache(maxsize=1)
def _prompt() -> str:
    return resources.files("memos.reader").joinpath("prompts", "facts-2.txt").read_text(encoding="utf-8").strip()


def _line(number: int | None, item: Item, zone: ZoneInfo) -> str:
    at = local(said_at(item), zone)
    day = "" if at is None else f"{at.date().isoformat()} {_WEEKDAYS[at.weekday()]} {at.hour:02}:{at.minute:02}"
    place: dict[str, object] = {"context": True} if number is None else {"message": number}
    told = {**place, "at": day, "speaker": item.speaker, "role": item.role, "text": head(item)}
    return _escaped(told if len(item.memory) <= SHOWN_CHARS else {**told, "cut": True})


def _escaped(value: str | dict[str, object]) -> str:
    """Return JSON in which no text can end the fence it stands in."""
    return json.dumps(value, ensure_ascii=False).replace("</", "<\\/")


def _fact(found: FoundFact, shown: Shown) -> Fact | None:
    """Return the fact, None when the messages do not say it."""
    item = shown.numbered(found.message)
    if found.type not in _TYPES or item is None:
        return None
    type_ = ItemType(found.type)
    if type_ is ItemType.INSTRUCTION and item.role is Role.ASSISTANT:
        return None  # an assistant gives itself no orders
    text = " ".join(found.text.split())
    span = quoted(found.quote, item)
    subject = subject_of(found.subject, item, shown)
    if span is None or subject is None or not 0 < len(text) <= _TEXT_CHARS or not borne_out(text, item, shown.zone):
        return None
    valid = _validity(found, item, shown.zone)
    about = _about(found, text, item, shown)
    if valid is None or about is None:
        return None
    key, value = about
    doubt = _doubt(found, f"{text} {value or ''}".strip(), item, shown)
    shows = type_ is ItemType.PREFERENCE and found.implicit
    return Fact(
        type=type_,
        memory=text,
        spans=(span,),
        subject=subject,
        reader=READER,
        said_at=said_at(item),
        # What somebody only shows does not replace what somebody said.
        key=key_of(subject, key) if key and not shows else None,
        value=None if shows else value,
        confidence=min(_SHOWS if shows else 1.0, max(0.0, found.confidence)),
        valid_from=valid[0],
        valid_to=valid[1],
        tags=("implicit" if shows else "explicit",) if type_ is ItemType.PREFERENCE else (),
        trust=trust_in(text, span, item, shown, orders=type_ is ItemType.INSTRUCTION),
        info={} if doubt is None else {PENDING: doubt},
    )


def _doubt(found: FoundFact, text: str, item: Item, shown: Shown) -> str | None:
    """Return what of a fact no message has, None when all of it is there."""
    if unknown_name(text, shown):
        return NO_SUCH_NAME
    days = [_day(written, said_at(item), shown.zone) for written in (found.when, found.until)]
    if any(day is not None and not is_dated(day, item, shown) for day in days):
        return NO_SUCH_DATE
    return None


def _about(found: FoundFact, text: str, item: Item, shown: Shown) -> tuple[str | None, str | None] | None:
    """Return attribute and value, both or neither; None when the value is in neither the text nor the message."""
    attribute = " ".join((found.attribute or "").casefold().split())
    value = " ".join((found.value or "").split())
    if not attribute or not value or not _ATTRIBUTE.fullmatch(attribute) or attribute.startswith(TRAIT):
        return None, None
    if attribute.startswith("likes:"):
        thing = thing_of(attribute.removeprefix("likes:"))
        if thing is None or value.casefold() not in ("yes", "no"):
            return None, None
        return f"likes:{thing}", value.casefold()
    if len(value) > _VALUE_CHARS or not borne_out(value, item, shown.zone):
        return None
    known = folded(text) + "\n" + folded(head(item))
    return (attribute, value) if folded(value) and folded(value) in known else None


def _validity(found: FoundFact, item: Item, zone: ZoneInfo) -> tuple[datetime | None, datetime | None] | None:
    """Return since when and until when; None when it would end before it began."""
    at = said_at(item)
    since, until = _day(found.when, at, zone), _day(found.until, at, zone)
    if until is not None and until <= (since or at):
        return None if since is not None else (None, until)
    return since or at, until


def _day(written: str | None, at: datetime, zone: ZoneInfo) -> datetime | None:
    """Return the start of a day as UTC; the message's own day is the moment it was said, which orders what it says."""
    text = (written or "").strip()
    try:
        if (part := _PARTIAL_DAY.fullmatch(text)) is not None:
            moment = datetime(int(part[1]), int(part[2] or 1), 1, tzinfo=zone)
        else:
            moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=zone)
        same = moment.astimezone(zone).date() == at.astimezone(zone).date()
        return at if same else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _summary(written: str, shown: Shown) -> str | None:
    text = " ".join(written.split())
    if len(text) > _SUMMARY_CHARS:
        ends = [end for _, end in sentences(text[: _SUMMARY_CHARS + 1]) if end <= _SUMMARY_CHARS]
        text = text[: ends[-1]] if ends else text[:_SUMMARY_CHARS].rsplit(" ", 1)[0]
    if shown.doubtful and reads_like_instruction(text):
        return None  # a summary is shown to models, and may not carry on what a page ordered
    return text or None


# Which messages are read together: wanted ones up to so many tokens, with those around as context. Pure.

WINDOW_TOKENS = 1_500
CONTEXT_TOKENS = 300


@dataclass(frozen=True, slots=True)
class Room:
    """Most tokens of a window, and of the messages before it or between two of its own."""

    window: int = WINDOW_TOKENS
    context: int = CONTEXT_TOKENS

    def shrunk(self, times: int) -> Room:
        """Return the room halved so many times: what a model could not answer may have been too much for it."""
        return Room(max(1, self.window >> times), max(1, self.context >> times))


class Window(NamedTuple):
    """Messages in order; `context` are those that only tell what the others mean, `passed` what has nothing to read."""

    messages: tuple[Item, ...]
    context: frozenset[str]
    passed: frozenset[str]


def window(messages: tuple[Item, ...], wanted: Set[str], room: Room) -> Window:
    """Return the first window of some messages in order: at least one that is wanted, if any says something.

    What is not wanted between two that are is context; more of it than there is room for ends the window.
    """
    live = [message for message in messages if message.status not in UNUSED]
    passed = frozenset(wanted - {message.id for message in live})
    first = next((place for place, message in enumerate(live) if message.id in wanted), None)
    if first is None:
        return Window((), frozenset(), passed)
    chosen, used, between, skipped = _before(live[:first], room), 0, list[Item](), 0
    for place, message in enumerate(live[first:]):
        cost = shown_tokens(message)
        if message.id not in wanted:
            between.append(message)
            skipped += cost
            if skipped > room.context:
                break
            continue
        if place and used + skipped + cost > room.window:
            break
        chosen += [*between, message]
        used += skipped + cost
        between, skipped = [], 0
    return Window(tuple(chosen), frozenset(message.id for message in chosen if message.id not in wanted), passed)


def _before(messages: list[Item], room: Room) -> list[Item]:
    """Return the last of some messages, as far as there is room for context."""
    kept: list[Item] = []
    left = room.context
    for message in reversed(messages):
        left -= shown_tokens(message)
        if left < 0:
            break
        kept.append(message)
    return kept[::-1]
