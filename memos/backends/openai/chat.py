"""A chat model behind an OpenAI-compatible endpoint: rate limits, retries, deadlines."""

from __future__ import annotations

import io
import random
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Final, TypeVar

import httpx2
import stamina
from PIL import Image as Pillow
from PIL import ImageOps

from memos.backends import http as endpoint_client
from memos.backends.http import TooLarge, opened
from memos.backends.openai.requests import Dialect, Dialects, payload
from memos.backends.openai.responses import Refused, read_answer, read_stream, told_status, where
from memos.core.ports import ChatReply, ChatRequest, Image
from memos.core.settings import ChatSettings
from memos.errors import BackendTimeout, BackendUnavailable, InvalidInput, ModelError

MOST_SIDE: Final = 1024
_QUALITY: Final = 85
_FORMATS: Final = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
# What Pillow's decoders raise for damaged files; the last two are its guard against decompression bombs.
_UNREADABLE: Final = (
    OSError,
    SyntaxError,
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    EOFError,
    OverflowError,
    ZeroDivisionError,
    MemoryError,
    Pillow.DecompressionBombError,
    Warning,
)


def with_small_images(request: ChatRequest) -> ChatRequest:
    if not any(message.images for message in request.messages):
        return request
    messages = (replace(each, images=tuple(map(small, each.images))) for each in request.messages)
    return replace(request, messages=tuple(messages))


def small(image: Image) -> Image:
    """Return an image of at most `MOST_SIDE` pixels a side; of an animated one its first frame."""
    try:
        data = _jpeg(image.data)
    except _UNREADABLE as error:
        raise ModelError(
            f"Cannot decode the image ({type(error).__name__}); it is damaged or too large. Add another copy of it.",
            permanent=True,
        ) from error
    return Image("image/jpeg", data)


def _jpeg(data: bytes) -> bytes:
    with Pillow.open(io.BytesIO(data), formats=_FORMATS) as opened:
        opened.draft("RGB", (MOST_SIDE, MOST_SIDE))  # a JPEG is decoded at a fraction of its size
        opened.thumbnail((MOST_SIDE, MOST_SIDE))
        try:
            upright = ImageOps.exif_transpose(opened)
        except _UNREADABLE:  # unreadable metadata: use the image as it is
            upright = opened
        if upright.has_transparency_data:
            canvas = Pillow.new("RGBA", upright.size, "white")
            canvas.alpha_composite(upright.convert("RGBA"))
            upright = canvas
        flat = upright.convert("RGB")
    out = io.BytesIO()
    # A new image: nothing of the file's own `info` is written.
    clean = Pillow.new("RGB", flat.size)
    clean.paste(flat)
    clean.save(out, "JPEG", quality=_QUALITY)
    return out.getvalue()


_Given = TypeVar("_Given")

_LONGEST_WAIT_S: Final = 20.0
_LONGEST_RETRY_AFTER_S: Final = 60.0


class OpenAIChat:
    """A `ChatModel`; one connection pool and one limit of parallel calls each."""

    def __init__(self, settings: ChatSettings, *, first_wait_s: float = 0.5, retries: int = 3) -> None:
        if settings.base_url is None or settings.model is None:
            raise InvalidInput("base_url", "is required: a chat model needs BASE_URL and MODEL")
        self._settings = settings
        self._model = settings.model
        self._first_wait_s = first_wait_s
        self._dialects = Dialects()
        self._closing = threading.Event()
        self._attempts = retries + 1
        self._slots = threading.BoundedSemaphore(settings.parallel)
        self._lock = threading.Lock()
        self._running = 0
        try:
            self._url = httpx2.URL(f"{settings.base_url}/chat/completions")
        except httpx2.InvalidURL as error:
            raise InvalidInput("base_url", "must be a URL such as https://models.example.org/v1") from error
        self._http = opened(settings)

    @property
    def name(self) -> str:
        return self._model

    @property
    def in_steps(self) -> bool:
        """It does not: an endpoint asked for a stream is not asked again once that has begun."""
        return False

    def complete(self, request: ChatRequest) -> ChatReply:
        request = with_small_images(request)
        until = time.monotonic() + self._settings.timeout_s * self._attempts
        with self._call():
            for attempt in stamina.retry_context(on=self._patience(until), attempts=self._attempts, timeout=None):
                with attempt:
                    return self._understood(request, lambda dialect: self._ask(request, dialect, until))
        raise AssertionError("stamina raises the last attempt's error")

    def stream(self, request: ChatRequest) -> Generator[str | ChatReply, None, None]:
        """Yield the model's answer; it is asked again only before the first piece."""
        request = with_small_images(request)
        until = time.monotonic() + self._settings.timeout_s * self._attempts
        with self._call(), ExitStack() as held:
            for attempt in stamina.retry_context(on=self._patience(until), attempts=self._attempts, timeout=None):
                with attempt:
                    pieces = self._understood(request, lambda dialect: self._begin(request, dialect, until, held))
            yield from pieces

    def close(self) -> None:
        self._closing.set()
        with self._lock:
            idle = self._running == 0
        if idle:
            self._http.close()

    def __repr__(self) -> str:
        return f"OpenAIChat({self._model!r})"

    @contextmanager
    def _call(self) -> Iterator[None]:
        with self._lock:
            self._running += 1
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1
                last = self._running == 0 and self._closing.is_set()
            if last:
                self._http.close()

    def _patience(self, until: float) -> Callable[[Exception], bool | float]:
        waits = 0

        def wait_after(error: Exception) -> bool | float:
            nonlocal waits
            if not isinstance(error, BackendUnavailable) or error.permanent or self._closing.is_set():
                return False
            grown = min(_LONGEST_WAIT_S, self._first_wait_s * 2.0**waits) * random.uniform(0.75, 1.25)  # noqa: S311
            waits += 1
            asked = error.retry_after_s or 0.0
            if asked > _LONGEST_RETRY_AFTER_S or time.monotonic() + max(asked, grown) >= until:
                return False
            return max(asked, grown)

        return wait_after

    def _understood(self, request: ChatRequest, ask: Callable[[Dialect], _Given]) -> _Given:
        """Ask once, in as many dialects as it takes the endpoint to understand."""
        first = dialect = self._dialects.known(request)
        while True:
            try:
                return ask(dialect)
            except Refused as refused:
                wanted = {"wants_json": request.schema is not None, "wants_words": bool(request.words)}
                other = dialect.after(refused.complaint, first, **wanted)
                if other is None:
                    raise refused.error from None
                dialect = other

    def _ask(self, request: ChatRequest, dialect: Dialect, until: float) -> ChatReply:
        prompt_tokens = request.estimated_tokens
        with self._slot(until):
            response = self._send(payload(request, self._settings, dialect), until)
            if response.status_code >= 300:
                raise told_status(response.status_code, response.content, response.headers, self._settings)
            self._dialects.learn(request, dialect)
            media_type = response.headers.get("content-type", "")
            return read_answer(response.content, media_type, prompt_tokens, self._settings, request.words)

    def _begin(
        self, request: ChatRequest, dialect: Dialect, until: float, held: ExitStack
    ) -> Generator[str | ChatReply, None, None]:
        """Start a request; `held` keeps the connection until the answer is read or unwanted."""
        with ExitStack() as taken:
            taken.enter_context(self._slot(until))
            response = self._send(payload(request, self._settings, dialect, stream=True), until, stream=True)
            taken.callback(response.close)
            if response.status_code >= 300:
                with self._translated():
                    content = response.read()
                raise told_status(response.status_code, content, response.headers, self._settings)
            self._dialects.learn(request, dialect)
            held.push(taken.pop_all())
        return self._pieces(response, request.estimated_tokens)

    def _pieces(self, response: httpx2.Response, prompt_tokens: int) -> Generator[str | ChatReply, None, None]:
        media_type = response.headers.get("content-type", "")
        with self._translated():
            if "event-stream" in media_type.lower():
                yield from read_stream(response.iter_raw(), prompt_tokens, self._settings)
                return
            content = response.read()  # an endpoint that does not stream
        reply = read_answer(content, media_type, prompt_tokens, self._settings)
        yield reply.text
        yield reply

    @contextmanager
    def _slot(self, until: float) -> Iterator[None]:
        if not self._slots.acquire(timeout=max(0.0, until - time.monotonic())):
            raise BackendTimeout(
                f"All {self._settings.parallel} connections to the model {self._model} stayed busy; try again later, "
                "or raise PARALLEL."
            )
        try:
            if self._closing.is_set():
                raise BackendUnavailable("This process is shutting down and calls no model any more.", permanent=True)
            yield
        finally:
            self._slots.release()

    def _send(self, body: Mapping[str, Any], until: float, *, stream: bool = False) -> httpx2.Response:
        timeout_s = self._left_s(until)
        with self._translated():
            request = self._http.build_request("POST", self._url, json=body, timeout=timeout_s)
            return self._http.send(request, stream=stream)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except httpx2.TimeoutException as error:
            raise self._too_slow() from error
        except httpx2.HTTPError as error:
            raise self._unreachable(error) from error
        except TooLarge as error:
            raise self._too_much() from error

    def _left_s(self, until: float) -> float:
        left_s = min(self._settings.timeout_s, until - time.monotonic())
        if left_s <= 0:
            raise self._too_slow()
        return left_s

    def _too_much(self) -> ModelError:
        most = endpoint_client.MOST_BYTES
        return ModelError(
            f"{where(self._settings)} sent more than {most:,} bytes; check that BASE_URL is the URL of a chat model."
        )

    def _too_slow(self) -> BackendTimeout:
        return BackendTimeout(
            f"{where(self._settings)} did not answer within {self._settings.timeout_s:g} s; try again later, raise "
            "TIMEOUT_S, or use a smaller model."
        )

    def _unreachable(self, error: BaseException) -> BackendUnavailable:
        reason = f"{error}" or type(error).__name__
        return BackendUnavailable(
            f"{where(self._settings)} cannot be reached, or the connection was lost ({reason:.200}); start it, or "
            "check BASE_URL."
        )
