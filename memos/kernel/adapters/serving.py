"""Adapters in service: the active adapter of a cube, running trainings, and removal of adapter files."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

from memos.core.clock import Clock
from memos.core.kv_cache import Fill
from memos.core.lora import ActiveAdapter
from memos.core.settings import Settings
from memos.memcube.ledger import adapters as adapter_rows
from memos.memcube.ledger.engine import Ledger
from memos.memcube.parametric import forgetting
from memos.memcube.parametric.forgetting import Forgotten

if TYPE_CHECKING:
    from memos.kernel.local_models import LocalModels

log = logging.getLogger("memos.engines")

_MOST_FILLS = 64


@dataclass(frozen=True, slots=True)
class AdapterResolver:
    """Finds active adapters in `folder`, which may be None. Thread-safe.

    `fill_of` returns what prefills prompts with reusable KV for an adapter's digest.
    """

    ledger: Ledger
    folder: Path | None
    fill_of: Callable[[str], Fill | None]
    _fills: dict[str, Fill | None] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def serving(self, cube: str, base: str) -> ActiveAdapter | None:
        """Return the cube's active adapter for this base model; None if its memories have changed since."""
        if self.folder is None or not self.folder.exists():
            return None
        with self.ledger.read() as connection:
            row = adapter_rows.serving(connection, cube, base)
        if row is None or row.digest is None or not (folder := self.folder / row.id).exists():
            return None
        return ActiveAdapter(row.id, folder, row.digest)

    def fill(self, adapter: ActiveAdapter) -> Fill | None:
        """Return what prefills prompts with an adapter, cached as it measures its speed; None if no KV is reused."""
        with self._lock:
            if adapter.digest not in self._fills:
                while len(self._fills) >= _MOST_FILLS:
                    del self._fills[next(iter(self._fills))]
                self._fills[adapter.digest] = self.fill_of(adapter.digest)
            return self._fills[adapter.digest]


_WAIT_S = 60.0


class RunningTrainings:
    """The trainings running in this process, so that an erasure or the end of the program can end them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[str, _Running] = {}

    @contextmanager
    def running(self, id_: str, kill: Callable[[], None]) -> Iterator[None]:
        """Register this thread as training an adapter; `kill` makes the trainer's current or next call fail."""
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
        """Kill the trainings that are not wanted, and wait until they have ended, except for one of this thread."""
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


@dataclass(frozen=True, slots=True)
class AdapterRemoval:
    ledger: Ledger
    clock: Clock
    settings: Settings
    folder: Path | None
    trainings: RunningTrainings
    activations: LocalModels
    keep: Callable[[], None] = lambda: None  # seals the files of an encrypted installation

    def forget(self, cubes: Collection[str]) -> list[Forgotten]:
        """Remove stale adapters of these cubes, and orphaned files. Raises: BackendUnavailable."""
        found = forgetting.forget(self.ledger, self.folder, cubes, self.trainings.end, self._learn_again)
        for gone in found:
            log.info("forgot adapter %s: %d files, %d bytes", gone.adapter, gone.files, gone.size_bytes)
        self.keep()
        return found

    def drop(self, cubes: Collection[str]) -> Sequence[Forgotten]:
        gone = self.forget(())
        self.activations.forget(cubes)
        return gone

    def _learn_again(self, connection: sa.Connection, cube: str) -> None:
        forgetting.plan_again(connection, cube, self.settings.parametric.night, self.clock.now())
