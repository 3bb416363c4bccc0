"""Counts what fine reading asks a language model for each hundred messages: calls, and tokens both ways.

The model is scripted: it quotes a sentence of every second message as a fact, so what is counted is the windows, the
prompt and answers of a usual length, not how well anything is read. Sessions are those of the LoCoMo file, each added
at once, or synthetic ones of twenty messages; `one by one` adds each message alone and waits until it was read.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.data import load_locomo
from benchmarks.dialogues import Dialogues
from benchmarks.model_calls import Scripted
from benchmarks.report import Report, progress
from memos import MemOS
from memos.backends.encoders.minilm import MiniLmEmbedder
from memos.core.settings import Settings

_SESSION = 20
_SETTLED_S = 600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what this part asks for."""
    parser.add_argument("--messages", type=int, default=600, help="messages to read with a model (default 600)")
    parser.add_argument("--alone", type=int, default=40, help="of these so many are added one by one, too (default 40)")


def measure(arguments: argparse.Namespace) -> Report:
    """Return calls and tokens for each hundred messages, added by the session, in a whole, and one by one."""
    sessions = list(_sessions(arguments))
    whole = [("whole", [message for _, session in sessions for message in session])]
    alone = [("alone", [message]) for message in whole[0][1][: arguments.alone]]
    ways = {"by the session": sessions, "in a whole": whole, "one by one": alone}
    counted = {name: _count(batches) for name, batches in ways.items()}
    table = Table(title="fine reading with a scripted model, for each hundred messages", title_justify="left")
    for name in ("added", "messages", "calls", "tokens asked", "tokens answered", "facts"):
        table.add_column(name, justify="right")
    for name, told in counted.items():
        table.add_row(name, *(f"{told[each]:,}" for each in ("messages", "calls", "asked", "answered", "facts")))
    figures = {"n": {name: told["messages"] for name, told in counted.items()}, "per_100_messages": counted}
    return Report(figures, tables=[table])


def _count(batches: list[tuple[str, list[dict[str, Any]]]]) -> dict[str, float]:
    """Return what adding these batches asks, for each hundred messages; `messages` is how many there were."""
    model = Scripted()
    with (
        tempfile.TemporaryDirectory(prefix="hippocube-reading-") as folder,
        MemOS.open(Path(folder), settings=Settings(), embedder=MiniLmEmbedder(), chat_model=model) as memos,
    ):
        messages = 0
        for talk, said in progress(batches, "reading"):
            receipt = memos.add(said, conversation=talk, mode="fine")
            messages += len(receipt.item_ids)
            _read(memos)
        facts = len(memos.memories.list(filter={"tier": "long"}, limit=10_000))
    hundred = messages / 100
    return {
        "messages": messages,
        "calls": round(model.calls["FactsAnswer"] / hundred, 1),
        "asked": round(model.asked["FactsAnswer"] / hundred),
        "answered": round(model.answered["FactsAnswer"] / hundred),
        "facts": round(facts / hundred, 1),
    }


def _read(memos: MemOS) -> None:
    """Wait until nothing is left to read."""
    while task := next(iter(memos.tasks.list(kinds=["read"], states=["waiting", "running"], limit=1)), None):
        memos.tasks.wait(task.id, timeout_s=_SETTLED_S)


def _sessions(arguments: argparse.Namespace) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield conversation and messages of each session, until there are enough messages."""
    if arguments.data is None:
        dialogues = Dialogues(7)
        for number in range(max(1, arguments.messages // _SESSION)):
            said = dialogues.messages(_SESSION)
            yield f"talk {number}", [{"role": each["role"], "content": each["content"]} for each in said]
        return
    count = 0
    for chat in load_locomo(arguments.data):
        for session in chat.sessions:
            if count >= arguments.messages:
                return
            count += len(session.messages)
            yield (
                chat.name,
                [{"role": "user", "name": message.name or "", "content": message.text} for message in session.messages],
            )
