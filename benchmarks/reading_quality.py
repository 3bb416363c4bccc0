"""How good and how quick reading without a model is: precision, recall, junk; messages a second."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence
from datetime import UTC, datetime
from time import perf_counter
from typing import Any
from zoneinfo import ZoneInfo

from rich.table import Table

from benchmarks import labelled
from benchmarks.labelled import Labelled, Score
from benchmarks.report import Report, figures_table
from memos.core.types import Fact, Item, ItemType, Message, Role, Source, Status, Tier
from memos.llm.usage import UsageMeter
from memos.reader import messages as fast
from memos.reader.facts.extractor import FactReader

_SAID = datetime(2026, 3, 2, 9, tzinfo=UTC)
ZONE = ZoneInfo("UTC")
SHOWN = ("messages", "stored", "precision", "junk", "recall", "recall facts", "recall preferences",
          "recall instructions", "recall assistant", "keys")  # fmt: skip
# Long enough that a run takes seconds, not so long that it is another load.
_SPEED_MESSAGES = 4_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the parts `labelled`, `junk` and `speed` take."""
    parser.add_argument("--show", choices=labelled.PARTS, help="print each wrong and missing fact of this part")
    parser.add_argument("--repeat", type=int, default=_SPEED_MESSAGES, help="messages that `speed` reads")


def measure_labelled(arguments: argparse.Namespace) -> Report:
    """Read every labelled message alone and compare."""
    scores = _scores()
    if arguments.show is not None:
        for line in (*scores[arguments.show, "all"].wrong, *scores[arguments.show, "all"].missed):
            print(line)
    rows = {f"{part}, {language}": score.figures() for (part, language), score in scores.items()}
    return Report({"n": len(labelled.load()), "labelled": rows}, tables=[figures_table("Labelled", SHOWN, rows)])


def measure_junk(_arguments: argparse.Namespace) -> Report:
    """Count what is stored though it states nothing lasting; and messages without anything that were left alone."""
    scores = _scores()
    rows = {
        part: {
            "stored": score.stored,
            "junk": score.junk,
            "misread": score.misread,
            "junk rate": score.figures()["junk"],
        }
        for part in labelled.PARTS
        for score in [scores[part, "all"]]
    }
    table = figures_table("Junk", ("stored", "junk", "misread", "junk rate"), rows)
    return Report({"n": sum(row["stored"] for row in rows.values()), "junk": rows}, tables=[table])


def measure_speed(arguments: argparse.Namespace) -> Report:
    """Read the labelled messages over and over: roughly, as `add` does before it stores, and finely without a model."""
    texts = list(itertools.islice(itertools.cycle(labelled.load()), arguments.repeat))
    items = [item_of(message, place) for place, message in enumerate(texts)]
    reader = FactReader(lambda: None)
    _rough(texts[:100])
    reader.read(items[:100], ZONE, UsageMeter("bench"))
    rough = _rate(len(texts), lambda: _rough(texts))
    fine = _rate(len(items), lambda: reader.read(items, ZONE, UsageMeter("bench")))
    figures = {"rough": rough, "fine": fine, "rough_over_fine": rough / fine}
    table = Table("messages a second", "without storing", title="Speed", title_justify="left")
    table.add_row("rough (patterns for names, times, keys)", f"{rough:,.0f}")
    table.add_row("fine without a model", f"{fine:,.0f}")
    table.add_row("rough / fine", f"{rough / fine:.2f}")
    return Report({"n": len(texts), "messages_per_s": figures}, tables=[table])


def _scores() -> dict[tuple[str, str], Score]:
    messages = labelled.load()
    return labelled.score((message, facts_of(message)) for message in messages)


def facts_of(message: Labelled) -> Sequence[Fact]:
    """Return what reading without a model finds in one message."""
    return FactReader(lambda: None).read([item_of(message, 0)], ZONE, UsageMeter("bench")).facts


def _rough(messages: Sequence[Labelled]) -> None:
    for message in messages:
        fast.read([Message(Role(message.role), message.text, message.text, "Ana", _SAID, None)], (), {}, ZONE)


def _rate(count: int, work: Any) -> float:
    begun = perf_counter()
    work()
    return float(count / (perf_counter() - begun))


def item_of(message: Labelled, place: int) -> Item:
    """Return a labelled message as it would be stored."""
    return stored(message.text, Role(message.role), "Ana" if message.role == "user" else "assistant", _SAID, place)


def stored(text: str, role: Role, speaker: str, at: datetime, place: int) -> Item:
    """Return a message as an item with its source, as a reader is given it."""
    return Item(
        id=f"m{place}", cube="bench", version=1, version_id=f"v{place}", memory=text, type=ItemType.MESSAGE,
        tier=Tier.MID, status=Status.ACTIVE, speaker=speaker, role=role, key=None, value=None, tags=(), info={},
        confidence=1.0, entities=(), keywords=(), conversation="bench", position=place, page=place, session=1,
        said_at=at, valid_from=at, valid_to=None, created_at=at, updated_at=at,
        sources=(Source(f"s{place}", 0, len(text), speaker, at, text),),
    )  # fmt: skip
