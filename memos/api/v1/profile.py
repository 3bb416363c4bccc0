"""Routes of `/profile`: what is known of each subject of a cube, on what evidence and since when, and its template."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import Query
from pydantic import Field

from memos.api.families import CurrentCaller, CurrentMemos
from memos.api.v1.common import CubeBody, CurrentTarget, Template, Text, moment, target_of, value_router
from memos.memcube.profiles.views import Profile, ProfileDiff, Trait, TraitEntry

router = value_router("profile", prefix="/profile")

_DIMENSION = "Id of a dimension, such as `work.occupation`"
Subject = Annotated[
    str | None, Query(description="Person the profile describes; may be left out when the cube knows one only")
]
Dimension = Annotated[str, Query(description=_DIMENSION)]
_MOMENT = "ISO 8601, or milliseconds since 1970"


class StaticBody(CubeBody):
    """A trait given by hand."""

    dimension: str = Field(description=_DIMENSION)
    value: str = Field(description="What is so")
    subject: str = Field(description="Person the profile describes")


class TraitRollbackBody(CubeBody):
    """An entry of a trait's history to roll back to."""

    dimension: str = Field(description=_DIMENSION)
    version: int = Field(description="Number of the entry in the history")
    subject: str | None = Field(None, description="Person the profile describes; default: the only one the cube knows")


class TemplateBody(CubeBody):
    """A template."""

    template: dict[str, Any] = Field(description="The template: name and groups of dimensions (docs/how-to/profile.md)")


@router.get("")
def get(
    memos: CurrentMemos,
    target: CurrentTarget,
    subject: Subject = None,
    as_of: Annotated[str | None, Query(description=f"Profile as recorded at this time: {_MOMENT}")] = None,
) -> Profile:
    """Return a profile; an empty one when nothing is known."""
    return memos.profiles.get(target["cube"], subject, as_of=moment(as_of), actor=target["actor"])


@router.get("/subjects")
def subjects(memos: CurrentMemos, target: CurrentTarget) -> list[str]:
    """Return whom a cube has a profile of."""
    return list(memos.profiles.subjects(**target))


@router.get("/history")
def history(
    memos: CurrentMemos, target: CurrentTarget, dimension: Dimension, subject: Subject = None
) -> Sequence[TraitEntry]:
    """Return everything that was written in one dimension, oldest first."""
    return memos.profiles.history(target["cube"], dimension, subject, actor=target["actor"])


@router.get("/diff")
def diff(
    memos: CurrentMemos,
    target: CurrentTarget,
    since: Annotated[str, Query(description=f"First recording time: {_MOMENT}")],
    until: Annotated[str | None, Query(description="Last recording time; default: now")] = None,
    subject: Subject = None,
) -> ProfileDiff:
    """Return what became known, changed and ended between two moments."""
    return memos.profiles.diff(target["cube"], moment(since), moment(until), subject=subject, actor=target["actor"])


@router.get("/text")
def text(
    memos: CurrentMemos,
    target: CurrentTarget,
    subject: Subject = None,
    max_tokens: Annotated[int, Query(description="Most tokens")] = 500,
) -> Text:
    """Return a profile as text for a prompt."""
    return Text(text=memos.profiles.render(target["cube"], subject, max_tokens, actor=target["actor"]))


@router.post("/rollback")
def rollback(body: TraitRollbackBody, memos: CurrentMemos, caller: CurrentCaller) -> Trait:
    """Restore a trait to an entry of its history."""
    target = target_of(memos, caller, body)
    return memos.profiles.rollback(target["cube"], body.dimension, body.version, body.subject, actor=target["actor"])


@router.put("/static")
def set_static(body: StaticBody, memos: CurrentMemos, caller: CurrentCaller) -> Trait:
    """Give a trait that nothing but taking it back changes."""
    target = target_of(memos, caller, body, new=True)
    return memos.profiles.set_static(target["cube"], body.dimension, body.value, body.subject, actor=target["actor"])


@router.delete("/static")
def remove_static(
    memos: CurrentMemos, target: CurrentTarget, dimension: Dimension, subject: Subject = None
) -> Trait | None:
    """Take back a trait given by hand; returns what was found and now counts again."""
    return memos.profiles.remove_static(target["cube"], dimension, subject, actor=target["actor"])


@router.get("/template")
def template(memos: CurrentMemos, target: CurrentTarget) -> Template:
    """Return the template of a cube."""
    return Template.model_validate(memos.profiles.template(**target))


@router.put("/template")
def use_template(body: TemplateBody, memos: CurrentMemos, caller: CurrentCaller) -> Template:
    """Give a cube a template of its own."""
    target = target_of(memos, caller, body, new=True)
    return Template.model_validate(memos.profiles.use_template(target["cube"], body.template, actor=target["actor"]))


@router.delete("/template")
def standard_template(memos: CurrentMemos, target: CurrentTarget) -> Template:
    """Restore a cube's standard template."""
    return Template.model_validate(memos.profiles.use_template(target["cube"], None, actor=target["actor"]))
