"""The program `memos`: options before a command, and what ends it."""

from __future__ import annotations

import gc
import sys
from io import TextIOWrapper
from typing import Annotated, NoReturn

import typer

from memos.cli.tree import SETTINGS, Commands
from memos.version import __version__

EXIT_CODES = """\b
Exit codes:
  0  success
  1  other error, or `verify` found differences
  2  invalid input
  3  not found
  4  conflict
  5  not permitted
  6  storage in use, full or unavailable
  7  model call failed
  8  data damaged or from a newer version
  9  limit exceeded
  130  interrupted; acknowledged changes are kept
"""

app = typer.Typer(
    cls=Commands,
    help="Long-term memory for LLM agents, in a folder or on a server.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=SETTINGS,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def main_options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Take options that stand before a command."""


def version(as_json: Annotated[bool, typer.Option("--json", help="Print JSON")] = False) -> None:
    typer.echo(f'{{"version": "{__version__}"}}' if as_json else __version__)


def main() -> NoReturn:
    """Run the command line; an error is one sentence and an exit code, never a traceback."""
    gc.freeze()  # what was imported stays to the end, where looking through it would take as long as a short command
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal that is not UTF-8 shows what it cannot as an escape
            stream.reconfigure(errors="backslashreplace")
    # Arguments that were not UTF-8 arrive with lone surrogates: say so before they reach a store.
    for number, argument in enumerate(sys.argv[1:], start=1):
        if any("\ud800" <= character <= "\udfff" for character in argument):
            sys.stderr.write(f"Error: argument {number}: is not valid UTF-8; set the terminal to UTF-8\n")
            sys.exit(2)
    app()
    sys.exit(0)


if __name__ == "__main__":
    main()
