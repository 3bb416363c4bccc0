"""What routes about documents, images, knowledge bases and profiles answer. No behaviour."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from memos.api.v1.shapes import Shape


class FileShape(Shape):
    """A stored file, and how far reading it is."""

    id: str = Field(description="Its id")
    cube: str = Field(description="Cube it is in")
    kind: str = Field(description="`document` or `image`")
    name: str = Field(description="Its name")
    media_type: str = Field(description="Its media type")
    bytes: int = Field(description="Its size")
    sha256: str = Field(description="SHA-256 of its bytes, in hexadecimal digits")
    state: str = Field(description="`processing`, `available`, `failed`, `superseded` or `deleted`")
    actor: str = Field(description="Who added it")
    created_at: datetime = Field(description="When it was added")
    error: str | None = Field(description="Why it could not be read")
    info: dict[str, Any] = Field(description="What was found out about it, such as `pages`")
    item: str | None = Field(description="Message an image is part of")
    replaced_by: str | None = Field(description="Newer version of a document")
    finished_at: datetime | None = Field(description="When it was read")


class KnowledgeBaseShape(Shape):
    """A cube of documents."""

    id: str = Field(description="Its id, also as a cube")
    description: str = Field(description="What it is about")
    owner: str = Field(description="Who owns it")
    items: int = Field(description="Passages and other memories in it")
    files: dict[str, int] = Field(description="Files by state")


class EvidenceShape(Shape):
    """A passage a trait rests on."""

    item: str | None = Field(description="Memory of the message it stands in")
    passage: str = Field(description="The passage")
    speaker: str = Field(description="Who said it")
    at: datetime = Field(description="When")
    trust: str = Field(description="`trusted` or `untrusted`")


class TraitShape(Shape):
    """What a profile says in one dimension."""

    dimension: str = Field(description="Id of the dimension")
    name: str = Field(description="Its name")
    value: str = Field(description="What is known")
    confidence: float = Field(description="0 to 1")
    since: datetime = Field(description="Since when")
    item: str = Field(description="Memory that holds it")
    static: bool = Field(description="Whether it was given by hand")
    evidence: list[EvidenceShape] = Field(description="Passages it rests on")


class TraitGroupShape(Shape):
    """Traits that belong together."""

    id: str = Field(description="Id of the group")
    name: str = Field(description="Its name")
    traits: list[TraitShape] = Field(description="Its traits")


class ProfileShape(Shape):
    """What is known of one subject."""

    cube: str = Field(description="The cube")
    subject: str = Field(description="Whom it is about; empty when nobody is known")
    template: str = Field(description="Name of the template")
    groups: list[TraitGroupShape] = Field(description="Traits by group")


class TraitEntryShape(Shape):
    """One entry of a dimension's history."""

    number: int = Field(description="Names it for a rollback")
    value: str | None = Field(description="What was written")
    confidence: float = Field(description="0 to 1")
    status: str = Field(description="Status of the memory then")
    since: datetime = Field(description="Since when it held")
    until: datetime | None = Field(description="Until when it held")
    static: bool = Field(description="Whether it was given by hand")
    recorded_at: datetime = Field(description="When it was written")
    actor: str = Field(description="Who wrote it")
    reason: str = Field(description="Why")
    item: str = Field(description="Memory that holds it")
    version: int = Field(description="Version of that memory")


class TraitChangeShape(Shape):
    """A trait whose value is another one."""

    before: TraitShape = Field(description="What it was")
    after: TraitShape = Field(description="What it is")


class ProfileDiffShape(Shape):
    """What became of a profile between two moments."""

    cube: str = Field(description="The cube")
    subject: str = Field(description="Whom it is about")
    since: datetime = Field(description="First moment")
    until: datetime = Field(description="Last moment")
    added: list[TraitShape] = Field(description="What became known")
    changed: list[TraitChangeShape] = Field(description="What became another")
    ended: list[TraitShape] = Field(description="What ended")


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
