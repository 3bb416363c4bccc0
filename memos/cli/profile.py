"""The commands about profiles: show, subjects, history, diff, rollback, set, unset, templates, use."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from memos.cli.shared import Actor, AsJson, CubeName, DataDir, opened, say, show
from memos.core.types import DEFAULT_CUBE, LOCAL_OWNER
from memos.errors import InvalidInput
from memos.memcube.profiles.template import Template
from memos.memcube.profiles.views import Profile, ProfileDiff, Trait

profile_app = typer.Typer(
    help="Look at what is known of people, and steer it.", no_args_is_help=True, rich_markup_mode=None
)

_STANDARD = "standard"

Dimension = Annotated[str, typer.Argument(help="Id of a dimension, such as life.residence")]
Subject = Annotated[str | None, typer.Option("--subject", "-s", help="Whom it is about; needed when there are several")]


@profile_app.command("show")
def show_profile(
    cube: CubeName = DEFAULT_CUBE,
    subject: Subject = None,
    as_of: Annotated[str | None, typer.Option(help="As it was recorded at this time")] = None,
    tokens: Annotated[int | None, typer.Option(help="Print the text for a prompt, of at most so many tokens")] = None,
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Show a profile with its evidence, or the text a prompt gets of it."""
    if tokens is not None and as_of is not None:
        raise InvalidInput("--as-of", "goes without --tokens; a prompt gets what is known now")
    with opened(data_dir) as memos:
        if tokens is not None:
            text = memos.profiles.render(cube, subject, tokens, actor=actor)
            show({"text": text}, as_json, lambda: say(text))
            return
        found = memos.profiles.get(cube, subject, as_of=as_of, actor=actor)
    show(found, as_json, lambda: _tell(found))


@profile_app.command("subjects")
def list_subjects(
    cube: CubeName = DEFAULT_CUBE, actor: Actor = LOCAL_OWNER, data_dir: DataDir = None, as_json: AsJson = False
) -> None:
    """List whom a cube has a profile of."""
    with opened(data_dir) as memos:
        found = memos.profiles.subjects(cube, actor=actor)
    show(found, as_json, lambda: say("\n".join(found) or "nobody"))


@profile_app.command("history")
def show_history(
    dimension: Dimension,
    cube: CubeName = DEFAULT_CUBE,
    subject: Subject = None,
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Show everything that was written in one dimension, oldest first."""
    with opened(data_dir) as memos:
        entries = memos.profiles.history(cube, dimension, subject, actor=actor)

    def human() -> None:
        for entry in entries:
            until = "" if entry.until is None else f" until {entry.until:%F}"
            given = "  static" if entry.static else ""
            about = f"{entry.number}  {entry.recorded_at:%F %T}  {entry.status}{given}  since {entry.since:%F}{until}"
            say(f"{about}\n    {entry.value}  ({entry.reason}, {entry.actor})")
        if not entries:
            say("nothing was written")

    show(entries, as_json, human)


@profile_app.command("diff")
def show_diff(
    since: Annotated[str, typer.Argument(help="From this time of recording, ISO 8601")],
    until: Annotated[str | None, typer.Argument(help="To this time; default now")] = None,
    cube: CubeName = DEFAULT_CUBE,
    subject: Subject = None,
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Show what became known, changed and ended between two moments."""
    with opened(data_dir) as memos:
        found = memos.profiles.diff(cube, since, until, subject=subject, actor=actor)
    show(found, as_json, lambda: _tell_diff(found))


@profile_app.command("rollback")
def roll_back(
    dimension: Dimension,
    version: Annotated[int, typer.Argument(help="Number of an entry of the history")],
    cube: CubeName = DEFAULT_CUBE,
    subject: Subject = None,
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Let a trait be again what its history says it was."""
    with opened(data_dir) as memos:
        found = memos.profiles.rollback(cube, dimension, version, subject, actor=actor)
    show(found, as_json, lambda: say(_line(found)))


@profile_app.command("set")
def set_trait(
    dimension: Dimension,
    value: Annotated[str, typer.Argument(help="What it is")],
    subject: Annotated[str, typer.Option("--subject", "-s", help="Whom it is about")],
    cube: CubeName = DEFAULT_CUBE,
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Give a trait by hand; what is read in messages never changes it."""
    with opened(data_dir) as memos:
        found = memos.profiles.set_static(cube, dimension, value, subject, actor=actor)
    show(found, as_json, lambda: say(_line(found)))


@profile_app.command("unset")
def unset_trait(
    dimension: Dimension,
    cube: CubeName = DEFAULT_CUBE,
    subject: Subject = None,
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Take back what was given by hand; what was read counts again."""
    with opened(data_dir) as memos:
        found = memos.profiles.remove_static(cube, dimension, subject, actor=actor)
    show(found, as_json, lambda: say(f"{dimension} is not known" if found is None else _line(found)))


@profile_app.command("templates")
def show_template(
    cube: CubeName = DEFAULT_CUBE, actor: Actor = LOCAL_OWNER, data_dir: DataDir = None, as_json: AsJson = False
) -> None:
    """Show the template a cube's profiles follow, with every dimension."""
    with opened(data_dir) as memos:
        found = memos.profiles.template(cube, actor=actor)
    show(found.model_dump(mode="json"), as_json, lambda: _tell_template(found))


@profile_app.command("use")
def use_template(
    template: Annotated[str, typer.Argument(help=f"A .toml or .json file, or '{_STANDARD}'")],
    cube: CubeName = DEFAULT_CUBE,
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Give a cube a template of its own, or the standard one again."""
    with opened(data_dir) as memos:
        found = memos.profiles.use_template(cube, None if template == _STANDARD else Path(template), actor=actor)
    told = f"{cube} follows {found.name}, {len(found.by_id)} dimensions"
    show({"cube": cube, "template": found.name, "dimensions": len(found.by_id)}, as_json, lambda: say(told))


def _tell(profile: Profile) -> None:
    if not profile.groups:
        say("nothing is known")
        return
    say(f"{profile.subject} ({profile.cube}, template {profile.template})")
    for group in profile.groups:
        say(f"{group.name}:")
        for trait in group.traits:
            say(f"  {_line(trait)}")
            for evidence in trait.evidence:
                say(f"      {evidence.at:%F} {evidence.speaker}: {evidence.passage[:200]}")


def _tell_diff(diff: ProfileDiff) -> None:
    for trait in diff.added:
        say(f"+ {_line(trait)}")
    for change in diff.changed:
        say(f"~ {_line(change.after)}, was {change.before.value}")
    for trait in diff.ended:
        say(f"- {_line(trait)}")
    if not (diff.added or diff.changed or diff.ended):
        say("nothing changed")


def _tell_template(template: Template) -> None:
    say(f"{template.name}: {len(template.by_id)} dimensions")
    for group in template.groups:
        say(f"{group.name}:")
        for dimension in group.dimensions:
            values = f" ({', '.join(dimension.allowed)})" if dimension.allowed else ""
            say(f"  {dimension.id}  {dimension.about}{values}")


def _line(trait: Trait) -> str:
    how = "given" if trait.static else f"{trait.confidence:.2f}"
    return f"{trait.dimension}: {trait.value}  ({how}, since {trait.since:%F}, item {trait.item})"
