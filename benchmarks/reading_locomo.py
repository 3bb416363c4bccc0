"""LoCoMo read by pattern: which of the questions' evidence is a source of a fact, and does storing the facts help a search."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from rich.table import Table

from benchmarks.data import BadData, Chat, load_locomo
from benchmarks.reading_quality import stored
from benchmarks.report import Report, figures_table
from memos.asking.meter import Meter
from memos.model import Fact, Role
from memos.reader.facts import FactReader

_ZONE = ZoneInfo("UTC")
_UNDATED = datetime(2023, 1, 1, tzinfo=UTC)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the part `locomo` takes."""
    parser.add_argument("--data", type=Path, metavar="FILE", help="a LoCoMo file, for the part locomo")


def measure(arguments: argparse.Namespace) -> Report:
    """Read each conversation's sessions one after the other."""
    if arguments.data is None:
        raise BadData(Path("--data"), "is missing: the part locomo needs the path of a LoCoMo file")
    chats = load_locomo(arguments.data)
    messages = facts = covered = gold = whole = asked = 0
    types: dict[str, int] = {}
    for chat in chats:
        found = facts_of(chat)
        named = {source for sources, _ in found for source in sources}
        messages += sum(len(session.messages) for session in chat.sessions)
        facts += len(found)
        for _, fact in found:
            types[str(fact.type)] = types.get(str(fact.type), 0) + 1
        for question in chat.questions:
            asked += 1
            gold += len(question.gold)
            covered += sum(turn in named for turn in question.gold)
            whole += all(turn in named for turn in question.gold)
    figures = {
        "messages": messages,
        "facts": facts,
        "facts_per_100_messages": 100 * facts / messages,
        "evidence_covered": covered / gold,
        "questions_all_covered": whole / asked,
    }
    return Report({"n": asked, "locomo": {**figures, "types": types}}, tables=[_table(figures)])


def facts_of(chat: Chat) -> list[tuple[list[str], Fact]]:
    """Return each fact with the ids of the turns it was read in."""
    reader = FactReader(lambda: None)
    found = []
    for session in chat.sessions:
        items = [
            stored(message.text, Role.USER, message.name or "user", message.at or _UNDATED, place)
            for place, message in enumerate(session.messages)
        ]
        ids = {item.id: message.id for item, message in zip(items, session.messages, strict=True)}
        for fact in reader.read(items, _ZONE, Meter("bench")).facts:
            found.append((_distinct(ids[span.item] for span in fact.spans), fact))
    return found


def _distinct(ids: Sequence[str] | object) -> list[str]:
    return list(dict.fromkeys(ids))  # type: ignore[call-overload]


def _table(figures: dict[str, float]) -> Table:
    return figures_table("LoCoMo read by pattern", list(figures), {"all": figures})
