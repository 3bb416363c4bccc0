"""Extraction and reranking, which store nothing, and the routes about profiles."""

from __future__ import annotations

from typing import Any, Final
from zoneinfo import ZoneInfo

from fastapi import APIRouter
from pydantic import Field

from memos.api.dialects import RequestIdentity
from memos.api.families import CurrentCaller, CurrentMemos
from memos.api.openmem import details, shapes
from memos.api.openmem.files import without_files
from memos.api.openmem.shapes import Body, Subject, check_tokens, deleting, ok, required, said
from memos.core.clock import new_id
from memos.core.identities import Caller
from memos.core.message_shapes import Shaped
from memos.core.types import Json, Role
from memos.errors import InvalidInput, NotFound, shown
from memos.kernel.memos import MemOS
from memos.memcube.profiles.template import Template, read_template, standard
from memos.reader.preview import PreviewSource, Reading, preview

router = APIRouter(tags=["look-ups"])
profiles_router = APIRouter(tags=["profiles"])

_EXTRACT_TOKENS: Final = 8_000
_QUERY_TOKENS: Final = 4_000
_TEXTS_TOKENS: Final = 200_000
_KINDS: Final = (details.MEMORY, details.PREFERENCE)


class ExtractBody(Body):
    """Messages to read."""

    messages: Any = Field(None, description="List of messages of at most 8,000 tokens; required")
    extraction_types: list[str] | None = Field(None, description="`memory`, `preference`; default: both")
    model: str | None = Field(None, description="Accepted, but has no effect: the configured model or patterns extract")


class RerankBody(Body):
    """Texts to put in order."""

    query: str | None = Field(None, description="The question; required")
    documents: list[str] | None = Field(None, description="At most 500 texts; required")
    model: str | None = Field(
        None, description="Accepted, but has no effect: the configured reranker or embedder orders"
    )
    top_n: int | None = Field(None, description="Maximum number of results; default: all")


@router.post("/extract/memory")
def extract(body: ExtractBody, memos: CurrentMemos, caller: CurrentCaller) -> dict[str, Any]:
    """Return what would be remembered of messages; nothing is stored."""
    settings, messages = memos.settings, required("messages", body.messages)
    kinds = _KINDS if body.extraction_types is None else tuple(body.extraction_types)
    for kind in kinds:
        if kind not in _KINDS:
            raise InvalidInput("extraction_types", f"{shown(kind)} is unknown; use {' and '.join(_KINDS)}")
    messages, _ = without_files(
        messages, settings.limits.file_bytes, lambda where, url: ("file", b"")
    )  # only text is read
    check_tokens("messages", said(messages), _EXTRACT_TOKENS)
    reading = Reading(
        ZoneInfo(settings.time_zone), memos.clock.now(), settings.mask_secrets, asker=lambda: memos.models.reader
    )
    given = messages.messages if isinstance(messages, Shaped) else [messages]
    found = preview(PreviewSource(tuple(given), (None,) * len(given)), reading)
    lists: dict[str, list[Json]] = {"memory_detail_list": [], "preference_detail_list": []}
    for fact in found.facts:
        kind = details.PREFERENCE if fact.type in details.KINDS[details.PREFERENCE] else details.MEMORY
        if kind in kinds:
            lists[f"{kind}_detail_list"].append(details.extracted(fact))
    return ok({"success": True, **lists})


@router.post("/rerank")
def rerank(body: RerankBody, memos: CurrentMemos, caller: CurrentCaller) -> dict[str, Any]:
    """Return texts in the order in which they answer a question."""
    query, documents = required("query", body.query), required("documents", body.documents)
    check_tokens("query", query, _QUERY_TOKENS)
    check_tokens("documents", "\n".join(documents), _TEXTS_TOKENS)
    ranked = memos.search.rerank(query, documents, top_n=body.top_n)
    results = [
        {"index": one.index, "document": {"text": documents[one.index]}, "relevance_score": one.score}
        for one in ranked.results
    ]
    usage = {"prompt_tokens": ranked.tokens, "total_tokens": ranked.tokens}
    return ok({"id": new_id(), "model": ranked.model, "usage": usage, "results": results})


_MOST_BINDINGS: Final = 20
_MOST_FIELDS: Final = 500
STANDARD: Final = "standard"


class Binding(Subject):
    """The template of a user's profile."""

    profile_template_id: str | None = Field(None, description="Name of the template; `standard` is built in")
    template: dict[str, Any] | None = Field(None, description="The template, if no cube has it yet")


class BindBody(Body):
    """Templates for profiles."""

    bind_list: list[Binding] | None = Field(None, description="At most 20; required")


class EditBody(Subject):
    """Changes to a profile."""

    profile_template_id: str | None = Field(None, description="Template the profile follows; required")
    metadata: dict[str, Any] | None = Field(None, description="Values by dimension, such as `life.name`")
    remove_fields: list[str] | None = Field(None, description="Dimensions to empty")


class DeleteProfileBody(Subject):
    """The user with the profile to delete."""

    profile_template_id: str | None = Field(None, description="Template the profile follows; required")


@profiles_router.post("/bind/profile_template", name="bind")
def bind_template(body: BindBody, memos: CurrentMemos, caller: CurrentCaller) -> dict[str, Any]:
    """Give users and agents a template each: one that a cube the key may read has, or one that is sent along."""
    bindings = required("bind_list", body.bind_list)
    if len(bindings) > _MOST_BINDINGS:
        raise InvalidInput("bind_list", f"has {len(bindings)} entries, more than the limit of {_MOST_BINDINGS}")
    known = memos.profiles.templates(actor=caller.identity.id)
    chosen = [(binding, _template(binding, known)) for binding in bindings]
    people = [(shapes.subject(memos, caller, binding, new=True), template) for binding, template in chosen]
    for acting, template in people:
        given = None if template is standard() else template.model_dump(mode="json", exclude_defaults=True)
        memos.profiles.use_template(acting.home, given, actor=acting.actor)
    return ok({"success": True})


@profiles_router.post("/edit/profile", name="edit")
def edit_profile(body: EditBody, memos: CurrentMemos, caller: CurrentCaller) -> dict[str, Any]:
    """Write values into a profile, where nothing that is said later changes them, and empty others."""
    values, removed = body.metadata or {}, body.remove_fields or []
    if not values and not removed:
        required("metadata or remove_fields", None)
    if len(values) + len(removed) > _MOST_FIELDS:
        raise InvalidInput("metadata", f"has over {_MOST_FIELDS} fields")
    given = {name: _text(name, value) for name, value in values.items()}
    acting, subject = _profile(memos, caller, body, body.profile_template_id)
    memos.profiles.edit(acting.home, subject, given, removed, actor=acting.actor)
    return ok({"success": True})


@profiles_router.post("/delete/profile", name="delete")
def delete_profile(body: DeleteProfileBody, memos: CurrentMemos, caller: CurrentCaller) -> dict[str, Any]:
    """Take everything out of a profile; what was said stays, and so does the template."""
    acting, subject = _profile(memos, caller, body, body.profile_template_id)
    with deleting():
        memos.profiles.clear(acting.home, subject, actor=acting.actor)
    return ok({"success": True})


def _template(binding: Binding, known: dict[str, Template]) -> Template:
    name = required("profile_template_id", binding.profile_template_id)
    if binding.template is not None:
        return read_template({"name": name, **binding.template})
    found = standard() if name == STANDARD else known.get(name)
    if found is None:
        raise NotFound("profile template", name, "Send the template as `template`, or use `standard`.")
    return found


def _profile(memos: MemOS, caller: Caller, body: Subject, template: str | None) -> tuple[RequestIdentity, str]:
    name = required("profile_template_id", template)
    acting = shapes.subject(memos, caller, body)
    own = memos.profiles.template(acting.home, actor=acting.actor)
    if name != own.name and not (name == STANDARD and own.name == standard().name):
        raise NotFound("profile template", name, f"The profile follows {own.name!r}.")
    subjects = memos.profiles.subjects(acting.home, actor=acting.actor)
    usual = str(Role.USER if body.user_id else Role.ASSISTANT)
    return acting, subjects[0] if len(subjects) == 1 and usual not in subjects else usual


def _text(name: str, value: Json) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return shown(value)
    raise InvalidInput(f"metadata.{shown(name)}", "must be a string or a number")
