"""Profiles: which template somebody's follows, what is written in it by hand, and its removal."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter
from pydantic import Field

from memos.api.auth import Who
from memos.api.families import Asked, Opened
from memos.api.openmem import shapes as scopes
from memos.api.openmem.shapes import Body, Subject, deleting, ok, required
from memos.core.identities import Caller
from memos.core.types import Json, Role
from memos.errors import InvalidInput, NotFound, shown
from memos.kernel.memos import MemOS
from memos.memcube.profiles.template import Template, read_template, standard

router = APIRouter(tags=["profiles"])

_MOST_BINDINGS: Final = 20
_MOST_FIELDS: Final = 500
STANDARD: Final = "standard"


class Binding(Subject):
    """Whose profile follows which template."""

    profile_template_id: str | None = Field(None, description="Template's name; `standard` is the one everybody has")
    template: dict[str, Any] | None = Field(None, description="The template itself, when no cube has it yet")


class BindBody(Body):
    """Templates for profiles."""

    bind_list: list[Binding] | None = Field(None, description="At most 20; required")


class EditBody(Subject):
    """What to write into a profile."""

    profile_template_id: str | None = Field(None, description="Template the profile follows; required")
    metadata: dict[str, Any] | None = Field(None, description="Values by dimension, such as `life.name`")
    remove_fields: list[str] | None = Field(None, description="Dimensions to empty")


class DeleteProfileBody(Subject):
    """Whose profile to delete."""

    profile_template_id: str | None = Field(None, description="Template the profile follows; required")


@router.post("/bind/profile_template")
def bind(body: BindBody, memos: Opened, caller: Asked) -> dict[str, Any]:
    """Give users and agents a template each: one that a cube the key may read has, or one that is sent along."""
    bindings = required("bind_list", body.bind_list)
    if len(bindings) > _MOST_BINDINGS:
        raise InvalidInput("bind_list", f"has {len(bindings)} entries, at most {_MOST_BINDINGS} are taken")
    known = memos.profile.templates(actor=caller.identity.id)
    chosen = [(binding, _template(binding, known)) for binding in bindings]
    people = [(scopes.subject(memos, caller, binding, new=True), template) for binding, template in chosen]
    for acting, template in people:
        given = None if template is standard() else template.model_dump(mode="json", exclude_defaults=True)
        memos.profile.use_template(acting.home, given, actor=acting.actor)
    return ok({"success": True})


@router.post("/edit/profile")
def edit(body: EditBody, memos: Opened, caller: Asked) -> dict[str, Any]:
    """Write values into a profile, where nothing that is said later changes them, and empty others."""
    values, removed = body.metadata or {}, body.remove_fields or []
    if not values and not removed:
        required("metadata or remove_fields", None)
    if len(values) + len(removed) > _MOST_FIELDS:
        raise InvalidInput("metadata", f"has over {_MOST_FIELDS} fields")
    given = {name: _text(name, value) for name, value in values.items()}
    acting, subject = _profile(memos, caller, body, body.profile_template_id)
    memos.profile.edit(acting.home, subject, given, removed, actor=acting.actor)
    return ok({"success": True})


@router.post("/delete/profile")
def delete(body: DeleteProfileBody, memos: Opened, caller: Asked) -> dict[str, Any]:
    """Take everything out of a profile; what was said stays, and so does the template."""
    acting, subject = _profile(memos, caller, body, body.profile_template_id)
    with deleting():
        memos.profile.clear(acting.home, subject, actor=acting.actor)
    return ok({"success": True})


def _template(binding: Binding, known: dict[str, Template]) -> Template:
    """Return the template a binding names. Raises: InvalidInput, NotFound."""
    name = required("profile_template_id", binding.profile_template_id)
    if binding.template is not None:
        return read_template({"name": name, **binding.template})
    found = standard() if name == STANDARD else known.get(name)
    if found is None:
        raise NotFound("profile template", name, "Send it along as `template`, or name `standard`.")
    return found


def _profile(memos: MemOS, caller: Caller, body: Subject, template: str | None) -> tuple[Who, str]:
    """Return whose profile it is, and as whom its subject speaks in the cube. Raises: NotFound."""
    name = required("profile_template_id", template)
    acting = scopes.subject(memos, caller, body)
    own = memos.profile.template(acting.home, actor=acting.actor)
    if name != own.name and not (name == STANDARD and own.name == standard().name):
        raise NotFound("profile template", name, f"The profile follows {own.name!r}.")
    subjects = memos.profile.subjects(acting.home, actor=acting.actor)
    usual = str(Role.USER if body.user_id else Role.ASSISTANT)
    return acting, subjects[0] if len(subjects) == 1 and usual not in subjects else usual


def _text(name: str, value: Json) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return shown(value)
    raise InvalidInput(f"metadata.{shown(name)}", "must be a text or a number")
