"""What a model's answer has besides facts: relations, lessons about tools, names, a topic; checked as facts. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from memos.core.text.instructions import reads_like_instruction
from memos.core.text.passages import numbers
from memos.core.types import RELATION, TOOL, Fact, Item, ItemType
from memos.reader.facts.answer import FoundEntity, FoundLesson, FoundRelation
from memos.reader.facts.fact_skills import tools_called
from memos.reader.facts.grounding import Shown, borne_out, is_named, quoted, subject_of, trust_in
from memos.reader.facts.origins import said_at

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
