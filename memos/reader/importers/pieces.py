"""Cuts the top-level list of a JSON stream at its commas, by bracket depth alone; decodes nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO

BLOCK = 262_144
"""Bytes read at once."""

# Possessive, so that no text makes them slow: whole strings and all else up to the next byte that may matter.
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_TO_COMMA_OR_BRACKET = re.compile(rb'(?:[^"\[\]{},]++|' + _STRING + rb")*+", re.DOTALL)
_TO_BRACKET = re.compile(rb'(?:[^"\[\]{}]++|' + _STRING + rb")*+", re.DOTALL)
_TO_QUOTE = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)


class Window:
    """The part of a file under the scanner: one entry as far as it was read, and the block behind it.

    Of an entry that is too large only the newest block is held.
    """

    def __init__(self, file: BinaryIO, line: int, max_bytes: int) -> None:
        self.line = line
        self.last = b""
        self._file = file
        self._max_bytes = max_bytes
        self._held = bytearray()
        self._start = 0
        self._at = 0
        self._too_large = False

    def skip(self, pattern: re.Pattern[bytes]) -> None:
        """Go to where the pattern, which matches anywhere, ends."""
        found = pattern.match(self._held, self._at)
        self._at = found.end() if found else self._at

    def take(self) -> bytes:
        """Return the next byte and go behind it; nothing at the end of the file."""
        if self._at == len(self._held):
            self._fill()
        self.last = bytes(self._held[self._at : self._at + 1])
        self._at += len(self.last)
        return self.last

    def cut(self) -> tuple[bytearray | None, int]:
        """Return what was read since the last cut, without the byte taken last, and the line it begins in."""
        self._too_large |= self._at - self._start > self._max_bytes
        raw = None if self._too_large else self._held[self._start : self._at - len(self.last)]
        line = self.line
        self.line += self._held.count(b"\n", self._start, self._at)
        self._start, self._too_large = self._at, False
        return raw, line

    def rest_has_content(self) -> bool:
        """Say whether anything but white space is left."""
        rest = bytes(self._held[self._at :])
        while not rest.strip():
            if not (rest := self._file.read(BLOCK)):
                return False
        return True

    def _fill(self) -> None:
        self._too_large |= self._at - self._start > self._max_bytes
        if self._too_large:
            self.line += self._held.count(b"\n", self._start, self._at)
            self._start = self._at
        del self._held[: self._start]
        self._at -= self._start
        self._start = 0
        self._held += self._file.read(BLOCK)


def pieces(window: Window) -> Iterator[tuple[bytearray | None, int]]:
    """Yield what stands between the commas of the list the window stands in, and the line each begins in.

    None stands for a piece that is too large. Brackets are only counted; whether they match is the decoder's business.
    """
    depth, quoted = 1, False
    while True:
        window.skip(_TO_QUOTE if quoted else _TO_COMMA_OR_BRACKET if depth == 1 else _TO_BRACKET)
        mark = window.take()
        if quoted:
            quoted = mark != b'"'
            if mark == b"\\":
                window.take()
        elif mark == b'"':
            quoted = True
        elif mark in (b"[", b"{"):
            depth += 1
        elif mark in (b"]", b"}"):
            depth -= 1
        if not mark or depth == 0 or (depth == 1 and not quoted and mark == b","):
            yield window.cut()
            if mark != b",":
                return
