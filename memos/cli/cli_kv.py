"""The commands about activation memory: what prompts of a cube begin with, and what of its KV is kept where."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from memos.cli.shared import Actor, AsJson, CubeName, DataDir, console, opened, say, show
from memos.core.text.rendering import visible
from memos.core.types import DEFAULT_CUBE, LOCAL_OWNER
from memos.errors import IntegrityError

kv_app = typer.Typer(
    help="Activation memory: what prompts of a cube begin with, kept as a model's KV (docs/activation.md).",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_MIB = 1_048_576


@kv_app.command("ls")
def ls(
    cube: CubeName = DEFAULT_CUBE, actor: Actor = LOCAL_OWNER, data_dir: DataDir = None, as_json: AsJson = False
) -> None:
    """List the memories that prompts of a cube begin with."""
    with opened(data_dir) as memos:
        found = memos.kv.show(cube, actor=actor)

    def human() -> None:
        for entry in found.entries:
            changed = "  (changed since)" if entry.changed else ""
            say(f"[{entry.mark}] {entry.item}{changed}  {visible(' '.join(entry.memory.split()))}")
        blocks = ", ".join(f"{count} blocks in {tier}" for tier, count in found.blocks.items()) or "nothing kept here"
        say(f"{len(found.entries)} memories, about {found.tokens} tokens; {blocks}")

    show(found, as_json, human)


@kv_app.command("stat")
def stat(actor: Actor = LOCAL_OWNER, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Show how full the tiers are."""
    with opened(data_dir) as memos:
        found = memos.kv.stats(actor=actor)

    def human() -> None:
        table = Table("tier", "blocks", "MiB", "of", "hits", "evicted", "MiB/s")
        for each in found.tiers:
            rate = "" if each.bytes_per_s is None else f"{each.bytes_per_s / _MIB:,.0f}"
            table.add_row(
                each.tier, str(each.blocks), f"{each.size_bytes / _MIB:,.1f}", f"{each.budget_bytes / _MIB:,.0f}",
                str(each.hits), str(each.evictions), rate,
            )  # fmt: skip
        if found.tiers:
            console.print(table)
        say(
            f"{found.dropped_writes} writes dropped, {found.damaged} files damaged, {found.forgotten} blocks forgotten"
            if found.tiers
            else "nothing is kept here: no model of this process has answered; what endpoints keep is not counted"
        )

    show(found, as_json, human)


@kv_app.command("warm")
def warm(
    cube: CubeName = DEFAULT_CUBE, actor: Actor = LOCAL_OWNER, data_dir: DataDir = None, as_json: AsJson = False
) -> None:
    """Have the model compute what prompts of a cube begin with, so that the next answer begins sooner."""
    with opened(data_dir) as memos:
        found = memos.kv.warm(cube, actor=actor)
    show(found, as_json, lambda: say(f"warmed {found.cube}: about {found.tokens} tokens in {found.seconds:.2f} s"))


@kv_app.command("pin")
def pin(
    id_: Annotated[str, typer.Argument(metavar="id", help="Id of a memory")],
    cube: CubeName = DEFAULT_CUBE,
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Have prompts of a cube begin with a memory, hot or not; `memos unpin` takes it back."""
    with opened(data_dir) as memos:
        memos.tiers.pin(id_, cube=cube, actor=actor)
        memos.tasks.wait(memos.kv.compose(cube, actor=actor), actor=actor)
        found = memos.kv.show(cube, actor=actor)
    mark = next((entry.mark for entry in found.entries if entry.item == id_), None)
    if mark:
        told = f"{id_} is pinned, as {mark}"
    elif not found.room:
        told = f"{id_} is pinned; prompts begin with it once a model keeps what they begin with (docs/activation.md)"
    else:
        told = (
            f"{id_} is pinned; prompts do not begin with it: it may be longer than a quarter of the {found.room} "
            "tokens of room, have found no room, or come from a source that is not trusted"
        )
    show({"id": id_, "mark": mark}, as_json, lambda: say(told))


@kv_app.command("drop")
def drop(
    cube: CubeName = DEFAULT_CUBE, actor: Actor = LOCAL_OWNER, data_dir: DataDir = None, as_json: AsJson = False
) -> None:
    """Remove what is kept of a cube's prompts; it is computed again when it is needed."""
    with opened(data_dir) as memos:
        count = memos.kv.drop(cube, actor=actor)
    show({"cube": cube, "blocks": count}, as_json, lambda: say(f"{count} blocks removed"))


@kv_app.command("verify")
def verify(actor: Actor = LOCAL_OWNER, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Read every block on the disk; damaged ones are removed, and said."""
    with opened(data_dir) as memos:
        damaged = memos.kv.verify(actor=actor)
    show({"damaged": damaged}, as_json, lambda: say(f"{len(damaged)} damaged blocks"))
    if damaged:
        raise IntegrityError(f"{len(damaged)} blocks were damaged and are removed; they are computed again.")
