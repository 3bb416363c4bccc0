"""`memos chat`: answers from memory, to one question or in a conversation on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from memos.cli.shared import Actor, AsJson, CubeNames, Output, command, complain, console, one_line
from memos.core.text.rendering import visible
from memos.core.text.validation import decode
from memos.core.types import DEFAULT_CUBE, LOCAL_OWNER
from memos.errors import InvalidInput, MemosError

if TYPE_CHECKING:
    from memos.kernel.chat.chat import ChatStream
    from memos.kernel.chat.results import ChatResult
    from memos.kernel.memos import MemOS

_SHOWN_CHARS = 100


@command
def chat(
    memos: MemOS,
    query: Annotated[
        str | None, typer.Argument(help="The question; '-' reads standard input; without one, chat in the terminal")
    ] = None,
    cube: CubeNames = None,
    conversation: Annotated[
        str | None, typer.Option(help="Conversation it belongs to; the model sees its most recent messages")
    ] = None,
    system: Annotated[str | None, typer.Option("--system", help="Instructions for the model")] = None,
    token_budget: Annotated[int | None, typer.Option(help="Maximum tokens of memory in the prompt")] = None,
    store: Annotated[bool, typer.Option(help="Store the question and the answer in the first cube")] = True,
    actor: Actor = LOCAL_OWNER,
    as_json: AsJson = False,
) -> Output | None:
    if query is None and as_json:
        raise InvalidInput("query", "is required with --json; pass one question")
    if query is None and not sys.stdin.isatty():
        query = "-"
    if query == "-":
        query = decode("standard input", sys.stdin.buffer.read())
    ask = partial(
        memos.chat.stream,
        cubes=cube or [DEFAULT_CUBE],
        actor=actor,
        system_prompt=system,
        token_budget=token_budget,
        store=store,
    )
    if query is not None:
        return _output(_answer(partial(ask, conversation=conversation), query, quiet=as_json))
    _talk(ask, conversation)
    return None


def _answer(ask: Callable[[str], ChatStream], query: str, *, quiet: bool = False) -> ChatResult:
    with ask(query) as stream:
        for piece in stream:
            if not quiet:
                console.print(visible(piece), end="", markup=False, highlight=False, soft_wrap=True)
        result = stream.result
    assert result is not None  # the stream has ended
    if not quiet:
        console.print()
    return result


def _output(result: ChatResult) -> Output:
    cited = [f"  {each.item} {one_line(each.memory, _SHOWN_CHARS)}" for each in result.cited]
    notes = [] if result.not_stored is None else [f"Not remembered: {result.not_stored}"]
    return Output(result, cited, masked=() if result.receipt is None else result.receipt.masked, notes=notes)


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
            complain(str(error))
            continue
        _output(result).show(as_json=False)
        history += ({"role": "user", "content": line}, {"role": "assistant", "content": result.text})
        if conversation is None and result.receipt is not None:
            conversation = result.receipt.conversation
