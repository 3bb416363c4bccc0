"""`QdrantEdgeIndex`: the Qdrant engine on local files, in a child process so that it blocks no thread here.

A folder holds generations (`gen-000001`) and `CURRENT`, which names the one in use. Optimising and rewriting build
the next generation in a second child from a flushed copy, replay later writes, and switch.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np

from memos.backends.child import Child, ChildDied, current_file, lock_folder, write_durably
from memos.backends.qdrant.embedded_process import WireArm, WirePoint, copy_sparse
from memos.core.ports import HeldPoint, ScoredPoint, SparseVector, Stamp, Vector, VectorPoint, VectorSearch
from memos.errors import BackendUnavailable, IntegrityError, InvalidInput, PermissionDenied

GENERATION = re.compile(r"gen-\d{6,}")
FIRST = "gen-000001"
"""The generation in use where no `CURRENT` names another."""
# Journal entries that may be left for the last step of a switch, while writers wait.
_SHORT_JOURNAL = 8
# Bytes of disk without which the process is not started again: it allocates files by 2 MiB, and a write to a mapped
# page for which there is no space kills it.
_LEAST_FREE = 4_194_304
_COUNTED = 1_000  # items asked about at once

_Write = tuple[Literal["upsert", "prune"], Any]


class _Child(Child):
    def __init__(self, folder: Path, dimension: int) -> None:
        # A search reads all over the graphs: a tenth of its time was finding out where their pages are.
        super().__init__("memos.backends.qdrant.embedded_process", "vector index", huge_pages=True)
        try:
            self.call("open", str(folder), dimension)
        except BaseException:
            self.close()
            raise


class QdrantEdgeIndex:
    """A `VectorIndex` on local files that is also `Rewritable` and `Optimisable`."""

    def __init__(
        self, folder: Path, dimension: int, keep: Callable[[Path], None] | None = None, *, is_kept: bool = False
    ) -> None:
        self._folder = folder
        self._dimension = dimension
        self._keep = keep
        self._unkept = keep is not None and not is_kept
        self._writer = threading.RLock()
        self._building = threading.Lock()
        self._builder: _Child | None = None
        self._journal: list[_Write] | None = None
        self._closed = False
        self._incarnation = 0
        self._no_builds = False
        folder.mkdir(parents=True, exist_ok=True)
        self._remove_leftovers()
        self._child: _Child | None = self._started(self._current())
        self._written = int(self._call("unoptimised"))

    @classmethod
    def open(
        cls, folder: Path, dimension: int, keep: Callable[[Path], None] | None = None, *, is_kept: bool = False
    ) -> QdrantEdgeIndex:
        """Open or create an index.

        Args:
            folder: Where its files are.
            dimension: Of its dense vectors.
            keep: Called with the folder of a flushed generation after it was rebuilt, and at the end if it was changed,
                where the files in use are in memory.
            is_kept: What is in the folder is what was kept last.
        """
        return cls(folder, dimension, keep, is_kept=is_kept)

    @property
    def restart_count(self) -> int:
        return self._incarnation

    def upsert(self, points: Sequence[VectorPoint]) -> None:
        self._write("upsert", [_wire(point) for point in points])
        self._written += len(points)

    def prune(self, keep: Mapping[str, int | None]) -> None:
        self._write("prune", dict(keep))

    def search(self, request: VectorSearch, meanwhile: Callable[[], None] | None = None) -> list[list[ScoredPoint]]:
        if not request.cubes:
            raise InvalidInput("cubes", "is empty; name at least one cube")
        queries = {id(arm.query): arm.query for arm in request.arms}
        wires = {
            name: _wire_terms(query) if isinstance(query, SparseVector) else query.tobytes()
            for name, query in queries.items()
        }
        arms: list[WireArm] = [(arm.arm.value, wires[id(arm.query)], arm.limit(request.limit)) for arm in request.arms]
        keys, ranked = self._call(
            "search", request.cubes, arms, request.filter, request.as_of, request.live, meanwhile=meanwhile
        )
        return [
            list(map(ScoredPoint, map(keys.__getitem__, array("I", at)), array("f", scores))) for at, scores in ranked
        ]

    def turns(self, ids: Sequence[str]) -> dict[str, Vector]:
        found = self._call("turns", list(ids)) if ids else {}
        return {id_: np.frombuffer(vector, dtype=np.float32) for id_, vector in found.items()}

    def held(self, ids: Sequence[str]) -> dict[str, HeldPoint]:
        found = self._call("held", list(ids)) if ids else {}
        return {
            id_: HeldPoint(revision, np.frombuffer(turn, np.float32), np.frombuffer(window, np.float32))
            for id_, (revision, turn, window) in found.items()
        }

    def scan(self, cube: str) -> Iterator[Stamp]:
        offset = None
        while True:
            page, offset = self._call("scan", cube, offset)
            yield from (Stamp(*stamp) for stamp in page)
            if offset is None:
                return

    def count(self, items: Sequence[str]) -> int:
        batches = (list(items[start : start + _COUNTED]) for start in range(0, len(items), _COUNTED))
        return sum(int(self._call("count", batch)) for batch in batches)

    def cubes(self) -> list[str]:
        return list(self._call("cubes"))

    def flush(self, mark: int) -> None:
        with self._writer:
            self._call("flush", mark)
            self._unkept = self._keep is not None

    def mark(self) -> int:
        return int(self._call("mark"))

    def unoptimised(self) -> int:
        return self._written

    def optimised(self) -> int:
        return int(self._call("optimised"))

    def optimise(self, on_progress: Callable[[str], None] | None = None) -> bool:
        self._written = 0
        return bool(self._rebuild(lambda child, _target: child.call("optimise", long=True), on_progress))

    def rewrite(self) -> None:
        """Build fresh files from live points in a second process, then switch and delete the old ones."""
        self._rebuild(
            lambda child, target: child.call("rewrite", str(target), self._dimension, long=True), None, fresh=True
        )

    def close(self) -> None:
        self._closed = True
        self.stop_building()
        with self._building, self._writer:
            if self._child is not None:
                self._child.close()
                self._child = None
                with suppress(BackendUnavailable, PermissionDenied):  # logged; what is kept is then older
                    self._keep_files()

    def _keep_files(self) -> None:
        if self._keep is not None and self._unkept:
            self._keep(self._current())
            self._unkept = False

    def stop_building(self) -> None:
        self._no_builds = True
        if (builder := self._builder) is not None:
            builder.kill()

    def _call(self, method: str, *arguments: Any, meanwhile: Callable[[], None] | None = None) -> Any:
        child = self._child or self._restart(None)
        try:
            return child.call(method, *arguments, meanwhile=meanwhile)
        except ChildDied as error:
            if child is self._child and not self._closed:
                self._restart(child)
            elif child is not self._child:
                # It was replaced by a new generation while this call waited for it.
                return self._call(method, *arguments)
            raise BackendUnavailable(
                f"The process of the vector index stopped during {method} ({error}) and was restarted."
            ) from error

    def _restart(self, dead: _Child | None) -> _Child:
        with self._writer:
            if self._closed:
                raise BackendUnavailable("The vector index is closed.")
            if self._child is not dead and self._child is not None:
                return self._child
            self._incarnation += 1
            if dead is not None:
                dead.kill()
                self._child = None
            if shutil.disk_usage(self._folder).free < _LEAST_FREE:
                raise BackendUnavailable(
                    f"The disk that holds the vector index {self._folder} is full: free some space and repeat."
                )
            self._child = self._started(self._current())
            return self._child

    def _write(self, method: Literal["upsert", "prune"], payload: Any) -> None:
        with self._writer:
            self._call(method, payload)
            if self._journal is not None:
                self._journal.append((method, payload))

    def _rebuild(
        self, build: Callable[[_Child, Path], Any], on_progress: Callable[[str], None] | None, *, fresh: bool = False
    ) -> Any:
        report = on_progress or (lambda _stage: None)
        with self._building:
            self._remove_leftovers()
            old = self._current()
            copy = self._folder / _name(_number(old) + 1)
            target = self._folder / _name(_number(old) + 2) if fresh else copy
            incarnation = self._incarnation
            try:
                report("copying")
                with self._writer:
                    self._call("flush", None)
                    copy_sparse(old, copy)
                    self._journal = []
                report("building")
                result = self._built(build, copy, target)
                report("switching")
                self._switch(target, incarnation)
            except ChildDied as error:
                raise BackendUnavailable(
                    f"Building a new vector index stopped ({error}); the old one is kept."
                ) from error
            except OSError as error:
                raise BackendUnavailable(
                    f"Cannot write a new vector index in {self._folder} ({_reason(error)}); the old one is kept. "
                    "Free some space, or make the folder writable."
                ) from error
            finally:
                self._journal = None
                # Also of a copy that the disk had no room for: nothing else can be written until it is gone.
                self._remove_leftovers()
            with self._writer:
                self._call("flush", None)
                self._unkept = self._keep is not None
                self._keep_files()
        return result

    def _built(self, build: Callable[[_Child, Path], Any], copy: Path, target: Path) -> Any:
        self._builder = _Child(copy, self._dimension)
        if self._no_builds:
            self._builder.kill()
        result = build(self._builder, target)
        self._builder.close()
        if target != copy:
            shutil.rmtree(copy)
        self._builder = _Child(target, self._dimension)
        return result

    def _switch(self, target: Path, incarnation: int) -> None:
        child = self._builder
        assert child is not None
        assert self._journal is not None
        done, left = 0, len(self._journal)
        # Writers may be faster than the replay: once a round no longer halves what is left, they have to wait.
        while left > _SHORT_JOURNAL:
            done = self._replay(child, done)
            left, before = len(self._journal) - done, left
            if left > before // 2:
                break
        with self._writer:
            self._replay(child, done)
            if self._closed or self._incarnation != incarnation:
                raise ChildDied("the engine restarted meanwhile")
            child.call("flush", self._call("mark"))
            write_durably(self._folder / "CURRENT", target.name)
            old = self._child
            self._child = child
            self._builder = None
        if old is not None:
            old.close()

    def _replay(self, child: _Child, start: int) -> int:
        assert self._journal is not None
        end = len(self._journal)
        for method, payload in self._journal[start:end]:
            child.call(method, payload)
        return end

    def _started(self, folder: Path) -> _Child:
        try:
            return _Child(folder, self._dimension)
        except ChildDied as error:
            raise IntegrityError(f"Cannot open the vector index in {folder} ({error}).") from error

    def _current(self) -> Path:
        return current_file(self._folder, GENERATION, _name(1))

    def _remove_leftovers(self) -> None:
        """Delete every generation but the current one, and a builder that is still there."""
        # In order: who copies one generation into the next has locked the first of them.
        builder, self._builder = self._builder, None
        if builder is not None:
            builder.kill()
        current = self._current()
        for entry in sorted(self._folder.glob("gen-*")):
            if entry != current:
                # The builder of a killed process writes until its call is done, and would fill what is being emptied.
                lock = lock_folder(entry, "unfinished vector index")
                try:
                    shutil.rmtree(entry)
                finally:
                    os.close(lock)


def wipe(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def _reason(error: OSError) -> str:
    """Return what went wrong; an error of `shutil.copytree` has a list of all files' errors instead."""
    told = error.args[0] if isinstance(error, shutil.Error) and error.args else None
    return str(told[0][-1] if isinstance(told, list) and told else error.strerror or error)


def _name(number: int) -> str:
    return f"gen-{number:06d}"


def _number(generation: Path) -> int:
    return int(generation.name.removeprefix("gen-"))


def _wire(point: VectorPoint) -> WirePoint:
    turn_terms, window_terms = map(_wire_terms, (point.turn_terms, point.window_terms))
    return point.id, dict(point.payload), point.turn.tobytes(), point.window.tobytes(), turn_terms, window_terms


def _wire_terms(terms: SparseVector) -> tuple[list[int], list[float]]:
    return terms.indices.tolist(), terms.values.tolist()
