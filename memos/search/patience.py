"""Asks a reranker for a search, which waits so long and no longer; what goes wrong is logged and answered with None."""

from __future__ import annotations

import contextvars
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from typing import Final

from memos.core.ports import Reranker
from memos.core.settings import RerankSettings
from memos.errors import MemosError
from memos.search.rerank import checked

log = logging.getLogger(__name__)

AT_ONCE: Final = 4
"""Calls of a reranker at once: what hangs takes these threads and no others."""


class PatientReranker:
    """A reranker that can neither fail a search nor hold it up for longer than is set. Thread-safe.

    While as many calls hang as there may be at once, nobody waits for another: searches go without at once.
    """

    def __init__(self, reranker: Reranker, settings: RerankSettings) -> None:
        self.settings = settings
        self._reranker = reranker
        self._changed = threading.Condition()
        self._under_way: set[Future[list[float]]] = set()
        self._overdue: set[Future[list[float]]] = set()
        self._closed = False

    def scores(self, question: str, texts: Sequence[str]) -> list[float] | None:
        """Return one score a text, None when there are none in time."""
        until = time.monotonic() + self.settings.timeout_s
        asked = self._begun(lambda: self._reranker.scores(question, texts), until)
        if asked is None:
            return None
        try:
            return checked(asked.result(max(0.0, until - time.monotonic())), len(texts), self._reranker.name)
        except TimeoutError:
            self._give_up(asked)
            log.warning(
                "The reranker did not answer within %g s, and a search went without: look at what it runs on, raise "
                "MEMOS_RERANK__TIMEOUT_S, or lower MEMOS_RERANK__CANDIDATES.",
                self.settings.timeout_s,
            )
        except CancelledError:
            log.info("A search went without its reranker, since this program closes it.")
        except MemosError as error:
            log.warning("A search went without its reranker: %s", error)
        except Exception as error:  # noqa: BLE001 - anybody's reranker, and no search fails for it; it may quote texts
            log.warning("A search went without its reranker, which failed with %s.", type(error).__name__)
        return None

    def close(self) -> None:
        """Begin no further calls; who waits for one goes without, and those under way end by themselves."""
        with self._changed:
            self._closed = True
            for asked in self._under_way:
                asked.cancel()
            self._changed.notify_all()

    def _begun(self, call: Callable[[], list[float]], until: float) -> Future[list[float]] | None:
        """Begin a call in a thread of its own, which keeps no program from ending; None where there is no turn."""

        def is_decided() -> bool:
            return self._closed or len(self._overdue) >= AT_ONCE or len(self._under_way) < AT_ONCE

        asked: Future[list[float]] = Future()
        with self._changed:
            self._changed.wait_for(is_decided, max(0.0, until - time.monotonic()))
            if self._closed or len(self._under_way) >= AT_ONCE:
                log.warning("A search went without its reranker, which %d others wait for.", len(self._under_way))
                return None
            self._under_way.add(asked)
        around = contextvars.copy_context()  # whose key the call came with, which pays for a model's tokens
        thread = threading.Thread(target=self._run, args=(asked, around, call), name="memos-rerank", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # this process may have no more of them
            with self._changed:
                self._under_way.discard(asked)
            log.warning("A search went without its reranker: %s", error)
            return None
        return asked

    def _run(self, asked: Future[list[float]], around: contextvars.Context, call: Callable[[], list[float]]) -> None:
        try:
            answer, failure = around.run(call), None
        except Exception as error:  # noqa: BLE001 - told by whoever waits
            answer, failure = [], error
        with self._changed:
            self._under_way.discard(asked)
            self._overdue.discard(asked)
            if failure is not None and not asked.cancelled():
                asked.set_exception(failure)
            elif not asked.cancelled():
                asked.set_result(answer)
            self._changed.notify_all()

    def _give_up(self, asked: Future[list[float]]) -> None:
        with self._changed:
            if asked.cancel():  # else it answered just now
                self._overdue.add(asked)
                self._changed.notify_all()
