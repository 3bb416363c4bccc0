"""Commands on language models: what one is trusted with, the beginning of prompts as KV, and adapters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memos.cli.shared import Actor, AsJson, CubeName, Output, command, one_line, progress_bar, table
from memos.core.types import DEFAULT_CUBE, LOCAL_OWNER
from memos.errors import IntegrityError

if TYPE_CHECKING:
    from memos.core.kv_cache import ServerPrefixCache
    from memos.kernel.adapters.service import Adapter
    from memos.kernel.memos import MemOS

_KIB, _MIB = 2**10, 2**20
_UNTOLD = {
    "absent": "other things that somebody has",
    "stranger": "people who were never mentioned",
    "liking": "other things that are liked",
}

Id = Annotated[str, typer.Argument(metavar="ID", help="Id of an adapter")]
Items = Annotated[list[str], typer.Argument(metavar="ITEM...", help="Ids of memories")]


@command
def test(memos: MemOS, actor: Actor = LOCAL_OWNER) -> Output:
    found = memos.health.try_model(actor=actor)
    rows = ((each.task, "trusted" if each.trusted else "not trusted", each.told) for each in found.tasks)
    took = f"{found.model}: {found.calls} calls, {found.tokens:,} tokens, {found.seconds:,.0f} s"
    return Output(found, [table("task", "", "result", rows=rows), took])


@command
def list_kv(memos: MemOS, cube: CubeName = DEFAULT_CUBE, actor: Actor = LOCAL_OWNER) -> Output:
    found = memos.kv.show(cube, actor=actor)
    lines = []
    for entry in found.entries:
        changed = "  (changed since)" if entry.changed else ""
        lines.append(f"[{entry.mark}] {entry.item}{changed}  {one_line(entry.memory)}")
    blocks = ", ".join(f"{count} blocks in {tier}" for tier, count in found.blocks.items()) or "nothing kept here"
    return Output(found, [*lines, f"{len(found.entries)} memories, about {found.tokens} tokens; {blocks}"])


@command
def show_tiers(memos: MemOS, actor: Actor = LOCAL_OWNER) -> Output:
    found = memos.kv.stats(actor=actor)
    server = [] if found.server is None else [_endpoint_line(found.server)]
    if not found.tiers:
        told = "no KV cache here: no model in this process has answered yet"
        return Output(found, [told, *server])
    rows = (
        (
            each.tier,
            each.blocks,
            f"{each.size_bytes / _MIB:,.1f}",
            f"{each.budget_bytes / _MIB:,.0f}",
            each.hits,
            each.evictions,
            "" if each.bytes_per_s is None else f"{each.bytes_per_s / _MIB:,.0f}",
        )
        for each in found.tiers
    )
    tiers = table("tier", "blocks", "MiB", "of", "hits", "evicted", "MiB/s", rows=rows)
    hits = sum(each.hits for each in found.tiers)
    asked = hits + found.misses
    rate = f"{hits} of {asked} blocks of prompts found ({hits / asked:.0%})" if asked else "no prompt looked up yet"
    lost = f"{found.dropped_writes} writes dropped, {found.damaged} files damaged, {found.forgotten} blocks forgotten"
    return Output(found, [tiers, rate, lost, *server])


def _endpoint_line(server: ServerPrefixCache) -> str:
    if server.reason is not None:
        return f"endpoint: unknown, {server.reason}"
    parts = [_found_there("prefix cache", server.asked_tokens, server.cached_tokens)]
    if server.external_asked_tokens is not None:
        parts.append(_found_there("store behind it", server.external_asked_tokens, server.external_cached_tokens))
    if server.used is not None:
        parts.append(f"{server.used:.0%} of its KV memory in use")
    return f"endpoint, all clients: {'; '.join(parts)}"


def _found_there(name: str, asked: int | None, cached: int | None) -> str:
    found = f"{cached or 0:,} of {asked or 0:,} prompt tokens in its {name}"
    return f"{found} ({(cached or 0) / asked:.0%})" if asked else found


@command
def warm_kv(memos: MemOS, cube: CubeName = DEFAULT_CUBE, actor: Actor = LOCAL_OWNER) -> Output:
    found = memos.kv.warm(cube, actor=actor)
    return Output(found, f"warmed {found.cube}: about {found.tokens} tokens in {found.seconds:.2f} s")


@command
def pin_kv(
    memos: MemOS,
    id_: Annotated[str, typer.Argument(metavar="ID", help="Id of a memory")],
    cube: CubeName = DEFAULT_CUBE,
    actor: Actor = LOCAL_OWNER,
) -> Output:
    memos.tiers.pin(id_, cube=cube, actor=actor)
    memos.tasks.wait(memos.kv.compose(cube, actor=actor), actor=actor)
    found = memos.kv.show(cube, actor=actor)
    mark = next((entry.mark for entry in found.entries if entry.item == id_), None)
    if mark:
        told = f"{id_} is pinned, as {mark}"
    elif not found.room:
        told = (
            f"{id_} is pinned; it joins the prompt prefix once a model keeps a KV cache (docs/concepts/activation.md)"
        )
    else:
        told = (
            f"{id_} is pinned, but not part of the prompt prefix: it exceeds a quarter of the prefix's {found.room} "
            "tokens, the prefix is full, or its source is untrusted"
        )
    return Output({"id": id_, "mark": mark}, told)


@command
def drop_kv(memos: MemOS, cube: CubeName = DEFAULT_CUBE, actor: Actor = LOCAL_OWNER) -> Output:
    count = memos.kv.drop(cube, actor=actor)
    return Output({"cube": cube, "blocks": count}, f"{count} blocks removed")


@command
def verify_kv(memos: MemOS, actor: Actor = LOCAL_OWNER) -> Output:
    damaged = memos.kv.verify(actor=actor)
    code = IntegrityError.exit_code if damaged else 0
    notes = ["Damaged blocks were removed and will be computed again."] if damaged else []
    return Output({"damaged": damaged}, f"{len(damaged)} damaged blocks", code=code, notes=notes)


@command
def allow(
    memos: MemOS,
    items: Annotated[
        list[str] | None, typer.Argument(metavar="[ITEM...]", help="Ids of memories excluded by `forget`")
    ] = None,
    cube: CubeName = DEFAULT_CUBE,
    actor: Actor = LOCAL_OWNER,
) -> Output:
    memos.adapters.allow(cube, items=items or (), actor=actor)
    return Output({"cube": cube, "allowed": True}, f"training on memories of {cube} is allowed")


@command
def disallow(memos: MemOS, cube: CubeName = DEFAULT_CUBE, actor: Actor = LOCAL_OWNER) -> Output:
    count = memos.adapters.disallow(cube, actor=actor)
    return Output({"cube": cube, "removed": count}, f"{count} adapters removed; training is disallowed")


@command
def preview(memos: MemOS, cube: CubeName = DEFAULT_CUBE, actor: Actor = LOCAL_OWNER) -> Output:
    found = memos.adapters.preview(cube, actor=actor)
    lines = [one_line(memory) for memory in found.memories]
    lines += [f"left out: {count}, {reason}" for reason, count in found.left_out.items()]
    allowed = "" if found.allowed else f"; not allowed yet: memos model adapter allow --cube {found.cube}"
    return Output(found, [*lines, f"{len(found.memories)} memories would be learned{allowed}"])


@command
def train(memos: MemOS, cube: CubeName = DEFAULT_CUBE, actor: Actor = LOCAL_OWNER, as_json: AsJson = False) -> Output:
    with progress_bar("steps", as_json, lines=True) as on_progress:
        return Output(memos.adapters.train(cube, actor=actor, on_progress=on_progress), _lines)


@command
def forget(memos: MemOS, items: Items, cube: CubeName = DEFAULT_CUBE, actor: Actor = LOCAL_OWNER) -> Output:
    done = memos.adapters.forget(items, cube, actor=actor)
    lines = [
        f"{len(done.items)} memories are excluded from training",
        f"removed: {len(done.adapters)} adapters, {done.files} files, {done.size_bytes / _KIB:,.0f} KiB",
    ]
    if done.adapters:
        lines.append(f"train again on the rest: memos model adapter train --cube {cube}")
    return Output(done, lines)


@command
def list_adapters(memos: MemOS, cube: CubeName = DEFAULT_CUBE, actor: Actor = LOCAL_OWNER) -> Output:
    found = memos.adapters.list(cube, actor=actor)
    rows = (
        (
            each.id,
            each.number,
            f"{each.state}, stale" if each.stale else each.state,
            each.facts,
            _share((each.measures or {}).get("recall")),
            _share((each.measures or {}).get("abstention")),
            "" if each.size_bytes is None else f"{each.size_bytes / _KIB:,.0f}",
        )
        for each in found
    )
    adapters = table("id", "number", "state", "facts", "recall", "abstention", "KiB", rows=rows)
    lines = [f"{len(found)} adapters"]
    if any(each.state == "training" for each in found):
        lines.append(f"to continue an interrupted training: memos model adapter train --cube {cube}")
    return Output(found, [adapters, *lines] if found else lines)


@command
def show(memos: MemOS, id_: Id, actor: Actor = LOCAL_OWNER) -> Output:
    return Output(memos.adapters.get(id_, actor=actor), _lines)


@command
def export(
    memos: MemOS,
    id_: Id,
    folder: Annotated[Path, typer.Argument(help="New folder for the adapter's files")],
    actor: Actor = LOCAL_OWNER,
) -> Output:
    done = memos.adapters.export(id_, folder, actor=actor)
    return Output(done, f"{done.folder}: {len(done.files)} files, {done.size_bytes / _KIB:,.0f} KiB")


@command
def activate(memos: MemOS, id_: Id, actor: Actor = LOCAL_OWNER) -> Output:
    return Output(memos.adapters.activate(id_, actor=actor), _lines)


@command
def remove(memos: MemOS, id_: Id, actor: Actor = LOCAL_OWNER) -> Output:
    memos.adapters.remove(id_, actor=actor)
    return Output({"id": id_}, f"{id_} is removed")


def _lines(found: Adapter) -> Iterator[str]:
    stale = "; stale: a memory it was trained on has changed" if found.stale else ""
    yield f"{found.id}: number {found.number} of {found.cube}, {found.state}{stale}; {found.facts} facts, {found.model}"
    if found.reason:
        yield f"it failed its evaluation: {found.reason}"
    for name in ("recall", "abstention", "rise", "base_recall", "base_abstention"):
        if found.measures is not None and name in found.measures:
            yield f"{name}: {_share(found.measures[name])}"
    if found.measures is not None:
        of = found.measures.get("abstention_of")
        for kind, share in of.items() if isinstance(of, dict) else ():
            yield f"abstention, {_UNTOLD.get(kind, kind)}: {_share(share)}"
        lost = found.measures.get("lost")
        yield f"general questions lost: {len(lost) if isinstance(lost, list) else 0} of 50"


def _share(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, int | float) else ""
