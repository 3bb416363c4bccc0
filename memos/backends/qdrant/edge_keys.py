"""Which item and version each point of a shard is of: reading that from payloads costs as much as a search.

A point's id stands for one chunk of one version for ever, so what is known of it never changes. A file beside the
shard gets what was written with each flush: blocks of lines `point key`, each headed by its length and checksum.
What a crash cut off is asked of the shard again.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

KEYS_FILE = "keys"
_HEAD = re.compile(rb"#(\d{1,12}) ([0-9a-f]{8})\n")
# About 60 MB; of a larger index the rest is asked of the shard when it is found.
_MOST = 250_000


class PointKeys:
    """The keys ("item:version") of points, by the points' ids as numbers."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / KEYS_FILE
        self._known: dict[int, str] = {}
        self._unsaved: list[str] = []
        if self._file.exists():
            self._load()

    def of(self, points: Sequence[int], ask: Callable[[Sequence[int]], Mapping[int, str]]) -> list[str]:
        """Return the points' keys; `ask` reads from the shard those that are not known."""
        missing = [point for point in points if point not in self._known]
        if missing:
            if len(self._known) + len(missing) > _MOST:
                self._known.clear()
                missing = list(points)
            self._known.update(ask(missing))
        return [self._known[point] for point in points]

    def write(self, point: int, key: str) -> None:
        """Remember a point that is written now, and keep it at the next `save`."""
        self._unsaved.append(f"{point:032x} {key}\n")
        if len(self._known) < _MOST:
            self._known[point] = key

    def save(self) -> None:
        """Append what was written since the last time."""
        if self._unsaved:
            block = "".join(self._unsaved).encode()
            with self._file.open("ab") as file:
                file.write(b"#%d %08x\n" % (len(block), zlib.crc32(block)) + block)
            self._unsaved.clear()

    def _load(self) -> None:
        content = self._file.read_bytes()
        place = 0
        while head := _HEAD.match(content, place):
            block = content[head.end() : head.end() + int(head[1])]
            if len(block) < int(head[1]) or zlib.crc32(block) != int(head[2], 16):
                break
            place = head.end() + len(block)
            if len(self._known) < _MOST:
                lines = (line.split(" ", 1) for line in block.decode().splitlines())
                self._known.update((int(point, 16), key) for point, key in lines)
        if place < len(content):
            with self._file.open("r+b") as file:
                file.truncate(place)
