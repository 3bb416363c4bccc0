"""What each recall arm of a search costs: `--data locomo10.json`, or any file of LoCoMo's form.

The questions are asked as `benchmarks.locomo` asks them, ten hits each. What the searches ask the indexes for is kept
and asked again, one arm alone and all without one, so that an arm has a time of its own: milliseconds, medians. `n` is
how often the searches asked an arm; that of requests alone is asked in each call.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.data import first_questions, load_locomo
from benchmarks.report import Report, data_parser, figures_table, progress, run
from benchmarks.stores import ask, fill, installation
from memos import MemOS
from memos.core.ports import Graph, ScoredPoint, VectorIndex, VectorSearch
from memos.core.types import Arm

TOP_K = 10
_SHOWN = ("n", "alone", "in_a_call", "share")


@dataclass(slots=True)
class Asked:
    """What one question was answered with: calls of the vector index and of the graph, and the search's stages."""

    calls: list[VectorSearch]
    near: list[tuple[tuple[str, ...], str, int]]
    search_ms: float = 0.0
    stages: dict[str, float] | None = None


class HeardIndex:
    """The part of a vector index that searches use, which notes what it is asked."""

    def __init__(self, index: VectorIndex, heard: list[VectorSearch]) -> None:
        self._index, self._heard = index, heard

    @property
    def restart_count(self) -> int:
        """How often the index behind was started again."""
        return self._index.restart_count

    def search(self, request: VectorSearch, meanwhile: Callable[[], None] | None = None) -> list[list[ScoredPoint]]:
        """Return what the index behind finds."""
        self._heard.append(request)
        return self._index.search(request, meanwhile)


class HeardGraph:
    """The part of a graph index that searches use, which notes what it is asked."""

    def __init__(self, graph: Graph, heard: list[tuple[tuple[str, ...], str, int]]) -> None:
        self._graph, self._heard = graph, heard

    def adjacent(self, cubes: tuple[str, ...], item: str, limit: int) -> list[str]:
        """Return what the graph behind has near."""
        self._heard.append((cubes, item, limit))
        return self._graph.adjacent(cubes, item, limit)


def measure(arguments: argparse.Namespace) -> Report:
    """Ask every question, then ask the indexes again, arm by arm."""
    chats = first_questions(load_locomo(arguments.data), arguments.limit)
    with installation() as memos:
        for chat in progress(chats, "filling"):
            fill(memos, chat.name, chat.sessions)
        questions = [(chat.name, question) for chat in chats for question in chat.questions]
        asked = [_asked(memos, cube, question.text, question.asked) for cube, question in progress(questions, "asking")]
        arms = _arms(memos.search._searcher.index, asked)
        near = [_ms(memos.search._searcher.graph.adjacent, *call) for one in asked for call in one.near]
    stages = defaultdict(list)
    for one in asked:
        for name, spent in (one.stages or {}).items():
            stages[name].append(spent)
    search_ms = statistics.median(one.search_ms for one in asked)
    medians = {name: round(statistics.median(spent), 3) for name, spent in stages.items()}
    rows: dict[str, dict[str, Any]] = {**arms, "graph": _row(len(near), near, [])}
    for row in rows.values():
        row["share"] = round(row["n"] / len(asked), 3)
    figures = {"n": len(asked), "search_ms": round(search_ms, 3), "stages_ms": medians, "arms": rows}
    return Report(figures, tables=[figures_table("milliseconds of an arm", _SHOWN, rows)])


def _asked(memos: MemOS, cube: str, question: str, at: Any) -> Asked:
    """Return what one search asked the indexes for, and how long it took."""
    usual, heard = memos.search._searcher, Asked([], [])
    index, graph = HeardIndex(usual.index, heard.calls), HeardGraph(usual.graph, heard.near)
    memos.search._searcher = replace(usual, index=index, graph=graph)  # type: ignore[arg-type] - what a search uses of them
    try:
        began = time.perf_counter()
        result = ask(memos, cube, question, asked=at, top_k=TOP_K)
        heard.search_ms = (time.perf_counter() - began) * 1000
    finally:
        memos.search._searcher = usual
    heard.stages = dict(result.timings_ms)
    return heard


def _arms(index: VectorIndex, asked: Sequence[Asked]) -> dict[str, dict[str, Any]]:
    """Return each arm's milliseconds alone, and what a call with several takes less without it."""
    alone: dict[str, list[float]] = defaultdict(list)
    within: dict[str, list[float]] = defaultdict(list)
    calls = [call for one in asked for call in one.calls]
    counts = Counter(arm.arm.value for call in calls for arm in call.arms)
    for call in progress([*map(_as_request, calls)], "arms"):
        whole = _ms(index.search, call)
        for arm in call.arms:
            others = tuple(other for other in call.arms if other is not arm)
            alone[arm.arm.value].append(_ms(index.search, replace(call, arms=(arm,))))
            if others:
                within[arm.arm.value].append(whole - _ms(index.search, replace(call, arms=others)))
    return {name: _row(counts[name], spent, within[name]) for name, spent in alone.items()}


def _as_request(call: VectorSearch) -> VectorSearch:
    """Return what would be asked for a request, which few questions are: also what users told of themselves."""
    by_arm = {arm.arm: arm for arm in call.arms}
    if Arm.STANDING not in by_arm or Arm.OF_SELF in by_arm:
        return call
    return replace(call, arms=(*call.arms, replace(by_arm[Arm.STANDING], arm=Arm.OF_SELF)))


def _row(count: int, alone: Sequence[float], within: Sequence[float]) -> dict[str, Any]:
    return {
        "n": count, "alone": round(statistics.median(alone), 3) if alone else None,
        "in_a_call": round(statistics.median(within), 3) if within else None,
    }  # fmt: skip


def _ms(call: Callable[..., object], *arguments: Any) -> float:
    began = time.perf_counter()
    call(*arguments)
    return (time.perf_counter() - began) * 1000


def main(argv: Sequence[str] | None = None) -> int:
    """Parse arguments, run, print the closing line."""
    return run("arms", data_parser(__doc__, "a LoCoMo file").parse_args(argv), measure)


if __name__ == "__main__":
    sys.exit(main())
