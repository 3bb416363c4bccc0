"""Lends adapters to a model in this process: which one answers for a cube now, as the ledger says at each request."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from memos.core.kv_cache import Fill
from memos.core.lora import LentAdapter
from memos.memcube.ledger import adapters as adapter_rows
from memos.memcube.ledger.engine import Ledger

_MOST_FILLS = 64


@dataclass(frozen=True, slots=True)
class AdapterLending:
    """Lends the adapters in a folder, None where this process has none. Thread-safe.

    `fill_of` makes what fills prompts under the adapter with a digest.
    """

    ledger: Ledger
    folder: Path | None
    fill_of: Callable[[str], Fill | None]
    _fills: dict[str, Fill | None] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def serving(self, cube: str, base: str, about: Sequence[str]) -> LentAdapter | None:
        """Return the adapter of a cube that may answer now on the model with this digest.

        Of several shards it is the one that knows most of what a request is `about`, the first of it counting most.
        Whoever changes or deletes one of its memories takes it out of service by that, in the same transaction.
        """
        if self.folder is None or not self.folder.exists():
            return None
        with self.ledger.read() as connection:
            rows = adapter_rows.serving(connection, cube, base)
            if len(rows) > 1:
                known = adapter_rows.knowing(connection, [row.id for row in rows], about)
                worth = {item: 1 / place for place, item in enumerate(about, 1)}
                rows.sort(key=lambda row: -sum(worth[item] for item in known.get(row.id, ())))  # else the first shard
        # One alone: the sum of two good ones was worse than either (docs/adr/0019).
        return next(
            (
                LentAdapter(row.id, folder, row.digest)
                for row in rows
                if row.digest is not None and (folder := self.folder / row.id).exists()
            ),
            None,
        )

    def serving_named(self, cube: str, model: str, about: Sequence[str]) -> LentAdapter | None:
        """Return the adapter of a cube that may answer now on the model of this name, whose digest nobody can see.

        It was trained on what the model was when one was trained last.
        """
        with self.ledger.read() as connection:
            base = adapter_rows.newest_base(connection, model)
        return None if base is None else self.serving(cube, base, about)

    def may_answer(self, id_: str) -> bool:
        """Say whether an adapter may answer now."""
        with self.ledger.read() as connection:
            row = adapter_rows.get(connection, id_)
            return row is not None and any(
                each.id == id_ for each in adapter_rows.serving(connection, row.cube, row.base)
            )

    def fill(self, adapter: LentAdapter) -> Fill | None:
        """Return what fills prompts under an adapter, which measures how quick that is; None where nothing is kept."""
        with self._lock:
            if adapter.digest not in self._fills:
                while len(self._fills) >= _MOST_FILLS:
                    del self._fills[next(iter(self._fills))]
                self._fills[adapter.digest] = self.fill_of(adapter.digest)
            return self._fills[adapter.digest]


# The trainings under way in this process: an erasure, and the end of the program, end them and wait for it.

_WAIT_S = 60.0


class Trainings:
    """Who trains which adapter. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[str, _Running] = {}

    @contextmanager
    def running(self, id_: str, kill: Callable[[], None]) -> Iterator[None]:
        """Say that this thread trains an adapter; `kill` makes its next call fail, also one that is under way."""
        mine = _Running(kill)
        with self._lock:
            self._running[id_] = mine
        try:
            yield
        finally:
            with self._lock:
                del self._running[id_]
            mine.ended.set()

    def end(self, is_wanted: Callable[[str], bool]) -> None:
        """End those that are not wanted; when this returns they write nothing more, but what this very thread does."""
        with self._lock:
            running = dict(self._running)
        for id_, each in running.items():
            if not is_wanted(id_):
                each.kill()
                if each.thread != threading.get_ident():
                    each.ended.wait(_WAIT_S)


class _Running:
    def __init__(self, kill: Callable[[], None]) -> None:
        self.kill = kill
        self.thread = threading.get_ident()
        self.ended = threading.Event()
