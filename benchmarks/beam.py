"""BEAM: are the messages a question was made from among the first found? `--data FOLDER`.

Each chat is a cube, each of its batches a conversation in it, in order and with their time anchors; the ranked list
is the distinct source messages of 50 hits. Questions without integer `source_chat_ids` are left out. Chats are
reported by ability and by size: 100K, 500K or 1M tokens, whichever is nearest by ratio.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.data import first_questions, load_beam
from benchmarks.floors import Engines, MessageFloors
from benchmarks.metrics import all_at, any_at, frac_at, mean, newest_first
from benchmarks.report import Report, data_parser, figures_table, progress, run
from benchmarks.stores import ask, fill, installation, source_messages
from memos.core.tokens import estimate_tokens

KS = (5, 10, 20, 50)
TOP_K = max(KS)
# Two statements of different times stand behind these: both are wanted, the newer one first.
TWO_SIDED = ("contradiction_resolution", "knowledge_update")
OURS = "hippocube"
SIZES = {"100K": 100_000, "500K": 500_000, "1M": 1_000_000}
SHOWN = ("any@5", "any@10", "frac@10", "all@10", "newest_first")
SYSTEMS = (OURS, "fusion", "bm25", "minilm", "random")


def row_of(ranked: Sequence[str], gold: Sequence[str], ability: str) -> dict[str, float | None]:
    """Return one question's figures; the gold is given oldest first."""
    row: dict[str, float | None] = {f"any@{k}": any_at(ranked, gold, k) for k in KS}
    row |= {f"frac@{k}": frac_at(ranked, gold, k) for k in KS}
    if ability in TWO_SIDED:
        row |= {f"all@{k}": all_at(ranked, gold, k) for k in KS}
        row["newest_first"] = newest_first(ranked[:TOP_K], gold)
    return row


def size_of(texts: Iterable[str]) -> str:
    """Return the nearest of BEAM's sizes, by the estimated tokens of a chat's messages."""
    tokens = max(1, sum(map(estimate_tokens, texts)))
    return min(SIZES, key=lambda name: abs(math.log(tokens / SIZES[name])))


def measure(arguments: argparse.Namespace) -> Report:
    """Ask every question of our store and of the floors."""
    chats = load_beam(arguments.data)
    asked = [(chat, question) for chat in first_questions(chats, arguments.limit) for question in chat.questions]
    engines = Engines.default()
    sizes = {
        chat.name: size_of(message.text for session in chat.sessions for message in session.messages) for chat in chats
    }
    floors: dict[str, MessageFloors] = {}
    rows: list[dict[str, Any]] = []
    with installation() as memos:
        for chat, question in progress(asked, "BEAM"):
            messages = [message for session in chat.sessions for message in session.messages]
            if chat.name not in floors:
                fill(memos, chat.name, chat.sessions)
                floors[chat.name] = MessageFloors([message.text for message in messages], engines, arguments.seed)
            found = ask(memos, chat.name, question.text, asked=question.asked, top_k=TOP_K)
            ranked = {OURS: [str(message) for _conversation, message in source_messages(found.hits)]}
            for name, places in floors[chat.name].rank(question.text).items():
                ranked[name] = [messages[place].id for place in places]
            figures = {name: row_of(ranked[name], question.gold, question.kind) for name in SYSTEMS}
            about = {"chat": chat.name, "size": sizes[chat.name], "ability": question.kind, "question": question.text}
            rows.append({**about, **figures})
    return _report(rows, sum(chat.left_out for chat in chats))


def _report(rows: list[dict[str, Any]], left_out: int) -> Report:
    overall = _summary(rows)
    by_size, by_ability = (
        {value: _summary([row for row in rows if row[by] == value]) for value in sorted({row[by] for row in rows})}
        for by in ("size", "ability")
    )
    titles = {f"BEAM, all {len(rows)} questions": overall}
    titles |= {f"{name} ({figures['n']})": figures for name, figures in [*by_size.items(), *by_ability.items()]}
    tables = [figures_table(title, SHOWN, {OURS: figures, **figures["floors"]}) for title, figures in titles.items()]
    return Report({**overall, "left_out": left_out, "by_size": by_size, "by_ability": by_ability}, rows, tables)


def _summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    floors = {name: mean(row[name] for row in rows) for name in SYSTEMS if name != OURS}
    return {"n": len(rows), **mean(row[OURS] for row in rows), "floors": floors}


def main(argv: Sequence[str] | None = None) -> int:
    """Parse arguments, run, print the closing line."""
    return run("beam", data_parser(__doc__, "a folder of BEAM chats, or one of them").parse_args(argv), measure)


if __name__ == "__main__":
    sys.exit(main())
