"""What every question of a job to a model shares: a versioned prompt, what was said as fenced data, and who pays."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.resources import files

from memos.core.ports import ChatMessage
from memos.llm.usage import Call, Meter
from memos.scheduler.task import Run


def question(prompt: str, lines: Iterable[str]) -> list[ChatMessage]:
    """Return the messages that ask by a prompt of this package about some lines of data."""
    data = "\n".join(["<data>", *lines, "</data>"])
    return [ChatMessage("system", instructions(prompt)), ChatMessage("user", data)]


def instructions(prompt: str) -> str:
    """Return the text of a prompt by its name and version, as in "judge-1"."""
    return (files("memos.scheduler") / "prompts" / f"{prompt}.txt").read_text(encoding="utf-8")


def plain(text: str, chars: int) -> str:
    """Return the beginning of a text on one line that cannot close the fence around it."""
    return " ".join(text[:chars].replace("<", "‹").replace(">", "›").split())


def meter_of(run: Run, purpose: str) -> Meter:
    """Return a meter whose calls are counted as spent by a task."""

    def spend(call: Call) -> None:
        if not call.cached:
            run.spend(1, call.tokens.prompt, call.tokens.completion)

    return Meter(purpose, cube=run.task.cube, task=run.task.id, tell=spend)
