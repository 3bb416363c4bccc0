"""`/anthropic/v1`: Anthropic's Messages API in front of the chat endpoint, with memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from anyio import to_thread
from fastapi import APIRouter, FastAPI, Request
from starlette.responses import JSONResponse, Response

from memos.api.families import CurrentCaller, CurrentMemos, create_group
from memos.api.observability import request_id
from memos.api.proxy.answers import Answer, Call, Delta, counted, read_events
from memos.api.proxy.anthropic_requests import read_messages, thinks
from memos.api.proxy.errors import mark_permanent, message_in
from memos.api.proxy.exchanges import CurrentUpstream, Exchange, Wanted, identify, relay
from memos.api.proxy.requests import Completion, read_body, text_of
from memos.api.proxy.upstream import Upstream
from memos.api.wording import message_of
from memos.core.clock import new_id
from memos.core.streaming import EventData
from memos.core.text.validation import MAX_MESSAGE_BYTES
from memos.core.tokens import IMAGE_TOKENS, estimate_tokens
from memos.core.types import Json
from memos.errors import BackendUnavailable, InvalidAnswer, MemosError, NotFound
from memos.kernel.memos import MemOS

router = APIRouter()

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_STOPS = {"length": "max_tokens", "max_tokens": "max_tokens", "content_filter": "refusal"}


def create(memos: MemOS, local_token: str | None, upstream: Upstream) -> FastAPI:
    app = create_group(
        "hippocube proxy for Anthropic's clients",
        memos,
        _error_response,
        local_token=local_token,
        key_header="x-api-key",
    )
    app.state.upstream = upstream
    app.include_router(router)
    return app


@router.post("/messages")
async def messages(request: Request, memos: CurrentMemos, caller: CurrentCaller, upstream: CurrentUpstream) -> Response:
    """Answer a request with what is remembered of its last question; remember the exchange when it is answered."""
    body = read_body(await request.body())
    completion, conversation = read_messages(body)
    upstream.check()  # before anything is looked for
    wanted = Wanted.of(request)

    def recall() -> Exchange:
        acting = identify(memos, caller, wanted, completion.user)
        named = wanted.conversation or conversation
        exchange = Exchange(memos, completion, acting, named, wanted.store is not False)
        exchange.recall()
        return exchange

    told = _Told(completion, thinks=thinks(body), model=str(upstream.settings.model))
    response = await relay(request, upstream, await to_thread.run_sync(recall), told)
    response.headers["request-id"] = request_id.get()
    return response


@router.post("/messages/count_tokens")
async def count_tokens(request: Request) -> Response:
    """Estimate the tokens of a request, without what would be recalled for it."""
    completion, _ = read_messages({"max_tokens": 1, **read_body(await request.body())})
    text, images = [json.dumps(completion.body.get("tools", []), ensure_ascii=False)], 0
    for message in completion.messages:
        text += [text_of(message), *(json.dumps(call["function"]) for call in message.get("tool_calls", ()))]
        parts = message["content"] if isinstance(message.get("content"), list) else []
        images += sum(part["type"] != "text" for part in parts)
    return JSONResponse({"input_tokens": estimate_tokens("\n".join(text)) + images * IMAGE_TOKENS})


@router.get("/models")
async def models(upstream: CurrentUpstream) -> Response:
    """List the one model that answers; none where the server has none."""
    model = upstream.settings.model
    listed = [] if model is None else [_model_view(model)]
    return JSONResponse({"data": listed, "has_more": False, "first_id": model, "last_id": model})


@router.get("/models/{model:path}")
async def model_named(model: str, upstream: CurrentUpstream) -> Response:
    """Describe it."""
    if model != upstream.settings.model:
        raise NotFound("model", model[:256], "List the models with GET /v1/models.")
    return JSONResponse(_model_view(model))


def _model_view(name: str) -> dict[str, Json]:
    return {"type": "model", "id": name, "display_name": name, "created_at": "1970-01-01T00:00:00Z"}


def _error_response(error: MemosError, status: int) -> Response:
    told = JSONResponse(_problem(message_of(error), status), status, {"request-id": request_id.get()})
    mark_permanent(error, told)
    return told


def _problem(message: str, status: int) -> dict[str, Json]:
    kind = _TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": request_id.get()}


class _Told:
    """Words an answer as a message, whole or as the events of one: a block each for thoughts, text, and calls."""

    def __init__(self, completion: Completion, *, thinks: bool, model: str) -> None:
        self.answer = Answer(MAX_MESSAGE_BYTES)
        self.streams = bool(completion.body.get("stream"))
        self._stops = completion.body.get("stop") or ()
        self._thinks = thinks
        self._model = model
        self._id = f"msg_{new_id().replace('-', '')}"
        self._events = EventData()
        self._begun = False
        self._over = False
        self._block = -1  # the last one that was begun
        self._open: tuple[str, int] | None = None  # what it has, and the place of its call
        self._calls: set[int] = set()

    def feed(self, chunk: bytes) -> bytes:
        told = self._begin()
        for delta in read_events(self._events, self.answer, chunk):
            if not self._over:
                told += b"".join(self._pieces(delta))
        if self.answer.ended and not self._over:
            self._check_calls()
        return told + (self._close() if self.answer.error else b"")

    def held(self) -> bytes:
        return self._close()

    def end(self) -> bytes:
        return self._begin() + self._close()

    def broken(self, error: BackendUnavailable) -> bytes:
        self._over = True
        return _event(_problem(message_of(error), 502))

    def whole(self, raw: bytes) -> tuple[bytes, Mapping[str, str]]:
        told = self.answer
        if told.spoilt:
            raise InvalidAnswer("The language model's endpoint gave no chat completion; its operator must look.")
        if self.streams:
            calls = list(enumerate(told.calls))
            all_of_it = Delta(told.text, told.reasoning, told.refusal, calls)
            events = self._begin() + b"".join(self._pieces(all_of_it)) + self._close()
            return events, {"content-type": "text/event-stream; charset=utf-8"}
        content: list[Json] = []
        if self._thinks and told.reasoning:
            content.append({"type": "thinking", "thinking": told.reasoning, "signature": ""})
        if text := told.text or told.refusal:
            content.append({"type": "text", "text": text, "citations": None})
        content += [
            {"type": "tool_use", "id": self._call_id(place, call), "name": call.name, "input": _input(call)}
            for place, call in enumerate(told.calls)
        ]
        message = {**self._message(), "content": content, **self._reason(), "usage": self._usage()}
        return json.dumps(message).encode(), {"content-type": "application/json"}

    def failure(self, raw: bytes, status: int) -> tuple[bytes, Mapping[str, str]]:
        return json.dumps(_problem(message_in(raw), status)).encode(), {"content-type": "application/json"}

    def record(self, *, whole: bool) -> Json:
        return None

    def _begin(self) -> bytes:
        if self._begun:
            return b""
        self._begun = True
        nothing = {"stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 0, "output_tokens": 0}}
        return _event({"type": "message_start", "message": {**self._message(), "content": [], **nothing}})

    def _pieces(self, delta: Delta) -> Iterator[bytes]:
        if delta.reasoning and self._thinks:
            yield self._into(("thinking", 0), {"type": "thinking", "thinking": "", "signature": ""})
            yield self._delta({"type": "thinking_delta", "thinking": delta.reasoning})
        if text := delta.text + delta.refusal:
            yield self._into(("text", 0), {"type": "text", "text": "", "citations": None})
            yield self._delta({"type": "text_delta", "text": text})
        for place, call in delta.calls:
            if place in self._calls and self._open != ("tool_use", place):
                self._spoil("The language model's endpoint mixed the pieces of several calls of tools.")
                return
            self._calls.add(place)
            begun = {"type": "tool_use", "id": self._call_id(place, call), "name": call.name, "input": {}}
            yield self._into(("tool_use", place), begun)
            if call.arguments:
                yield self._delta({"type": "input_json_delta", "partial_json": call.arguments})

    def _check_calls(self) -> None:
        try:
            for call in self.answer.calls:
                _input(call)
        except InvalidAnswer as error:
            self._spoil(str(error))

    def _spoil(self, message: str) -> None:
        self.answer.spoilt, self.answer.error = True, message

    def _into(self, what: tuple[str, int], block: dict[str, Json]) -> bytes:
        """Begin a block unless it is the open one."""
        if self._open == what:
            return b""
        ended = self._stop()
        self._open, self._block = what, self._block + 1
        return ended + _event({"type": "content_block_start", "index": self._block, "content_block": block})

    def _delta(self, delta: dict[str, Json]) -> bytes:
        return _event({"type": "content_block_delta", "index": self._block, "delta": delta})

    def _stop(self) -> bytes:
        if self._open is None:
            return b""
        self._open = None
        return _event({"type": "content_block_stop", "index": self._block})

    def _close(self) -> bytes:
        if self._over:
            return b""
        self._over = True
        if self.answer.error or not self.answer.ended:
            message = self.answer.error or "The language model's endpoint ended its answer before it was complete."
            return _event(_problem(message, 502))
        delta = _event({"type": "message_delta", "delta": self._reason(), "usage": self._usage()})
        return self._stop() + delta + _event({"type": "message_stop"})

    def _message(self) -> dict[str, Json]:
        return {"id": self._id, "type": "message", "role": "assistant", "model": self.answer.model or self._model}

    def _call_id(self, place: int, call: Call) -> str:
        return call.id or f"toolu_{self._id.removeprefix('msg_')}_{place}"

    def _reason(self) -> dict[str, Json]:
        told = self.answer
        stopped = told.stopped_by if told.stopped_by in self._stops else None
        if told.refusal:
            reason = "refusal"
        elif told.finish in _STOPS:
            reason = _STOPS[told.finish]
        elif told.calls:
            reason = "tool_use"
        else:
            reason = "end_turn" if stopped is None else "stop_sequence"
        return {"stop_reason": reason, "stop_sequence": stopped if reason == "stop_sequence" else None}

    def _usage(self) -> dict[str, Json]:
        usage = self.answer.usage
        cached = counted(usage, "prompt_tokens_details", "cached_tokens")
        return {
            "input_tokens": max(0, counted(usage, "prompt_tokens") - cached),
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": cached,
            "output_tokens": counted(usage, "completion_tokens"),
        }


def _input(call: Call) -> dict[str, Any]:
    try:
        given = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise InvalidAnswer(f"The model called {call.name!r} with arguments that are no JSON object; try again.")
    return given


def _event(data: dict[str, Json]) -> bytes:
    return f"event: {data['type']}\ndata: {json.dumps(data)}\n\n".encode()
