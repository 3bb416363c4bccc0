"""What the dialects share: cubes of a request, chat options, events, names that were meant, and shapes of values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import pytest
from pydantic import BaseModel

from memos.api.dialects import RequestIdentity, chat_options, envelope, typed_event
from memos.api.streaming import encode_event
from memos.api.values import Value, model_of
from memos.api.wording import message_of
from memos.core.aliases import unknown_name
from memos.errors import InvalidInput, NotFound


class Body(BaseModel):
    """A body with two fields that are options, and one that is none."""

    query: str = "x"
    top_k: int = 7
    temperature: float | None = 0.5


def test_a_request_that_names_no_cube_uses_the_home_cube() -> None:
    identity = RequestIdentity("ana", "ana-home")
    assert identity.cubes(None) == ["ana-home"]
    assert identity.cubes(("a", "b")) == ["a", "b"]
    assert identity.cubes([]) == []


def test_chat_options_are_the_fields_of_an_options_name_and_the_dialects_own_come_last() -> None:
    assert chat_options(Body(), actor="ana", top_k=3) == {"top_k": 3, "temperature": 0.5, "actor": "ana"}


def test_events_are_written_as_server_sent_events_are() -> None:
    assert encode_event({"a": 1}) == 'data: {"a": 1}\n\n'
    assert encode_event({"a": "é"}, event="text", id="7") == 'id: 7\nevent: text\ndata: {"a": "\\u00e9"}\n\n'
    assert typed_event("end", None) == 'data: {"type": "end", "data": null}\n\n'
    assert envelope(0, "ok", [1]) == {"code": 0, "message": "ok", "data": [1]}


@pytest.mark.parametrize(
    ("name", "known", "told"),
    [
        ("user_name", ["query", "user"], "unknown field; here it is `user`"),
        ("message", ["messages", "user"], "unknown field; did you mean `messages`?"),
        ("zzz", ["query", "user"], "unknown field; known are `query`, `user`"),
        ("user_name", ["query"], "unknown field; known are `query`"),
        ("zzz", [], "unknown field"),
    ],
)
def test_an_unknown_name_is_told_with_the_one_that_was_meant(name: str, known: list[str], told: str) -> None:
    assert unknown_name("field", name, known) == told


class Colour(StrEnum):
    """A colour."""

    RED = "red"


@dataclass(frozen=True, slots=True)
class Part:
    """A part."""

    name: Annotated[str, "Its name"]


@dataclass(frozen=True, slots=True)
class Whole:
    """A value with described fields, and one that is internal."""

    colour: Annotated[Colour, "Its colour"]
    parts: Annotated[tuple[Part, ...], "Its parts"]
    secret: str
    first: Annotated[Part | None, "Its first part"] = None


class Told(Whole, Value):
    """A whole, told."""

    extra: int = 1


def test_a_model_of_a_value_has_its_described_fields_and_then_its_own() -> None:
    assert model_of(Whole) is Told
    told = Told.model_validate(Whole(Colour.RED, (Part("a"),), "s", Part("b")))
    assert told.model_dump(mode="json") == {
        "colour": "red",
        "parts": [{"name": "a"}],
        "first": {"name": "b"},
        "extra": 1,
    }
    assert (
        Told.model_validate_json('{"colour": "a new one", "parts": [], "of_a_newer_server": 1}').colour == "a new one"
    )
    schema = Told.model_json_schema(mode="serialization")
    assert schema["description"] == "A whole, told."
    assert set(schema["required"]) == {"colour", "parts", "first", "extra"}
    assert schema["properties"]["colour"] == {"description": "Its colour", "title": "Colour", "type": "string"}
    assert schema["$defs"]["Part"]["properties"]["name"]["description"] == "Its name"


def test_a_remedy_is_one_of_the_surface_that_shows_the_error() -> None:
    missing = NotFound("cube", "pets", "Create it with `memos cubes create pets`.")
    assert message_of(missing) == "No such cube: 'pets'."
    assert message_of(missing, {"cube": "Ask for one."}) == "No such cube: 'pets'. Ask for one."
    deleted = NotFound("item", "i1", "It is deleted; `memos rollback` brings it back.")
    assert message_of(deleted) == "No such item: 'i1'. It is deleted."
    task = NotFound("task", "t1", "See what there is with `memos tasks list`; tasks that ended are kept a week.")
    assert message_of(task) == "No such task: 't1'. Tasks that ended are kept a week."
    assert message_of(NotFound("model", "x", "GET /models lists them.")).endswith("GET /models lists them.")
    assert message_of(InvalidInput("text", "is required")) == "text: is required"
