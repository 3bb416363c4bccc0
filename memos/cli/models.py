"""The commands about parametric memory: what of a cube is learned by a model, measured, and forgotten again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from memos.cli.shared import Actor, AsJson, CubeName, DataDir, console, opened, progress_bar, say, show
from memos.core.text.rendering import visible
from memos.core.types import DEFAULT_CUBE, LOCAL_OWNER
from memos.errors import IntegrityError, InvalidInput
from memos.kernel.adapters.service import REMOVED, Adapter

# The commands about activation memory: what prompts of a cube begin with, and what of its KV is kept where.

kv_app = typer.Typer(
    help="Activation memory: what prompts of a cube begin with, kept as a model's KV (docs/activation.md).",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_MIB = 1_048_576


@kv_app.command("ls")
def kv_ls(
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
                each.tier,
                str(each.blocks),
                f"{each.size_bytes / _MIB:,.1f}",
                f"{each.budget_bytes / _MIB:,.0f}",
                str(each.hits),
                str(each.evictions),
                rate,
            )
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


adapters_app = typer.Typer(
    help="Parametric memory: what is stable in a cube, learned as an adapter (docs/parametric.md).",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_KIB = 1024
_UNTOLD = {"absent": "what else somebody has", "stranger": "people nobody spoke of", "liking": "what else is liked"}
Id = Annotated[str, typer.Argument(metavar="id", help="Id of an adapter")]
Items = Annotated[list[str], typer.Argument(metavar="item...", help="Ids of memories")]


@adapters_app.command("allow")
def allow(
    items: Annotated[
        list[str] | None, typer.Argument(metavar="[item...]", help="Ids of memories that `forget` keeps from it")
    ] = None,
    cube: CubeName = DEFAULT_CUBE,
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Allow that memories of a cube are learned, also those that were forgotten; they are not otherwise."""
    with opened(data_dir) as memos:
        memos.adapters.allow(cube, items=items or (), actor=actor)
    show({"cube": cube, "allowed": True}, as_json, lambda: say(f"memories of {cube} may be learned"))


@adapters_app.command("disallow")
def disallow(
    cube: CubeName = DEFAULT_CUBE, actor: Actor = LOCAL_OWNER, data_dir: DataDir = None, as_json: AsJson = False
) -> None:
    """Take that back, and remove what was learned."""
    with opened(data_dir) as memos:
        count = memos.adapters.disallow(cube, actor=actor)
    show({"cube": cube, "removed": count}, as_json, lambda: say(f"{count} adapters removed; nothing more is learned"))


@adapters_app.command("preview")
def preview(
    cube: CubeName = DEFAULT_CUBE, actor: Actor = LOCAL_OWNER, data_dir: DataDir = None, as_json: AsJson = False
) -> None:
    """Show what the next adapter would know, and why other memories would be left out."""
    with opened(data_dir) as memos:
        found = memos.adapters.preview(cube, actor=actor)

    def human() -> None:
        for memory in found.memories:
            say(visible(" ".join(memory.split())))
        for reason, count in found.left_out.items():
            say(f"left out: {count}, {reason}")
        allowed = "" if found.allowed else f"; not allowed yet: memos adapters allow --cube {found.cube}"
        say(f"{len(found.memories)} memories would be learned{allowed}")

    show(found, as_json, human)


@adapters_app.command("train")
def train(
    cube: CubeName = DEFAULT_CUBE, actor: Actor = LOCAL_OWNER, data_dir: DataDir = None, as_json: AsJson = False
) -> None:
    """Train an adapter where that is due, examine it, and let it answer if it passes; what was interrupted goes on."""
    with opened(data_dir) as memos, progress_bar("steps", as_json, lines=True) as on_progress:
        found = memos.adapters.train(cube, actor=actor, on_progress=on_progress)
    show(found, as_json, lambda: _tell(found))


@adapters_app.command("forget")
def forget(
    items: Items,
    cube: CubeName = DEFAULT_CUBE,
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Remove what was learned of memories, for good; they themselves stay and are looked up."""
    with opened(data_dir) as memos:
        done = memos.adapters.forget(items, cube, actor=actor)

    def human() -> None:
        say(f"{len(done.items)} memories are learned no more")
        say(f"removed: {len(done.adapters)} adapters, {done.files} files, {done.size_bytes / _KIB:,.0f} KiB")
        if done.adapters:
            say(f"learn the rest again: memos adapters train --cube {cube}")

    show(done, as_json, human)


@adapters_app.command("ls")
def ls(
    cube: CubeName = DEFAULT_CUBE, actor: Actor = LOCAL_OWNER, data_dir: DataDir = None, as_json: AsJson = False
) -> None:
    """List the adapters of a cube, the newest first."""
    with opened(data_dir) as memos:
        found = memos.adapters.list(cube, actor=actor)

    def human() -> None:
        table = Table("id", "number", "state", "facts", "recall", "abstention", "KiB")
        for each in found:
            measures = each.measures or {}
            table.add_row(
                each.id,
                str(each.number),
                f"{each.state}, stale" if each.stale else each.state,
                str(each.facts),
                _share(measures.get("recall")),
                _share(measures.get("abstention")),
                "" if each.size_bytes is None else f"{each.size_bytes / _KIB:,.0f}",
            )
        if found:
            console.print(table)
        say(f"{len(found)} adapters")
        if any(each.state == "training" for each in found):
            say(f"a training that was ended goes on with: memos adapters train --cube {cube}")

    show(found, as_json, human)


@adapters_app.command("show")
def show_(id_: Id, actor: Actor = LOCAL_OWNER, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Show an adapter with what its examination found."""
    with opened(data_dir) as memos:
        found = memos.adapters.get(id_, actor=actor)
    show(found, as_json, lambda: _tell(found))


@adapters_app.command("export")
def export(
    id_: Id,
    folder: Annotated[Path, typer.Argument(help="New folder for the adapter's files")],
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Write an adapter's files for peft and others; they know what it learned."""
    with opened(data_dir) as memos:
        done = memos.adapters.export(id_, folder, actor=actor)
    show(done, as_json, lambda: say(f"{done.folder}: {len(done.files)} files, {done.size_bytes / _KIB:,.0f} KiB"))


@adapters_app.command("activate")
def activate(id_: Id, actor: Actor = LOCAL_OWNER, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Let an adapter answer, instead of the one that does."""
    with opened(data_dir) as memos:
        found = memos.adapters.activate(id_, actor=actor)
    show(found, as_json, lambda: _tell(found))


@adapters_app.command("rm")
def rm(id_: Id, actor: Actor = LOCAL_OWNER, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Remove an adapter and its files."""
    with opened(data_dir) as memos:
        memos.adapters.remove(id_, actor=actor)
    show({"id": id_}, as_json, lambda: say(f"{id_} is removed"))


def _add_removed(name: str, instead: str) -> None:
    @adapters_app.command(name, hidden=True, context_settings={"ignore_unknown_options": True})
    def removed(_: Annotated[list[str] | None, typer.Argument()] = None) -> None:
        raise InvalidInput(name, f"was removed: {instead}")


for _method, _instead in REMOVED.items():
    if _method != "up_to_date":
        _add_removed(_method.replace("_", "-"), _instead)


def _tell(found: Adapter) -> None:
    stale = "; stale: a memory that it saw is different now" if found.stale else ""
    say(f"{found.id}: number {found.number} of {found.cube}, {found.state}{stale}; {found.facts} facts, {found.model}")
    if found.reason:
        say(f"it failed its examination: {found.reason}")
    for name in ("recall", "abstention", "rise", "base_recall", "base_abstention"):
        if found.measures is not None and name in found.measures:
            say(f"{name}: {_share(found.measures[name])}")
    if found.measures is not None:
        of = found.measures.get("abstention_of")
        for kind, share in of.items() if isinstance(of, dict) else ():
            say(f"abstention, {_UNTOLD.get(kind, kind)}: {_share(share)}")
        lost = found.measures.get("lost")
        say(f"general questions lost: {len(lost) if isinstance(lost, list) else 0} of 50")


def _share(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, int | float) else ""
