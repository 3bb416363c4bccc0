"""`memos chat`: answers from memory, one question or a talk in a terminal; knows no model and no prompt."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Annotated

import typer

from memos.cli.shared import Actor, AsJson, DataDir, console, errors, opened, say, say_masked, show
from memos.core.text.rendering import visible
from memos.core.text.validation import decode
from memos.core.types import DEFAULT_CUBE, LOCAL_OWNER
from memos.errors import InvalidInput, MemosError
from memos.kernel.chat.chat import ChatStream
from memos.kernel.chat.results import ChatResult

chat_app = typer.Typer(rich_markup_mode=None)

_SHOWN_CHARS = 100
_Ask = Callable[[str], ChatStream]


@chat_app.command()
def chat(  # noqa: PLR0913, PLR0917 - one parameter an option
    query: Annotated[
        str | None, typer.Argument(help="The question; '-' reads standard input, none talks in a terminal")
    ] = None,
    cube: Annotated[list[str] | None, typer.Option("--cube", "-c", help="Cube to recall from; may be repeated")] = None,
    conversation: Annotated[str | None, typer.Option(help="Conversation it belongs to; its end is shown")] = None,
    system: Annotated[str | None, typer.Option("--system", help="Instructions for the model")] = None,
    token_budget: Annotated[int | None, typer.Option(help="Most tokens of memory in the prompt")] = None,
    store: Annotated[bool, typer.Option(help="Remember question and answer, in the first cube")] = True,
    actor: Actor = LOCAL_OWNER,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Ask the chat model with what is remembered; question and answer are remembered too."""
    if query is None and as_json:
        raise InvalidInput("query", "is missing; --json prints the answer to one question")
    if query is None and not sys.stdin.isatty():
        query = "-"
    if query == "-":
        query = decode("standard input", sys.stdin.buffer.read())
    with opened(data_dir) as memos:
        ask = partial(
            memos.chat.stream,
            cubes=cube or [DEFAULT_CUBE],
            actor=actor,
            system_prompt=system,
            token_budget=token_budget,
            store=store,
        )
        if query is None:
            _talk(ask, conversation)
        else:
            _answer(partial(ask, conversation=conversation), query, as_json=as_json)


def _answer(ask: _Ask, query: str, *, as_json: bool = False) -> ChatResult:
    """Print an answer as it comes, then what it cites."""
    with ask(query) as stream:
        for piece in stream:
            if not as_json:
                console.print(visible(piece), end="", markup=False, highlight=False, soft_wrap=True)
        result = stream.result
    assert result is not None  # the stream has ended
    show(result, as_json, lambda: _print_end(result))
    if result.not_stored is not None:
        errors.print(f"Not remembered: {result.not_stored}", markup=False, highlight=False, soft_wrap=True)
    say_masked(() if as_json or result.receipt is None else result.receipt.masked)
    return result


def _print_end(result: ChatResult) -> None:
    console.print()
    for reference in result.cited:
        text = " ".join(reference.memory.split())
        say(f"  {reference.item} {text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + '…'}")


def _talk(ask: Callable[..., ChatStream], conversation: str | None) -> None:
    """Answer line after line, all in one conversation, until the input ends; a failed answer does not end the talk."""
    history: list[dict[str, str]] = []
    while True:
        try:
            line = console.input("> ", markup=False)
        except EOFError:
            console.print()
            return
        if not line.strip():
            continue
        try:
            result = _answer(partial(ask, history=history, conversation=conversation), line)
        except MemosError as error:
            errors.print(str(error), markup=False, highlight=False, soft_wrap=True)
            continue
        history += ({"role": "user", "content": line}, {"role": "assistant", "content": result.text})
        if conversation is None and result.receipt is not None:
            conversation = result.receipt.conversation
