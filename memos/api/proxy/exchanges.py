"""A request and its answer, the same for every API: recall, ask the endpoint, pass the answer on, store both.

If recalling or storing fails, the answer is passed on all the same and the header `X-Memos-Failed` says what failed.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import ExitStack, aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Protocol

import httpx2
from anyio import CancelScope, to_thread
from fastapi import Depends, Request
from starlette.responses import Response

from memos.api.dialects import RequestIdentity, resolve_identity
from memos.api.proxy.answers import Answer
from memos.api.proxy.requests import Completion, Message, text_of
from memos.api.proxy.upstream import Upstream, passed_headers
from memos.api.streaming import ClientDisconnected, ClosingStreamResponse, cancel_on_disconnect
from memos.core.identities import Caller
from memos.core.types import Json, Trust
from memos.errors import BackendUnavailable, IntegrityError, InvalidInput, MemosError, ModelError
from memos.kernel.chat.results import Recalled
from memos.kernel.memos import MemOS

log = logging.getLogger("memos.api.proxy")

FAILED = "X-Memos-Failed"
"""The header of an answer that names what of memory failed: `recall`, `store` or both."""

_USER, _CONVERSATION, _STORE = "x-memos-user", "x-memos-conversation", "x-memos-store"
_BYTES_PER_TOKEN = 4


def _upstream(request: Request) -> Upstream:
    upstream: Upstream = request.app.state.upstream
    return upstream


CurrentUpstream = Annotated[Upstream, Depends(_upstream)]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the headers of a request ask for; None where they do not say."""

    user: str | None
    conversation: str | None
    store: bool | None

    @classmethod
    def of(cls, request: Request) -> Wanted:
        """Read the headers. Raises: InvalidInput."""
        store = (_header(request, _STORE) or "").lower()
        if store not in ("true", "false", ""):
            raise InvalidInput("X-Memos-Store", "must be true or false")
        return cls(_header(request, _USER), _header(request, _CONVERSATION), store == "true" if store else None)


class Dialect(Protocol):
    """How an API words one answer."""

    answer: Answer
    """The answer as far as it came."""

    streams: bool
    """True if a stream of the endpoint can be passed on as one."""

    def feed(self, chunk: bytes) -> bytes:
        """Return what is passed on of a piece of the endpoint's stream."""

    def held(self) -> bytes:
        """Return what is passed on once the exchange is stored; called after each piece from the end of the answer."""

    def end(self) -> bytes:
        """Return what is passed on when the endpoint's stream is over."""

    def broken(self, error: BackendUnavailable) -> bytes:
        """Return the end of a stream that broke."""

    def whole(self, raw: bytes) -> tuple[bytes, Mapping[str, str]]:
        """Return the body of an answer that is no stream, and headers to replace. Raises: ModelError."""

    def failure(self, raw: bytes, status: int) -> tuple[bytes, Mapping[str, str]]:
        """Return the body of what the endpoint refused, and headers to replace."""

    def note(self, *, inputs: int, whole: bool) -> Json:
        """Return what is stored beside an answer to so many messages, None for nothing.

        Not `whole`, it has nothing that may be refused.
        """


@dataclass(slots=True)
class Exchange:
    """A request, with what was recalled for it. `key` is an idempotency key, `info` the info of what is stored."""

    memos: MemOS
    completion: Completion
    acting: RequestIdentity
    conversation: str | None
    store: bool
    key: str | None = None
    info: dict[str, Json] | None = None
    recalled: Recalled = field(default_factory=lambda: Recalled("", 0, (), untrusted=False))
    failed: list[str] = field(default_factory=list)
    stored: bool = False

    @property
    def headers(self) -> dict[str, str]:
        return {FAILED: ", ".join(self.failed)} if self.failed else {}

    def recall(self) -> None:
        """Check what the request may do, and recall. Raises: InvalidInput, NotFound, PermissionDenied, LimitReached."""
        chat, completion = self.memos.chat, self.completion
        if self.store:  # before anything is paid for
            chat.check_store(self.acting.home, actor=self.acting.actor)
        try:
            self.recalled = chat.recall(
                completion.question.replace("\0", "\ufffd").encode("utf-8", "replace").decode(),
                cubes=[self.acting.home],
                actor=self.acting.actor,
                conversation=self.conversation,
                known=completion.texts,
                recent=not completion.has_history,
            )
        except (BackendUnavailable, ModelError, IntegrityError) as error:
            log.warning("a request was answered without what is remembered: %s", error.code)
            self.failed.append("recall")

    async def keep(self, answer: Answer, note: Callable[..., Json]) -> None:
        """Store the exchange if its answer is complete; the client gets its answer even if that fails."""
        message = answer.message()
        if self.store and message is not None:
            with CancelScope(shield=True):  # the answer is complete: that its reader goes away changes nothing
                await to_thread.run_sync(self._add, message, note)

    def _add(self, message: dict[str, Json], note: Callable[..., Json]) -> None:
        for whole in (True, False):
            said = said_in(self.completion.new, message, self.recalled, images=whole)
            if (beside := note(inputs=len(said) - 1, whole=whole)) is not None:
                said[-1]["content"] = [{"type": "text", "text": said[-1]["content"], "response": clean(beside)}]
            try:
                self.memos.add(
                    said,
                    cube=self.acting.home,
                    actor=self.acting.actor,
                    conversation=self.conversation,
                    tools=self.completion.body.get("tools") if whole else None,
                    idempotency_key=self.key,
                    info=clean(self.info),
                )
            except InvalidInput as error:  # an image or a tool that is not taken: then the words alone
                log.info("an exchange is stored with changes: %s", error.field)
            except MemosError as error:
                log.warning("an exchange was answered but not stored: %s", error.code)
                break
            else:
                self.stored = True
                return
        self.failed.append("store")


class TokenCharge:
    """Tokens reserved for one request; what it did not use is returned when it ends."""

    def __init__(self, stack: ExitStack, took: Callable[[int], None], asked: int) -> None:
        self._stack = stack
        self._took = took
        self._asked = asked
        self._open = True

    @classmethod
    async def begin(cls, memos: MemOS, body_bytes: int, longest_answer: int) -> TokenCharge:
        def take() -> TokenCharge:
            with ExitStack() as stack:
                took = stack.enter_context(memos.quotas.reserve_tokens(body_bytes // 2 + longest_answer, "proxy"))
                return cls(stack.pop_all(), took, body_bytes // _BYTES_PER_TOKEN)

        return await to_thread.run_sync(take)

    async def end(self, tokens: int | None = None, *, answered: int | None = None) -> None:
        """Charge the tokens used: as counted, else estimated from the body and `answered` characters, else none."""
        if not self._open:
            return
        self._open = False
        if tokens is None:
            tokens = 0 if answered is None else self._asked + answered // _BYTES_PER_TOKEN
        self._took(tokens)
        with CancelScope(shield=True):
            await to_thread.run_sync(self._stack.close)


def identify(memos: MemOS, caller: Caller, wanted: Wanted, user: str | None) -> RequestIdentity:
    """Return whom a request acts for: the user its body names, else its header, else the owner of the key."""
    return resolve_identity(memos, caller, user or wanted.user)


async def relay(request: Request, upstream: Upstream, exchange: Exchange, dialect: Dialect) -> Response:
    """Ask the endpoint, pass its answer on in the words of an API, and store the exchange once it is complete."""
    completion, settings = exchange.completion, upstream.settings
    body, prefix = completion.forwarded(exchange.recalled, exchange.acting.home, settings, upstream.limit)
    charge = await TokenCharge.begin(exchange.memos, len(body), completion.longest_answer(settings.max_tokens))
    try:
        response = await cancel_on_disconnect(request, partial(upstream.send, body, prefix))
        if response.status_code == 400 and completion.limit is not None:
            complaint = await _read(request, upstream, response)
            other = upstream.other_limit(complaint)
            if other is None:
                return await _refused(upstream, exchange, dialect, response, complaint, charge)
            body, prefix = completion.forwarded(exchange.recalled, exchange.acting.home, settings, other)
            response = await cancel_on_disconnect(request, partial(upstream.send, body, prefix))
            upstream.limit = other if response.status_code == 200 else upstream.limit
        return await _answered(request, upstream, exchange, dialect, response, charge)
    except ClientDisconnected:  # as who closes a stream: what was asked is paid for
        await charge.end(answered=0)
        raise
    except BaseException:
        await charge.end()
        raise


async def _answered(
    request: Request,
    upstream: Upstream,
    exchange: Exchange,
    dialect: Dialect,
    response: httpx2.Response,
    charge: TokenCharge,
) -> Response:
    told = dialect.answer
    if response.status_code == 200 and dialect.streams and _is_stream(response):

        async def end() -> None:
            await response.aclose()
            await charge.end(told.tokens, answered=told.characters)

        headers = {**passed_headers(response.headers), "Cache-Control": "no-store", **exchange.headers}
        passing = _passing(upstream.chunks(response), exchange, dialect, charge)
        return ClosingStreamResponse(passing, 200, headers, end=end)
    raw = await _read(request, upstream, response)
    if response.status_code != 200:
        return await _refused(upstream, exchange, dialect, response, raw, charge)
    told.read(raw)
    await charge.end(told.tokens, answered=len(raw))
    body, replaced = dialect.whole(raw)
    await exchange.keep(told, dialect.note)
    return Response(body, 200, {**passed_headers(response.headers), **replaced, **exchange.headers})


def _is_stream(response: httpx2.Response) -> bool:
    return "event-stream" in response.headers.get("content-type", "").lower()


async def _read(request: Request, upstream: Upstream, response: httpx2.Response) -> bytes:
    try:
        return await cancel_on_disconnect(request, partial(upstream.read, response))
    finally:
        with CancelScope(shield=True):
            await response.aclose()


async def _refused(
    upstream: Upstream,
    exchange: Exchange,
    dialect: Dialect,
    response: httpx2.Response,
    raw: bytes,
    charge: TokenCharge,
) -> Response:
    """Pass an endpoint's failure on, unless it concerns only this server and the endpoint."""
    await charge.end()
    if response.status_code == 401 or response.status_code < 400:
        log.error("the model endpoint answers %s: check MEMOS_CHAT_MODEL__*", response.status_code)
        raise BackendUnavailable(
            "The language model's endpoint refused this server; its operator must check the address and the key.",
            permanent=True,
        )
    body, replaced = dialect.failure(upstream.without_key(raw), response.status_code)
    headers = {**passed_headers(response.headers), **replaced, **exchange.headers}
    return Response(body, response.status_code, headers)


async def _passing(
    chunks: AsyncGenerator[bytes], exchange: Exchange, dialect: Dialect, charge: TokenCharge
) -> AsyncGenerator[bytes]:
    """Yield an answer as it streams; store and charge the exchange just before the event that ends it."""
    kept, answer = False, dialect.answer

    async def keep() -> bytes:
        nonlocal kept
        if kept:
            return b""
        kept = True
        before = len(exchange.failed)
        await exchange.keep(answer, dialect.note)
        await charge.end(answer.tokens, answered=answer.characters)
        # The headers are gone: a comment, which readers of event streams skip.
        return f": {FAILED}: store\n\n".encode() if len(exchange.failed) > before else b""

    try:
        async with aclosing(chunks):
            async for chunk in chunks:
                if passed := dialect.feed(chunk):
                    yield passed
                if answer.done and (held := await keep() + dialect.held()):
                    yield held
        if rest := await keep() + dialect.end():
            yield rest
    except BackendUnavailable as error:
        yield dialect.broken(error)


def _header(request: Request, name: str) -> str | None:
    """Return a header's text; clients send non-Latin letters as UTF-8."""
    value = request.headers.get(name, "").strip()
    try:
        return value.encode("latin-1").decode() or None
    except UnicodeDecodeError:
        return value


_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_MARKS = {"image_url": "[image]", "input_audio": "[audio]", "file": "[file]"}


def said_in(
    new: Sequence[Message], answer: dict[str, Json], recalled: Recalled, *, images: bool
) -> list[dict[str, Json]]:
    """Return the messages to store of a question and its answer; images and calls too large are replaced by marks."""
    said = [_storable(message, images=images) for message in new]
    # The answer may repeat untrusted text, so it must not be stored as trusted.
    trust = str(Trust.UNTRUSTED if recalled.untrusted else Trust.TRUSTED)
    said.append({**_storable(answer, images=False), "trust": trust, "recalled": list(recalled.ids)})
    return [message for message in said if message["content"] or message.get("tool_calls") or message["role"] == "tool"]


def _storable(message: Message, *, images: bool) -> dict[str, Json]:
    kept: dict[str, Json] = {"role": message["role"], "content": clean(_content(message, images=images))}
    calls = message.get("tool_calls")
    if isinstance(calls, list) and calls:
        kept["tool_calls"] = [clean(call) for call in calls]
    if isinstance(answers := message.get("tool_call_id"), str) and answers.strip():
        kept["tool_call_id"] = clean(answers)
    if message["role"] == "user" and isinstance(name := message.get("name"), str) and name.strip():
        kept["name"] = clean(name)
    return kept


def _content(message: Message, *, images: bool) -> Json:
    content = message.get("content")
    if not isinstance(content, list):
        return text_of(message).strip()
    told: list[dict[str, Json]] = []
    for part in content:
        kind = str(part.get("type")) if isinstance(part, dict) else ""
        if images and kind == "image_url" and "data:" in str(part.get("image_url")):
            told.append({"type": "image_url", "image_url": part.get("image_url")})
        elif images and kind == "image_url" and (url := address_of(part)):
            told.append({"type": "text", "text": _MARKS[kind], "image_url": url})
        elif text := _MARKS.get(kind) or text_of({"content": [part]}):
            told.append({"type": "text", "text": text})
    return told if images else "\n".join(part["text"] for part in told).strip()


def address_of(part: Mapping[str, Json]) -> str | None:
    """Return the address of an image, None if there is none."""
    image = part.get("image_url")
    url = image.get("url") if isinstance(image, dict) else image
    return url if isinstance(url, str) and url.startswith(("http://", "https://")) else None


def clean(value: Json) -> Json:
    """Return a value without the characters that no database takes."""
    if isinstance(value, str):
        return _UNSTORABLE.sub("\ufffd", value)
    if isinstance(value, list):
        return [clean(each) for each in value]
    if isinstance(value, dict):
        return {str(clean(name)): clean(each) for name, each in value.items()}
    return value
