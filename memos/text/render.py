"""How memories are written for an index and for a prompt; the stored text stays as it was written."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

# Escape sequences in a stored text must not steer the reader's terminal.
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\t\n"}


def visible(text: str) -> str:
    """Return text with control characters spelt out, for a terminal."""
    return text.translate(_CONTROLS)


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
