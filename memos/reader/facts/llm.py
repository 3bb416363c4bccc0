"""Ask a model for the facts in messages and keep what the messages support.

Rejected and counted: a quote that is not in its message, an invented number or address, an unknown type or subject.
Kept for review: a name or date that no message has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from importlib import resources
from typing import Annotated, Any, NamedTuple, TypeVar
from zoneinfo import ZoneInfo

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from memos.core.ports import ChatMessage
from memos.core.text.instructions import reads_like_instruction
from memos.core.text.matching import folded, numbers
from memos.core.text.preferences import thing_of
from memos.core.text.sentences import sentences
from memos.core.text.statements import key_of
from memos.core.tokens import estimate_tokens
from memos.core.types import RELATION, TOOL, TOPIC, UNUSED, Fact, Item, ItemType, Role
from memos.memcube.profiles.extraction import SaidTraits, instructions
from memos.memcube.profiles.template import Template
from memos.memcube.profiles.traits import TRAIT
from memos.reader.facts.grounding import (
    NO_SUCH_DATE,
    NO_SUCH_NAME,
    SHOWN_CHARS,
    Shown,
    is_dated,
    is_named,
    is_supported,
    local,
    quoted,
    said_at,
    subject_head,
    subject_of,
    trust_in,
    unknown_name,
)
from memos.reader.facts.skills import tools_called

_MOST = 200
_LEAST_ROOM = 4
_TOKENS_A_FACT = 30
_Entry = TypeVar("_Entry", bound=BaseModel)


class FoundFact(BaseModel):
    """A fact in a model's answer; its fields are checked against the messages later."""

    type: str
    subject: str
    text: str
    quote: str
    message: int
    attribute: str | None = None
    value: str | None = None
    when: str | None = None
    until: str | None = None
    implicit: bool = False
    confidence: float = Field(default=0.7, allow_inf_nan=False)


class FoundRelation(BaseModel):
    """A relation between two named entities."""

    subject: str
    relation: str
    object: str
    quote: str
    message: int


class FoundEntity(BaseModel):
    """A named entity."""

    name: str
    kind: str = ""


class FoundLesson(BaseModel):
    """A lesson on how to call a tool."""

    tool: str
    text: str
    quote: str
    message: int


def _usable(kind: type[_Entry]) -> BeforeValidator:
    """Drop invalid entries: one of them must not cost the others."""

    def kept(raw: Any) -> list[_Entry]:
        found = []
        for entry in raw[:_MOST] if isinstance(raw, list) else []:
            try:
                found.append(kind.model_validate(entry))
            except ValidationError:
                continue
        return found

    return BeforeValidator(kept)


def _word(raw: Any) -> Any:
    return raw if isinstance(raw, str) else ""


class FactsAnswer(BaseModel):
    """A model's whole answer."""

    facts: list[FoundFact]
    summary: Annotated[str, BeforeValidator(_word)] = ""
    relations: Annotated[list[FoundRelation], _usable(FoundRelation)] = Field(default_factory=list)
    entities: Annotated[list[FoundEntity], _usable(FoundEntity)] = Field(default_factory=list)
    lessons: Annotated[list[FoundLesson], _usable(FoundLesson)] = Field(default_factory=list)
    topic: Annotated[str, BeforeValidator(_word)] = ""
    traits: SaidTraits = Field(default_factory=list)


def answer_about(tokens: int) -> type[FactsAnswer]:
    """Return the schema of an answer about messages of this size, with a limit of entries."""
    # Without it a small model repeats itself until its answer is cut off.
    room = _LEAST_ROOM
    while room * _TOKENS_A_FACT < tokens and room < _MOST:
        room *= 2
    return _bounded(room)


@lru_cache
def _bounded(room: int) -> type[FactsAnswer]:
    def bound(schema: dict[str, Any]) -> None:
        for name, field in schema["properties"].items():
            if field.get("type") == "array":
                field["maxItems"] = room if name == "facts" else room // 2

    return type(
        FactsAnswer.__name__,
        (FactsAnswer,),
        {"__module__": __name__, "model_config": ConfigDict(json_schema_extra=bound)},
    )


_PART_CHARS = 80
_LESSON_CHARS = 500
_TOPIC = re.compile(r"[^\W_][\w '’.,&/\-]{0,59}")
_SURE = {ItemType.LONG_TERM: 0.7, ItemType.SKILL: 0.6}
_MOST_NAMES = 16


def _relation(found: FoundRelation, shown: Shown, reader: str) -> Fact | None:
    item = shown.numbered(found.message)
    if item is None:
        return None
    one, other = subject_of(found.subject, item, shown), _end(found.object, item, shown)
    relation = " ".join(found.relation.split())
    if one is None or other is None or one.casefold() == other.casefold() or not 0 < len(relation) <= _PART_CHARS:
        return None
    if not (is_named(one, [item]) or is_named(other, [item])):
        return None  # the quote is about others
    text = f"{one} {relation} {other}." if relation[0].isascii() else f"{one}{relation}{other}。"
    made = _quoted_fact(ItemType.LONG_TERM, text, found.quote, item, shown, reader)
    if made is None:
        return None
    return replace(made, subject=one, entities=(one, other), info={RELATION: [one, relation, other]})


def _end(name: str, item: Item, shown: Shown) -> str | None:
    """Return the other end of a relation: a speaker, or a name in the messages, also in lower case."""
    plain = " ".join(name.split())
    known = subject_of(plain, item, shown)
    if known is not None or not 0 < len(plain) <= _PART_CHARS:
        return known
    return plain if is_named(plain, shown.everything) else None


def lessons(found: Sequence[FoundLesson], shown: Shown, reader: str) -> Iterator[Fact | None]:
    """Yield each lesson as a skill, None if the messages show no such call, or not what the lesson says."""
    callers = tools_called(shown.everything)
    for each in found:
        item = shown.numbered(each.message)
        caller = callers.get(each.tool.strip())
        text = " ".join(each.text.split())
        if item is None or caller is None or not 0 < len(text) <= _LESSON_CHARS:
            yield None
            continue
        made = _quoted_fact(ItemType.SKILL, text, each.quote, item, shown, reader)
        told = {TOOL: each.tool.strip()}
        yield None if made is None else replace(made, subject=caller, tags=("lesson",), info=told)


def _quoted_fact(type_: ItemType, text: str, quote: str, item: Item, shown: Shown, reader: str) -> Fact | None:
    span = quoted(quote, item)
    if span is None or not is_supported(text, item, shown.zone):
        return None
    return Fact(
        type=type_,
        memory=text,
        spans=(span,),
        subject=item.speaker,
        reader=reader,
        said_at=said_at(item),
        confidence=_SURE[type_],
        valid_from=said_at(item),
        trust=trust_in(text, span, item, shown),
    )


def with_names(facts: Sequence[Fact], found: Sequence[FoundEntity], shown: Shown) -> list[Fact]:
    names = dict.fromkeys(" ".join(each.name.split()) for each in found)
    known = [name for name in names if 1 < len(name) <= _PART_CHARS and is_named(name, shown.everything)]
    added = []
    for fact in facts:
        its = [name for name in known if name.casefold() in fact.memory.casefold()]
        added.append(replace(fact, entities=tuple(dict.fromkeys([*fact.entities, *its]))[:_MOST_NAMES]))
    return added


def topic_of(written: str, shown: Shown) -> str | None:
    topic = " ".join(written.casefold().split()).strip(" .")
    if not _TOPIC.fullmatch(topic) or reads_like_instruction(topic):
        return None
    return topic if numbers(topic) <= shown.numbers else None


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
_TYPES = {ItemType.USER, ItemType.ASSISTANT, ItemType.PREFERENCE, ItemType.INSTRUCTION, ItemType.SKILL}
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
    """Build the prompt with messages as data, each cut at 4,000 characters; a template also asks for traits."""
    # Messages in `context` are marked and not numbered, so that no fact can cite them.
    lines, number = [], 0
    for item in messages:
        number += item.id not in context
        lines.append(_line(None if item.id in context else number, item, zone))
    known = f"<before>\n{_escaped(before[:SHOWN_CHARS])}\n</before>\n" if before.strip() else ""
    data = known + "\n".join(["<messages>", *lines, "</messages>"])
    wanted = _prompt() if template is None else f'{_prompt()}\n\nBesides, give "traits". {_of_traits(template)}'
    return [ChatMessage("system", wanted), ChatMessage("user", data)]


def shown_tokens(item: Item) -> int:
    return estimate_tokens(_line(1, item, ZoneInfo("UTC")))


class GroundedFacts(NamedTuple):
    facts: list[Fact]
    summary: str | None
    rejected: int


def ground(
    answer: FactsAnswer, messages: Sequence[Item], zone: ZoneInfo, context: Sequence[Item] = ()
) -> GroundedFacts:
    shown = Shown(messages, zone, context)
    read = [_fact(found, shown) for found in answer.facts[:_MOST_FACTS]]
    read += [_relation(each, shown, READER) for each in answer.relations]
    read += lessons(answer.lessons, shown, READER)
    facts = with_names([fact for fact in read if fact is not None], answer.entities, shown)
    topic = topic_of(answer.topic, shown)
    if topic is not None:
        facts = [replace(fact, info={**fact.info, TOPIC: topic}) for fact in facts]
    told = len(answer.facts) + len(answer.relations) + len(answer.lessons)
    return GroundedFacts(facts, _summary(answer.summary, shown), told - len(facts))


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
    told = {**place, "at": day, "speaker": item.speaker, "role": item.role, "text": subject_head(item)}
    return _escaped(told if len(item.memory) <= SHOWN_CHARS else {**told, "cut": True})


def _escaped(value: str | dict[str, object]) -> str:
    return json.dumps(value, ensure_ascii=False).replace("</", "<\\/")


def _fact(found: FoundFact, shown: Shown) -> Fact | None:
    item = shown.numbered(found.message)
    if found.type not in _TYPES or item is None:
        return None
    type_ = ItemType(found.type)
    if type_ is ItemType.INSTRUCTION and item.role is Role.ASSISTANT:
        return None  # an assistant gives itself no orders
    text = " ".join(found.text.split())
    span = quoted(found.quote, item)
    subject = subject_of(found.subject, item, shown)
    if span is None or subject is None or not 0 < len(text) <= _TEXT_CHARS or not is_supported(text, item, shown.zone):
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
    if unknown_name(text, shown):
        return NO_SUCH_NAME
    days = [_day(written, said_at(item), shown.zone) for written in (found.when, found.until)]
    if any(day is not None and not is_dated(day, item, shown) for day in days):
        return NO_SUCH_DATE
    return None


def _about(found: FoundFact, text: str, item: Item, shown: Shown) -> tuple[str | None, str | None] | None:
    attribute = " ".join((found.attribute or "").casefold().split())
    value = " ".join((found.value or "").split())
    if not attribute or not value or not _ATTRIBUTE.fullmatch(attribute) or attribute.startswith(TRAIT):
        return None, None
    if attribute.startswith("likes:"):
        thing = thing_of(attribute.removeprefix("likes:"))
        if thing is None or value.casefold() not in ("yes", "no"):
            return None, None
        return f"likes:{thing}", value.casefold()
    if len(value) > _VALUE_CHARS or not is_supported(value, item, shown.zone):
        return None
    known = folded(text) + "\n" + folded(subject_head(item))
    return (attribute, value) if folded(value) and folded(value) in known else None


def _validity(found: FoundFact, item: Item, zone: ZoneInfo) -> tuple[datetime | None, datetime | None] | None:
    at = said_at(item)
    since, until = _day(found.when, at, zone), _day(found.until, at, zone)
    if until is not None and until <= (since or at):
        return None if since is not None else (None, until)
    return since or at, until


def _day(written: str | None, at: datetime, zone: ZoneInfo) -> datetime | None:
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


WINDOW_TOKENS = 1_500
CONTEXT_TOKENS = 300


@dataclass(frozen=True, slots=True)
class ReadingBudget:
    """The most tokens of a window, and of its context before or between messages."""

    window: int = WINDOW_TOKENS
    context: int = CONTEXT_TOKENS

    def shrunk(self, times: int) -> ReadingBudget:
        return ReadingBudget(max(1, self.window >> times), max(1, self.context >> times))


class Window(NamedTuple):
    """Messages in order; `context` only explains the others, `passed` has nothing to read."""

    messages: tuple[Item, ...]
    context: frozenset[str]
    passed: frozenset[str]


def window(messages: tuple[Item, ...], wanted: Set[str], room: ReadingBudget) -> Window:
    """Return the first window of messages: at least one wanted message, if any has text."""
    # Messages between wanted ones become context; if they exceed the budget, the window ends.
    live = [message for message in messages if message.status not in UNUSED]
    passed = frozenset(wanted - {message.id for message in live})
    first = next((place for place, message in enumerate(live) if message.id in wanted), None)
    if first is None:
        return Window((), frozenset(), passed)
    chosen = _before(live[:first], room)
    used = 0
    between = list[Item]()
    skipped = 0
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


def _before(messages: list[Item], room: ReadingBudget) -> list[Item]:
    kept: list[Item] = []
    left = room.context
    for message in reversed(messages):
        left -= shown_tokens(message)
        if left < 0:
            break
        kept.append(message)
    return kept[::-1]
