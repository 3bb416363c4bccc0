"""How memories are written for an index and for a prompt; the stored text stays as it was written."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

# Escape sequences in a stored text must not steer the reader's terminal.
_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\t\n"}


# With the 190 tokens of a passage they stay under the 256 of one vector.
_TITLES = 3
_TITLE_CHARS = 50


def visible(text: str) -> str:
    """Return text with control characters spelt out, for a terminal."""
    return text.translate(_CONTROLS)


def said(speaker: str, text: str) -> str:
    """Return who said what."""
    return f"{speaker}: {text}"


def passage(name: str, path: Sequence[str], header: str | None, text: str) -> str:
    """Return a passage of a document as the arms index it: after the document's name and the headings above it."""
    place = " › ".join(map(_short, (name, *path[-_TITLES:])))
    return f"{place}: {text}" if header is None else f"{place}: {header}\n{text}"


def _short(title: str) -> str:
    return title if len(title) <= _TITLE_CHARS else title[: _TITLE_CHARS - 1] + "…"


def dated(day: datetime | None, text: str) -> str:
    """Return a text after the day it was said, with its weekday."""
    return text if day is None else f"[{_day(day)}] {text}"


def window(turns: Sequence[str]) -> str:
    """Return consecutive turns of one session as one text."""
    return "\n".join(turns)


def _day(day: datetime) -> str:
    # Not strftime: it names weekdays in the process's locale, and years before 1000 with fewer digits.
    return f"{day.year:04}-{day.month:02}-{day.day:02} {_WEEKDAYS[day.weekday()]}"


def citation(number: int | str, at: datetime | None, text: str) -> str:
    """Return what was said, and by whom, as a line of an assembled context: number, date with weekday, text."""
    date = f"{_day(at)} " if at else ""
    return f"[{number}] {date}{text}"
