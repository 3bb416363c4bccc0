"""How memories are written for an index and for a prompt; the stored text stays as it was written."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime


def turn(speaker: str, text: str) -> str:
    """Return one message as the turn arms index it."""
    return f"{speaker}: {text}"


def window(turns: Sequence[str]) -> str:
    """Return consecutive rendered turns as the window arms index them."""
    return "\n".join(turns)


def citation(number: int, at: datetime | None, speaker: str, text: str) -> str:
    """Return one memory as a line of an assembled context: number, date with weekday, speaker, text."""
    date = f"{at:%Y-%m-%d %a} " if at else ""
    return f"[{number}] {date}{speaker}: {text}"
