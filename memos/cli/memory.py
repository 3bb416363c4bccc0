"""Commands on memories: add, search, list, show, edit, forget and erase them, their versions and their extraction."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from memos.cli.shared import (
    Actor,
    CubeName,
    CubeNames,
    ExpectedVersion,
    ItemId,
    Output,
    ReadMode,
    Wait,
    Yes,
    command,
    json_option,
    relation_line,
    sure,
    table,
)
from memos.core.text.validation import decode
from memos.core.types import DEFAULT_CUBE, LOCAL_OWNER, TOLD, Hit, Item, Masked, SearchResult, WhyNot
from memos.errors import InvalidInput, shown

if TYPE_CHECKING:
    from rich.table import Table

    from memos.kernel.memos import MemOS

_TITLE_CHARS = 200
_SHOWN_CHARS = 2_000

ItemIds = Annotated[list[str], typer.Argument(metavar="ITEM...", help="Ids of memories")]
Filter = Annotated[str | None, typer.Option("--filter", help="Filter as JSON")]


@command
def add(
    memos: MemOS,
    text: Annotated[str, typer.Argument(help="What to remember; '-' reads standard input")],
    cube: CubeName = DEFAULT_CUBE,
    conversation: Annotated[str | None, typer.Option(help="Conversation id")] = None,
    role: Annotated[str, typer.Option(help="user, assistant, system or tool")] = "user",
    name: Annotated[str | None, typer.Option(help="Speaker's name")] = None,
    chat_time: Annotated[str | None, typer.Option(help="Time it was said, ISO 8601")] = None,
    trust: Annotated[
        str | None, typer.Option(help="trusted or untrusted; default: trusted, except for tool messages")
    ] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Tag; can be repeated")] = None,
    key: Annotated[
        str | None,
        typer.Option("--idempotency-key", help="Idempotency key; a repeated call with it stores nothing twice"),
    ] = None,
    mode: ReadMode = "rough",
    ttl: Annotated[
        str | None, typer.Option(help="Time to live, such as 45s, 30m, 12h, 7d or 4w: after that it is erased")
    ] = None,
    actor: Actor = LOCAL_OWNER,
) -> Output:
    content = decode("standard input", sys.stdin.buffer.read()) if text == "-" else text
    message = {"role": role, "content": content, "name": name, "chat_time": chat_time, "trust": trust}
    receipt = memos.add(
        [message],
        cube=cube,
        actor=actor,
        conversation=conversation,
        tags=tag or [],
        idempotency_key=key,
        mode=mode,
        ttl_s=None if ttl is None else _seconds(ttl),
    )
    return Output(receipt, " ".join(receipt.item_ids), masked=receipt.masked)


_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_TTL = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)([smhdw])", re.ASCII)


def _seconds(ttl: str) -> float:
    found = _TTL.fullmatch(ttl.strip())
    if found is None:
        raise InvalidInput("--ttl", f"must be a number and a unit, such as 45s, 30m, 12h, 7d or 4w, not {shown(ttl)}")
    return float(found[1]) * _UNITS[found[2]]


@command
def search(
    memos: MemOS,
    query: Annotated[str, typer.Argument(help="The question")],
    cube: CubeNames = None,
    top_k: Annotated[int, typer.Option("--top-k", "-k", help="Most hits")] = 10,
    filter_: Filter = None,
    as_of: Annotated[str | None, typer.Option(help="Search only what was stored by this time")] = None,
    reference_time: Annotated[str | None, typer.Option(help="Time the question is asked, ISO 8601")] = None,
    token_budget: Annotated[
        int | None, typer.Option(help="Print a context of at most this many tokens for a prompt")
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show how each hit got its score")] = False,
    rerank: Annotated[
        bool | None, typer.Option("--rerank/--no-rerank", help="Use the reranker; default: if there is one")
    ] = None,
    min_relevance: Annotated[float, typer.Option(help="Leave out hits of less relevance, 0 to 1")] = 0,
    why_not: Annotated[str | None, typer.Option("--why-not", help="Show why this memory is not found")] = None,
    actor: Actor = LOCAL_OWNER,
) -> Output:
    cubes = cube or [DEFAULT_CUBE]
    asked = {
        "actor": actor,
        "top_k": top_k,
        "filter": json_option("--filter", filter_),
        "as_of": as_of,
        "reference_time": reference_time,
        "token_budget": token_budget,
        "rerank": rerank,
        "min_relevance": min_relevance,
    }
    if why_not is not None:
        reason = memos.search.why_not(why_not, query, cubes=cubes, **asked)
        shares = [_shares(reason)] if reason.arms or reason.boosts else []
        return Output(reason, [f"{reason.stage}: {reason.reason}", *shares])
    result = memos.search(query, cubes=cubes, explain=explain, **asked)
    human = [result.context] if token_budget is not None else _hits(result, query)
    shares = [f"{hit.item.id}: {_shares(hit)}" for hit in result.hits if explain]
    related = {relation: None for hit in result.hits for relation in hit.relations}
    shares += map(relation_line, related)
    empty = "" if token_budget is not None else f"nothing found in {', '.join(cubes)}"
    return Output(result, (part for parts in (human, shares) for part in parts), empty, notes=_missing(result))


def _hits(result: SearchResult, query: str) -> Iterator[Table]:
    from memos.cli.demo.run import cut, hits_table  # noqa: PLC0415

    if result.hits:
        yield hits_table(result, cut(query, _TITLE_CHARS), ids=True)


def _missing(result: SearchResult) -> Iterator[str]:
    if not result.missing_arms:
        return
    from memos.search.rerank import ARM  # noqa: PLC0415
    from memos.search.searcher import UNINDEXED  # noqa: PLC0415

    down = [arm for arm in result.missing_arms if arm not in (ARM, UNINDEXED)]
    if down:
        yield f"Not searched, as the index is unavailable: {', '.join(down)}"
    if UNINDEXED in result.missing_arms:
        yield "Not everything was searched: many memories still wait for the vector index. Search again later."
    if ARM in result.missing_arms:
        yield "Not reranked: the reranker did not answer; see the log line above."


def _shares(ranked: Hit | WhyNot) -> str:
    votes = [f"{vote.arm} #{vote.rank} ({vote.score:.3f}) gave {vote.gave:.3f}" for vote in ranked.arms]
    return ", ".join(votes + [f"{boost.name} {boost.gave:+.3f}" for boost in ranked.boosts])


@command
def show(memos: MemOS, item: ItemId, actor: Actor = LOCAL_OWNER) -> Output:
    found = memos.get(item, actor=actor)
    sources = (
        f"source {source.message_id} [{source.start}:{source.end}] {source.speaker}, {source.at}"
        for source in found.sources
    )
    return Output(found, (line for lines in (_lines([found]), sources) for line in lines))


@command
def list_(
    memos: MemOS,
    cube: CubeName = DEFAULT_CUBE,
    filter_: Filter = None,
    limit: Annotated[int, typer.Option(help="Most memories")] = 100,
    offset: Annotated[int, typer.Option(help="Memories to skip")] = 0,
    actor: Actor = LOCAL_OWNER,
) -> Output:
    wanted = json_option("--filter", filter_)
    found = memos.memories.list(cube=cube, actor=actor, filter=wanted, limit=limit, offset=offset)
    return Output(found, _lines(found), f"nothing in {cube}")


@command
def edit(
    memos: MemOS,
    item: ItemId,
    text: Annotated[str, typer.Argument(help="The new text")],
    expected_version: ExpectedVersion = None,
    reason: Annotated[str, typer.Option(help="Why")] = "updated",
    actor: Actor = LOCAL_OWNER,
) -> Output:
    from memos.core.text.redaction import marks  # noqa: PLC0415

    found = memos.update(item, text, actor=actor, expected_version=expected_version, reason=reason)
    before, after = marks(text), marks(found.memory)
    masked = [Masked("memory", kind, after[kind] - before.get(kind, 0)) for kind in after if kind not in before]
    return Output(found, _lines([found]), masked=masked)


@command
def feedback(
    memos: MemOS,
    text: Annotated[str, typer.Argument(help='The correction, such as "no, I moved to Lyon in May"')],
    cube: CubeName = DEFAULT_CUBE,
    speaker: Annotated[str | None, typer.Option(help="Name of the speaker")] = None,
    about: Annotated[list[str] | None, typer.Option(help="Id of a memory it corrects; can be repeated")] = None,
    actor: Actor = LOCAL_OWNER,
) -> Output:
    receipt = memos.feedback(text, cube=cube, actor=actor, speaker=speaker, item_ids=about or [])
    changed = [*receipt.edited, *receipt.superseded, *receipt.forgotten]
    told = f"{receipt.outcome.replace('_', ' ')}: {', '.join(changed) or receipt.item_id}"
    if receipt.runners_up:
        told += f"\nmay have meant: {', '.join(receipt.runners_up)}"
    return Output(receipt, told, masked=receipt.masked)


@command
def forget(memos: MemOS, items: ItemIds, actor: Actor = LOCAL_OWNER) -> Output:
    deleted = memos.delete(items, actor=actor)
    return Output({"deleted": deleted}, f"deleted {len(deleted)}")


@command
def erase(memos: MemOS, items: ItemIds, yes: Yes = False, actor: Actor = LOCAL_OWNER) -> Output:
    sure(f"Permanently erase {len(items)} memories?", yes=yes)
    receipt = memos.erase(items, actor=actor)
    lines = [f"receipt {receipt.id}: {receipt.state}, {len(receipt.item_ids)} items"]
    kept = ", ".join(store for store, state in receipt.stores.items() if state == "deleted")
    if kept:
        lines.append(f"deleted from servers: {kept}; they overwrite the freed space later (docs/how-to/deploy.md)")
    for place in receipt.backups:
        told = "could not be told" if place in receipt.untold_backups else "a restore leaves it out"
        lines.append(f"still in the backup {place} ({told})")
    return Output(receipt, lines)


@command
def history(memos: MemOS, item: ItemId, actor: Actor = LOCAL_OWNER) -> Output:
    entries = memos.memories.history(item, actor=actor)
    rows = (
        (each.version, f"{each.recorded_at:%F %T}", each.actor, each.reason, each.after.status, each.after.memory)
        for each in entries
    )
    told = table("version", "when", "who", "why", "status", "memory", rows=rows)
    return Output(entries, [told, *map(relation_line, entries[-1].relations)])


@command
def relations(memos: MemOS, item: ItemId, actor: Actor = LOCAL_OWNER) -> Output:
    found = memos.memories.relations(item, actor=actor)
    return Output(found, map(relation_line, found), "it has no relation to another memory")


@command
def rollback(
    memos: MemOS,
    item: ItemId,
    to_version: Annotated[
        int | None, typer.Argument(help="Version to restore; by default the one before the current")
    ] = None,
    actor: Actor = LOCAL_OWNER,
) -> Output:
    found = memos.memories.rollback(item, to_version, actor=actor)
    return Output(found, _lines([found]))


@command
def extract(
    memos: MemOS,
    conversation: Annotated[str | None, typer.Argument(help="Conversation; without one, all of the cube")] = None,
    cube: CubeName = DEFAULT_CUBE,
    wait: Wait = True,
    actor: Actor = LOCAL_OWNER,
) -> Output:
    tasks = memos.memories.read_finely(conversation, cube=cube, actor=actor)
    if wait:
        memos.tasks.wait(cubes=[cube])
    failed = [task.id for task in memos.tasks.list(cubes=[cube], kinds=["read"], states=["failed", "dead"])]
    lines = [f"conversations {'read' if wait else 'to read'}: {len(tasks)}"]
    if failed:
        lines.append(f"tasks that failed: {len(failed)}; see `memos task show {failed[0]}`, and `memos task retry`")
    return Output({"tasks": tasks, "failed": failed}, lines, code=1 if wait and failed else 0)


@command
def extractions(memos: MemOS, item: ItemId, actor: Actor = LOCAL_OWNER) -> Output:
    found = memos.memories.extractions(item, actor=actor)
    lines = []
    for record in found:
        lines.append(f"{record.at:%F %T}  {record.reader}  {record.model or 'without a model'}")
        if record.output is not None:
            lines.append(f"    {record.output}")
    return Output(found, lines, "no facts were extracted from it yet")


def _lines(found: Iterable[Item]) -> Iterator[str]:
    # No table: an id is there to be copied, and a memory to be read, also on a narrow terminal.
    for item in found:
        about = f"{item.id}  v{item.version}  {item.status}  {item.tier}  {item.type}  {item.speaker}"
        if item.type in TOLD and item.valid_from is not None and item.valid_to is not None:
            about += f"  of {item.valid_from:%F} to {item.valid_to:%F}"
        elif item.valid_to is not None:
            about += f"  until {item.valid_to:%F}"
        if item.record_id is not None:
            about += f"  record {item.record_id}"
        if item.expires_at is not None:
            about += f"  expires {item.expires_at:%F %T}"
        yield about
        yield from (f"    {line}" for line in item.memory[:_SHOWN_CHARS].splitlines())
