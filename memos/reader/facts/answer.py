"""What a model is asked to answer about messages: the shape alone. What it says is checked elsewhere.

Only `facts` has to be there, so that a small model's answer counts; an entry beside them that is none is left out.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from memos.memcube.profiles.extraction import SaidTraits

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
