"""LongMemEval: are the sessions with the evidence among the first found? `--data longmemeval_s.json`.

The official retrieval metric at session level over every question but the abstentions. Each question has an
installation of its own with its whole history; sessions are ranked by their first message in 100 hits.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.data import Chat, first_questions, load_longmemeval
from benchmarks.floors import Engines, MessageFloors
from benchmarks.metrics import all_at, any_at, first_seen, mean, ndcg_at
from benchmarks.report import Report, data_parser, figures_table, progress, run
from benchmarks.stores import ask, fill, installation, source_messages

KS = (5, 10)
TOP_K = 100
CUBE = "history"
OURS = "hippocube"
SYSTEMS = (OURS, "fusion", "bm25", "minilm", "random")


def row_of(sessions: Sequence[str], gold: Sequence[str]) -> dict[str, float]:
    """Return one question's figures from its ranked sessions."""
    row = {}
    for k in KS:
        row[f"recall_any@{k}"] = any_at(sessions, gold, k)
        row[f"recall_all@{k}"] = all_at(sessions, gold, k)
        row[f"ndcg_any@{k}"] = ndcg_at(sessions, gold, k)
    return row


def measure(arguments: argparse.Namespace) -> Report:
    """Fill a history and ask its question, of ours and of the floors, for each question."""
    chats = load_longmemeval(arguments.data)
    engines = Engines.default()
    rows: list[dict[str, Any]] = []
    for chat in progress(first_questions(chats, arguments.limit), "LongMemEval"):
        [question] = chat.questions
        ranked = {OURS: _ours(chat), **_floors(chat, engines, arguments.seed)}
        figures = {name: row_of(ranked[name], question.gold) for name in SYSTEMS}
        rows.append({"question_id": chat.name, "type": question.kind, "question": question.text, **figures})
    systems = {name: mean(row[name] for row in rows) for name in SYSTEMS}
    table = figures_table(f"LongMemEval, {len(rows)} questions", list(systems[OURS]), systems)
    ours, left_out = systems.pop(OURS), sum(chat.left_out for chat in chats)
    by_type = _by_type(rows)
    return Report({"n": len(rows), "left_out": left_out, **ours, "by_type": by_type, "floors": systems}, rows, [table])


def _ours(chat: Chat) -> list[str]:
    [question] = chat.questions
    with installation() as memos:
        fill(memos, CUBE, chat.sessions)
        hits = ask(memos, CUBE, question.text, asked=question.asked, top_k=TOP_K).hits
    return first_seen(str(session) for session, _message in source_messages(hits))


def _floors(chat: Chat, engines: Engines, seed: int) -> dict[str, list[str]]:
    said = [(session.name, message.text) for session in chat.sessions for message in session.messages]
    ranked = MessageFloors([text for _session, text in said], engines, seed).rank(chat.questions[0].text)
    return {name: first_seen(said[place][0] for place in places) for name, places in ranked.items()}


def _by_type(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    kinds = sorted({row["type"] for row in rows})
    return {kind: mean(row[OURS] for row in rows if row["type"] == kind) for kind in kinds}


def main(argv: Sequence[str] | None = None) -> int:
    """Parse arguments, run, print the closing line."""
    return run("longmemeval", data_parser(__doc__, "a LongMemEval file").parse_args(argv), measure)


if __name__ == "__main__":
    sys.exit(main())
