"""The commands about rules of retention: list, add, remove, run."""

from __future__ import annotations

from typing import Annotated

import typer

from memos.cli.shared import Actor, AsJson, CubeName, DataDir, ItemId, opened, say, show, sure
from memos.core.types import DEFAULT_CUBE, LOCAL_OWNER, PendingItem, RetentionAction, RetentionEffect, RetentionRule

# The commands about memories that await review: list, approve, reject, edit.

review_app = typer.Typer(
    help="Look through memories that wait until somebody approves them.", no_args_is_help=True, rich_markup_mode=None
)

_SHOWN_CHARS = 2_000

ExpectedVersion = Annotated[int | None, typer.Option(help="Refuse when the item is at another version")]


@review_app.command("list")
def list_pending(
    cube: CubeName = DEFAULT_CUBE,
    limit: Annotated[int, typer.Option(help="At most so many")] = 50,
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """List what awaits review with its sources and why, oldest first."""
    with opened(data_dir) as memos:
        found = memos.review.list(cube=cube, actor=actor, limit=limit)

    def human() -> None:
        for waiting in found:
            _tell(waiting)
        if not found:
            say("nothing awaits review")

    show(found, as_json, human)


@review_app.command("approve")
def approve(
    item: ItemId,
    expected_version: ExpectedVersion = None,
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Let a memory be found."""
    with opened(data_dir) as memos:
        found = memos.review.approve(item, actor=actor, expected_version=expected_version)
    show(found, as_json, lambda: say(f"{found.id} is active"))


@review_app.command("edit")
def edit(
    item: ItemId,
    text: Annotated[str, typer.Argument(help="What it shall say")],
    expected_version: ExpectedVersion = None,
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Let a memory be found with another text."""
    with opened(data_dir) as memos:
        found = memos.review.edit(item, text, actor=actor, expected_version=expected_version)
    show(found, as_json, lambda: say(f"{found.id} is active"))


@review_app.command("reject")
def reject(item: ItemId, actor: Actor = LOCAL_OWNER, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Delete a memory; `memos rollback` lets it wait again."""
    with opened(data_dir) as memos:
        found = memos.review.reject(item, actor=actor)
    show(found, as_json, lambda: say(f"{found.id} is deleted"))


def _tell(waiting: PendingItem) -> None:
    item = waiting.item
    say(f"{item.id}  v{item.version}  {item.type}  {item.speaker}")
    for line in item.memory[:_SHOWN_CHARS].splitlines():
        say(f"    {line}")
    say(f"    why: {waiting.why}")
    for source in item.sources:
        passage = " ".join(source.passage[:_SHOWN_CHARS].split())
        say(f"    {source.trust} source {source.message_id}, {source.speaker}, {source.at:%F %T}: {passage}")


retention_app = typer.Typer(
    help="What happens to a cube's memories when they get old.", no_args_is_help=True, rich_markup_mode=None
)

_DONE = {
    RetentionAction.ARCHIVE: ("archive", "archived"),
    RetentionAction.DELETE: ("delete", "deleted"),
    RetentionAction.ERASE: ("erase", "erased"),
}
_LOSING = (RetentionAction.DELETE, RetentionAction.ERASE)


@retention_app.command("list")
def list_rules(
    cube: CubeName = DEFAULT_CUBE, actor: Actor = LOCAL_OWNER, data_dir: DataDir = None, as_json: AsJson = False
) -> None:
    """List a cube's rules in the order in which they are applied."""
    with opened(data_dir) as memos:
        found = memos.retention.list(cube=cube, actor=actor)

    def human() -> None:
        for rule in found:
            say(_told(rule))
        if not found:
            say("no rules")

    show(found, as_json, human)


@retention_app.command("add")
def add_rule(  # noqa: PLR0913, PLR0917 - one parameter an option
    action: Annotated[str, typer.Argument(help="archive, delete or erase")],
    type_: Annotated[list[str] | None, typer.Option("--type", help="Only items of this type; may be repeated")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Only items with this tag; may be repeated")] = None,
    status: Annotated[list[str] | None, typer.Option(help="Only items of this status; may be repeated")] = None,
    age_days: Annotated[float, typer.Option(help="Only items stored at least so many days ago")] = 0,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Take a rule that matches every item")] = False,
    cube: CubeName = DEFAULT_CUBE,
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Have memories archived, deleted or erased when they are old enough; applied every hour."""
    with opened(data_dir) as memos:
        rule = memos.retention.add(
            action=action,
            cube=cube,
            actor=actor,
            types=type_ or [],
            tags=tag or [],
            statuses=status or [],
            age_days=age_days,
            yes=yes,
        )
    show(rule, as_json, lambda: say(_told(rule)))


@retention_app.command("remove")
def remove_rule(
    rule: Annotated[str, typer.Argument(help="Rule id")],
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Remove a rule; what it did stays done."""
    with opened(data_dir) as memos:
        removed = memos.retention.remove(rule, actor=actor)
    show(removed, as_json, lambda: say(f"removed rule {removed.id}"))


@retention_app.command("run")
def run_rules(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before deleting or erasing")] = False,
    cube: CubeName = DEFAULT_CUBE,
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Apply a cube's rules now, or say what that would do."""
    with opened(data_dir) as memos:
        effects = memos.retention.preview(cube=cube, actor=actor)
        if not dry_run:
            lost = [effect for effect in effects if effect.count and effect.rule.action in _LOSING]
            if lost:
                sure(f"{' and '.join(map(_loss, lost)).capitalize()} of cube {cube!r}?", yes=yes)
            effects = memos.retention.run(cube=cube, actor=actor)

    def human() -> None:
        for effect in effects:
            say(_effect(effect, done=not dry_run))
        if not effects:
            say("no rules" if dry_run else "nothing was old enough")

    show(effects, as_json, human)


def _told(rule: RetentionRule) -> str:
    wanted = [
        f"{name} {' or '.join(words)}"
        for name, words in (("type", rule.types), ("tag", rule.tags), ("status", rule.statuses))
        if words
    ]
    age = f" at least {rule.age_days:g} days old" if rule.age_days else " of any age"
    return f"{rule.id}  {rule.action} {', '.join(wanted) or 'everything'},{age}"


def _loss(effect: RetentionEffect) -> str:
    more = f" and {effect.derived} made of them" if effect.derived else ""
    return f"{effect.rule.action} {effect.count} memories{more}"


def _effect(effect: RetentionEffect, *, done: bool) -> str:
    now, past = _DONE[effect.rule.action]
    more = f", and {effect.derived} made of them" if effect.derived else ""
    lines = [f"rule {effect.rule.id} {past if done else f'would {now}'} {effect.count} memories{more}"]
    lines += [f"    {item}" for item in effect.items]
    if effect.count > len(effect.items):
        lines.append(f"    and {effect.count - len(effect.items)} more")
    return "\n".join(lines)
