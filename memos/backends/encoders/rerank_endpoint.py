"""A reranker behind an HTTP `/rerank` endpoint: Jina, Cohere, vLLM, llama.cpp, infinity."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence

import httpx2
import stamina

from memos.backends.encoders.requests import ATTEMPTS, json_of, post, wait_until
from memos.backends.http import opened
from memos.backends.openai.requests import sendable
from memos.backends.openai.responses import NoSuchModel, Refused, dig, told_status, where
from memos.core.settings import ChatSettings, RerankSettings
from memos.core.types import Json
from memos.errors import BackendTimeout, BackendUnavailable, InvalidInput, ModelError


class EndpointReranker:
    """Asks an endpoint, again when that may help, all within the set time; thread-safe."""

    def __init__(self, settings: RerankSettings, *, first_wait_s: float = 0.2, timeout_s: float = 10.0) -> None:
        if settings.base_url is None or settings.model is None:
            raise InvalidInput("base_url", "is required: a reranker behind an endpoint needs BASE_URL and MODEL")
        # What the house's client reads; it shows this name in messages alone.
        self._settings = ChatSettings(
            base_url=settings.base_url, model=settings.model[:256], api_key=settings.api_key, timeout_s=timeout_s
        )
        self._model = settings.model
        self._first_wait_s = first_wait_s
        self._client = opened(self._settings)

    @property
    def name(self) -> str:
        return self._model

    def scores(self, question: str, texts: Sequence[str]) -> list[float]:
        if not texts:
            return []
        body = {
            "model": self._model,
            "query": sendable(question),
            "documents": [sendable(text) for text in texts],
            "top_n": len(texts),
        }
        until = time.monotonic() + self._settings.timeout_s
        for attempt in stamina.retry_context(on=wait_until(until, self._first_wait_s), attempts=ATTEMPTS, timeout=None):
            with attempt:
                return _scores(self._asked(body, until), len(texts), where(self._settings))
        raise AssertionError("stamina raises the last attempt's error")

    def close(self) -> None:
        self._client.close()

    def __repr__(self) -> str:
        return f"EndpointReranker({self._model!r})"

    def _asked(self, body: Mapping[str, Json], until: float) -> Json:
        left_s = until - time.monotonic()
        slow = f"{where(self._settings)} did not rerank within {self._settings.timeout_s:g} s; use a smaller model."
        if left_s <= 0:
            raise BackendTimeout(slow)
        response = post(
            self._client,
            f"{self._settings.base_url}/rerank",
            body,
            left_s,
            there=where(self._settings),
            setting="MEMOS_RERANK__BASE_URL",
            slow=slow,
        )
        if response.status_code != 200:
            raise self._failure(response)
        return json_of(response)

    def _failure(self, response: httpx2.Response) -> BackendUnavailable | ModelError:
        told = told_status(response.status_code, response.content, response.headers, self._settings)
        if isinstance(told, Refused):
            return told.error
        if isinstance(told, NoSuchModel):
            return BackendUnavailable(
                f"{where(self._settings)} has no model {self._model} or no path /rerank; check MEMOS_RERANK__MODEL, "
                "and MEMOS_RERANK__BASE_URL, which for many servers ends with /v1.",
                permanent=True,
            )
        return told


def _scores(answer: Json, count: int, there: str) -> list[float]:
    results = dig(answer, "results")
    if not isinstance(results, list):
        raise ModelError(f"{there} sent an answer that is not a list of rerank results; check its log.")
    found: dict[int, float] = {}
    for result in results:
        place, score = dig(result, "index"), dig(result, "relevance_score")
        if not _is_place(place, count) or place in found:
            raise ModelError(f"{there} scored a text that was not sent, or one text twice; check its log.")
        if isinstance(score, bool) or not isinstance(score, int | float) or not _is_finite(score):
            raise ModelError(f"{there} returned a score that is not a finite number; check its log.")
        found[place] = float(score)
    if len(found) != count:
        raise ModelError(f"{there} scored {len(found)} of {count} texts; check its log.")
    return [found[place] for place in range(count)]


def _is_place(value: Json, count: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < count


def _is_finite(score: float) -> bool:
    try:
        return math.isfinite(score)
    except OverflowError:  # a whole number of hundreds of digits
        return False
