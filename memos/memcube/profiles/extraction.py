"""Traits from a language model: its instructions, the schema of its answer, and which traits are accepted.

An answer can only add traits, each supported by quotes from the messages; it cannot empty a profile.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from memos.core.types import Fact, Item, ItemType, Role, Span, Trust
from memos.memcube.profiles.template import Dimension, Template, value_for
from memos.memcube.profiles.traits import is_untrusted, said_at, trait

READER = "profile-model/1"
_MOST_SURE = 0.9
_MOST_TRAITS = 200
_QUOTE_CHARS = 1_000
_QUOTE_EDGES = " \t\r\n\"'`“”‘’«»「」『』…"


class Quote(BaseModel):
    model_config = ConfigDict(extra="ignore")

    message: int = Field(description="Number of the message, as shown")
    quote: str = Field(description="Words copied from that message")


class TraitSaid(BaseModel):
    model_config = ConfigDict(extra="ignore")

    subject: str = Field("", description="The speaker it is about, as shown")
    dimension: str = Field(description="Id of a dimension")
    value: str = Field(description="What the messages say in that dimension")
    confidence: float = Field(0.6, ge=0, le=1, allow_inf_nan=False, description="How sure that is, from 0 to 1")
    evidence: list[Quote] = Field(description="Passages that say so")


def _usable(raw: Any) -> Any:
    """Leave out entries that are no traits: one of them must not cost the others."""
    if not isinstance(raw, list):
        return [] if raw is None else raw
    kept = []
    for entry in raw[:_MOST_TRAITS]:
        try:
            kept.append(TraitSaid.model_validate(entry))
        except ValidationError:
            continue
    return kept


SaidTraits = Annotated[list[TraitSaid], BeforeValidator(_usable)]
"""The type of a field for traits in an answer that says more than that."""


class TraitsAnswer(BaseModel):
    model_config = ConfigDict(extra="ignore")

    traits: SaidTraits = Field(default_factory=list)


class Believed(NamedTuple):
    traits: list[Fact]
    refused: list[str]


def instructions(template: Template, *, brief: bool = False) -> str:
    """Return the instructions about traits, for a prompt with numbered messages and their speakers.

    `brief` leaves out what each dimension is about: a quarter of the tokens, for a call that asks for more than traits.
    """
    lines = [
        "traits: what the messages show of a speaker in one of the dimensions below. Give only what a speaker's own "
        "words say or plainly show, quote them exactly with the number of their message, and leave out what is not "
        "there: an empty list is a good answer. Never write that something is unknown.",
    ]
    for group in template.groups:
        if brief:
            lines.append(f"{group.name}: {', '.join(_short(dimension) for dimension in group.dimensions)}")
            continue
        lines.append(f"{group.name}:")
        for dimension in group.dimensions:
            values = f" One of: {', '.join(dimension.allowed)}." if dimension.allowed else ""
            lines.append(f"- {dimension.id}: {dimension.about}{values}")
    return "\n".join(lines)


def _short(dimension: Dimension) -> str:
    return f"{dimension.id} ({'/'.join(dimension.allowed)})" if dimension.allowed else dimension.id


def traits_of(answer: TraitsAnswer, messages: Sequence[Item], template: Template) -> Believed:
    """Return the traits of an answer that hold; `messages` are those shown, the first is number 1. Raises nothing."""
    believed = Believed([], [])
    for number, said in enumerate(answer.traits, start=1):
        found = _read(said, messages, template)
        if isinstance(found, Fact):
            believed.traits.append(found)
        else:
            believed.refused.append(f"trait {number}: {found}")
    return believed


def _read(said: TraitSaid, messages: Sequence[Item], template: Template) -> Fact | str:
    dimension = template.by_id.get(said.dimension)
    if dimension is None:
        return "there is no such dimension"
    value = value_for(dimension, said.value)
    if value is None:
        return "the value is empty, an error or not an allowed one"
    subject = _subject(said.subject, messages)
    if subject is None:
        return "its subject does not speak in these messages"
    if not said.evidence:
        return "there is no evidence"
    shown: list[tuple[Item, Span]] = []
    for quote in said.evidence:
        if not 1 <= quote.message <= len(messages):
            return "the evidence names a message that was not shown"
        message = messages[quote.message - 1]
        place = _find(quote.quote, message.memory)
        if place is None:
            return "a quote is not in the message it names"
        shown.append((message, Span(message.id, *place)))
    if not any(message.role is Role.USER and message.speaker == subject for message, _ in shown):
        return "none of the evidence is the subject's own words"
    times = [said_at(message) for message, _ in shown]
    found = Fact(
        type=ItemType.PROFILE,
        memory="",
        spans=tuple(dict.fromkeys(span for _, span in shown)),
        subject=subject,
        reader=READER,
        said_at=max(times),
        confidence=min(said.confidence, _MOST_SURE),
        # The newest of what shows it: older words alone did not.
        valid_from=max(times),
        trust=Trust.UNTRUSTED if any(is_untrusted(message) for message, _ in shown) else Trust.TRUSTED,
    )
    return trait(subject, dimension, value, found)


def _subject(named: str, messages: Sequence[Item]) -> str | None:
    speakers = list(dict.fromkeys(message.speaker for message in messages if message.role is Role.USER))
    if not named.strip():
        return speakers[0] if len(speakers) == 1 else None
    wanted = " ".join(named.casefold().split())
    return next((speaker for speaker in speakers if " ".join(speaker.casefold().split()) == wanted), None)


def _find(quote: str, text: str) -> tuple[int, int] | None:
    core = quote.strip(_QUOTE_EDGES)
    if len(core) > _QUOTE_CHARS or sum(mark.isalnum() for mark in core) < 2:
        return None
    start = text.find(core)
    if start >= 0:
        return start, start + len(core)
    found = re.search(r"\s+".join(map(re.escape, core.split())), text, re.IGNORECASE)
    return None if found is None else found.span()
