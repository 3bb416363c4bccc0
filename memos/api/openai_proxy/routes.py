"""`/chat/completions` and `/models`: adds memory to requests, passes them on, and stores finished exchanges."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import ExitStack, aclosing
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import httpx2
from anyio import CancelScope, to_thread
from fastapi import APIRouter, Depends, Request
from starlette.responses import JSONResponse, Response

from memos.api.dialects import RequestIdentity, resolve_identity
from memos.api.families import CurrentCaller, CurrentMemos
from memos.api.openai_proxy.messages import Completion, Copy, exchange, problem, read, read_answer, usage_in
from memos.api.openai_proxy.upstream import Upstream, passed_headers
from memos.api.streaming import ClientDisconnected, ClosingStreamResponse, cancel_on_disconnect
from memos.core.identities import Caller
from memos.core.text.validation import MAX_MESSAGE_BYTES
from memos.core.types import Json
from memos.errors import BackendUnavailable, InvalidInput, MemosError, NotFound
from memos.kernel.chat.results import Recalled
from memos.kernel.memos import MemOS

_BYTES_PER_TOKEN = 4


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


router = APIRouter()
log = logging.getLogger("memos.api.openai_proxy")

_USER, _CONVERSATION, _STORE = "x-memos-user", "x-memos-conversation", "x-memos-store"


def _upstream(request: Request) -> Upstream:
    upstream: Upstream = request.app.state.upstream
    return upstream


Passing = Annotated[Upstream, Depends(_upstream)]


@dataclass(frozen=True, slots=True)
class _Exchange:
    memos: MemOS
    completion: Completion
    acting: RequestIdentity
    recalled: Recalled
    conversation: str | None
    store: bool

    async def keep(self, answer: dict[str, Json] | None) -> None:
        """Store the exchange; the client has its answer, so a failure is only logged."""
        if self.store and answer is not None:
            with CancelScope(shield=True):  # the answer is complete: that its reader goes away changes nothing
                await to_thread.run_sync(self._add, answer)

    def _add(self, answer: dict[str, Json]) -> None:
        for whole in (True, False):
            said = exchange(self.completion.new, answer, self.recalled, images=whole)
            tools = self.completion.body.get("tools") if whole else None
            try:
                self.memos.add(
                    said, cube=self.acting.home, actor=self.acting.actor, conversation=self.conversation, tools=tools
                )
                return
            except InvalidInput as error:  # an image or a tool that is not taken: then the words alone
                log.info("an exchange was stored with changes: %s", error.field)
            except MemosError as error:
                log.warning("an exchange was answered but not stored: %s", error.code)
                return


@router.post("/chat/completions")
async def completions(request: Request, memos: CurrentMemos, caller: CurrentCaller, upstream: Passing) -> Response:
    """Pass a request on with what is remembered of its last question; remember the exchange when it is answered."""
    completion = read(await request.body())
    upstream.check()  # before anything is looked for
    underway = await to_thread.run_sync(_recalled, memos, caller, completion, request)
    model = str(upstream.settings.model)  # whatever the request names
    body, prefix = completion.forwarded(model, underway.recalled, underway.acting.home, upstream.settings)
    token_charge = await TokenCharge.begin(memos, len(body), completion.longest_answer(upstream.settings.max_tokens))
    try:
        response = await cancel_on_disconnect(request, partial(upstream.send, body, prefix))
        return await _answered(request, upstream, underway, token_charge, response)
    except ClientDisconnected:  # as who closes a stream: what was asked is paid for
        await token_charge.end(answered=0)
        raise
    except BaseException:
        await token_charge.end()
        raise


async def _answered(
    request: Request, upstream: Upstream, underway: _Exchange, token_charge: TokenCharge, response: httpx2.Response
) -> Response:
    if response.status_code == 200 and "event-stream" in response.headers.get("content-type", "").lower():
        copy = Copy(MAX_MESSAGE_BYTES)

        async def charge() -> None:
            await token_charge.end(copy.tokens, answered=copy.characters)

        async def end() -> None:
            await response.aclose()
            await charge()

        headers = {**passed_headers(response.headers), "Cache-Control": "no-store"}
        return ClosingStreamResponse(_passing(upstream.chunks(response), underway, copy, charge), 200, headers, end=end)
    try:
        whole = await cancel_on_disconnect(request, partial(upstream.read, response))
    finally:
        with CancelScope(shield=True):
            await response.aclose()
    if response.status_code != 200:
        await token_charge.end()
        return _failure(upstream, response, whole)
    await token_charge.end(usage_in(whole), answered=len(whole))
    await underway.keep(read_answer(whole))
    return Response(whole, 200, passed_headers(response.headers))


@router.get("/models")
async def models(upstream: Passing) -> Response:
    """List the one model that answers; none where the server has none."""
    model = upstream.settings.model
    return JSONResponse({"object": "list", "data": [] if model is None else [_model_view(model)]})


@router.get("/models/{model:path}")
async def model_named(model: str, upstream: Passing) -> Response:
    """Describe it."""
    if model != upstream.settings.model:
        raise NotFound("model", model[:256], "List the models with GET /models.")
    return JSONResponse(_model_view(model))


def _header(request: Request, name: str) -> str | None:
    """Return a header's text; clients send non-Latin letters as UTF-8."""
    value = request.headers.get(name, "").strip()
    try:
        return value.encode("latin-1").decode() or None
    except UnicodeDecodeError:
        return value


def _recalled(memos: MemOS, caller: Caller, completion: Completion, request: Request) -> _Exchange:
    conversation, store = _header(request, _CONVERSATION), (_header(request, _STORE) or "true").lower()
    if store not in ("true", "false"):
        raise InvalidInput("X-Memos-Store", "must be true or false")
    acting = resolve_identity(memos, caller, completion.user or _header(request, _USER))
    if store == "true":  # before anything is paid for
        memos.chat.check_store(acting.home, actor=acting.actor)
    recalled = memos.chat.recall(
        completion.question.replace("\0", "\ufffd").encode("utf-8", "replace").decode(),
        cubes=[acting.home],
        actor=acting.actor,
        conversation=conversation,
        known=completion.texts,
        recent=not completion.has_history,
    )
    return _Exchange(memos, completion, acting, recalled, conversation, store == "true")


def _model_view(name: str) -> dict[str, Json]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "hippocube"}


async def _passing(
    chunks: AsyncGenerator[bytes], underway: _Exchange, copy: Copy, charge: Callable[[], Awaitable[None]]
) -> AsyncGenerator[bytes]:
    """Yield the endpoint's bytes; store and charge the exchange just before the event that ends them."""
    kept = False
    try:
        async with aclosing(chunks):
            async for chunk in chunks:
                before, last = copy.feed(chunk)
                if before:
                    yield before
                if copy.done and not kept:
                    kept = True
                    await underway.keep(copy.answer())
                    await charge()
                if last:
                    yield last
        if not kept:
            await underway.keep(copy.answer())
        await charge()
        if rest := copy.rest():
            yield rest
    except BackendUnavailable as error:
        yield f"data: {json.dumps(problem(error, 502))}\n\n".encode()


def _failure(upstream: Upstream, response: httpx2.Response, body: bytes) -> Response:
    """Return an endpoint's failure unchanged, unless it concerns only this server and the endpoint."""
    if response.status_code == 401 or response.status_code < 400:
        log.error("the model endpoint answers %s: check MEMOS_CHAT_MODEL__*", response.status_code)
        raise BackendUnavailable(
            "The language model's endpoint refused this server; its operator must check the address and the key.",
            permanent=True,
        )
    return Response(upstream.without_key(body), response.status_code, passed_headers(response.headers))
