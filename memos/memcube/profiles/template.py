"""Profile templates: dimensions in groups, and how each is found; read from TOML, JSON or a mapping.

A template comes from an operator and is checked as any other input.
"""

from __future__ import annotations

import json
import re
import tomllib
import unicodedata
from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import cache, cached_property
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from memos.core.text.validation import decode
from memos.errors import InvalidInput, PermissionDenied

MOST_DIMENSIONS = 500
MOST_BYTES = 262_144
VALUE_CHARS = 200
"""The longest value a trait may have."""

# Joiners belong to words of several scripts; every other invisible character has no place in a name.
_JOINERS = "\u200c\u200d"
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_ID = r"^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)?$"
_WORD = re.compile(r"\w.*\w", re.DOTALL)


def is_plain(text: str) -> bool:
    return all(mark in _JOINERS or unicodedata.category(mark) not in _INVISIBLE for mark in text)


def _plain(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty")
    if not is_plain(text):
        raise ValueError("contains control or invisible characters")
    return " ".join(text.split())


def _word(text: str) -> str:
    if not _WORD.fullmatch(text):
        raise ValueError("must have at least two characters, and begin and end with a letter or digit")
    return text.casefold()


Id = Annotated[str, StringConstraints(pattern=_ID, max_length=64)]
_Name = Annotated[str, StringConstraints(max_length=100), AfterValidator(_plain)]
_About = Annotated[str, StringConstraints(max_length=300), AfterValidator(_plain)]
_Value = Annotated[str, StringConstraints(max_length=VALUE_CHARS), AfterValidator(_plain)]
_Word = Annotated[str, StringConstraints(max_length=50), AfterValidator(_plain), AfterValidator(_word)]


class Kind(StrEnum):
    TEXT = "text"
    LEVEL = "level"
    """low, medium or high"""
    CHOICE = "choice"
    """one of the dimension's own values"""
    INTEREST = "interest"
    """a text; found without a model by the dimension's words"""


_LEVELS = ("low", "medium", "high")
_STRICT = ConfigDict(frozen=True, extra="forbid", strict=True)


class Dimension(BaseModel):
    model_config = _STRICT

    id: Id
    name: _Name
    about: _About
    kind: Kind = Field(Kind.TEXT, strict=False)
    values: tuple[_Value, ...] = Field((), max_length=20)
    attributes: tuple[_Name, ...] = Field((), max_length=20)
    words: tuple[_Word, ...] = Field((), max_length=100)

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Self:
        if (self.kind is Kind.CHOICE) != bool(self.values):
            raise ValueError("a dimension of kind choice needs `values`, and no other kind may have them")
        if (self.kind is Kind.INTEREST) != bool(self.words):
            raise ValueError("a dimension of kind interest needs `words`, and no other kind may have them")
        if self.kind is not Kind.TEXT and self.attributes:
            raise ValueError("only a dimension of kind text may have `attributes`")
        return self

    @property
    def allowed(self) -> tuple[str, ...]:
        return _LEVELS if self.kind is Kind.LEVEL else self.values


class Group(BaseModel):
    model_config = _STRICT

    id: Id
    name: _Name
    dimensions: tuple[Dimension, ...] = Field(min_length=1, max_length=MOST_DIMENSIONS)

    @model_validator(mode="after")
    def _owns_its_dimensions(self) -> Self:
        for dimension in self.dimensions:
            if dimension.id.rpartition(".")[0] != self.id:
                raise ValueError(f"dimension {dimension.id} must have an id that begins with {self.id}.")
        return self


class Template(BaseModel):
    """Groups of dimensions with distinct ids; an attribute belongs to one dimension only."""

    model_config = _STRICT

    name: _Name
    groups: tuple[Group, ...] = Field(min_length=1, max_length=50)

    @model_validator(mode="after")
    def _is_unambiguous(self) -> Self:
        ids = [group.id for group in self.groups] + [dimension.id for dimension in self.dimensions()]
        attributes = [name for dimension in self.dimensions() for name in dimension.attributes]
        for what, names in (("id", ids), ("attribute", attributes)):
            twice = next((name for name in names if names.count(name) > 1), None)
            if twice is not None:
                raise ValueError(f"{what} {twice} is used twice")
        if len(self.by_id) > MOST_DIMENSIONS:
            raise ValueError(f"there are more than {MOST_DIMENSIONS} dimensions")
        return self

    def dimensions(self) -> Iterator[Dimension]:
        for group in self.groups:
            yield from group.dimensions

    @cached_property
    def by_id(self) -> Mapping[str, Dimension]:
        return {dimension.id: dimension for dimension in self.dimensions()}

    @cached_property
    def by_attribute(self) -> Mapping[str, Dimension]:
        return {name: dimension for dimension in self.dimensions() for name in dimension.attributes}


@cache
def standard() -> Template:
    text = resources.files("memos.memcube.profiles").joinpath("standard.toml").read_text(encoding="utf-8")
    return read_template(tomllib.loads(text))


def read_template(raw: str | Path | Mapping[str, Any]) -> Template:
    value = raw if isinstance(raw, Mapping) else _parsed(raw)
    try:
        text = json.dumps(dict(value), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput("template", "is not JSON; use strings, lists and objects only") from error
    return stored_template(text)


def stored_template(text: str) -> Template:
    if len(text.encode()) > MOST_BYTES:
        raise InvalidInput("template", f"is larger than {MOST_BYTES:,} bytes; use fewer dimensions or words")
    try:
        return Template.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(["template", *map(str, first["loc"])])
        shown = where if len(where) <= 200 and is_plain(where) else "template"  # a field's name is the caller's
        raise InvalidInput(shown, str(first["msg"])) from error


def _parsed(raw: object) -> Mapping[str, Any]:
    if not isinstance(raw, str | Path) or "\0" in str(raw):
        raise InvalidInput("template", "must be the path of a .toml or .json file, or a mapping")
    path = Path(raw)
    if path.suffix.lower() not in (".toml", ".json"):
        raise InvalidInput("template", "must be a file whose name ends in .toml or .json")
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except FileNotFoundError as error:
        raise InvalidInput("template", "does not exist; check the path") from error
    except OSError as error:
        raise PermissionDenied(
            "The template file cannot be read; check that it is a file and that you can read it."
        ) from error
    if len(data) > MOST_BYTES:
        raise InvalidInput("template", f"is larger than {MOST_BYTES:,} bytes; use fewer dimensions or words")
    text = decode("template", data)
    try:
        value = tomllib.loads(text) if path.suffix.lower() == ".toml" else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput("template", f"is not valid {path.suffix[1:].upper()}; correct the file") from error
    if not isinstance(value, dict):
        raise InvalidInput("template", "must be an object with a name and groups")
    return value


_NOTHING = frozenset(
    """
    n/a|na|n.a|none|no value|null|nil|nan|undefined|unknown|unclear|unsure|not sure|not specified|unspecified
    |not mentioned|not stated|not provided|not given|not known|not available|not applicable|not clear|no information
    |no info|no data|no evidence|insufficient information|insufficient data|tbd|todo|empty|error|failed|failure|timeout
    |value|string|text|true|false|[redacted]|redacted|undetermined|indeterminate|unable to determine
    |无|没有|未知|不详|不明|不清楚|暂无|未提及|未提到|未说明|不适用|错误|无法确定|没有信息|无信息
    """.replace("\n", "")
    .replace("    ", "")
    .split("|")
)
_REFUSES = re.compile(
    r"(?:i(?:['’]m| am) (?:sorry|unable|not able|afraid i)|i (?:cannot|can ?not|can['’]t|could ?n['’]t|am unable"
    r"|do(?: not|n['’]t) (?:know|have (?:enough|any|access|the)))|sorry[,. ]|apologies|as an? (?:ai|language model)\b"
    r"|error\b|exception\b|traceback\b|rate limit|http/?\s?\d|[45]\d\d (?:error|bad|unauth|forbid|not|too|internal)"
    r"|(?:there is|there['’]s)? ?(?:no|not enough|insufficient) (?:information|info|evidence|data|mention)"
    r"|the (?:user|messages?|conversation|text) do(?:es)?(?: not|n['’]t) (?:say|mention|state|specify|provide|indicate)"
    r"|not (?:enough|explicitly|directly) |cannot be |can['’]t be |unable to "
    r"|对不起|抱歉|我无法|我不能|无法|作为一?个?(?:ai|人工智能)|没有足够|没有提到|未能)",
    re.IGNORECASE,
)
_EDGES = " \t\r\n.,;:!?\"'`*_-–—…<>()[]{}|/\\。，；：！？、“”‘’（）【】《》"
_MARKUP = re.compile(r"[{}<>\[\]]")


def cleaned(raw: str) -> str | None:
    """Return a text in one line as a trait may have it; None when it says nothing, or is an error or a refusal."""
    text = " ".join(raw[: VALUE_CHARS * 8].split())
    core = text.strip(_EDGES)
    if not core or len(text) > VALUE_CHARS or not is_plain(text) or not any(mark.isalnum() for mark in core):
        return None
    if core.casefold() in _NOTHING or text.casefold() in _NOTHING or _REFUSES.match(core):
        return None
    # A piece of JSON or markup is what is left of a broken answer.
    return None if _MARKUP.match(text) else text


def value_for(dimension: Dimension, raw: str) -> str | None:
    text = cleaned(raw)
    if text is None or not dimension.allowed:
        return text
    return next((known for known in dimension.allowed if known.casefold() == text.casefold().rstrip(".")), None)
