"""`LadybugGraph`: the graph index in one local file of the embedded Cypher engine; ids and digests only, no names.

A folder holds files (`graph-000001.lbug`) and `CURRENT`, which names the one in use. A child process
(`graph_process`) holds the file; rewriting copies what is live into a new file of a new process, and switches.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from memos.backends.child import Child, Died, current_file, lock_folder, write_durably
from memos.backends.graph.ladybug_process import ENDS, FIELDS, HUB_MENTIONS, WireNode
from memos.core.ports import GraphNode, Neighbour, Stamp
from memos.errors import BackendUnavailable, IntegrityError

__all__ = ["HUB_MENTIONS", "LadybugGraph", "wipe"]

_WRITES, _READS = 0, 1  # the child's sockets
_BATCH = 1_000
_PAGE = 20_000  # nodes whose rows are held at once: a result lives in the engine's bounded buffer
_FILE_NAME = re.compile(r"graph-\d{6}\.lbug")
_Row = TypeVar("_Row")


class LadybugGraph:
    """A `GraphIndex` on one file that is also `Rewritable`; the engine takes one writer at a time, so writers queue."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writing = threading.RLock()
        self._incarnation = 0
        self._closed = False
        self._lock = lock_folder(folder, "graph index")
        try:
            self._remove_leftovers()
            self._child = self._started(self._current())
        except BaseException:
            os.close(self._lock)
            raise

    @classmethod
    def open(cls, folder: Path) -> LadybugGraph:
        """Open or create the graph. Raises: IntegrityError when its file is damaged, BackendUnavailable when locked."""
        return cls(folder)

    @property
    def incarnation(self) -> int:
        """Return how often the engine restarted; each time the end of its log may have been lost."""
        return self._incarnation

    def upsert(self, nodes: Sequence[GraphNode]) -> None:
        """Insert or replace nodes and exactly the edges each node names."""
        for start in range(0, len(nodes), _BATCH):
            batch = {node.id: node for node in nodes[start : start + _BATCH]}
            self._write("upsert", [_wire(node) for node in batch.values()])

    def delete(self, ids: Sequence[str]) -> None:
        """Remove items with all their edges, and entities and conversations left without any."""
        for part in _parts(ids):
            self._write("delete", list(part))

    def adjacent(self, cubes: Sequence[str], seed: str, limit: int) -> list[str]:
        """Return items one NEXT or link away, in either direction."""
        return list(self._read("adjacent", list(cubes), seed, limit))

    def neighbours(self, cubes: Sequence[str], seeds: Sequence[str], limit: int) -> list[Neighbour]:
        """Return items within 2 hops of the seeds, nearest first, then those most paths lead to; bounded work."""
        return [Neighbour(*found) for found in self._read("neighbours", list(cubes), list(seeds), limit)]

    def scan(self, cube: str) -> Iterator[Stamp]:
        """Yield (id, id, revision) of every filled node of one cube."""
        while True:
            child = self._child
            pages = [self._read("stamps", cube, first, stop) for first, stop in _pages(self._read, "Memory")]
            if child is self._child:  # places mean nothing in another file
                break
        yield from (Stamp(item, item, revision) for page in pages for item, revision in page)

    def cubes(self) -> list[str]:
        """Return the cubes that have at least one filled node."""
        return list(self._read("cubes"))

    def flush(self, mark: int) -> None:
        """Make everything so far durable, with the mark."""
        self._write("flush", mark)

    def mark(self) -> int:
        """Return the mark of the last flush."""
        return int(self._read("mark"))

    def rewrite(self) -> None:
        """Copy what is live into a fresh file and delete the old one, which keeps what was deleted; writers wait."""
        with self._writing:
            mark = self._write("mark")
            self._remove_leftovers()
            old = self._current()
            target = self._folder / _name(_number(old) + 1)
            # A new process: what was deleted may still be in the old one's memory, which the engine writes out.
            fresh = self._started(target)
            try:
                _copy(self._write, fresh)
                fresh.call("flush", mark, True)
                write_durably(self._folder / "CURRENT", target.name)
            except BaseException as error:
                fresh.kill()
                self._remove_leftovers()
                if isinstance(error, Died):
                    raise BackendUnavailable(
                        f"The new graph index's process stopped ({error}); the old one stays."
                    ) from error
                raise
            replaced, self._child = self._child, fresh
            replaced.close()
            self._remove_leftovers()

    def close(self) -> None:
        """End the engine; safe to call twice."""
        with self._writing:
            if not self._closed:
                self._closed = True
                self._child.close()
                os.close(self._lock)

    def _write(self, method: str, *arguments: Any) -> Any:
        with self._writing:
            return self._call(_WRITES, method, *arguments)

    def _read(self, method: str, *arguments: Any) -> Any:
        return self._call(_READS, method, *arguments)

    def _call(self, socket: int, method: str, *arguments: Any) -> Any:
        """Call the engine; when it died, start it again and say that this call failed. Raises: BackendUnavailable."""
        if self._closed:
            raise BackendUnavailable("The graph index is closed.")
        child = self._child
        try:
            return child.call(method, *arguments, socket=socket)
        except Died as error:
            if self._restarted(child):
                raise BackendUnavailable(
                    f"The graph index's process stopped in {method} ({error}); it was restarted."
                ) from error
            # It was replaced while this call waited for it.
            return self._call(socket, method, *arguments)

    def _restarted(self, dead: Child) -> bool:
        """Start the engine again, unless it was replaced already. Raises: BackendUnavailable."""
        with self._writing:
            if self._closed:
                raise BackendUnavailable("The graph index is closed.")
            if self._child is not dead:
                return False
            dead.kill()
            self._incarnation += 1
            self._child = self._started(self._current())
            return True

    def _started(self, file: Path) -> Child:
        child = Child("memos.backends.graph.ladybug_process", "graph index", sockets=2, keep=(self._lock,))
        try:
            child.call("open", str(file))
        except Died as error:
            child.kill()
            raise IntegrityError(f"The graph index {file} cannot be opened ({error}).") from error
        except BaseException:
            child.kill()
            raise
        return child

    def _current(self) -> Path:
        return current_file(self._folder, _FILE_NAME, _name(1))

    def _remove_leftovers(self) -> None:
        current = self._current().name
        for entry in self._folder.glob("graph-*"):
            if not entry.name.startswith(current):
                entry.unlink()


def wipe(folder: Path) -> None:
    """Empty a damaged graph; its mark is then 0 and the kernel fills it from the ledger."""
    shutil.rmtree(folder, ignore_errors=True)


def _copy(old: Callable[..., Any], fresh: Child) -> None:
    """Copy what is live, a batch a transaction: bare items, entities and conversations only as ends of edges."""
    used: set[str] = set()
    for kind in ENDS:
        for first, stop in _pages(old, "Memory"):
            used.update(item for pair in old("edges", kind, first, stop) for item in pair)
    for table, names in FIELDS.items():
        for first, stop in _pages(old, table):
            rows = (dict(zip(names, row, strict=True)) for row in old("nodes", table, first, stop))
            live = [tuple(row.values()) for row in rows if row.get("revision") or row["id"] in used]
            for part in _parts(live):
                fresh.call("create_nodes", table, part)
    for kind in ENDS:
        for first, stop in _pages(old, "Memory"):
            for part in _parts(old("edges", kind, first, stop)):
                fresh.call("create_edges", kind, part)


def _pages(call: Callable[..., Any], table: str) -> Iterator[tuple[int, int]]:
    """Yield the places of a table's nodes, _PAGE at a time."""
    for first in range(0, call("last_place", table) + 1, _PAGE):
        yield first, first + _PAGE


def _parts(rows: Sequence[_Row]) -> Iterator[Sequence[_Row]]:
    for start in range(0, len(rows), _BATCH):
        yield rows[start : start + _BATCH]


def _wire(node: GraphNode) -> WireNode:
    return WireNode(node.id, node.cube, node.revision, node.conversation, node.previous, node.entities, node.links)


def _name(number: int) -> str:
    return f"graph-{number:06d}.lbug"


def _number(path: Path) -> int:
    return int(path.stem.removeprefix("graph-"))
