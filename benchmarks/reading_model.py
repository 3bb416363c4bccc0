"""How well the configured model reads labelled messages, beside reading by pattern on the same ones.

It needs an endpoint: MEMOS_CHAT_MODEL__BASE_URL and MEMOS_CHAT_MODEL__MODEL, or those of the reader.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from benchmarks import labelled
from benchmarks.data import BadData
from benchmarks.labelled import Labelled
from benchmarks.reading_quality import SHOWN, ZONE, facts_of, item_of
from benchmarks.report import Report, figures_table, positive, progress
from memos.asking.asker import Asker
from memos.asking.meter import Meter
from memos.asking.reply_cache import ReplyCache
from memos.backends.openai_chat import OpenAIChat
from memos.errors import BackendTimeout, ModelError
from memos.model import Fact
from memos.reader.facts import FactReader
from memos.settings import Settings

_PART = "held_out"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the part `model` takes."""
    parser.add_argument("--sample", type=positive, metavar="N", help="only N of the held-out messages, evenly taken")
    parser.add_argument("--within", type=positive, metavar="S", help="ask for no more messages after so many seconds")


def measure(arguments: argparse.Namespace) -> Report:
    """Read held-out messages one by one with the model, and by pattern. Raises: BadData without a model."""
    settings = Settings().model_for("reader")
    if settings is None:
        raise BadData(Path("MEMOS_CHAT_MODEL__BASE_URL"), "is not set: the part model needs a model to ask")
    messages = [message for message in labelled.load() if message.part == _PART]
    step = max(1, len(messages) // (arguments.sample or len(messages)))
    messages = messages[::step][: arguments.sample]
    meter, failed, rejected = Meter("bench"), Counter[str](), 0
    model = OpenAIChat(settings)
    begun, asked = perf_counter(), 0
    try:
        reader = FactReader(lambda: Asker(model, ReplyCache(0)))
        read: list[tuple[Labelled, Sequence[Fact]]] = []
        for message in progress(messages, "reading"):
            if arguments.within is not None and perf_counter() - begun > arguments.within:
                break
            asked += 1
            try:
                found = reader.read([item_of(message, 0)], ZONE, meter)
                read.append((message, found.facts))
                rejected += found.rejected
            except (ModelError, BackendTimeout) as error:  # as in `add`: the message stays, and nothing is found
                failed[type(error).__name__] += 1
                read.append((message, ()))
    finally:
        model.close()
    seconds, messages = perf_counter() - begun, messages[:asked]
    scores = {
        settings.model or "model": labelled.score(read),
        "patterns": labelled.score((message, facts_of(message)) for message in messages),
    }
    totals = {name: found[_PART, "all"] for name, found in scores.items()}
    rows = {name: {**one.figures(), "junk items": one.junk, "misread": one.misread} for name, one in totals.items()}
    figures = {
        "n": asked, "rows": rows, "failed": dict(failed), "rejected": rejected, "tokens": meter.spent.tokens,
        "calls": meter.spent.calls, "seconds": round(seconds, 1),
    }  # fmt: skip
    table = figures_table(
        f"{asked} held-out messages, {failed.total()} without an answer that fits, {rejected} found things rejected, "
        f"{meter.spent.calls} calls in {seconds:.0f} s", (*SHOWN, "junk items", "misread"), rows,
    )  # fmt: skip
    return Report(figures, tables=[table])
