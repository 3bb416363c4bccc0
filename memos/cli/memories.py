"""The commands about memories: add, search, get, list, update, feedback, delete, erase, history, rollback."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer
from rich.table import Table

from memos.cli.shared import (
    Actor,
    AsJson,
    CubeName,
    DataDir,
    ItemId,
    ReadMode,
    cell,
    console,
    errors,
    opened,
    say,
    say_masked,
    show,
    sure,
)
from memos.core.text.redaction import marks
from memos.core.text.rendering import visible
from memos.core.text.validation import decode
from memos.core.types import DEFAULT_CUBE, LOCAL_OWNER, TOLD, Hit, Item, Masked, WhyNot
from memos.errors import InvalidInput
from memos.search.rerank import ARM
from memos.search.searcher import UNINDEXED

# The commands about fine reading: have messages read into facts, and say what read them.

reading_app = typer.Typer(rich_markup_mode=None)


@reading_app.command("read-finely")
def read_finely(
    conversation: Annotated[str | None, typer.Argument(help="Conversation; without one, all of the cube")] = None,
    cube: CubeName = DEFAULT_CUBE,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it is done")] = True,
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Read what was added roughly into facts; what was read so is not read again."""
    with opened(data_dir) as memos:
        tasks = memos.memories.read_finely(conversation, cube=cube, actor=actor)
        if wait:
            memos.tasks.wait(cubes=[cube])
        failed = [task.id for task in memos.tasks.list(cubes=[cube], kinds=["read"], states=["failed", "dead"])]

    def human() -> None:
        say(f"conversations {'read' if wait else 'to read'}: {len(tasks)}")
        if failed:
            say(f"tasks that failed: {len(failed)}; see `memos tasks show {failed[0]}`, and `memos tasks retry`")

    show({"tasks": tasks, "failed": failed}, as_json, human)
    if wait and failed:
        raise typer.Exit(1)


@reading_app.command()
def extractions(item: ItemId, actor: Actor = LOCAL_OWNER, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Show what read a message into facts, or what a fact was read by."""
    with opened(data_dir) as memos:
        found = memos.memories.extractions(item, actor=actor)

    def human() -> None:
        for record in found:
            say(f"{record.at:%F %T}  {record.reader}  {record.model or 'without a model'}")
            if record.output is not None:
                say(f"    {record.output}")
        if not found:
            say("nothing has read it into facts yet")

    show(found, as_json, human)


memories_app = typer.Typer(rich_markup_mode=None)

_TITLE_CHARS = 200


@memories_app.command()
def add(
    text: Annotated[str, typer.Argument(help="What to remember; '-' reads standard input")],
    cube: CubeName = DEFAULT_CUBE,
    conversation: Annotated[str | None, typer.Option(help="Conversation it belongs to")] = None,
    role: Annotated[str, typer.Option(help="user, assistant, system or tool")] = "user",
    name: Annotated[str | None, typer.Option(help="Speaker's name")] = None,
    chat_time: Annotated[str | None, typer.Option(help="When it was said, ISO 8601")] = None,
    trust: Annotated[str | None, typer.Option(help="trusted or untrusted; a tool's message is untrusted")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Tag; may be repeated")] = None,
    key: Annotated[str | None, typer.Option("--idempotency-key", help="Repeating it stores nothing twice")] = None,
    mode: ReadMode = "rough",
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Store one message."""
    content = decode("standard input", sys.stdin.buffer.read()) if text == "-" else text
    message = {"role": role, "content": content, "name": name, "chat_time": chat_time, "trust": trust}
    with opened(data_dir) as memos:
        receipt = memos.add(
            [message],
            cube=cube,
            actor=actor,
            conversation=conversation,
            tags=tag or [],
            idempotency_key=key,
            mode=mode,
        )
    show(receipt, as_json, lambda: console.print(" ".join(receipt.item_ids), highlight=False))
    say_masked(() if as_json else receipt.masked)


@memories_app.command()
def search(
    query: Annotated[str, typer.Argument(help="The question")],
    cube: Annotated[list[str] | None, typer.Option("--cube", "-c", help="Cube to search; may be repeated")] = None,
    top_k: Annotated[int, typer.Option("--top-k", "-k", help="Most hits")] = 10,
    filter_: Annotated[str | None, typer.Option("--filter", help="Filter as JSON")] = None,
    as_of: Annotated[str | None, typer.Option(help="Search what was stored by this time, whenever it was said")] = None,
    reference_time: Annotated[str | None, typer.Option(help="When the question is asked")] = None,
    token_budget: Annotated[int | None, typer.Option(help="Print a context of at most this many tokens")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Say which arm gave what")] = False,
    rerank: Annotated[
        bool | None, typer.Option("--rerank/--no-rerank", help="Have the reranker read; default: if there is one")
    ] = None,
    why_not: Annotated[str | None, typer.Option("--why-not", help="Say where this item falls out instead")] = None,
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Find memories."""
    from memos.cli.demo.run import cut, hits_table  # noqa: PLC0415 - the table is shared with the demo

    asked = {
        "actor": actor,
        "top_k": top_k,
        "filter": _json_option("--filter", filter_),
        "as_of": as_of,
        "reference_time": reference_time,
        "token_budget": token_budget,
        "rerank": rerank,
    }
    with opened(data_dir) as memos:
        if why_not is not None:
            reason = memos.search.why_not(why_not, query, cubes=cube or [DEFAULT_CUBE], **asked)
            show(reason, as_json, lambda: _print_why_not(reason))
            return
        result = memos.search(query, cubes=cube or [DEFAULT_CUBE], explain=explain, **asked)

    def human() -> None:
        if token_budget is not None:
            console.print(visible(result.context), markup=False, highlight=False, soft_wrap=True)
        elif result.hits:
            console.print(hits_table(result, cut(query, _TITLE_CHARS), ids=True))
        else:
            console.print(f"nothing found in {', '.join(map(cell, cube or [DEFAULT_CUBE]))}", highlight=False)
        for hit in result.hits if explain else ():
            console.print(f"{hit.item.id}: {_shares(hit)}", highlight=False, soft_wrap=True)
        _say_missing(result.missing_arms)

    show(result, as_json, human)


def _say_missing(arms: tuple[str, ...]) -> None:
    down = [arm for arm in arms if arm not in (ARM, UNINDEXED)]
    if down:
        errors.print(f"Not searched, index unavailable: {', '.join(down)}")
    if UNINDEXED in arms:
        errors.print("Not all searched: many memories still wait for the vector index; ask again later.")
    if ARM in arms:
        errors.print("Not reranked: the reranker did not answer; a line above says why.")


def _shares(ranked: Hit | WhyNot) -> str:
    votes = [f"{vote.arm} #{vote.rank} ({vote.score:.3f}) gave {vote.gave:.3f}" for vote in ranked.arms]
    return ", ".join(votes + [f"{boost.name} {boost.gave:+.3f}" for boost in ranked.boosts])


def _print_why_not(reason: WhyNot) -> None:
    console.print(f"{reason.stage}: {visible(reason.reason)}", markup=False, highlight=False, soft_wrap=True)
    if reason.arms or reason.boosts:
        console.print(_shares(reason), highlight=False, soft_wrap=True)


@memories_app.command()
def get(item: ItemId, actor: Actor = LOCAL_OWNER, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Show one memory with its sources."""
    with opened(data_dir) as memos:
        found = memos.get(item, actor=actor)

    def human() -> None:
        _items_lines([found])
        for source in found.sources:
            told = f"source {source.message_id} [{source.start}:{source.end}] {visible(source.speaker)}, {source.at}"
            console.print(told, markup=False, highlight=False, soft_wrap=True)

    show(found, as_json, human)


@memories_app.command("list")
def list_(
    cube: CubeName = DEFAULT_CUBE,
    filter_: Annotated[str | None, typer.Option("--filter", help="Filter as JSON")] = None,
    limit: Annotated[int, typer.Option(help="Most items")] = 100,
    offset: Annotated[int, typer.Option(help="Items to skip")] = 0,
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """List a cube's memories, oldest first."""
    wanted = _json_option("--filter", filter_)
    with opened(data_dir) as memos:
        found = memos.memories.list(cube=cube, actor=actor, filter=wanted, limit=limit, offset=offset)

    def human() -> None:
        _items_lines(found)
        if not found:
            say(f"nothing in {cube}")

    show(found, as_json, human)


@memories_app.command()
def update(
    item: ItemId,
    text: Annotated[str, typer.Argument(help="The new text")],
    expected_version: Annotated[int | None, typer.Option(help="Refuse when the item is at another version")] = None,
    reason: Annotated[str, typer.Option(help="Why")] = "updated",
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Write a memory's next version."""
    with opened(data_dir) as memos:
        found = memos.update(item, text, actor=actor, expected_version=expected_version, reason=reason)
    show(found, as_json, lambda: _items_lines([found]))
    before, after = marks(text), marks(found.memory)
    say_masked(Masked("memory", kind, after[kind] - before.get(kind, 0)) for kind in after if kind not in before)


@memories_app.command()
def feedback(
    text: Annotated[str, typer.Argument(help='The correction, such as "no, I moved to Lyon in May"')],
    cube: CubeName = DEFAULT_CUBE,
    speaker: Annotated[str | None, typer.Option(help="Whose words they are")] = None,
    about: Annotated[list[str] | None, typer.Option(help="Item it is about; may be repeated")] = None,
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Correct what is remembered, in plain words."""
    with opened(data_dir) as memos:
        receipt = memos.feedback(text, cube=cube, actor=actor, speaker=speaker, item_ids=about or [])
    told = f"{receipt.item_id} supersedes {', '.join(receipt.superseded) or 'nothing'}"
    show(receipt, as_json, lambda: console.print(told, highlight=False, soft_wrap=True))
    say_masked(() if as_json else receipt.masked)


@memories_app.command()
def delete(
    items: Annotated[list[str], typer.Argument(help="Item ids")],
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Take memories out of sight; rollback brings them back."""
    with opened(data_dir) as memos:
        deleted = memos.delete(items, actor=actor)
    show({"deleted": deleted}, as_json, lambda: console.print(f"deleted {len(deleted)}"))


@memories_app.command()
def erase(
    items: Annotated[list[str], typer.Argument(help="Item ids")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask")] = False,
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Remove memories in every form, for good; prints the receipt."""
    sure(f"Erase {len(items)} memories for good?", yes=yes)
    with opened(data_dir) as memos:
        receipt = memos.erase(items, actor=actor)

    def human() -> None:
        console.print(f"receipt {receipt.id}: {receipt.state}, {len(receipt.item_ids)} items", highlight=False)
        kept = ", ".join(store for store, state in receipt.stores.items() if state == "deleted")
        if kept:
            console.print(
                f"deleted from servers: {kept}; what they free is overwritten in their own time (docs/deploy.md)"
            )
        for place in receipt.backups:
            told = "could not be told" if place in receipt.untold_backups else "a restore leaves it out"
            console.print(
                f"still in the backup {visible(place)} ({told})", markup=False, highlight=False, soft_wrap=True
            )

    show(receipt, as_json, human)


@memories_app.command()
def history(item: ItemId, actor: Actor = LOCAL_OWNER, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Show every version of a memory."""
    with opened(data_dir) as memos:
        entries = memos.memories.history(item, actor=actor)

    def human() -> None:
        table = Table("version", "when", "who", "why", "status", "memory")
        for entry in entries:
            row = (str(entry.version), f"{entry.recorded_at:%F %T}", entry.actor, entry.reason, entry.after.status)
            table.add_row(*map(cell, (*row, entry.after.memory)))
        console.print(table)

    show(entries, as_json, human)


@memories_app.command()
def rollback(
    item: ItemId,
    to_version: Annotated[int, typer.Argument(help="Version to go back to")],
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Make an old version the current one again."""
    with opened(data_dir) as memos:
        found = memos.memories.rollback(item, to_version, actor=actor)
    show(found, as_json, lambda: _items_lines([found]))


def _items_lines(found: list[Item]) -> None:
    # No table: an id is there to be copied, and a memory to be read, also on a narrow terminal.
    for item in found:
        about = f"{item.id}  v{item.version}  {item.status}  {item.tier}  {item.type}  {visible(item.speaker)}"
        if item.type in TOLD and item.valid_from is not None and item.valid_to is not None:
            about += f"  of {item.valid_from:%F} to {item.valid_to:%F}"
        elif item.valid_to is not None:
            about += f"  until {item.valid_to:%F}"
        console.print(about, markup=False, highlight=False, soft_wrap=True)
        for line in item.memory[:2000].splitlines():
            console.print(f"    {visible(line)}", markup=False, highlight=False, soft_wrap=True)


def _json_option(name: str, text: str | None) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(name, f'is not JSON ({error}); write it like \'{{"tags": "work"}}\'') from error
