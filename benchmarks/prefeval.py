"""PrefEval: is a preference stated long ago among the first things found? `--data prefeval.json`.

`benchmarks/preferences_usual.json` and `preferences_free.json` are pairs of other topics, for `--pairs`: in the words
of such questionnaires, and in those of people who talk; written by who had not seen the code (docs/development/log.md).

Each pair is a user with a cube of their own: the stated preference, on the first day, then the distractor
conversations, one a day; the question comes the day after. `hit@k` is asked when the cube has just been filled,
`multi_user_hit@5` when all the users' cubes stand in the installation.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.data import Message, Preferences, Session, load_prefeval
from benchmarks.floors import Engines, MessageFloors
from benchmarks.metrics import any_at, mean
from benchmarks.report import Report, data_parser, figures_table, progress, run
from benchmarks.stores import ask, fill, installation
from memos import MemOS

KS = (1, 5, 10)
MULTI_USER_K = 5
OURS = "hippocube"
STATED = "preference"
_Pair = tuple[str, str, str]  # topic, preference, question
_FIRST_DAY = datetime(2024, 1, 1, 12, tzinfo=UTC)


def sessions_of(preference: str, distractors: Sequence[Session]) -> list[Session]:
    """Return one user's conversations: the preference alone, then the distractors, each a day later."""
    sessions = [Session(STATED, (Message(STATED, "user", preference),)), *distractors]
    return [
        Session(
            session.name,
            tuple(replace(message, at=_FIRST_DAY + timedelta(days=day)) for message in session.messages),
        )
        for day, session in enumerate(sessions)
    ]


def spread(pairs: Sequence[_Pair], limit: int | None) -> list[_Pair]:
    """Return at most `limit` pairs, evenly spread, since a file goes topic by topic."""
    if limit is None or limit >= len(pairs):
        return list(pairs)
    return [pairs[place * len(pairs) // limit] for place in range(limit)]


def measure(arguments: argparse.Namespace) -> Report:
    """Ask every pair's question of our store, alone and among all the others, and of the floors."""
    data = load_prefeval(arguments.data, arguments.pairs)
    pairs = spread(data.pairs, arguments.limit)
    asked = _FIRST_DAY + timedelta(days=len(data.distractors) + 1)
    engines = Engines.default()
    rows: list[dict[str, Any]] = []
    with installation() as memos:
        for place, (topic, preference, question) in progress(list(enumerate(pairs)), "PrefEval"):
            fill(memos, _cube(place), sessions_of(preference, data.distractors))
            ours = _found(memos, place, question, asked)
            figures = {OURS: {f"hit@{k}": any_at(ours, [STATED], k) for k in KS}}
            figures |= _floors(data, preference, question, engines, arguments.seed + place)
            rows.append({"topic": topic, "question": question, "preference": preference, **figures})
        for place, (_topic, _preference, question) in progress(list(enumerate(pairs)), "PrefEval, all users"):
            found = _found(memos, place, question, asked)
            rows[place][OURS][f"multi_user_hit@{MULTI_USER_K}"] = any_at(found, [STATED], MULTI_USER_K)
    systems = {name: mean(row[name] for row in rows) for name in (OURS, "fusion", "bm25", "minilm", "random")}
    names = [*(f"hit@{k}" for k in KS), f"multi_user_hit@{MULTI_USER_K}"]
    table = figures_table(f"PrefEval, {len(rows)} pairs", names, systems)
    ours_mean = systems.pop(OURS)
    return Report({"n": len(rows), **ours_mean, "by_topic": _by_topic(rows), "floors": systems}, rows, [table])


def _found(memos: MemOS, place: int, question: str, asked: datetime) -> list[str]:
    """Return for each hit whether it comes from the stated preference: its name, or the hit's place."""
    result = ask(memos, _cube(place), question, asked=asked, top_k=max(KS))
    return [
        STATED if any(source.conversation == STATED for source in hit.sources) else f"other {number}"
        for number, hit in enumerate(result.hits)
    ]


def _floors(
    data: Preferences, preference: str, question: str, engines: Engines, seed: int
) -> dict[str, dict[str, float]]:
    texts = [preference, *(message.text for session in data.distractors for message in session.messages)]
    ranked = MessageFloors(texts, engines, seed).rank(question)
    return {name: {f"hit@{k}": any_at(places, [0], k) for k in KS} for name, places in ranked.items()}


def _by_topic(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    topics = sorted({row["topic"] for row in rows})
    return {topic: mean(row[OURS] for row in rows if row["topic"] == topic) for topic in topics}


def _cube(place: int) -> str:
    return f"user-{place}"


def main(argv: Sequence[str] | None = None) -> int:
    """Parse arguments, run, print the closing line."""
    parser = data_parser(__doc__, "a PrefEval file")
    parser.add_argument("--pairs", type=Path, metavar="FILE", help="other pairs, beside that file's distractors")
    return run("prefeval", parser.parse_args(argv), measure)


if __name__ == "__main__":
    sys.exit(main())
