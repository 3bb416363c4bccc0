"""Asks a reranker for a search, which waits so long and no longer; what goes wrong is logged and answered with None."""

from __future__ import annotations

import contextvars
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from memos.errors import MemosError
from memos.ports import Reranker
from memos.search.rerank import checked
from memos.settings import RerankSettings

log = logging.getLogger(__name__)

_AT_ONCE: Final = 4
"""Calls of a reranker at once: what hangs takes these threads and no others, and who comes then waits as long."""


class PatientReranker:
    """A reranker that can neither fail a search nor hold it up for longer than is set. Thread-safe."""

    def __init__(self, reranker: Reranker, settings: RerankSettings) -> None:
        self.settings = settings
        self._reranker = reranker
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="memos-rerank")

    def scores(self, question: str, texts: Sequence[str]) -> list[float] | None:
        """Return one score a text, None when there are none in time."""
        around = contextvars.copy_context()  # whose key the call came with, which pays for a model's tokens
        asked = self._threads.submit(around.run, self._reranker.scores, question, texts)
        try:
            return checked(asked.result(self.settings.timeout_s), len(texts), self._reranker.name)
        except TimeoutError:
            asked.cancel()
            log.warning(
                "The reranker did not answer within %g s, and a search went without: look at what it runs on, raise "
                "MEMOS_RERANK__TIMEOUT_S, or lower MEMOS_RERANK__CANDIDATES.",
                self.settings.timeout_s,
            )
        except MemosError as error:
            log.warning("A search went without its reranker: %s", error)
        return None

    def close(self) -> None:
        """Begin no further calls; those under way end by themselves, and nobody waits for them."""
        self._threads.shutdown(wait=False, cancel_futures=True)
