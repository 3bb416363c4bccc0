"""An embedder behind an OpenAI-compatible `/embeddings` endpoint: OpenAI, Ollama, llama.cpp, vLLM, TEI."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Final

import httpx2
import numpy as np
import stamina

from memos.backends.encoders.requests import ATTEMPTS, json_of, post, wait_until
from memos.backends.http import opened
from memos.backends.openai.requests import sendable
from memos.backends.openai.responses import NoSuchModel, Refused, dig, told_status, where
from memos.core.ports import Vector
from memos.core.settings import ChatSettings, EmbedSettings, Key
from memos.core.tokens import estimate_tokens
from memos.core.types import Fingerprint, Json
from memos.errors import BackendUnavailable, InvalidAnswer, InvalidInput, ModelError

MAX_TOKENS: Final = 256
"""Estimated tokens of a piece. Small models read 512, and of code an estimate may be half of the truth."""

_BATCH = 32
_DOCUMENTS_S, _QUERY_S = 60.0, 10.0
# After a failure questions are refused at once for a moment: a search is not to wait for what is away.
_REST_S = 5.0
_SHORTEST_CHARS = 64


class EndpointEmbedder:
    """Asks an endpoint in batches, again when that may help; thread-safe.

    The dimension is that of the first answer, or the one that `pin` sets, and no later answer may have another.
    """

    max_tokens = MAX_TOKENS

    def __init__(self, settings: EmbedSettings, key: Key = None, *, first_wait_s: float = 0.2) -> None:
        if settings.endpoint is None:
            raise InvalidInput("MEMOS_EMBED__MODEL", "must be `openai:MODEL@URL` or `ollama:MODEL`")
        model, url = settings.endpoint
        self._settings = ChatSettings(base_url=url, model=model, api_key=key, timeout_s=_DOCUMENTS_S)
        self._first_wait_s = first_wait_s
        self._client = opened(self._settings)
        self._lock = threading.Lock()
        self._dimension: int | None = None
        self._away: tuple[float, BackendUnavailable] | None = None

    @property
    def name(self) -> str:
        """Return the name of the space: the model's, since one that moves to another server makes the same vectors."""
        return f"openai:{self._settings.model}"

    @property
    def fingerprint(self) -> Fingerprint:
        if self._dimension is None:
            self.discover()
        assert self._dimension is not None
        return Fingerprint(self.name, self._dimension, prefix_rule="none", normalised=True)

    def discover(self) -> int:
        """Ask the endpoint for its dimension and keep it. Raises: BackendUnavailable, ModelError."""
        return int(self._asked(["dimension"], _QUERY_S).shape[1])

    def pin(self, dimension: int) -> None:
        """Keep a dimension without asking, that of vectors that are there."""
        with self._lock:
            self._dimension = dimension

    def embed_documents(self, texts: Sequence[str]) -> Vector:
        pieces: list[str] = []
        owners: list[int] = []
        for owner, text in enumerate(texts):
            clean = sendable(text)
            spans = self.split(clean, MAX_TOKENS)
            pieces += [clean[start:end] for start, end in spans] or [clean or " "]
            owners += [owner] * max(1, len(spans))
        sums = np.zeros((len(texts), self.fingerprint.dimension), dtype=np.float32)
        for start in range(0, len(pieces), _BATCH):
            batch = pieces[start : start + _BATCH]
            for owner, piece, vector in zip(
                owners[start : start + _BATCH], batch, self._whole(batch, _DOCUMENTS_S), strict=True
            ):
                sums[owner] += vector * max(1, len(piece))
        return self._units(sums)

    def embed_query(self, text: str) -> Vector:
        with self._lock:
            away = self._away
        if away is not None and time.monotonic() < away[0]:
            raise away[1]
        clean = sendable(text)
        pieces = [clean[start:end] for start, end in self.split(clean, MAX_TOKENS)] or [clean or " "]
        weights = np.array([[max(1, len(piece))] for piece in pieces], dtype=np.float32)
        vectors = np.concatenate(
            [self._whole(pieces[at : at + _BATCH], _QUERY_S) for at in range(0, len(pieces), _BATCH)]
        )
        vector: Vector = self._units((vectors * weights).sum(axis=0, keepdims=True))[0]
        return vector

    def split(self, text: str, max_tokens: int) -> list[tuple[int, int]]:
        """Return spans of at most `max_tokens` estimated tokens, which end at a blank where there is one."""
        spans = []
        start = 0
        while start < len(text):
            end = min(len(text), start + 4 * max_tokens)
            while end - start > 1 and estimate_tokens(text[start:end]) > max_tokens:
                end = start + (end - start) * 3 // 4
            if end < len(text):
                blank = max(text.rfind(" ", start, end), text.rfind("\n", start, end))
                end = blank + 1 if blank > start + (end - start) // 2 else end
            if text[start:end].strip():
                spans.append((start, end))
            start = end
        return spans

    def close(self) -> None:
        self._client.close()

    def __repr__(self) -> str:
        return f"EndpointEmbedder({self._settings.model!r})"

    def _whole(self, pieces: Sequence[str], timeout_s: float) -> Vector:
        """Return the pieces' vectors; a request that the endpoint finds too long is sent in halves."""
        try:
            return self._asked(pieces, timeout_s)
        except _TooLong:
            if len(pieces) > 1:
                half = len(pieces) // 2
                return np.concatenate([self._whole(part, timeout_s) for part in (pieces[:half], pieces[half:])])
            [text] = pieces
            if len(text) < 2 * _SHORTEST_CHARS:
                raise
            half = len(text) // 2
            both = self._whole([text[:half], text[half:]], timeout_s)
            mean: Vector = both.mean(axis=0, keepdims=True)
            return mean

    def _asked(self, texts: Sequence[str], timeout_s: float) -> Vector:
        until = time.monotonic() + timeout_s
        try:
            for attempt in stamina.retry_context(
                on=wait_until(until, self._first_wait_s), attempts=ATTEMPTS, timeout=None
            ):
                with attempt:
                    vectors = self._checked(self._answer(texts, until), len(texts))
        except BackendUnavailable as error:
            with self._lock:
                self._away = (time.monotonic() + _REST_S, error)
            raise
        with self._lock:
            self._away = None
        return vectors

    def _answer(self, texts: Sequence[str], until: float) -> Json:
        left_s = max(0.1, until - time.monotonic())
        body: Mapping[str, Json] = {"model": self._settings.model, "input": list(texts)}
        response = post(
            self._client,
            f"{self._settings.base_url}/embeddings",
            body,
            left_s,
            there=self._where,
            setting="MEMOS_EMBED__MODEL",
            slow=f"{self._where} did not embed in time; use a smaller model.",
        )
        if response.status_code != 200:
            raise self._failure(response)
        return json_of(response)

    def _failure(self, response: httpx2.Response) -> BackendUnavailable | ModelError:
        told = told_status(response.status_code, response.content, response.headers, self._settings)
        # llama.cpp says with status 500 that a text exceeds its batch.
        if isinstance(told, InvalidAnswer) or b"too large" in response.content[:2_000]:
            return _TooLong(f"{self._where} finds a text of {_SHORTEST_CHARS} characters too long.", permanent=True)
        if isinstance(told, Refused):
            return told.error
        if isinstance(told, NoSuchModel):
            return BackendUnavailable(
                f"{self._where} has no model {self._settings.model} or no path /embeddings; check MEMOS_EMBED__MODEL, "
                "whose address ends with /v1 for most servers.",
                permanent=True,
            )
        if told.permanent and response.status_code == 401:
            return BackendUnavailable(
                f"{self._where} refused the key; set OPENAI_API_KEY, or the chat model's if both are on one server.",
                permanent=True,
            )
        return told

    def _checked(self, answer: Json, count: int) -> Vector:
        data = dig(answer, "data")
        rows = data if isinstance(data, list) else []
        found: dict[int, Vector] = {}
        for place, row in enumerate(rows):
            index, numbers = dig(row, "index"), dig(row, "embedding")
            index = place if index is None else index
            if not isinstance(index, int) or not isinstance(numbers, list) or not all(map(_is_number, numbers)):
                break
            found[index] = np.array(numbers, dtype=np.float32)
        sizes = {len(vector) for vector in found.values()}
        if sorted(found) != list(range(count)) or len(sizes) != 1 or sizes == {0}:
            raise ModelError(f"{self._where} sent an answer that is not a list of {count} embeddings; check its log.")
        [dimension] = sizes
        with self._lock:
            if self._dimension is None:
                self._dimension = dimension
            if dimension != self._dimension:
                # Not a fault of a text: what waits stays until the model is back, or all is embedded anew.
                raise BackendUnavailable(
                    f"{self._where} made a vector of {dimension} dimensions, but those here have {self._dimension}; "
                    "restore the former model, or restart hippocube and run `memos data reembed`.",
                    permanent=True,
                )
        return self._units(np.stack([found[place] for place in range(count)]))

    def _units(self, vectors: Vector) -> Vector:
        norms: Vector = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not np.isfinite(norms).all() or (norms == 0).any():
            raise ModelError(f"{self._where} returned a vector of zeros or of values that are not finite.")
        return vectors / norms

    @property
    def _where(self) -> str:
        return where(self._settings)


class _TooLong(ModelError):
    pass


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
