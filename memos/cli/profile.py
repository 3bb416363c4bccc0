"""Commands on profiles: what is known of people, its history and evidence, and the templates."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memos.cli.shared import Actor, CubeName, Output, command
from memos.core.types import DEFAULT_CUBE, LOCAL_OWNER
from memos.errors import InvalidInput

if TYPE_CHECKING:
    from memos.kernel.memos import MemOS
    from memos.memcube.profiles.template import Template
    from memos.memcube.profiles.views import Profile, ProfileDiff, Trait

_STANDARD = "standard"

Dimension = Annotated[str, typer.Argument(help="Id of a dimension, such as life.residence")]
Subject = Annotated[
    str | None, typer.Option("--subject", "-s", help="Person the profile describes; required if the cube has several")
]


@command
def show_profile(
    memos: MemOS,
    cube: CubeName = DEFAULT_CUBE,
    subject: Subject = None,
    as_of: Annotated[str | None, typer.Option(help="Show the profile as recorded at this time")] = None,
    tokens: Annotated[int | None, typer.Option(help="Print the text for a prompt, of at most this many tokens")] = None,
    actor: Actor = LOCAL_OWNER,
) -> Output:
    if tokens is not None and as_of is not None:
        raise InvalidInput("--as-of", "cannot be combined with --tokens")
    if tokens is not None:
        text = memos.profiles.render(cube, subject, tokens, actor=actor)
        return Output({"text": text}, text)
    return Output(memos.profiles.get(cube, subject, as_of=as_of, actor=actor), _profile, "nothing is known")


@command
def list_subjects(memos: MemOS, cube: CubeName = DEFAULT_CUBE, actor: Actor = LOCAL_OWNER) -> Output:
    found = memos.profiles.subjects(cube, actor=actor)
    return Output(found, "\n".join(found) or "nobody")


@command
def show_history(
    memos: MemOS,
    dimension: Dimension,
    cube: CubeName = DEFAULT_CUBE,
    subject: Subject = None,
    actor: Actor = LOCAL_OWNER,
) -> Output:
    entries = memos.profiles.history(cube, dimension, subject, actor=actor)
    lines = []
    for entry in entries:
        until = "" if entry.until is None else f" until {entry.until:%F}"
        given = "  static" if entry.static else ""
        lines.append(f"{entry.number}  {entry.recorded_at:%F %T}  {entry.status}{given}  since {entry.since:%F}{until}")
        lines.append(f"    {entry.value}  ({entry.reason}, {entry.actor})")
    return Output(entries, lines, "nothing was written")


@command
def show_diff(
    memos: MemOS,
    since: Annotated[str, typer.Argument(help="From this recording time, ISO 8601")],
    until: Annotated[str | None, typer.Argument(help="To this recording time; default: now")] = None,
    cube: CubeName = DEFAULT_CUBE,
    subject: Subject = None,
    actor: Actor = LOCAL_OWNER,
) -> Output:
    return Output(memos.profiles.diff(cube, since, until, subject=subject, actor=actor), _diff, "nothing changed")


@command
def roll_back(
    memos: MemOS,
    dimension: Dimension,
    version: Annotated[int, typer.Argument(help="Number of an entry in the history")],
    cube: CubeName = DEFAULT_CUBE,
    subject: Subject = None,
    actor: Actor = LOCAL_OWNER,
) -> Output:
    return Output(memos.profiles.rollback(cube, dimension, version, subject, actor=actor), _line)


@command
def set_trait(
    memos: MemOS,
    dimension: Dimension,
    value: Annotated[str, typer.Argument(help="What it is")],
    subject: Annotated[str, typer.Option("--subject", "-s", help="Person the profile describes")],
    cube: CubeName = DEFAULT_CUBE,
    actor: Actor = LOCAL_OWNER,
) -> Output:
    return Output(memos.profiles.set_static(cube, dimension, value, subject, actor=actor), _line)


@command
def unset_trait(
    memos: MemOS,
    dimension: Dimension,
    cube: CubeName = DEFAULT_CUBE,
    subject: Subject = None,
    actor: Actor = LOCAL_OWNER,
) -> Output:
    found = memos.profiles.remove_static(cube, dimension, subject, actor=actor)
    return Output(found, f"{dimension} is not known" if found is None else _line(found))


@command
def show_template(memos: MemOS, cube: CubeName = DEFAULT_CUBE, actor: Actor = LOCAL_OWNER) -> Output:
    found = memos.profiles.template(cube, actor=actor)
    return Output(found.model_dump(mode="json"), _template(found))


@command
def use_template(
    memos: MemOS,
    template: Annotated[str, typer.Argument(help=f"A .toml or .json file, or '{_STANDARD}'")],
    cube: CubeName = DEFAULT_CUBE,
    actor: Actor = LOCAL_OWNER,
) -> Output:
    found = memos.profiles.use_template(cube, None if template == _STANDARD else Path(template), actor=actor)
    told = f"{cube} follows {found.name}, {len(found.by_id)} dimensions"
    return Output({"cube": cube, "template": found.name, "dimensions": len(found.by_id)}, told)


def _profile(profile: Profile) -> Iterator[str]:
    if not profile.groups:
        return
    yield f"{profile.subject} ({profile.cube}, template {profile.template})"
    for group in profile.groups:
        yield f"{group.name}:"
        for trait in group.traits:
            yield f"  {_line(trait)}"
            for evidence in trait.evidence:
                yield f"      {evidence.at:%F} {evidence.speaker}: {evidence.passage[:200]}"


def _diff(diff: ProfileDiff) -> Iterator[str]:
    for trait in diff.added:
        yield f"+ {_line(trait)}"
    for change in diff.changed:
        yield f"~ {_line(change.after)}, was {change.before.value}"
    for trait in diff.ended:
        yield f"- {_line(trait)}"


def _template(template: Template) -> Iterator[str]:
    yield f"{template.name}: {len(template.by_id)} dimensions"
    for group in template.groups:
        yield f"{group.name}:"
        for dimension in group.dimensions:
            values = f" ({', '.join(dimension.allowed)})" if dimension.allowed else ""
            yield f"  {dimension.id}  {dimension.about}{values}"


def _line(trait: Trait) -> str:
    how = "given" if trait.static else f"{trait.confidence:.2f}"
    return f"{trait.dimension}: {trait.value}  ({how}, since {trait.since:%F}, item {trait.item})"
