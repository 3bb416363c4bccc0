"""`/profile`: what is known of each subject of a cube, on what evidence, since when; and what steers it."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field

from memos.api.families import Asked, Opened
from memos.api.v1.common import ERRORS, CubeBody, InCube, moment, place_of
from memos.api.v1.shapes import ProfileDiffShape, ProfileShape, TemplateShape, TextShape, TraitEntryShape, TraitShape

router = APIRouter(prefix="/profile", tags=["profile"], responses=ERRORS)

_DIMENSION = "Id of a dimension, such as `work.occupation`"
Subject = Annotated[str | None, Query(description="Whom it is about; may be left out when the cube knows one only")]
Dimension = Annotated[str, Query(description=_DIMENSION)]
_MOMENT = "ISO 8601, or milliseconds since 1970"


class StaticBody(CubeBody):
    """A trait given by hand."""

    dimension: str = Field(description=_DIMENSION)
    value: str = Field(description="What is so")
    subject: str = Field(description="Whom it is about")


class TraitRollbackBody(CubeBody):
    """Which entry to go back to."""

    dimension: str = Field(description=_DIMENSION)
    version: int = Field(description="Number of the entry in its history")
    subject: str | None = Field(None, description="Whom it is about; default: the only one the cube knows")


class TemplateBody(CubeBody):
    """A template."""

    template: dict[str, Any] = Field(description="The template: name and groups of dimensions (docs/profile.md)")


@router.get("")
def get(
    memos: Opened,
    place: InCube,
    subject: Subject = None,
    as_of: Annotated[str | None, Query(description=f"As it was recorded at this moment: {_MOMENT}")] = None,
) -> ProfileShape:
    """Return a profile; an empty one when nothing is known."""
    found = memos.profile.get(place.cube, subject, as_of=moment(as_of), actor=place.actor)
    return ProfileShape.model_validate(found)


@router.get("/subjects")
def subjects(memos: Opened, place: InCube) -> list[str]:
    """Return whom a cube has a profile of."""
    return list(memos.profile.subjects(place.cube, actor=place.actor))


@router.get("/history")
def history(memos: Opened, place: InCube, dimension: Dimension, subject: Subject = None) -> list[TraitEntryShape]:
    """Return everything that was written in one dimension, oldest first."""
    found = memos.profile.history(place.cube, dimension, subject, actor=place.actor)
    return [TraitEntryShape.model_validate(entry) for entry in found]


@router.get("/diff")
def diff(
    memos: Opened,
    place: InCube,
    since: Annotated[str, Query(description=f"First moment of recording: {_MOMENT}")],
    until: Annotated[str | None, Query(description="Last moment; default: now")] = None,
    subject: Subject = None,
) -> ProfileDiffShape:
    """Return what became known, changed and ended between two moments."""
    found = memos.profile.diff(place.cube, moment(since), moment(until), subject=subject, actor=place.actor)
    return ProfileDiffShape.model_validate(found)


@router.get("/text")
def text(
    memos: Opened,
    place: InCube,
    subject: Subject = None,
    max_tokens: Annotated[int, Query(description="Most tokens")] = 500,
) -> TextShape:
    """Return a profile as text for a prompt."""
    return TextShape(text=memos.profile.render(place.cube, subject, max_tokens, actor=place.actor))


@router.post("/rollback")
def rollback(body: TraitRollbackBody, memos: Opened, caller: Asked) -> TraitShape:
    """Let a trait be again what an entry of its history says."""
    place = place_of(memos, caller, body, new=False)
    back = memos.profile.rollback(place.cube, body.dimension, body.version, body.subject, actor=place.actor)
    return TraitShape.model_validate(back)


@router.put("/static")
def set_static(body: StaticBody, memos: Opened, caller: Asked) -> TraitShape:
    """Give a trait that nothing but taking it back changes."""
    place = place_of(memos, caller, body)
    given = memos.profile.set_static(place.cube, body.dimension, body.value, body.subject, actor=place.actor)
    return TraitShape.model_validate(given)


@router.delete("/static")
def remove_static(memos: Opened, place: InCube, dimension: Dimension, subject: Subject = None) -> TraitShape | None:
    """Take back a trait given by hand; returns what was found and now counts again."""
    left = memos.profile.remove_static(place.cube, dimension, subject, actor=place.actor)
    return None if left is None else TraitShape.model_validate(left)


@router.get("/template")
def template(memos: Opened, place: InCube) -> TemplateShape:
    """Return the template of a cube."""
    return TemplateShape.model_validate(memos.profile.template(place.cube, actor=place.actor))


@router.put("/template")
def use_template(body: TemplateBody, memos: Opened, caller: Asked) -> TemplateShape:
    """Give a cube a template of its own."""
    place = place_of(memos, caller, body)
    return TemplateShape.model_validate(memos.profile.use_template(place.cube, body.template, actor=place.actor))


@router.delete("/template")
def standard_template(memos: Opened, place: InCube) -> TemplateShape:
    """Let a cube have the standard template again."""
    return TemplateShape.model_validate(memos.profile.use_template(place.cube, None, actor=place.actor))
