"""Times turns of an agent with and without memory, over a local server: `python -m benchmarks.integrations`.

The agent is LangChain's with a scripted model that answers at once: a turn takes what LangChain and memory take. Turns
with and without memory alternate. Needs LangChain: `make setup-integrations NAMES=langchain`, then run it with
`.venv-integrations/bin/python`.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from rich.table import Table

from benchmarks.dialogues import Dialogues
from benchmarks.report import CannotRun, Report, output_parser, positive, run
from memos.api.client import MemOSClient
from memos.integrations import AgentMemory, Recalled, Remembered

_BATCH = 500
_USER = "ana"
_TARGET_MS = 50


class TimedMemory(AgentMemory):
    """A memory that notes how long its calls took, in milliseconds."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.times: dict[str, list[float]] = defaultdict(list)
        self.empty = 0

    def recall(self, *given: Any, **named: Any) -> Recalled:
        """Recall, and note how long that took, and how long the server says it searched."""
        began = time.perf_counter()
        found = super().recall(*given, **named)
        self.times["recall"].append(_since(began))
        self.times["search"].append(sum(found.timings_ms.values()))
        self.empty += not found.text
        return found

    def remember(self, *given: Any, **named: Any) -> Remembered:
        """Remember, and note how long that took."""
        began = time.perf_counter()
        stored = super().remember(*given, **named)
        self.times["remember"].append(_since(began))
        return stored


@contextmanager
def server() -> Iterator[tuple[str, str]]:
    """Run a server with an empty store; give its address and key."""
    with tempfile.TemporaryDirectory(prefix="memos-integrations-") as folder:
        command = [sys.executable, "-m", "memos", "serve", "--port", "0", "--log-level", "error", "--data-dir", folder]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", "COLUMNS": "500"}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        try:
            assert process.stdout is not None
            url, key = (process.stdout.readline().split()[-1] for _ in range(2))
            yield url, key
        finally:
            process.terminate()
            process.wait(60)


def measure(memories: int, turns: int, seed: int) -> dict[str, list[float]]:
    """Return what turns and their parts took, in milliseconds."""
    if find_spec("langchain") is None:
        raise CannotRun("LangChain is missing: make setup-integrations NAMES=langchain")
    from langchain.agents import create_agent  # noqa: PLC0415 - of another environment
    from langchain_core.language_models import BaseChatModel  # noqa: PLC0415
    from langchain_core.messages import AIMessage  # noqa: PLC0415
    from langchain_core.outputs import ChatGeneration, ChatResult  # noqa: PLC0415

    from memos.integrations.langchain import MemosMiddleware  # noqa: PLC0415

    class Scripted(BaseChatModel):
        _llm_type = "scripted"

        def _generate(self, *_: Any, **__: Any) -> ChatResult:
            return ChatResult(generations=[ChatGeneration(message=AIMessage("I see."))])

    dialogues = Dialogues(seed)
    with server() as (url, key), MemOSClient(key, url) as client:
        for start in range(0, memories, _BATCH):
            said = dialogues.messages(min(_BATCH, memories - start))
            client.memories.add(said, user=_USER, conversation=f"before-{start}")
        while client.tasks.list(states=["waiting", "running"], limit=1):  # the background files what is new
            time.sleep(1)
        with TimedMemory(client, user=_USER, min_relevance=0, timeout_s=None) as memory:
            agents = {
                "without": create_agent(Scripted()),
                "with": create_agent(Scripted(), middleware=[MemosMiddleware(memory)]),
            }
            for number in range(turns + 2):
                if number == 2:  # the first two load what is loaded once
                    memory.times.clear()
                    times: dict[str, list[float]] = defaultdict(list)
                question = dialogues.question()
                for name in ("without", "with") if number % 2 else ("with", "without"):
                    began = time.perf_counter()
                    agents[name].invoke({"messages": [question]}, {"configurable": {"thread_id": f"turn-{number}"}})
                    if number >= 2:
                        times[name].append(_since(began))
            if memory.failures or memory.empty:
                raise CannotRun(f"{memory.failures} calls failed, {memory.empty} found nothing: {memory.last_failure}")
            times["added"] = [full - bare for full, bare in zip(times["with"], times["without"], strict=True)]
            return {**times, **memory.times}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = output_parser(__doc__)
    parser.add_argument("--memories", type=positive, nargs="+", default=[1_000, 10_000], help="memories of the user")
    parser.add_argument("--turns", type=positive, default=200, help="turns of each kind")
    return run("integrations", parser.parse_args(argv), _report)


def _report(arguments: Any) -> Report:
    table = Table("memories", "", "p50 ms", "p95 ms", "most ms")
    figures: dict[str, Any] = {"n": arguments.turns, "target_ms": _TARGET_MS}
    names = {
        "without": "a turn without memory",
        "with": "a turn with memory",
        "added": "what memory adds",
        "recall": "  recall",
        "search": "    the server's search",
        "remember": "  remember",
    }
    for memories in arguments.memories:
        found = measure(memories, arguments.turns, arguments.seed)
        told = figures[str(memories)] = {name: _told(found[name]) for name in names}
        for name, title in names.items():
            table.add_row(f"{memories:,}", title, *(f"{value:.1f}" for value in told[name].values()))
    return Report(figures, tables=[table])


def _told(times: Sequence[float]) -> dict[str, float]:
    ordered = sorted(times)
    last = ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]
    return {"p50_ms": round(statistics.median(ordered), 2), "p95_ms": round(last, 2), "most_ms": round(ordered[-1], 2)}


def _since(began: float) -> float:
    return (time.perf_counter() - began) * 1000


if __name__ == "__main__":
    sys.exit(main())
