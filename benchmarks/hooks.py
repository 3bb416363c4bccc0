"""What memory adds to a prompt of Claude Code, and to the start of an MCP host: `python -m benchmarks.hooks`.

`hook` is the whole process of the prompt's hook against a server, from its start to its end, as Claude Code waits for
it; `answer` the same request over a connection that stays open, so what the server takes; `python` an interpreter that
does nothing. `hook_over_answer_ms` is what the process costs. They are taken in turns, each with a question of its own.
`plain_hook` does the same with `json` and `http.client`. `hook_cpu_ms` is the processor time of the hook's process,
which depends less on what else runs. `mcp_cpu_s` is the processor time of `memos mcp` until it has
answered `initialize`.
"""

from __future__ import annotations

import itertools
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx2
from rich.table import Table

from benchmarks.dialogues import Dialogues
from benchmarks.report import Report, output_parser, positive, progress, run
from memos import MemOS
from memos.api.endpoint import find
from memos.api.hooks import plugin

_BATCH = 200
_PLAIN = """
import http.client, json, sys, urllib.parse
told = json.load(open(sys.argv[1] + "/server.json"))
place = urllib.parse.urlsplit(told["url"])
connection = http.client.HTTPConnection(place.hostname, place.port, timeout=10)
headers = {"Authorization": "Bearer " + told["token"], "Content-Type": "application/json"}
connection.request("POST", "/hooks/claude-code", json.dumps(json.load(sys.stdin)), headers)
sys.stdout.write(connection.getresponse().read().decode())
"""
_HELLO = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}},
}  # fmt: skip


def measure(memories: int, prompts: int, starts: int, seed: int) -> Report:
    """Fill a folder, serve it, and take the times."""
    with tempfile.TemporaryDirectory(prefix="memos-hooks-") as place:
        home, folder = Path(place) / "home", Path(place) / "plugin"
        questions = _fill(home, memories, prompts, seed)
        shutil.copytree(Path(str(plugin.__file__)).parent, folder / "hooks")
        command = [
            sys.executable,
            "-m",
            "memos",
            "serve",
            "--port",
            "0",
            "--log-level",
            "error",
            "--data-dir",
            str(home),
        ]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
            try:
                times = _times(home, folder, questions)
            finally:
                server.terminate()
        cpu = [_mcp_cpu_s(Path(place) / "other") for _ in range(starts)]
    figures: dict[str, Any] = {"n": prompts, "memories": memories, "load_1m": round(os.getloadavg()[0], 1)}
    table = Table("ms", "least", "p50", "p90")
    for name, taken in times.items():
        taken.sort()
        told = [taken[0], statistics.median(taken), taken[int(len(taken) * 0.9)]]
        figures[name] = dict(
            zip(("least_ms", "p50_ms", "p90_ms"), (round(1e3 * each, 1) for each in told), strict=True)
        )
        table.add_row(name, *(f"{1e3 * each:.1f}" for each in told))
    figures["hook_cpu_ms"] = figures.pop("hook_cpu")["p50_ms"]
    over = figures["hook"]["p50_ms"] - figures["answer"]["p50_ms"]
    figures |= {"hook_over_answer_ms": round(over, 1), "mcp_cpu_s": round(statistics.median(cpu), 2)}
    return Report(figures, tables=[table])


def _fill(home: Path, memories: int, prompts: int, seed: int) -> list[str]:
    dialogues = Dialogues(seed)
    with MemOS.open(home) as memos:
        for _ in progress(range(0, memories, _BATCH), "fill"):
            memos.add(dialogues.messages(_BATCH))
    return [dialogues.question() for _ in range(prompts * 3 + 3)]


def _times(home: Path, folder: Path, questions: Sequence[str]) -> dict[str, list[float]]:
    while (found := find(home)) is None:
        time.sleep(0.1)
    left = iter(questions)
    numbers = itertools.count()
    headers = {"Authorization": f"Bearer {found.token}", "Content-Type": "application/json"}
    with httpx2.Client(base_url=found.url, headers=headers, timeout=60) as client:

        def event() -> bytes:
            session = f"bench-{next(numbers)}"
            begin = {"hook_event_name": "SessionStart", "session_id": session, "source": "startup"}
            client.post("/hooks/claude-code", json=begin).raise_for_status()
            asked = {"hook_event_name": "UserPromptSubmit", "session_id": session, "prompt": next(left)}
            return json.dumps(asked).encode()

        ways: dict[str, Callable[[bytes], Any]] = {
            "hook": _process(str(folder / "hooks" / "hook.py"), "prompt", f"home={home}", "timeout_s=30"),
            "answer": lambda given: client.post("/hooks/claude-code", content=given).raise_for_status(),
            "plain_hook": _process("-c", _PLAIN, str(home)),
        }
        for way in ways.values():
            way(event())
        times: dict[str, list[float]] = {name: [] for name in (*ways, "python", "hook_cpu")}
        nothing = _process("-c", "pass")
        for _ in progress(range(len(questions) // 3 - 1), "prompts"):
            for name, way in ways.items():
                given, began, used = event(), time.perf_counter(), _children_s()
                way(given)
                times[name].append(time.perf_counter() - began)
                if name == "hook":
                    times["hook_cpu"].append(_children_s() - used)
            began = time.perf_counter()
            nothing(b"")
            times["python"].append(time.perf_counter() - began)
    return times


def _children_s() -> float:
    """Return the processor time of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _process(*arguments: str) -> Callable[[bytes], Any]:
    command = [sys.executable, "-I", "-S", *arguments]
    return lambda given: subprocess.run(command, input=given, stdout=subprocess.PIPE, check=True)


def _mcp_cpu_s(home: Path) -> float:
    command = [sys.executable, "-m", "memos", "mcp", "--data-dir", str(home)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(_HELLO).encode() + b"\n")
        process.stdin.flush()
        process.stdout.readline()
        fields = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        process.kill()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = output_parser(__doc__)
    parser.add_argument("--memories", type=positive, default=10_000, help="memories in the folder")
    parser.add_argument("--prompts", type=positive, default=60, help="prompts of each kind")
    parser.add_argument("--starts", type=positive, default=7, help="starts of `memos mcp`")
    return run(
        "hooks",
        parser.parse_args(argv),
        lambda given: measure(given.memories, given.prompts, given.starts, given.seed),
    )


if __name__ == "__main__":
    sys.exit(main())
