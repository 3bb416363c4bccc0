"""What a model is asked to answer about messages: the shape alone. What it says is checked elsewhere.

Only `facts` has to be there, so that a small model's answer counts; an entry beside them that is none is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from memos.core.text.instructions import reads_like_instruction
from memos.core.text.matching import numbers
from memos.core.types import RELATION, TOOL, Fact, Item, ItemType
from memos.memcube.profiles.extraction import SaidTraits
from memos.reader.facts.grounding import Shown, borne_out, is_named, quoted, said_at, subject_of, trust_in
from memos.reader.facts.skills import tools_called

_MOST = 200
_LEAST_ROOM = 4
_TOKENS_A_FACT = 30
_Entry = TypeVar("_Entry", bound=BaseModel)


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
    implicit: bool = False
    confidence: float = Field(default=0.7, allow_inf_nan=False)


class FoundRelation(BaseModel):
    """Who is what to whom."""

    subject: str
    relation: str
    object: str
    quote: str
    message: int


class FoundEntity(BaseModel):
    """Somebody or something that has a name."""

    name: str
    kind: str = ""


class FoundLesson(BaseModel):
    """How a tool has to be called."""

    tool: str
    text: str
    quote: str
    message: int


def _usable(kind: type[_Entry]) -> BeforeValidator:
    """Leave out entries that do not fit: one of them must not cost the facts."""

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


class Found(BaseModel):
    """A model's whole answer."""

    facts: list[FoundFact]
    summary: Annotated[str, BeforeValidator(_word)] = ""
    relations: Annotated[list[FoundRelation], _usable(FoundRelation)] = Field(default_factory=list)
    entities: Annotated[list[FoundEntity], _usable(FoundEntity)] = Field(default_factory=list)
    lessons: Annotated[list[FoundLesson], _usable(FoundLesson)] = Field(default_factory=list)
    topic: Annotated[str, BeforeValidator(_word)] = ""
    traits: SaidTraits = Field(default_factory=list)


def answer_about(tokens: int) -> type[Found]:
    """Return the shape of an answer about messages of so many tokens: its schema says how many entries are enough.

    A small model else repeats itself until its answer is cut off.
    """
    room = _LEAST_ROOM
    while room * _TOKENS_A_FACT < tokens and room < _MOST:
        room *= 2
    return _bounded(room)


@lru_cache
def _bounded(room: int) -> type[Found]:
    def bound(schema: dict[str, Any]) -> None:
        for name, field in schema["properties"].items():
            if field.get("type") == "array":
                field["maxItems"] = room if name == "facts" else room // 2

    return type(Found.__name__, (Found,), {"__module__": __name__, "model_config": ConfigDict(json_schema_extra=bound)})


# What a model's answer has besides facts: relations, lessons about tools, names, a topic; checked as facts. Pure.

_PART_CHARS = 80
_LESSON_CHARS = 500
_TOPIC = re.compile(r"[^\W_][\w '’.,&/\-]{0,59}")
_SURE = {ItemType.LONG_TERM: 0.7, ItemType.SKILL: 0.6}
_MOST_NAMES = 16


def relations(found: Sequence[FoundRelation], shown: Shown, reader: str) -> Iterator[Fact | None]:
    """Yield what each relation says as a fact without a key, None for one that the messages do not bear out."""
    for each in found:
        yield _relation(each, shown, reader)


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
    made = _fact(ItemType.LONG_TERM, text, found.quote, item, shown, reader)
    if made is None:
        return None
    return replace(made, subject=one, entities=(one, other), info={RELATION: [one, relation, other]})


def _end(name: str, item: Item, shown: Shown) -> str | None:
    """Return the other end of a relation: somebody who speaks, or anything the messages name, also in lower case."""
    plain = " ".join(name.split())
    known = subject_of(plain, item, shown)
    if known is not None or not 0 < len(plain) <= _PART_CHARS:
        return known
    return plain if is_named(plain, shown.everything) else None


def lessons(found: Sequence[FoundLesson], shown: Shown, reader: str) -> Iterator[Fact | None]:
    """Yield each lesson as a skill, None when the messages show no call of that tool, or not what the lesson says."""
    callers = tools_called(shown.everything)
    for each in found:
        item, caller, text = shown.numbered(each.message), callers.get(each.tool.strip()), " ".join(each.text.split())
        if item is None or caller is None or not 0 < len(text) <= _LESSON_CHARS:
            yield None
            continue
        made = _fact(ItemType.SKILL, text, each.quote, item, shown, reader)
        told = {TOOL: each.tool.strip()}
        yield None if made is None else replace(made, subject=caller, tags=("lesson",), info=told)


def _fact(type_: ItemType, text: str, quote: str, item: Item, shown: Shown, reader: str) -> Fact | None:
    span = quoted(quote, item)
    if span is None or not borne_out(text, item, shown.zone):
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
    """Return the facts with those of the names that they contain, as far as the messages have them too."""
    names = dict.fromkeys(" ".join(each.name.split()) for each in found)
    known = [name for name in names if 1 < len(name) <= _PART_CHARS and is_named(name, shown.everything)]
    return [replace(fact, entities=_named_in(fact, known)) for fact in facts]


def _named_in(fact: Fact, names: Sequence[str]) -> tuple[str, ...]:
    said = fact.memory.casefold()
    found = [name for name in names if name.casefold() in said]
    return tuple(dict.fromkeys([*fact.entities, *found]))[:_MOST_NAMES]


def topic_of(written: str, shown: Shown) -> str | None:
    """Return a topic's short key, None for one that is no key, counts what nobody counted, or gives orders."""
    topic = " ".join(written.casefold().split()).strip(" .")
    if not _TOPIC.fullmatch(topic) or reads_like_instruction(topic):
        return None
    return topic if numbers(topic) <= shown.numbers else None
