"""Examine language models before their first use, and remember the results for a day."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from memos.llm.client import LLMClient
from memos.llm.usage import UsageMeter

Result = TypeVar("Result")

HOLDS_S = 24 * 3600.0
"""Seconds after which a model is examined again: the server may serve another one under the same name by then."""


class _Held(NamedTuple, Generic[Result]):
    result: Result
    until: float


class Examination(Generic[Result]):
    """Examines each model once, by name, and remembers the result in this process. Thread-safe.

    Errors during an examination, such as those of a model that is away, are raised and not remembered.
    """

    def __init__(self, examine: Callable[[LLMClient, UsageMeter], Result]) -> None:
        self._examine = examine
        self._lock = threading.Lock()
        self._held: dict[str, _Held[Result]] = {}

    def result(self, asker: LLMClient, meter: UsageMeter) -> Result:
        """Return the result of a model's examination, examining the model now if it is new; other threads wait."""
        with self._lock:
            held = self._held.get(asker.model)
            if held is None or held.until < time.monotonic():
                held = _Held(self._examine(asker, meter), time.monotonic() + HOLDS_S)
                self._held[asker.model] = held
            return held.result
