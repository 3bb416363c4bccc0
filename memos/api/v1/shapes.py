"""Answers of `/api/v1` that clients have no method for, and the route that answers with models of values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_type_hints

from fastapi.datastructures import DefaultPlaceholder
from fastapi.routing import APIRoute
from pydantic import Field

from memos.api.values import Value, wire_type
from memos.core import types
from memos.kernel import tools


class ValueRoute(APIRoute):
    """A route that returns values; their models are its response model."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        if isinstance(options.get("response_model"), DefaultPlaceholder):
            returned = get_type_hints(endpoint)["return"]
            model = wire_type(returned)
            if model != returned:
                options["response_model"] = model
        super().__init__(path, endpoint, **options)


class Text(Value):
    """A text."""

    text: str = Field(description="The text")


class Dimension(Value):
    """One thing a profile may say of somebody."""

    id: str = Field(description="Its id: its group's, a dot and a name")
    name: str = Field(description="Its name")
    about: str = Field(description="What it is about")
    kind: str = Field(description="`text`, `level`, `choice` or `interest`")
    values: list[str] = Field(description="Values of a choice")
    attributes: list[str] = Field(description="Attributes that statements give it by")
    words: list[str] = Field(description="Words that an interest is found by")


class DimensionGroup(Value):
    """Dimensions that belong together."""

    id: str = Field(description="Its id")
    name: str = Field(description="Its name")
    dimensions: list[Dimension] = Field(description="Its dimensions")


class Template(Value):
    """Which dimensions a profile has."""

    name: str = Field(description="Its name")
    groups: list[DimensionGroup] = Field(description="Its groups")


class ToolUse(tools.ToolUse, Value):  # type: ignore[misc] # `schema` is a former method of models
    """What is known of one tool."""

    schema_: str | None = Field(
        description="Id of the memory that is its definition", validation_alias="schema", serialization_alias="schema"
    )


class VerifyReport(types.VerifyReport, Value):
    """What was checked and found."""

    clean: bool = Field(description="True when nothing is wrong any more")
