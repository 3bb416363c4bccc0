"""Steps with budgets of time: each one's figures, or why it failed or was left out, and a report whatever happens."""

from __future__ import annotations

import json
import os
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

OK, FAILED, SKIPPED = "ok", "failed", "skipped"
EXIT = {OK: 0, FAILED: 1, SKIPPED: 3}
"""Exit status by the worst that happened; a step that ran and left some cases out counts as ok, and says so."""

_RANK = (OK, SKIPPED, FAILED)
_MOST_TRACE = 6_000
_GRACE_S = 15.0


class Skip(Exception):
    """The step cannot run here, for the reason given."""


@dataclass(slots=True)
class Step:
    """What one step found; `left_out` are the cases for which there was no time or memory."""

    name: str
    status: str = OK
    seconds: float = 0.0
    reason: str | None = None
    figures: dict[str, Any] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    ends_at: float = 0.0

    def left_s(self) -> float:
        """Return the seconds of the budget that are left."""
        return self.ends_at - time.monotonic()

    def has_time(self, case: str, needed_s: float = 0.0) -> bool:
        """Return True if a case still fits into the budget; otherwise note that it was left out."""
        if self.left_s() > needed_s:
            return True
        self.left_out.append(f"{case}: needs about {needed_s:.0f} s, {max(0.0, self.left_s()):.0f} s of budget left")
        return False

    def check(self, what: str, holds: bool) -> bool:
        """Note a failure, and go on."""
        if not holds:
            self.failures.append(what)
        return holds


class Run:
    """All steps of a run, which ends at `limit_s`, and their report in `out`."""

    def __init__(self, out: Path, limit_s: float, write: Callable[[dict[str, Any]], str]) -> None:
        self.out = out
        self.began = time.monotonic()
        self.ends_at = self.began + limit_s
        self.steps: list[Step] = []
        self.facts: dict[str, Any] = {"began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "limit_s": limit_s}
        self._write = write
        self._running: Step | None = None
        self._lock = threading.Lock()
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        threading.Thread(target=self._watch, daemon=True, name="gpu-check-watch").start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    def step(self, name: str, budget_s: float, work: Callable[[Step], dict[str, Any] | None]) -> Step:
        """Run a step within its budget and what is left of the run; nothing it raises ends the run."""
        now = time.monotonic()
        step = Step(name, ends_at=min(now + budget_s, self.ends_at))
        print(f"{now - self.began:6.1f} s  {name} …", flush=True)
        if self.ends_at - now < min(10.0, budget_s):
            step.status, step.reason = SKIPPED, "the time of the run is spent"
        else:
            self._running = step
            try:
                step.figures |= work(step) or {}
            except Skip as skip:
                step.status, step.reason = SKIPPED, str(skip)
            except BaseException as error:  # noqa: BLE001 - recorded, and the rest goes on
                step.status, step.reason = FAILED, f"{type(error).__name__}: {error}"[:500]
                step.figures["trace"] = traceback.format_exc()[-_MOST_TRACE:]
                if isinstance(error, KeyboardInterrupt):
                    self.ends_at = now
        if step.failures:
            step.status, step.reason = FAILED, "; ".join(step.failures)
        step.seconds = time.monotonic() - now
        self._running = None
        self.steps.append(step)
        print(f"          {step.status}, {step.seconds:.1f} s{': ' + step.reason if step.reason else ''}", flush=True)
        self.report()
        return step

    @property
    def status(self) -> str:
        """Return the worst status of all steps."""
        return max((step.status for step in self.steps), key=_RANK.index, default=OK)

    def report(self) -> None:
        """Write the JSON and the page; whole at any moment, since a run may be cut off."""
        with self._lock:
            told = {**self.facts, "status": self.status, "seconds": round(time.monotonic() - self.began, 1)}
            told["steps"] = [
                {
                    "name": step.name,
                    "status": step.status,
                    "seconds": round(step.seconds, 2),
                    **({"reason": step.reason} if step.reason else {}),
                    **({"left_out": step.left_out} if step.left_out else {}),
                    "figures": step.figures,
                }
                for step in self.steps
            ]
            for name, text in (("gpu-check.json", json.dumps(told, indent=1, default=str)), ("gpu-check.md", "")):
                new = self.out / f".{name}.new"
                new.write_text(text or self._write(told), encoding="utf-8")
                new.replace(self.out / name)

    def _watch(self) -> None:
        """End a run that hangs: the report is written without the step that does."""
        while (left_s := self.ends_at + _GRACE_S - time.monotonic()) > 0:
            if self._ended.wait(left_s):
                return
        step = self._running or Step("end of the run")
        step.status, step.reason = FAILED, "it did not end within the time of the run, which was cut off"
        step.seconds = time.monotonic() - self.began
        self.steps.append(step)
        self.report()
        os._exit(EXIT[FAILED])
