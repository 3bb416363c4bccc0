"""LoCoMo: are the messages that hold the evidence among the first found? `--data locomo10.json`.

Each conversation is a cube, each of its sessions a conversation in it; the ranked list is the distinct source
messages of 50 hits. A question is asked at the time of the last session. No language model takes part unless `--rerank`
names one (docs/how-to/reranking.md): then every question is asked with it and without it, and both are timed.
`--questions FILE` asks some questions alone, in other words, such as another language's; its form is
`[{"conversation": "conv-26", "question": "as in the data", "asked": "what is asked instead"}, …]`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from statistics import median
from typing import Any

from pydantic import ValidationError

from benchmarks.data import Chat, Question, Session, asked_instead, first_questions, load_locomo
from benchmarks.floors import EMBEDDERS, MINILM, Engines, TurnFloors, plain_embedder
from benchmarks.metrics import all_at, any_at, first_seen, fitting, frac_at, mean
from benchmarks.report import CannotRun, Report, data_parser, figures_table, progress, run
from benchmarks.stores import ask, fill, installation, source_messages
from memos import MemOS, Settings
from memos.core.text import rendering as render
from memos.core.text.rendering import assemble
from memos.core.tokens import estimate_tokens

TOP_K = 50
# A context is filled from as many hits as it has room for.
BUDGET_TOP_K = 200
DIALOG_KS = (5, 10, 25, 50)
SESSION_KS = (1, 3, 5, 10)
BUDGETS = (500, 1000, 2000)
SHOWN = ("dialog_frac@10", "dialog_frac@50", "session_frac@5", "session_all@5", "budget_frac@1000")
OURS = "hippocube"
RERANKED = "reranked"


def row_of(ranked: Sequence[str], gold: Sequence[str], kept: Mapping[int, Sequence[str]]) -> dict[str, float]:
    """Return one question's figures: ranked message ids, gold ids, and the ids each budget kept."""
    sessions, gold_sessions = first_seen(map(_session, ranked)), {_session(entry) for entry in gold}
    row = {f"dialog_frac@{k}": frac_at(ranked, gold, k) for k in DIALOG_KS}
    for name, metric in (("frac", frac_at), ("any", any_at), ("all", all_at)):
        row |= {f"session_{name}@{k}": metric(sessions, gold_sessions, k) for k in SESSION_KS}
    return row | {f"budget_frac@{budget}": frac_at(ids, gold, len(ids)) for budget, ids in kept.items()}


def measure(arguments: argparse.Namespace) -> Report:
    """Ask every question of our store and of the floors."""
    chats = load_locomo(arguments.data)
    if arguments.questions is not None:
        chats = asked_instead(chats, arguments.questions)
    asked = [(chat, question) for chat in first_questions(chats, arguments.limit) for question in chat.questions]
    engines = Engines.of(arguments.embedder)
    names = ("fusion", "bm25", engines.name, "random")
    floors: dict[str, _Floors] = {}
    rows: list[dict[str, Any]] = []
    # Without the option as settings in the environment say, which is without a reranker by default.
    ours: dict[str, bool | None] = {OURS: None} if arguments.rerank is None else {OURS: False, RERANKED: True}
    spent_ms: dict[str, list[float]] = {name: [] for name in ours}
    with _opened(arguments) as memos:
        for chat, question in progress(asked, "LoCoMo"):
            if chat.name not in floors:
                fill(memos, chat.name, chat.sessions)
                floors[chat.name] = _Floors(chat, engines, arguments.seed)
            figures = {name: _ours(memos, chat, question, spent_ms[name], rerank=on) for name, on in ours.items()}
            figures |= floors[chat.name].rows(question)
            rows.append({"conversation": chat.name, "category": question.kind, "question": question.text, **figures})
    systems: dict[str, dict[str, Any]] = {name: summary(rows, name) for name in (*ours, *names)}
    if arguments.plot is not None:
        plot(arguments.plot, systems)
    floor_means = {name: mean(row[name] for row in rows) for name in names}
    for name in ours:
        systems[name]["search_ms"] = round(median(spent_ms[name]), 2)
    left_out = sum(chat.left_out for chat in chats)
    figures = {"n": len(rows), "left_out": left_out, "embedder": engines.name, **systems[OURS], "floors": floor_means}
    if RERANKED in ours:
        figures[RERANKED] = {"model": arguments.rerank, **systems[RERANKED]}
    return Report(figures, rows, _tables(systems))


def _opened(arguments: argparse.Namespace) -> AbstractContextManager[MemOS]:
    """Open an installation, with a reranker named as MEMOS_RERANK__MODEL names it; the environment says the rest."""
    embedder = plain_embedder(arguments.embedder)
    if arguments.rerank is None:
        return installation(embedder=embedder)
    try:
        return installation(Settings(rerank={"model": arguments.rerank}), embedder)  # type: ignore[arg-type]
    except ValidationError as error:
        raise CannotRun(f"--rerank {arguments.rerank}: {error}") from error


def summary(rows: Sequence[Mapping[str, Any]], name: str) -> dict[str, Any]:
    """Return one system's averages, over all questions and by category."""
    categories = sorted({row["category"] for row in rows})
    by_category = {
        category: _averages([row[name] for row in rows if row["category"] == category]) for category in categories
    }
    return {**mean(row[name] for row in rows), "by_category": by_category}


def _averages(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {"n": len(rows), **mean(rows)}


def _ours(
    memos: MemOS, chat: Chat, question: Question, spent_ms: list[float], *, rerank: bool | None
) -> dict[str, float]:
    ask(memos, chat.name, question.text, asked=question.asked, top_k=1, rerank=False)  # embeds the question, untimed
    began = time.perf_counter()
    found = ask(memos, chat.name, question.text, asked=question.asked, top_k=TOP_K, rerank=rerank)
    spent_ms.append((time.perf_counter() - began) * 1000)
    whole = ask(memos, chat.name, question.text, asked=question.asked, top_k=BUDGET_TOP_K, rerank=rerank)
    kept = {budget: assemble(whole.hits, budget)[0] for budget in BUDGETS}
    return row_of(_ids(found.hits), question.gold, {budget: _ids(hits) for budget, hits in kept.items()})


def _ids(hits: Sequence[Any]) -> list[str]:
    """Return message ids, which name their session, too: D8:6 is the sixth message of the eighth."""
    return [str(message) for _conversation, message in source_messages(hits)]


def _session(dia_id: str) -> str:
    return dia_id.split(":", 1)[0]


class _Floors:
    """The floors of one conversation; their contexts are written as ours are."""

    def __init__(self, chat: Chat, engines: Engines, seed: int) -> None:
        self._ids = [message.id for session in chat.sessions for message in session.messages]
        self._costs = [_cost(session, place) for session in chat.sessions for place in range(len(session.messages))]
        turns = [[f"{said.name}: {said.text}" for said in session.messages] for session in chat.sessions]
        self._floors = TurnFloors(turns, engines, seed)

    def rows(self, question: Question) -> dict[str, dict[str, float]]:
        """Return each floor's figures for one question."""
        rows = {}
        for name, places in self._floors.rank(question.text).items():
            ranked = [self._ids[place] for place in places]
            costs = [self._costs[place] for place in places[:BUDGET_TOP_K]]
            kept = {budget: [ranked[place] for place in fitting(costs, budget)] for budget in BUDGETS}
            rows[name] = row_of(ranked, question.gold, kept)
        return rows


def _cost(session: Session, place: int) -> int:
    said = session.messages[place]
    return estimate_tokens(render.citation(10, said.at, render.with_speaker(str(said.name), said.text)) + "\n")


def _tables(systems: Mapping[str, Mapping[str, Any]]) -> list[Any]:
    categories = list(systems[OURS]["by_category"])
    tables = [figures_table("LoCoMo, all questions", (*SHOWN, "search_ms"), systems)]
    for figure in ("dialog_frac@10", "session_frac@5"):
        rows = {
            name: {category: figures["by_category"][category][figure] for category in categories}
            for name, figures in systems.items()
        }
        tables.append(figures_table(f"{figure} by category", categories, rows))
    return tables


def plot(path: Path, systems: Mapping[str, Mapping[str, Any]]) -> None:
    """Draw evidence found over the number of messages, ours and the floors."""
    from benchmarks.plots import lines  # noqa: PLC0415 - matplotlib is an optional extra

    lines(
        path,
        {name: (DIALOG_KS, [figures[f"dialog_frac@{k}"] for k in DIALOG_KS]) for name, figures in systems.items()},
        title="LoCoMo: evidence among the first k messages",
        x="k messages",
        y="share of the evidence",
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Parse arguments, run, print the closing line."""
    parser = data_parser(__doc__, "a LoCoMo file")
    parser.add_argument("--rerank", metavar="MODEL", help="measure with this reranker, too, such as onnx:FOLDER, judge")
    parser.add_argument("--questions", type=Path, metavar="FILE", help="ask these questions alone, in these words")
    parser.add_argument("--embedder", choices=EMBEDDERS, default=MINILM, help=f"default {MINILM}")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw recall over k (extra `bench`)")
    return run("locomo", parser.parse_args(argv), measure)


if __name__ == "__main__":
    sys.exit(main())
