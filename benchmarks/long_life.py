"""Long life: a simulated year of one person in one cube, asked at the end of each month what holds now.

Each exchange (`benchmarks.life`: statements, changes, endings, what only seems to change, and small talk) is one `add`,
with default settings and no language model. After each month, when background tasks are done:

- `now_first`: questions about the user's attributes whose first hit says what holds now, or that it has ended;
  `now_in_5`: one of the first five hits does. `stale_first`: of those that have changed, the first hit says what held
  before.
- `past_first`: questions about the value before ("before Ghent") whose first hit names it.
- `guard_first`: questions about three other people whose first hit says what holds of them.
- `contradictory`: share of all changes so far whose older statement is still `current`, since no relation of at least
  0.5 says that a newer one replaces it: an agent that reads both takes both for true.
  `contradictory_by_kind` has them by how the newer statement changes things (`change`, `end`, or `restart` after an
  end). "I cancelled the trip to Scotland." is no older statement of "I've booked a trip to Georgia.": both are true.
- `wrongly_outdated`: share of the statements that hold, of everybody, that are marked as outdated.
- `add_over_embed`: median of an add over the median of embedding the same texts in one batch, timed in turns;
  `add_growth` is the last month's over the second's.

Floors, over the turns so far: MiniLM alone, and the newest turn within 0.2 of its best cosine.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.floors import NEWEST_MARGIN, best_first, newest_near
from benchmarks.life import Life, Question, Statement, Turn
from benchmarks.metrics import mean
from benchmarks.report import Report, figures_table, output_parser, positive, progress, run
from benchmarks.stores import ask, installation
from memos import MemOS
from memos.backends.encoders.minilm import MiniLmEmbedder
from memos.core.ports import Embedder, Vector
from memos.core.settings import Settings
from memos.core.types import REPLACING, Hit

CUBE = "year"
FLOORS = ("minilm", "newest")
TOP_K = 5
LIKELY = 0.5  # confidence from which a hit's standing is not `current` (docs/concepts/truth.md)
_ASKED = {"now": 24, "others": 6, "past": 6}  # questions a month
_FIGURES = ("now_first", "now_in_5", "stale_first", "past_first", "guard_first")
_MORE = ("contradictory", "wrongly_outdated", "add_p50_ms", "add_over_embed")
_SETTLE_S = 600.0


@dataclass(slots=True)
class Told:
    """What was added so far: ids of the user's items by turn, and the vectors of all turns."""

    items: dict[int, str] = field(default_factory=dict)
    vectors: list[Vector] = field(default_factory=list)


def measure(arguments: argparse.Namespace) -> Report:
    """Tell the year month by month and ask at the end of each."""
    life = Life(arguments.seed, arguments.turns, arguments.changes, arguments.months)
    embedder = MiniLmEmbedder(threads=Settings().embed.threads)
    told = Told()
    rows: list[dict[str, Any]] = []
    by_month: list[dict[str, Any]] = []
    with installation() as memos:
        memos.cubes.create(CUBE)
        for month in progress(range(arguments.months), "Long life"):
            times = _tell(memos, life, month, embedder, told)
            memos.tasks.wait(cubes=[CUBE], timeout_s=_SETTLE_S)
            asked = [_asked(memos, life, question, month, embedder, told) for question in _questions(life, month)]
            rows += asked
            standings = _standings(memos, life, month, told)
            by_month.append({**_figures(asked, "hippocube"), **_shares(standings), **times})
    return _report(life, by_month, rows, standings)


def _tell(memos: MemOS, life: Life, month: int, embedder: Embedder, told: Told) -> dict[str, Any]:
    """Add a month's exchanges; time each add, and embedding its texts, first as often as last."""
    turns = [turn for turn in life.turns if turn.month == month]
    add_ms, embed_ms = [], []
    for number in range(0, len(turns), 2):
        exchange = turns[number : number + 2]
        texts = [turn.text for turn in exchange]
        before = number % 4 == 0
        started = time.perf_counter()
        vectors = embedder.embed_documents(texts) if before else None
        embedded = time.perf_counter()
        receipt = memos.add([each.message() for each in exchange], cube=CUBE, conversation=exchange[0].conversation)
        added = time.perf_counter()
        if vectors is None:
            vectors = embedder.embed_documents(texts)
        embed_ms.append(1000 * (embedded - started if before else time.perf_counter() - added))
        add_ms.append(1000 * (added - embedded))
        told.vectors += list(vectors)
        told.items[exchange[0].number] = receipt.item_ids[0]
    add, embed = float(np.median(add_ms)), float(np.median(embed_ms))
    return {"turns": len(turns), "add_p50_ms": round(add, 2), "add_over_embed": round(add / embed, 3)}


def _questions(life: Life, month: int) -> list[Question]:
    return life.questions(month, **_ASKED)


def _asked(memos: MemOS, life: Life, question: Question, month: int, embedder: Embedder, told: Told) -> dict[str, Any]:
    result = ask(memos, CUBE, question.text, asked=life.month_end(month), top_k=TOP_K)
    found = {"hippocube": [_turns_of(hit, life) for hit in result.hits]}
    cosines = (np.stack(told.vectors) @ embedder.embed_query(question.text)).astype(np.float64)
    times = [turn.at for turn in life.turns[: len(told.vectors)]]
    for name, order in (("minilm", best_first(cosines)), ("newest", newest_near(cosines, times, NEWEST_MARGIN))):
        found[name] = [[life.turns[place]] for place in order[:TOP_K]]
    right = [any(question.right(turn) for turn in turns) for turns in found["hippocube"]]
    return {
        "month": month + 1,
        "key": question.key,
        "about": question.about,
        "question": question.text,
        "want": question.value,
        "kind": life.attributes[question.key].said[question.version].kind,
        "want_text": life.turns[life.attributes[question.key].said[question.version].turn].text,
        "first": [hit.item.memory for hit in result.hits[:1]],
        "first_is": _kind(question, found["hippocube"][0] if result.hits else []),
        "standing": [hit.standing for hit in result.hits[:1]],
        "place": right.index(True) + 1 if True in right else None,
        **{name: _judge(question, turns) for name, turns in found.items()},
    }


def _turns_of(hit: Hit, life: Life) -> list[Turn]:
    numbers = (source.external_id for source in hit.sources if source.conversation is not None)
    return [life.turns[int(number)] for number in numbers if number is not None]


def _judge(question: Question, hits: Sequence[Sequence[Turn]]) -> dict[str, float]:
    found = [any(map(question.right, turns)) for turns in hits]
    right = float(found[:1] == [True])
    if question.about == "past":
        return {"past_first": right}
    if question.about == "others":
        return {"guard_first": right}
    figures = {"now_first": right, "now_in_5": float(any(found))}
    if question.version:
        figures["stale_first"] = float(not right and any(map(question.stale, hits[0] if hits else ())))
    return figures


def _kind(question: Question, first: Sequence[Turn]) -> str:
    """Say what the first hit is, of a question."""
    if any(question.right(turn) for turn in first):
        return "right"
    if not first:
        return "nothing"
    if any(turn.key == question.key and turn.version >= 0 for turn in first):
        return "another version"
    turn = first[0]
    return turn.kind if turn.key is None or turn.kind == "unreal" else "another attribute"


def _standings(memos: MemOS, life: Life, month: int, told: Told) -> list[dict[str, Any]]:
    """Return a row for each change so far, of the older statement, and for each statement that holds."""

    def row(about: str, key: str, statement: Statement, newer: Statement | None) -> dict[str, Any]:
        item = told.items[statement.turn]
        found = [each for each in memos.memories.relations(item) if each.older == item and each.kind in REPLACING]
        best = max(found, key=lambda each: each.confidence, default=None)
        return {
            "about": about,
            "key": key,
            "text": life.turns[statement.turn].text,
            "newer": None if newer is None else life.turns[newer.turn].text,
            "kind": None if newer is None else newer.kind,
            "confidence": 0.0 if best is None else best.confidence,
            "by": None if best is None else memos.get(best.newer).memory,
        }

    changed = [row("change", key, older, newer) for key, older, newer in life.changes(month)]
    return changed + [row("holding", key, statement, None) for key, statement in life.holding(month)]


def _shares(standings: Sequence[dict[str, Any]]) -> dict[str, Any]:
    changed = [row["confidence"] < LIKELY for row in standings if row["about"] == "change"]
    wrongly = [row["confidence"] >= LIKELY for row in standings if row["about"] == "holding"]
    return {
        "changes": len(changed),
        "contradictory": round(sum(changed) / max(1, len(changed)), 4),
        "wrongly_outdated": round(sum(wrongly) / max(1, len(wrongly)), 4),
    }


def _by_kind(standings: Sequence[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """Return how many changes of each kind there are, and of how many the older statement is still current."""
    changes = [row for row in standings if row["about"] == "change"]
    total = Counter(row["kind"] for row in changes)
    open_ = Counter(row["kind"] for row in changes if row["confidence"] < LIKELY)
    return {kind: {"changes": total[kind], "contradictory": open_[kind]} for kind in sorted(total)}


def _figures(rows: Sequence[dict[str, Any]], system: str) -> dict[str, float]:
    found = mean(row[system] for row in rows)
    return {name: found[name] for name in _FIGURES if name in found}


def _report(
    life: Life, by_month: Sequence[dict[str, Any]], rows: list[dict[str, Any]], standings: list[dict[str, Any]]
) -> Report:
    """Return the figures by month and over the year, and tables of both."""
    systems = {name: _figures(rows, name) for name in ("hippocube", *FLOORS)}
    months = range(1, len(by_month) + 1)
    floors = {
        name: {
            figure: [_figures([row for row in rows if row["month"] == month], name).get(figure) for month in months]
            for figure in _FIGURES
        }
        for name in FLOORS
    }
    costs = [figures["add_over_embed"] for figures in by_month]
    figures = {
        "n": len(rows),
        "turns": len(life.turns),
        "changes": by_month[-1]["changes"],
        **{name: [month.get(name) for month in by_month] for name in (*_FIGURES, *_MORE)},
        "contradictory_by_kind": _by_kind(standings),
        "add_growth": round(costs[-1] / costs[1], 3) if len(costs) > 1 else None,
        "year": systems,
        "first_is": dict(Counter(row["first_is"] for row in rows if row["about"] == "now")),
        "floors": floors,
    }
    named = {f"month {number}": month for number, month in enumerate(by_month, start=1)}
    title = f"Long life, {len(life.turns)} turns, {len(rows)} questions"
    tables = [
        figures_table(title, _FIGURES, named | {f"all months: {name}": found for name, found in systems.items()}),
        figures_table("Standing, and the cost of an add", ["turns", "changes", *_MORE], named),
    ]
    return Report(figures, [*rows, *standings], tables)


def main(argv: Sequence[str] | None = None) -> int:
    """Parse arguments, run, print the closing line."""
    parser = output_parser(__doc__)
    parser.add_argument("--turns", type=positive, default=3000, help="messages of the year (default 3000)")
    parser.add_argument("--changes", type=positive, default=300, help="the user's changes and endings (default 300)")
    parser.add_argument("--months", type=positive, default=12, help="months that it takes (default 12)")
    parser.add_argument(
        "--per-question", type=Path, metavar="FILE", help="write one line of JSON a question and change"
    )
    return run("long_life", parser.parse_args(argv), measure)


if __name__ == "__main__":
    sys.exit(main())
