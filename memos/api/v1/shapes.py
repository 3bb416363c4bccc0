"""Answers of `/api/v1` about memories, files and profiles, with a description of each field.

Values of `memos.core` are declared there; `mirrors` makes their models.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from enum import StrEnum
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model

from memos.core.types import (
    AddReceipt,
    ArmScore,
    Boost,
    EraseReceipt,
    ExtractionRecord,
    FeedbackReceipt,
    Hit,
    Item,
    Masked,
    PendingItem,
    RetentionEffect,
    RetentionRule,
    SearchResult,
    Source,
    StoredFile,
    Version,
    WhyNot,
)
from memos.kernel.cubes import KnowledgeBase
from memos.kernel.tiers import WorkingMemory
from memos.kernel.tools import ToolUse
from memos.memcube.profiles.views import Evidence, Profile, ProfileDiff, Trait, TraitChange, TraitEntry, TraitGroup


class Shape(BaseModel):
    """Part of an answer, made from a value with the same fields."""

    model_config = ConfigDict(from_attributes=True)


_SHAPES: dict[type, type[Shape]] = {}


def mirrors(source: type) -> Callable[[type[Shape]], type[Shape]]:
    """Add the described fields of a dataclass to a shape, before those it declares itself.

    A field is described by the text in its annotation, as in `id: Annotated[str, "Id of the memory"]`. One without a
    description is internal, and no part of the answer.
    """

    def add(shape: type[Shape]) -> type[Shape]:
        fields: dict[str, Any] = {}
        for name, hint in get_type_hints(source, include_extras=True).items():
            if get_origin(hint) is Annotated and name not in shape.model_fields:
                fields[name] = (wire_type(get_args(hint)[0]), Field(description=get_args(hint)[1]))
        for name, field in shape.model_fields.items():
            fields[name] = (field.annotation, field)
        made = create_model(
            shape.__name__, __base__=Shape, __doc__=shape.__doc__, __module__=shape.__module__, **fields
        )
        _SHAPES[source] = made
        return made

    return add


def wire_type(hint: Any) -> Any:
    """Return the type that JSON has for a field: shapes for dataclasses, texts for enumerations, lists for tuples."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return wire_type(parts[0])
    if origin in (Union, UnionType):
        return Union[tuple(wire_type(part) for part in parts)]  # noqa: UP007 - of types known at run time
    if origin in (list, tuple, Sequence):
        return list[wire_type(parts[0])]  # type: ignore[misc] # of a type known at run time
    if origin is Mapping:
        return dict[wire_type(parts[0]), wire_type(parts[1])]  # type: ignore[misc] # of types known at run time
    if is_dataclass(hint):
        return _SHAPES[hint]  # type: ignore[index] # a class
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return str
    return hint


@mirrors(Masked)
class MaskedShape(Shape):
    """Passages that were not stored as written."""


@mirrors(AddReceipt)
class AddReceiptShape(Shape):
    """What an add stored."""


@mirrors(Source)
class SourceShape(Shape):
    """Where a memory comes from: a passage of a stored message."""


@mirrors(Item)
class ItemShape(Shape):
    """One memory at one version."""


@mirrors(ArmScore)
class ArmShape(Shape):
    """What one way of searching said of a hit."""


@mirrors(Boost)
class BoostShape(Shape):
    """What something other than an arm added to a hit's score."""


@mirrors(Hit)
class HitShape(Shape):
    """One found memory."""


@mirrors(SearchResult)
class SearchShape(Shape):
    """The hits of a search, best first."""


@mirrors(StoredFile)
class FileShape(Shape):
    """A stored file, and how far reading it is."""


@mirrors(KnowledgeBase)
class KnowledgeBaseShape(Shape):
    """A cube of documents."""


@mirrors(Evidence)
class EvidenceShape(Shape):
    """A passage a trait rests on."""


@mirrors(Trait)
class TraitShape(Shape):
    """What a profile says in one dimension."""


@mirrors(TraitGroup)
class TraitGroupShape(Shape):
    """Traits that belong together."""


@mirrors(Profile)
class ProfileShape(Shape):
    """What is known of one subject."""


@mirrors(TraitEntry)
class TraitEntryShape(Shape):
    """One entry of a dimension's history."""


@mirrors(TraitChange)
class TraitChangeShape(Shape):
    """A trait whose value is another one."""


@mirrors(ProfileDiff)
class ProfileDiffShape(Shape):
    """What became of a profile between two moments."""


class TextShape(Shape):
    """A text."""

    text: str = Field(description="The text")


class DimensionShape(Shape):
    """One thing a profile may say of somebody."""

    id: str = Field(description="Its id: its group's, a dot and a name")
    name: str = Field(description="Its name")
    about: str = Field(description="What it is about")
    kind: str = Field(description="`text`, `level`, `choice` or `interest`")
    values: list[str] = Field(description="Values of a choice")
    attributes: list[str] = Field(description="Attributes that statements give it by")
    words: list[str] = Field(description="Words that an interest is found by")


class DimensionGroupShape(Shape):
    """Dimensions that belong together."""

    id: str = Field(description="Its id")
    name: str = Field(description="Its name")
    dimensions: list[DimensionShape] = Field(description="Its dimensions")


class TemplateShape(Shape):
    """Which dimensions a profile has."""

    name: str = Field(description="Its name")
    groups: list[DimensionGroupShape] = Field(description="Its groups")


@mirrors(Version)
class VersionShape(Shape):
    """One entry of a memory's history."""


@mirrors(ExtractionRecord)
class ExtractionShape(Shape):
    """One reading of messages into facts."""


@mirrors(FeedbackReceipt)
class FeedbackShape(Shape):
    """What a correction became."""


@mirrors(EraseReceipt)
class EraseReceiptShape(Shape):
    """What was erased, and from where."""


@mirrors(WhyNot)
class WhyNotShape(Shape):
    """At which stage a memory left a search."""


@mirrors(WorkingMemory)
class WorkingMemoryShape(Shape):
    """The small set a prompt begins with."""


@mirrors(PendingItem)
class PendingShape(Shape):
    """A memory that awaits review."""


@mirrors(ToolUse)
class ToolUseShape(Shape):
    """What is known of one tool."""

    schema_: str | None = Field(
        description="Id of the memory that is its definition", validation_alias="schema", serialization_alias="schema"
    )


@mirrors(RetentionRule)
class RuleShape(Shape):
    """One rule of retention."""


@mirrors(RetentionEffect)
class EffectShape(Shape):
    """What a rule does, or did."""


class ItemIdsShape(Shape):
    """Memories that were stored or taken away."""

    item_ids: list[str] = Field(description="Their ids")
