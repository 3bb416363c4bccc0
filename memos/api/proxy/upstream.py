"""The model behind the proxy: an endpoint with the key of the operator, or the model in this process."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, Literal

import anyio
import httpx2
from anyio import CancelScope, to_thread

from memos.api.proxy.errors import problem
from memos.api.proxy.requests import LIMITS, text_of
from memos.core.kv_cache import Prefix
from memos.core.ports import ChatMessage, ChatModel, ChatReply, ChatRequest
from memos.core.settings import ChatSettings
from memos.core.streaming import DONE
from memos.core.tokens import Tokens
from memos.core.types import Json
from memos.errors import BackendTimeout, BackendUnavailable, InvalidAnswer, InvalidInput, MemosError, ModelError
from memos.version import __version__

PREFIX = "memos_prefix"
"""The extension of a request that says what its prompt begins with."""

BASE_URL = "http://model-in-this-process/v1"

_THREADS = 64
_ROLES: Mapping[str, Literal["system", "user", "assistant"]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}
# Options that would change the answer if they were ignored, with the values that are accepted.
_UNKNOWN: Mapping[str, tuple[Json, ...]] = {
    "n": (1,),
    "tools": ([],),
    "functions": ([],),
    "logprobs": (False,),
    "response_format": ({"type": "text"},),
    "stop": ([],),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "logit_bias": ({},),
}


class LocalModelTransport(httpx2.AsyncBaseTransport):
    """A transport whose other end is a model, opened by `model` on the first request."""

    def __init__(self, model: Callable[[], ChatModel]) -> None:
        self._model = model
        self._limiter: anyio.CapacityLimiter | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        # Waiting for a turn takes a thread; made here, where the loop runs.
        self._limiter = self._limiter or anyio.CapacityLimiter(_THREADS)
        body = json.loads(request.content)
        answer = _Answer(f"chatcmpl-{uuid.uuid4().hex}", int(time.time()), str(body.get("model")))
        try:
            asked = _read(body, request.extensions.get(PREFIX))
            pieces = await to_thread.run_sync(lambda: self._model().stream(asked), limiter=self._limiter)
            reading = _Reading(pieces, self._limiter)
            await reading.begin()
        except MemosError as error:
            return _failed(error)
        if body.get("stream"):
            options = body.get("stream_options")
            usage = isinstance(options, dict) and bool(options.get("include_usage"))
            headers = {"content-type": "text/event-stream; charset=utf-8"}
            return httpx2.Response(200, headers=headers, stream=_Events(reading, answer, usage=usage))
        async with aclosing(reading):
            try:
                text = "".join([piece async for piece in reading.text()])
            except MemosError as error:
                return _failed(error)
        return _json(200, answer.whole(text, reading.finish, reading.usage))


@dataclass(frozen=True, slots=True)
class _Answer:
    id: str
    created: int
    model: str

    def whole(self, text: str, finish: str, usage: Json) -> dict[str, Json]:
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}
        return {**self._head("chat.completion"), "choices": [choice], "usage": usage}

    def chunk(self, delta: dict[str, Json], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return _event({**self._head("chat.completion.chunk"), "choices": [choice]})

    def counted(self, usage: Json) -> bytes:
        return _event({**self._head("chat.completion.chunk"), "choices": [], "usage": usage})

    def _head(self, kind: str) -> dict[str, Json]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}


class _Reading:
    """A model's pieces, taken one by one in threads; `finish` and `usage` are set at the end."""

    def __init__(self, pieces: Generator[str | ChatReply, None, None], limiter: anyio.CapacityLimiter) -> None:
        self._pieces, self._limiter = pieces, limiter
        self._first: str | ChatReply | None = None
        self.finish = "stop"
        self.usage: dict[str, Json] = {}

    async def begin(self) -> None:
        """Wait for the first step, so that an early failure can be a status. Raises: ModelError and others."""
        try:
            self._first = await self._next()
        except BaseException:
            await self.aclose()
            raise

    async def text(self) -> AsyncIterator[str]:
        piece = self._first
        while isinstance(piece, str):
            if piece:
                yield piece
            piece = await self._next()
        if isinstance(piece, ChatReply):
            self.usage = _usage(piece.tokens)

    async def aclose(self) -> None:
        with CancelScope(shield=True):
            await to_thread.run_sync(self._pieces.close, limiter=self._limiter)

    async def _next(self) -> str | ChatReply | None:
        try:
            return await to_thread.run_sync(lambda: next(self._pieces, None), limiter=self._limiter)
        except InvalidAnswer as error:
            if error.permanent:  # the prompt is too long
                raise
            # Report a truncated or empty answer as a normal one: these clients expect its finish reason.
            tokens = error.tokens or Tokens()
            self.finish = "length" if tokens.completion else "stop"
            self.usage = _usage(tokens)
            return None


class _Events(httpx2.AsyncByteStream):
    """An answer as server-sent events; if it is closed early the model stops."""

    def __init__(self, reading: _Reading, answer: _Answer, *, usage: bool) -> None:
        self._reading, self._answer, self._usage = reading, answer, usage

    async def __aiter__(self) -> AsyncIterator[bytes]:
        answer = self._answer
        yield answer.chunk({"role": "assistant", "content": ""})
        try:
            async for piece in self._reading.text():
                yield answer.chunk({"content": piece})
        except MemosError as error:
            yield _event(problem(error, 502))
            return
        yield answer.chunk({}, self._reading.finish)
        if self._usage:
            yield answer.counted(self._reading.usage)
        yield f"data: {DONE}\n\n".encode()

    async def aclose(self) -> None:
        await self._reading.aclose()


def _read(body: Mapping[str, Any], prefix: object) -> ChatRequest:
    for name, fine in _UNKNOWN.items():
        if (value := body.get(name)) is not None and value not in fine:
            raise InvalidInput(name, "is not supported by a model in this process; leave it out")
    limits = [body[name] for name in ("max_completion_tokens", "max_tokens") if body.get(name) is not None]
    if any(not isinstance(limit, int) or isinstance(limit, bool) for limit in limits):
        raise InvalidInput("max_tokens", "must be a whole number")
    return ChatRequest(
        tuple(_message(each, place) for place, each in enumerate(body["messages"])),
        limits[0] if limits else None,
        _number(body, "temperature"),
        top_p=_number(body, "top_p"),
        prefix=prefix if isinstance(prefix, Prefix) else None,
    )


def _message(message: Mapping[str, Any], place: int) -> ChatMessage:
    role = _ROLES.get(str(message.get("role")))
    if role is None or message.get("tool_calls"):
        raise InvalidInput(f"messages[{place}].role", "must be system, developer, user or assistant, without tools")
    parts = message.get("content")
    if isinstance(parts, list) and any(not isinstance(part, dict) or part.get("type") != "text" for part in parts):
        raise InvalidInput(f"messages[{place}].content", "must be text; a model in this process takes nothing else")
    return ChatMessage(role, text_of(message))


def _number(body: Mapping[str, Any], name: str) -> float | None:
    value = body.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise InvalidInput(name, "must be a number")
    return value


def _usage(tokens: Tokens) -> dict[str, Json]:
    return {
        "prompt_tokens": tokens.prompt,
        "completion_tokens": tokens.completion,
        "total_tokens": tokens.prompt + tokens.completion,
        "prompt_tokens_details": {"cached_tokens": tokens.cached or 0},
    }


def _failed(error: MemosError) -> httpx2.Response:
    if isinstance(error, InvalidInput) or (isinstance(error, ModelError) and error.permanent):
        status = 400
    else:
        status = 503 if isinstance(error, BackendUnavailable) else 502
    return _json(status, problem(error, status))


def _json(status: int, body: dict[str, Json]) -> httpx2.Response:
    """Return a JSON response with an unread body, as from a network connection."""
    raw = httpx2.ByteStream(json.dumps(body).encode())
    return httpx2.Response(status, headers={"content-type": "application/json"}, stream=raw)


def _event(data: dict[str, Json]) -> bytes:
    return f"data: {json.dumps(data)}\n\n".encode()


_CONNECT_S = 10.0
_MOST_BYTES = 32 * 1024 * 1024
_PASSED = ("content-type", "content-encoding", "retry-after", "retry-after-ms", "x-should-retry")
_PASSED_PREFIXES = ("x-ratelimit-", "openai-processing-")


class Upstream:
    """A chat endpoint, or the model in this process; its client is created on the first request."""

    def __init__(self, settings: ChatSettings, inside: Callable[[], ChatModel]) -> None:
        self.settings = settings
        self._inside = LocalModelTransport(inside) if settings.local else None
        self._client: httpx2.AsyncClient | None = None
        self.limit = LIMITS[0]
        """The name by which the endpoint takes the most tokens of an answer, as far as is known."""

    def check(self) -> None:
        if not self.settings.there:
            raise BackendUnavailable(
                "No language model is configured on this server. Its operator can set MEMOS_CHAT_MODEL__BASE_URL and "
                "MEMOS_CHAT_MODEL__MODEL, or set MEMOS_CHAT_MODEL__MODEL to local:PATH.",
                permanent=True,
            )

    async def send(self, body: bytes, prefix: Prefix | None = None) -> httpx2.Response:
        self.check()
        client = self._client = self._client or self._made()
        base_url = self.settings.base_url or BASE_URL
        extensions = {} if self._inside is None else {PREFIX: prefix}
        request = client.build_request("POST", f"{base_url}/chat/completions", content=body, extensions=extensions)
        with _failures(), anyio.fail_after(self.settings.timeout_s):
            return await client.send(request, stream=True)

    def other_limit(self, complaint: bytes) -> str | None:
        """Return the other name for the most tokens if an endpoint complains about the one, else None."""
        if not any(name.encode() in complaint for name in LIMITS):
            return None
        return next(name for name in LIMITS if name != self.limit)

    async def read(self, response: httpx2.Response) -> bytes:
        read = bytearray()
        with _failures(), anyio.fail_after(self.settings.timeout_s):
            async for chunk in response.aiter_raw():
                read += chunk
                if len(read) > _MOST_BYTES:
                    raise BackendUnavailable(f"The language model's answer is larger than {_MOST_BYTES:,} bytes.")
        return bytes(read)

    async def chunks(self, response: httpx2.Response) -> AsyncGenerator[bytes]:
        with _failures():
            async for chunk in response.aiter_raw():
                yield chunk

    def without_key(self, body: bytes) -> bytes:
        """Return a failure's body without the operator's key, which some endpoints quote."""
        key = "" if self.settings.api_key is None else self.settings.api_key.get_secret_value()
        return body.replace(key.encode(), b"***") if key else body

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def _made(self) -> httpx2.AsyncClient:
        settings = self.settings
        headers = {"Content-Type": "application/json", "User-Agent": f"hippocube/{__version__}"}
        if settings.api_key is not None:
            headers["Authorization"] = f"Bearer {settings.api_key.get_secret_value()}"
        # Bytes are passed on unchanged and also parsed here, and not every client decompresses: ask for no compression.
        headers["Accept-Encoding"] = "identity"
        return httpx2.AsyncClient(
            headers=headers,
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),  # they would go from one user to the next
            limits=httpx2.Limits(max_connections=settings.parallel, max_keepalive_connections=settings.parallel),
            timeout=httpx2.Timeout(settings.timeout_s, connect=min(_CONNECT_S, settings.timeout_s)),
            follow_redirects=False,  # a prompt goes nowhere else
            transport=self._inside,
        )


def passed_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of an endpoint that concern a client: none of a connection, none of an account."""
    return {
        name: value
        for name, value in headers.items()
        if name.lower() in _PASSED or name.lower().startswith(_PASSED_PREFIXES)
    }


@contextmanager
def _failures() -> Iterator[None]:
    told = "The language model behind this server"
    try:
        yield
    except (httpx2.TimeoutException, TimeoutError) as error:
        raise BackendTimeout(f"{told} did not answer in time; try again later.") from error
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise BackendUnavailable(f"{told} cannot be reached, or the connection was lost; try again later.") from error
