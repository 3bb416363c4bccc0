"""The background thread of an installation: indexes catch up and are flushed, erasures finish, graphs get built."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from memos.errors import MemosError
from memos.memcube.indexing.projection import Projection

_TICK_S = 0.25
_DRAIN_S = 5.0
_BACKOFF_MAX_S = 30.0

log = logging.getLogger("memos.worker")


class Worker:
    """Runs the upkeep of one open installation until it is stopped."""

    def __init__(self, projections: Sequence[Projection], chores: Sequence[Callable[[], object]]) -> None:
        self._projections = projections
        self._chores = chores
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memos-worker", daemon=True)
        self.last_error: str | None = None

    @property
    def running(self) -> bool:
        """Say whether the thread is at work."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Begin to work; calling it again changes nothing."""
        if not self.running:
            self._thread.start()

    def ask_to_stop(self) -> None:
        """Let the present step be the last one."""
        self._stop.set()

    def stop(self) -> None:
        """Ask the thread to end and wait until its present step is done."""
        self.ask_to_stop()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        pause = _TICK_S
        while not self._stop.wait(pause):
            pause = _TICK_S if self._tick() else min(pause * 2, _BACKOFF_MAX_S)

    def _tick(self) -> bool:
        """Do one round; False when something failed, which is kept and tried again later."""
        self.last_error = None
        for step in (*(self._follow(projection) for projection in self._projections), *self._chores):
            if self._stop.is_set():
                break
            try:
                step()
            except MemosError as error:
                if not self._stop.is_set():
                    self._failed(error)
            except Exception as error:
                self._failed(error)
                log.exception("upkeep failed unexpectedly")
        return self.last_error is None

    def _failed(self, error: Exception) -> None:
        self.last_error = f"{type(error).__name__}: {error}"
        log.warning("upkeep failed: %s", self.last_error)

    @staticmethod
    def _follow(projection: Projection) -> Callable[[], object]:
        def follow() -> None:
            projection.drain(_DRAIN_S)
            if projection.last_error is not None:
                raise projection.last_error
            projection.flush_if_due()

        return follow
