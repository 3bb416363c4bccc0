"""The command line: every command translates arguments to one call of `MemOS` and prints what comes back.

Exit codes: 0 done, 1 verify found differences or another error, 2 wrong input, 3 not found, 4 conflict,
5 not permitted, 6 store in use, full or unavailable, 7 model failed, 8 data damaged or from a newer version,
9 over a limit, 130 interrupted (what was acknowledged stays).
"""

from __future__ import annotations

import gc
import json
import logging
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from copy import copy
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from pydantic import ValidationError
from pydantic_settings import SettingsError
from rich.console import Console
from typer.main import get_command_name
from typer.models import TyperInfo

from memos.api.serialization import error_view
from memos.cli.chat import chat_app
from memos.cli.cli_doctor import doctor_app
from memos.cli.cubes import cubes_app, travel_app
from memos.cli.installation import moving_app, upkeep_app
from memos.cli.knowledge import kb_app, preview_app
from memos.cli.memories import memories_app, reading_app
from memos.cli.models import adapters_app, kv_app
from memos.cli.profile import profile_app
from memos.cli.review import retention_app, review_app
from memos.cli.server import mcp_app, serve_app
from memos.cli.shared import AsJson, DataDir, console, errors, opened, show
from memos.cli.tasks import tasks_app
from memos.cli.tiers import tiers_app
from memos.cli.tools import tools_app
from memos.cli.users import keys_app, share_app, users_app
from memos.cli.watch import watch_app
from memos.errors import InvalidInput, MemosError
from memos.version import __version__

app = typer.Typer(
    help=__doc__.split("\n\n", maxsplit=1)[1] if __doc__ else None,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _tell_version(told: bool) -> None:
    if told:
        console.print(__version__, highlight=False)
        raise typer.Exit


@app.callback()
def main_options(
    told: Annotated[
        bool, typer.Option("--version", help="Print the version", callback=_tell_version, is_eager=True)
    ] = False,
) -> None:
    """Take options that stand before a command."""


app.add_typer(memories_app)
app.add_typer(upkeep_app)
app.add_typer(cubes_app, name="cubes")
app.add_typer(travel_app, name="cube", hidden=True)  # as people type what is done with one cube
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
app.add_typer(kv_app, name="kv")
app.add_typer(adapters_app, name="adapters")
app.add_typer(users_app, name="users")
app.add_typer(keys_app, name="keys")
app.add_typer(share_app, name="share")
app.add_typer(chat_app)


@app.command()
def demo(
    data_dir: DataDir = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the demo's folder")] = False,
    svg: Annotated[Path | None, typer.Option(help="Also save the output as a picture")] = None,
) -> None:
    """Show the main job on a bundled conversation, in a temporary folder unless one is named."""
    from memos.cli.demo.run import run_demo  # noqa: PLC0415

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


def narrowed(words: Sequence[str]) -> typer.Typer:
    """Return the commands with the group that these words name, and no other: describing all takes a quarter second."""
    first = next((word for word in words if not word.startswith("-")), None)
    named = [group for group in app.registered_groups if first in _names(group)]
    if not named:
        return app
    left = copy(app)
    left.registered_groups, left.registered_commands = named, []
    return left


def _names(group: TyperInfo) -> set[str | None]:
    if group.name:
        return {group.name}
    commands = group.typer_instance.registered_commands if group.typer_instance else []
    return {each.name or get_command_name(getattr(each.callback, "__name__", "")) for each in commands}


def main() -> NoReturn:
    """Run the command line; an error is one sentence and an exit code, never a traceback."""
    logging.getLogger("stamina").setLevel(logging.ERROR)  # that something is tried again is told if it fails at last
    gc.freeze()  # what was imported stays to the end, where looking through it would take as long as a short command
    as_json = "--json" in sys.argv
    commands = app if "_MEMOS_COMPLETE" in os.environ else narrowed(sys.argv[1:])
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal that is not UTF-8 shows what it cannot as an escape
            stream.reconfigure(errors="backslashreplace")
    try:
        # Arguments that were not UTF-8 arrive with lone surrogates: say so before they reach a store.
        for number, argument in enumerate(sys.argv[1:], start=1):
            if any("\ud800" <= character <= "\udfff" for character in argument):
                raise InvalidInput(f"argument {number}", "is not valid UTF-8; set the terminal to UTF-8")
        commands(standalone_mode=True)
    except MemosError as error:
        _fail(error, as_json)
    except ValidationError as error:
        first = error.errors()[0]
        name = "MEMOS_" + "__".join(str(part).upper() for part in first["loc"])
        unknown = first["type"] == "extra_forbidden"
        why = "is no setting (docs/settings.md)" if unknown else first["msg"].removeprefix("Value error, ")
        _fail(InvalidInput(name, why), as_json)
    except SettingsError as error:
        field = re.search(r'field "(\w+)"', str(error))
        name = f"MEMOS_{field[1].upper()}" if field else "MEMOS_*"
        _fail(
            InvalidInput(name, "is no JSON; write an object, or set each value, as in MEMOS_EMBED__THREADS=2"), as_json
        )
    sys.exit(0)


def _fail(error: MemosError, as_json: bool) -> NoReturn:
    if as_json:
        sys.stderr.write(json.dumps(error_view(error), ensure_ascii=True) + "\n")
    else:
        errors.print(f"Error: {error}", markup=False, highlight=False, style="red", soft_wrap=True)
    sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
