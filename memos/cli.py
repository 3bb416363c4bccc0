"""The command line: every command translates arguments to one call of `MemOS` and prints what comes back.

Exit codes: 0 done, 1 verify found differences or another error, 2 wrong input, 3 not found, 4 conflict,
5 not permitted, 6 store in use, full or unavailable, 7 model failed, 8 data damaged or from a newer version,
9 over a limit, 130 interrupted (what was acknowledged stays).
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import typer
from pydantic import ValidationError
from pydantic_settings import SettingsError
from rich.console import Console
from rich.table import Table

from memos.api.views import error_view
from memos.cli_chat import chat_app
from memos.cli_doctor import doctor_app
from memos.cli_kb import kb_app
from memos.cli_mcp import mcp_app
from memos.cli_moving import moving_app
from memos.cli_preview import preview_app
from memos.cli_profile import profile_app
from memos.cli_reading import reading_app
from memos.cli_retention import retention_app
from memos.cli_review import review_app
from memos.cli_serve import serve_app
from memos.cli_shared import (
    Actor,
    AsJson,
    CubeName,
    DataDir,
    ItemId,
    cell,
    console,
    errors,
    opened,
    progress_bar,
    say_masked,
    show,
    sure,
)
from memos.cli_tasks import tasks_app
from memos.cli_tiers import tiers_app
from memos.cli_tools import tools_app
from memos.cli_travel import travel_app
from memos.cli_users import keys_app, share_app, users_app
from memos.cli_watch import watch_app
from memos.errors import InvalidInput, MemosError
from memos.model import DEFAULT_CUBE, LOCAL_OWNER, Hit, Item, Masked, WhyNot
from memos.reader.exports.formats import Format
from memos.reader.exports.memoryos import FORMAT as MEMORYOS
from memos.text.checks import decode
from memos.text.render import visible
from memos.text.secrets import marks
from memos.version import __version__

_SHOWN_BAD = 50

ReadMode = Annotated[
    str,
    typer.Option(
        "--mode", help="rough, or fine: also read into facts, in the background; `memos tasks wait` waits for that"
    ),
]

app = typer.Typer(
    help=__doc__.split("\n\n", maxsplit=1)[1] if __doc__ else None,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def main_options(
    told: Annotated[bool, typer.Option("--version", help="Print the version", is_eager=True)] = False,
) -> None:
    """Take options that stand before a command."""
    if told:
        console.print(__version__, highlight=False)
        raise typer.Exit


cubes_app = typer.Typer(help="Make, list, drop, dump and load cubes.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(cubes_app, name="cubes")
cubes_app.add_typer(travel_app)
app.add_typer(moving_app)
app.add_typer(tiers_app)
app.add_typer(reading_app)
app.add_typer(tasks_app, name="tasks")
app.add_typer(profile_app, name="profile")
app.add_typer(watch_app)
app.add_typer(retention_app, name="retention")
app.add_typer(review_app, name="review")
app.add_typer(tools_app, name="tools")
app.add_typer(preview_app)
app.add_typer(serve_app)
app.add_typer(mcp_app)
app.add_typer(doctor_app)
app.add_typer(kb_app, name="kb")
app.add_typer(users_app, name="users")
app.add_typer(keys_app, name="keys")
app.add_typer(share_app, name="share")
app.add_typer(chat_app)


@app.command()
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
            [message], cube=cube, actor=actor, conversation=conversation, tags=tag or [], idempotency_key=key,
            mode=mode,
        )  # fmt: skip
    show(receipt, as_json, lambda: console.print(" ".join(receipt.item_ids), highlight=False))
    say_masked(() if as_json else receipt.masked)


@app.command()
def search(
    query: Annotated[str, typer.Argument(help="The question")],
    cube: Annotated[list[str] | None, typer.Option("--cube", "-c", help="Cube to search; may be repeated")] = None,
    top_k: Annotated[int, typer.Option("--top-k", "-k", help="Most hits")] = 10,
    filter_: Annotated[str | None, typer.Option("--filter", help="Filter as JSON")] = None,
    as_of: Annotated[str | None, typer.Option(help="Search what was stored by this time, whenever it was said")] = None,
    reference_time: Annotated[str | None, typer.Option(help="When the question is asked")] = None,
    token_budget: Annotated[int | None, typer.Option(help="Print a context of at most this many tokens")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Say which arm gave what")] = False,
    why_not: Annotated[str | None, typer.Option("--why-not", help="Say where this item falls out instead")] = None,
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Find memories."""
    from memos.demo.run import hits_table  # noqa: PLC0415 - the table is shared with the demo

    asked = {
        "actor": actor,
        "top_k": top_k,
        "filter": _json_option("--filter", filter_),
        "as_of": as_of,
        "reference_time": reference_time,
        "token_budget": token_budget,
    }
    with opened(data_dir) as memos:
        if why_not is not None:
            reason = memos.why_not(why_not, query, cubes=cube, **asked)
            show(reason, as_json, lambda: _print_why_not(reason))
            return
        result = memos.search(query, cubes=cube or [DEFAULT_CUBE], explain=explain, **asked)

    def human() -> None:
        if token_budget is not None:
            console.print(visible(result.context), markup=False, highlight=False, soft_wrap=True)
        elif result.hits:
            console.print(hits_table(result, cell(query), ids=True))
        else:
            console.print(f"nothing found in {', '.join(map(cell, cube or [DEFAULT_CUBE]))}", highlight=False)
        for hit in result.hits if explain else ():
            console.print(f"{hit.item.id}: {_shares(hit)}", highlight=False, soft_wrap=True)
        if result.missing_arms:
            errors.print(f"Not searched, index unavailable: {', '.join(result.missing_arms)}")

    show(result, as_json, human)


def _shares(ranked: Hit | WhyNot) -> str:
    votes = [f"{vote.arm} #{vote.rank} ({vote.score:.3f}) gave {vote.gave:.3f}" for vote in ranked.arms]
    return ", ".join(votes + [f"{boost.name} {boost.gave:+.3f}" for boost in ranked.boosts])


def _print_why_not(reason: WhyNot) -> None:
    console.print(f"{reason.stage}: {visible(reason.reason)}", markup=False, highlight=False, soft_wrap=True)
    if reason.arms or reason.boosts:
        console.print(_shares(reason), highlight=False, soft_wrap=True)


@app.command()
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


@app.command("list")
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
        found = memos.list(cube=cube, actor=actor, filter=wanted, limit=limit, offset=offset)
    show(found, as_json, lambda: _items_lines(found))


@app.command()
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


@app.command()
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


@app.command()
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


@app.command()
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


@app.command()
def history(item: ItemId, actor: Actor = LOCAL_OWNER, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Show every version of a memory."""
    with opened(data_dir) as memos:
        entries = memos.history(item, actor=actor)

    def human() -> None:
        table = Table("version", "when", "who", "why", "status", "memory")
        for entry in entries:
            row = (str(entry.version), f"{entry.recorded_at:%F %T}", entry.actor, entry.reason, entry.after.status)
            table.add_row(*map(cell, (*row, entry.after.memory)))
        console.print(table)

    show(entries, as_json, human)


@app.command()
def rollback(
    item: ItemId,
    to_version: Annotated[int, typer.Argument(help="Version to go back to")],
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Make an old version the current one again."""
    with opened(data_dir) as memos:
        found = memos.rollback(item, to_version, actor=actor)
    show(found, as_json, lambda: _items_lines([found]))


@cubes_app.command("list")
def cubes_list(actor: Actor = LOCAL_OWNER, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """List the cubes."""
    with opened(data_dir) as memos:
        found = memos.cubes.list(actor=actor)

    def human() -> None:
        table = Table("cube", "items", "owner", "time zone", "embedder", "description")
        for cube in found:
            row = (cube.id, str(cube.items), cube.owner, cube.time_zone, cube.fingerprint.name, cube.description)
            table.add_row(*map(cell, row))
        console.print(table)

    show(found, as_json, human)


@cubes_app.command("create")
def cubes_create(
    cube: Annotated[str, typer.Argument(help="Id of the new cube")],
    description: Annotated[str, typer.Option(help="What it is for")] = "",
    time_zone: Annotated[str | None, typer.Option(help="Zone of times without an offset")] = None,
    redact_pii: Annotated[
        bool, typer.Option("--redact-pii", help="Mask e-mail addresses, phone numbers and so on")
    ] = False,
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Make an empty cube."""
    with opened(data_dir) as memos:
        made = memos.cubes.create(
            cube, actor=actor, description=description, time_zone=time_zone, redact_pii=redact_pii
        )
    show(made, as_json, lambda: console.print(made.id, highlight=False, markup=False))


@cubes_app.command("change")
def cubes_change(
    cube: Annotated[str, typer.Argument(help="Id of the cube")],
    description: Annotated[str | None, typer.Option(help="What it is for")] = None,
    redact_pii: Annotated[
        bool | None, typer.Option("--redact-pii/--keep-pii", help="Mask personal data in what comes in from now on")
    ] = None,
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Change what a cube is described as, or whether personal data is masked in it."""
    with opened(data_dir) as memos:
        changed = memos.cubes.change(cube, actor=actor, description=description, redact_pii=redact_pii)
    show(changed, as_json, lambda: console.print(changed.id, highlight=False, markup=False))


@cubes_app.command("drop")
def cubes_drop(
    cube: Annotated[str, typer.Argument(help="Id of the cube")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask")] = False,
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Erase a cube with everything in it."""
    sure(f"Erase cube {cube!r} and everything in it for good?", yes=yes)
    with opened(data_dir) as memos:
        receipt = memos.cubes.drop(cube, actor=actor)
    show({"cube": cube, "receipt": receipt}, as_json, lambda: console.print(f"dropped {cell(cube)}"))


@app.command()
def verify(
    cube: Annotated[list[str] | None, typer.Option("--cube", "-c", help="Only this cube; may be repeated")] = None,
    repair: Annotated[bool, typer.Option("--repair", help="Bring the indexes back to the ledger")] = False,
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Compare the ledger with itself and the indexes; exit 1 when something differs."""
    with opened(data_dir) as memos:
        report = memos.verify(cubes=cube, actor=actor, repair=repair)

    def human() -> None:
        state = "clean" if report.clean else f"{len(report.differences)} differences"
        console.print(f"{report.items} items, {state}, {report.repaired} repaired")
        for difference in report.differences[:50]:
            line = f"{difference.store} {difference.kind} {difference.subject}: {difference.detail}"
            console.print(line, markup=False, highlight=False)

    show(report, as_json, human)
    if not report.clean:
        raise typer.Exit(1)


@app.command()
def reindex(
    cube: Annotated[list[str] | None, typer.Option("--cube", "-c", help="Only this cube; may be repeated")] = None,
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Build the indexes anew from the ledger."""
    with opened(data_dir) as memos, progress_bar("items", as_json) as on_progress:
        count = memos.reindex(cubes=cube, actor=actor, on_progress=on_progress)
    show({"items": count}, as_json, lambda: console.print(f"reindexed {count} items"))


@app.command()
def reembed(actor: Actor = LOCAL_OWNER, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Give every cube vectors of the embedder now configured (MEMOS_EMBED__MODEL)."""
    with opened(data_dir) as memos, progress_bar("items", as_json) as on_progress:
        count = memos.reembed(actor=actor, on_progress=on_progress)
    show({"items": count}, as_json, lambda: console.print(f"embedded {count} items"))


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="JSON or JSONL chat export; with --format memoryos a folder")],
    cube: Annotated[
        str | None,
        typer.Option("--cube", "-c", help="Cube to use (default: default; of a memoryos folder, one for each user)"),
    ] = None,
    conversation: Annotated[str | None, typer.Option(help="Conversation of messages that name none")] = None,
    format_: Annotated[
        str | None,
        typer.Option("--format", help=f"{', '.join(Format)}, {MEMORYOS}; without it the file's first entry says"),
    ] = None,
    on_bad: Annotated[str, typer.Option("--on-bad", help="stop or skip, at a record that cannot be read")] = "stop",
    mode: ReadMode = "rough",
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Read a chat export into a cube; running it again adds only what is missing."""
    from memos.compat.importing import import_memoryos  # noqa: PLC0415
    from memos.importing import import_export  # noqa: PLC0415

    if on_bad not in ("stop", "skip"):
        raise InvalidInput("--on-bad", f"{on_bad!r} is unknown; use stop or skip")
    if format_ == MEMORYOS and mode != "rough":
        raise InvalidInput("--mode", "is for chat exports; read a MemoryOS folder finely with `memos read-finely`")
    if format_ is not None and format_ not in {*Format, MEMORYOS}:
        raise InvalidInput("--format", f"{format_!r} is unknown; use one of {', '.join(Format)}, {MEMORYOS}")
    bad: Literal["stop", "skip"] = "skip" if on_bad == "skip" else "stop"
    with opened(data_dir) as memos, progress_bar("messages", as_json) as on_progress:
        if format_ == MEMORYOS:
            summary = import_memoryos(
                memos, file, cube=cube, actor=actor, conversation=conversation, on_bad=bad, on_progress=on_progress
            )
        else:
            summary = import_export(
                memos, file, cube=DEFAULT_CUBE if cube is None else cube, actor=actor, conversation=conversation,
                format=Format(format_) if format_ else None, on_bad=bad, on_progress=on_progress, mode=mode,
            )  # fmt: skip

    def human() -> None:
        counts = [f"{summary.added} added", f"{summary.known} known", f"{len(summary.bad)} bad"]
        counts += [f"{summary.left_out} left out"] if summary.left_out else []
        counts += [f"{summary.out_of_order} out of order"] if summary.out_of_order else []
        told = f"{', '.join(counts)} ({summary.format}, {summary.conversations} conversations)"
        console.print(told, highlight=False, soft_wrap=True)
        if summary.masked:
            console.print(f"{summary.masked} secrets or personal data were masked, not stored", highlight=False)
        if summary.note:
            console.print(summary.note, markup=False, highlight=False, soft_wrap=True)
        for record in summary.bad[:_SHOWN_BAD]:
            line = visible(f"{record.place} {record.problem}")
            console.print(line, markup=False, highlight=False, soft_wrap=True)
        if len(summary.bad) > _SHOWN_BAD:
            console.print(
                f"and {len(summary.bad) - _SHOWN_BAD} more bad records; --json lists them all", highlight=False
            )

    show(summary, as_json, human)
    if summary.bad and not summary.added and not summary.known:
        raise typer.Exit(InvalidInput.exit_code)


@app.command()
def demo(
    data_dir: DataDir = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the demo's folder")] = False,
    svg: Annotated[Path | None, typer.Option(help="Also save the output as a picture")] = None,
) -> None:
    """Show the main job on a bundled conversation, in a temporary folder unless one is named."""
    from memos.demo.run import run_demo  # noqa: PLC0415

    if svg is not None and not svg.parent.is_dir():
        raise InvalidInput("--svg", f"the folder {svg.parent} does not exist; make it or choose another")
    folder = data_dir or Path(tempfile.mkdtemp(prefix="memos-demo-"))
    # Tables need room: output that goes to a file or a narrow window is still 110 columns wide.
    out = Console(record=svg is not None, width=max(110, console.width) if svg is None else 110)
    try:
        with opened(folder) as memos:
            run_demo(memos, out)
    finally:
        if data_dir is None and not keep:
            shutil.rmtree(folder, ignore_errors=True)
    if svg is not None:
        out.save_svg(str(svg), title="memos demo")


@app.command()
def version(as_json: AsJson = False) -> None:
    """Print the version."""
    show({"version": __version__}, as_json, lambda: console.print(__version__, highlight=False))


def _items_lines(found: list[Item]) -> None:
    # No table: an id is there to be copied, and a memory to be read, also on a narrow terminal.
    for item in found:
        about = f"{item.id}  v{item.version}  {item.status}  {item.tier}  {item.type}  {visible(item.speaker)}"
        if item.valid_to is not None:
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


def main() -> NoReturn:
    """Run the command line; an error is one sentence and an exit code, never a traceback."""
    as_json = "--json" in sys.argv
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal that is not UTF-8 shows what it cannot as an escape
            stream.reconfigure(errors="backslashreplace")
    try:
        # Arguments that were not UTF-8 arrive with lone surrogates: say so before they reach a store.
        for number, argument in enumerate(sys.argv[1:], start=1):
            if any("\ud800" <= character <= "\udfff" for character in argument):
                raise InvalidInput(f"argument {number}", "is not valid UTF-8; set the terminal to UTF-8")
        app(standalone_mode=True)
    except MemosError as error:
        _fail(error, as_json)
    except ValidationError as error:
        first = error.errors()[0]
        name = "MEMOS_" + "__".join(str(part).upper() for part in first["loc"])
        _fail(InvalidInput(name, first["msg"]), as_json)
    except SettingsError as error:
        _fail(InvalidInput("MEMOS_*", f"{error}; set single values such as MEMOS_EMBED__THREADS=2"), as_json)
    sys.exit(0)


def _fail(error: MemosError, as_json: bool) -> NoReturn:
    if as_json:
        sys.stderr.write(json.dumps(error_view(error), ensure_ascii=True) + "\n")
    else:
        errors.print(f"Error: {error}", markup=False, highlight=False, style="red", soft_wrap=True)
    sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
