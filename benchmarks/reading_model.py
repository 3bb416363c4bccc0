"""How well the configured model reads labelled messages, beside reading by pattern on the same ones.

It needs an endpoint: MEMOS_CHAT_MODEL__BASE_URL and MEMOS_CHAT_MODEL__MODEL, or those of the reader.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks import labelled
from benchmarks.data import BadData
from benchmarks.labelled import Labelled
from benchmarks.reading_quality import SHOWN, ZONE, facts_of, item_of
from benchmarks.report import Report, figures_table, positive, progress
from memos.asking.asker import Asker
from memos.asking.meter import Meter
from memos.asking.reply_cache import ReplyCache
from memos.backends.openai_chat import OpenAIChat
from memos.errors import ModelError
from memos.model import Fact
from memos.reader.facts import FactReader
from memos.settings import Settings

_PART = "held_out"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the part `model` takes."""
    parser.add_argument("--sample", type=positive, metavar="N", help="only N of the held-out messages, evenly taken")


def measure(arguments: argparse.Namespace) -> Report:
    """Read held-out messages one by one with the model, and by pattern. Raises: BadData without a model."""
    settings = Settings().model_for("reader")
    if settings is None:
        raise BadData(Path("MEMOS_CHAT_MODEL__BASE_URL"), "is not set: the part model needs a model to ask")
    messages = [message for message in labelled.load() if message.part == _PART]
    step = max(1, len(messages) // (arguments.sample or len(messages)))
    messages = messages[::step][: arguments.sample]
    meter, failed = Meter("bench"), 0
    model = OpenAIChat(settings)
    try:
        reader = FactReader(lambda: Asker(model, ReplyCache(0)))
        read: list[tuple[Labelled, Sequence[Fact]]] = []
        for message in progress(messages, "reading"):
            try:
                read.append((message, reader.read([item_of(message, 0)], ZONE, meter).facts))
            except ModelError:  # as in `add`: the message stays, and nothing is found
                failed += 1
                read.append((message, ()))
    finally:
        model.close()
    scores = {
        settings.model or "model": labelled.score(read),
        "patterns": labelled.score((message, facts_of(message)) for message in messages),
    }
    rows = {name: found[_PART, "all"].figures() for name, found in scores.items()}
    figures = {
        "n": len(messages), "rows": rows, "failed": failed, "tokens": meter.spent.tokens, "calls": meter.spent.calls,
    }  # fmt: skip
    table = figures_table(f"{len(messages)} held-out messages, {failed} without an answer that fits", SHOWN, rows)
    return Report(figures, tables=[table])
