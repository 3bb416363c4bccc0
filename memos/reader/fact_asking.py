"""Asks a model for the facts in messages and keeps of its answer only what the messages bear out.

A quote that is not in its message, a number or address it does not have, an unknown type or subject: refused, counted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib import resources
from zoneinfo import ZoneInfo

from pydantic import BaseModel, Field

from memos.model import Fact, Item, ItemType, Role, Span, Trust
from memos.ports import ChatMessage
from memos.profiles.asking import SaidTraits, instructions
from memos.profiles.template import Template
from memos.profiles.traits import TRAIT
from memos.reader.origins import said_at, trust_of
from memos.text.instructions import reads_like_instruction
from memos.text.passages import addresses, find_passage, folded, numbers, shared_words
from memos.text.preferences import thing_of
from memos.text.sentences import sentences
from memos.text.statements import key_of
from memos.text.times import time_expressions

READER = "model/1"
"""The number is that of the prompt, `prompts/facts-1.txt`."""

SHOWN_CHARS = 4_000
_SUMMARY_CHARS = 600
_TEXT_CHARS = 1_000
_VALUE_CHARS = 200
_NAME_CHARS = 80
_QUOTE_SIGNS = 4
_MOST_FACTS = 200
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
# Below this share of common words a fact says something else than its quote.
_SHARED = 0.5


class FoundFact(BaseModel):
    """One fact as the model writes it; what its fields may be is checked against the messages, not here."""

    type: str
    subject: str
    text: str
    quote: str
    message: int
    attribute: str | None = None
    value: str | None = None
    when: str | None = None
    until: str | None = None
    confidence: float = Field(default=0.7, allow_inf_nan=False)


class Found(BaseModel):
    """A model's whole answer."""

    summary: str
    facts: list[FoundFact]
    traits: SaidTraits = Field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Shown:
    """What the model was shown, as far as checking needs it."""

    messages: Sequence[Item]
    zone: ZoneInfo
    doubtful: bool
    """Some message is from an untrusted source, and may have talked to the model."""


def question(
    messages: Sequence[Item], zone: ZoneInfo, before: str, template: Template | None = None
) -> list[ChatMessage]:
    """Return the prompt and the messages as data, each cut at 4,000 characters; a template asks for traits too."""
    lines = [_line(number, item, zone) for number, item in enumerate(messages, start=1)]
    known = f"<before>\n{_escaped(before[:SHOWN_CHARS])}\n</before>\n" if before.strip() else ""
    data = known + "\n".join(["<messages>", *lines, "</messages>"])
    wanted = _prompt() if template is None else f'{_prompt()}\n\nBesides, give "traits". {_of_traits(template)}'
    return [ChatMessage("system", wanted), ChatMessage("user", data)]


def grounded(answer: Found, messages: Sequence[Item], zone: ZoneInfo) -> tuple[list[Fact], str | None, int]:
    """Return the facts that the messages bear out, the summary, and how many facts were refused."""
    shown = _Shown(messages, zone, trust_of(messages) is Trust.UNTRUSTED)
    read = [_fact(found, shown) for found in answer.facts[:_MOST_FACTS]]
    facts = [fact for fact in read if fact is not None]
    return facts, _summary(answer.summary, shown), len(answer.facts) - len(facts)


def _of_traits(template: Template) -> str:
    example = '{"subject": "Ana", "dimension": "life.residence", "value": "Lyon", "confidence": 0.9, "evidence": '
    return f'{instructions(template, brief=True)}\nOne looks like {example}[{{"message": 1, "quote": "..."}}]}}'


@lru_cache(maxsize=1)
def _prompt() -> str:
    return resources.files("memos.reader").joinpath("prompts", "facts-1.txt").read_text(encoding="utf-8").strip()


def _line(number: int, item: Item, zone: ZoneInfo) -> str:
    at = _local(said_at(item), zone)
    day = "" if at is None else f"{at.date().isoformat()} {_WEEKDAYS[at.weekday()]} {at.hour:02}:{at.minute:02}"
    told = {"message": number, "at": day, "speaker": item.speaker, "role": item.role, "text": item.memory[:SHOWN_CHARS]}
    return _escaped(told if len(item.memory) <= SHOWN_CHARS else {**told, "cut": True})


def _escaped(value: str | dict[str, object]) -> str:
    """Return JSON in which no text can end the fence it stands in."""
    return json.dumps(value, ensure_ascii=False).replace("</", "<\\/")


def _fact(found: FoundFact, shown: _Shown) -> Fact | None:
    """Return the fact, None when the messages do not say it."""
    if found.type not in _TYPES or not 1 <= found.message <= len(shown.messages):
        return None
    type_, item = ItemType(found.type), shown.messages[found.message - 1]
    if type_ is ItemType.INSTRUCTION and item.role is Role.ASSISTANT:
        return None  # an assistant gives itself no orders
    text = " ".join(found.text.split())
    span = _quoted(found.quote, item)
    subject = _subject(found.subject, item, shown)
    if span is None or subject is None or not 0 < len(text) <= _TEXT_CHARS or not _borne_out(text, item, shown):
        return None
    valid = _validity(found, item, shown.zone)
    about = _about(found, text, item, shown)
    if valid is None or about is None:
        return None
    key, value = about
    return Fact(
        type=type_,
        memory=text,
        spans=(span,),
        subject=subject,
        reader=READER,
        said_at=said_at(item),
        key=key_of(subject, key) if key else None,
        value=value,
        confidence=min(1.0, max(0.0, found.confidence)),
        valid_from=valid[0],
        valid_to=valid[1],
        tags=("explicit",) if type_ is ItemType.PREFERENCE else (),
        trust=_trust(text, span, item, shown),
    )


def _quoted(quote: str, item: Item) -> Span | None:
    """Return the passage of a message that is quoted; a single word of a longer message proves nothing."""
    head = item.memory[:SHOWN_CHARS]
    place = find_passage(quote, head)
    if place is None or (len(folded(quote)) < _QUOTE_SIGNS and folded(quote) != folded(head)):
        return None
    return Span(item.id, *place)


def _subject(name: str, item: Item, shown: _Shown) -> str | None:
    """Return the speaker as written in the messages, or a name that occurs in them; None for anybody else."""
    plain = " ".join(name.split())
    if not plain or len(plain) > _NAME_CHARS:
        return None
    for speaker in dict.fromkeys([item.speaker, *(each.speaker for each in shown.messages)]):
        if speaker.casefold() == plain.casefold():
            return speaker
    if plain.casefold() in (Role.USER, Role.ASSISTANT):
        speakers = list(dict.fromkeys(each.speaker for each in shown.messages if each.role == plain.casefold()))
        return item.speaker if item.speaker in speakers else speakers[0] if len(speakers) == 1 else None
    if plain[0].islower() or not plain[0].isalpha():
        return None
    named = re.compile(rf"(?<!\w){re.escape(plain)}(?!\w)" if plain[0].isascii() else re.escape(plain))
    return plain if any(named.search(each.memory[:SHOWN_CHARS]) for each in shown.messages) else None


def _borne_out(text: str, item: Item, shown: _Shown) -> bool:
    """Return whether a message, or its date, has every number and address of a text."""
    head = item.memory[:SHOWN_CHARS]
    if not addresses(text) <= addresses(head):
        return False
    wanted = numbers(text) - numbers(head, words=True) - numbers(item.speaker)
    return not wanted or wanted <= _dates(head, said_at(item), shown.zone)


def _dates(head: str, at: datetime, zone: ZoneInfo) -> set[str]:
    """Return the numbers of a message's own date and of the days it names."""
    moments = [at]
    for time in time_expressions(head, at, zone):
        moments += [time.valid_from, time.valid_to - timedelta(days=1)]
    local = [moment for each in moments if (moment := _local(each, zone)) is not None]
    return {str(part) for each in local for part in (each.year, each.month, each.day)}


def _local(moment: datetime, zone: ZoneInfo) -> datetime | None:
    try:
        return moment.astimezone(zone)
    except OverflowError:  # the calendar's first or last hours, in a zone beyond them
        return None


def _about(found: FoundFact, text: str, item: Item, shown: _Shown) -> tuple[str | None, str | None] | None:
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
    if len(value) > _VALUE_CHARS or not _borne_out(value, item, shown):
        return None
    known = folded(text) + "\n" + folded(item.memory[:SHOWN_CHARS])
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


def _trust(text: str, span: Span, item: Item, shown: _Shown) -> Trust:
    """Return the message's trust; where a page may have talked to the model, only of what the quote itself says."""
    if shown.doubtful and shared_words(text, f"{item.memory[span.start : span.end]} {item.speaker}") < _SHARED:
        return Trust.UNTRUSTED
    return trust_of([item])


def _summary(written: str, shown: _Shown) -> str | None:
    text = " ".join(written.split())
    if len(text) > _SUMMARY_CHARS:
        ends = [end for _, end in sentences(text[: _SUMMARY_CHARS + 1]) if end <= _SUMMARY_CHARS]
        text = text[: ends[-1]] if ends else text[:_SUMMARY_CHARS].rsplit(" ", 1)[0]
    if shown.doubtful and reads_like_instruction(text):
        return None  # a summary is shown to models, and may not carry on what a page ordered
    return text or None
