"""LoCoMo read by pattern, or with the configured model.

How much of the evidence is a source of a fact, and do stored facts help a search.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from benchmarks.data import BadData, Chat, first_questions, first_sessions, load_locomo
from benchmarks.metrics import frac_at
from benchmarks.reading_model import configured
from benchmarks.reading_quality import stored
from benchmarks.report import Report, figures_table, positive, progress
from benchmarks.stores import ask, fill, installation, source_messages
from memos import MemOS
from memos.core.types import Fact, Item, Role
from memos.errors import ModelError
from memos.llm.usage import UsageMeter
from memos.reader.facts.extractor import FactReader

_ZONE = ZoneInfo("UTC")
_UNDATED = datetime(2023, 1, 1, tzinfo=UTC)
_TOP_K = 50
_FOUND_AT = 10
_SETTLED_S = 600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the part `locomo` takes beside the file."""
    parser.add_argument("--searches", type=positive, metavar="N", help="also ask N questions, without facts and with")
    parser.add_argument("--chats", type=positive, metavar="N", help="only the first N conversations of the file")
    parser.add_argument(
        "--sessions", type=positive, metavar="N", help="only the first N sessions, and what they answer"
    )
    parser.add_argument("--with-model", action="store_true", help="read with the configured model, not by pattern")


def measure(arguments: argparse.Namespace) -> Report:
    """Read each conversation, session by session, and compare the turns of its facts with the questions' evidence."""
    if arguments.data is None:
        raise BadData(Path("--data"), "is missing: the part locomo needs the path of a LoCoMo file")
    chats = [first_sessions(chat, arguments.sessions) for chat in load_locomo(arguments.data)[: arguments.chats]]
    with (
        configured(arguments.cache) if arguments.with_model else nullcontext(("pattern", lambda: None)) as (name, asker)
    ):
        figures, types = _coverage(chats, FactReader(asker))
    tables = [figures_table(f"LoCoMo read by {name}", list(figures), {"all": figures})]
    told: dict[str, Any] = {**figures, "types": types}
    if arguments.searches is not None:
        told["dialog_frac@10"] = found = _searched(first_questions(chats, arguments.searches))
        tables.append(figures_table("dialog_frac@10", list(found), {"all": found}))
    return Report({"n": sum(len(chat.questions) for chat in chats), "locomo": told}, tables=tables)


def facts_of(chat: Chat, reader: FactReader) -> list[tuple[list[str], Fact]]:
    """Return each fact with the ids of the turns it was read in; of a message that a model fails at there is none."""
    found = []
    for session in chat.sessions:
        items = [
            stored(message.text, Role.USER, message.name or "user", message.at or _UNDATED, place)
            for place, message in enumerate(session.messages)
        ]
        ids = {item.id: message.id for item, message in zip(items, session.messages, strict=True)}
        for fact in _read(reader, items):
            found.append((list(dict.fromkeys(ids[span.item] for span in fact.spans)), fact))
    return found


def _read(reader: FactReader, items: Sequence[Item]) -> Sequence[Fact]:
    """Read messages as a task would: those of a failed attempt again, half as many at once."""
    try:
        return reader.read(items, _ZONE, UsageMeter("bench")).facts
    except ModelError:
        if len(items) == 1:
            return ()
    middle = len(items) // 2
    return [*_read(reader, items[:middle]), *_read(reader, items[middle:])]


def _coverage(chats: Sequence[Chat], reader: FactReader) -> tuple[dict[str, float], dict[str, int]]:
    messages = facts = covered = gold = whole = asked = 0
    types: Counter[str] = Counter()
    for chat in chats:
        found = facts_of(chat, reader)
        named = {source for sources, _ in found for source in sources}
        messages += sum(len(session.messages) for session in chat.sessions)
        facts += len(found)
        types.update(str(fact.type) for _, fact in found)
        for question in chat.questions:
            asked += 1
            gold += len(question.gold)
            covered += sum(turn in named for turn in question.gold)
            whole += all(turn in named for turn in question.gold)
    return {
        "messages": messages,
        "facts": facts,
        "facts_per_100_messages": 100 * facts / messages,
        "evidence_covered": covered / gold,
        "questions_all_covered": whole / asked,
    }, dict(types)


def _searched(chats: Sequence[Chat]) -> dict[str, float]:
    """Ask every question of a store of messages, and again when the facts are stored beside them."""
    without, with_facts = [], []
    for chat in progress(chats, "LoCoMo"):
        with installation() as memos:
            fill(memos, chat.name, chat.sessions)
            without += _found(memos, chat)
            memos.tiers.analyse(cube=chat.name, everything=True)
            memos.tasks.wait(timeout_s=_SETTLED_S)
            with_facts += _found(memos, chat)
    return {
        "questions": len(without),
        "without": sum(without) / len(without),
        "with": sum(with_facts) / len(with_facts),
    }


def _found(memos: MemOS, chat: Chat) -> list[float]:
    shares = []
    for question in chat.questions:
        hits = ask(memos, chat.name, question.text, asked=question.asked, top_k=_TOP_K).hits
        ranked = [str(message) for _conversation, message in source_messages(hits)]
        shares.append(frac_at(ranked, question.gold, _FOUND_AT))
    return shares
