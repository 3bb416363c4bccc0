"""`/anthropic/v1`: Anthropic's Messages API in front of the chat endpoint, with memory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from anyio import to_thread
from fastapi import APIRouter, FastAPI, Request
from starlette.responses import JSONResponse, Response

from memos.api.families import CurrentCaller, CurrentMemos, create_group
from memos.api.observability import request_id
from memos.api.proxy.answers import UNFINISHED, counted
from memos.api.proxy.anthropic_requests import read_messages, thinks
from memos.api.proxy.errors import mark_permanent, message_in
from memos.api.proxy.exchanges import CurrentUpstream, Exchange, Wanted, identify, relay
from memos.api.proxy.requests import Completion, read_body, text_of
from memos.api.proxy.translation import Block, Kind, Translation, event
from memos.api.proxy.upstream import Upstream
from memos.api.wording import message_of
from memos.core.clock import new_id
from memos.core.tokens import IMAGE_TOKENS, estimate_tokens
from memos.core.types import Json
from memos.errors import MemosError, NotFound
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
_DELTAS: Mapping[Kind, tuple[str, str]] = {
    "reasoning": ("thinking_delta", "thinking"),
    "text": ("text_delta", "text"),
    "refusal": ("text_delta", "text"),
    "call": ("input_json_delta", "partial_json"),
}
_STOPS = {"length": "max_tokens", "max_tokens": "max_tokens", "content_filter": "refusal"}


def create(memos: MemOS, local_token: str | None, upstream: Upstream) -> FastAPI:
    app = create_group(
        "hippocube proxy for Anthropic's clients",
        memos,
        _error_response,
        local_token=local_token,
        key_header="x-api-key",
        routers=(router,),
    )
    app.state.upstream = upstream
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

    told = Told(completion, thinks=thinks(body), model=str(upstream.settings.model))
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
    return {"type": "error", "error": {"type": kind, "message": message}}


class Told(Translation):
    """Words an answer as a message, whole or as the events of one."""

    def __init__(self, completion: Completion, *, thinks: bool, model: str) -> None:
        super().__init__(streams=bool(completion.body.get("stream")), reasoning=thinks)
        self._stops = completion.body.get("stop") or ()
        self._model = model
        self._id = f"msg_{new_id().replace('-', '')}"

    def begun(self) -> bytes:
        nothing = {"stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 0, "output_tokens": 0}}
        return event({"type": "message_start", "message": {**self._message(), "content": [], **nothing}})

    def block_begun(self, block: Block) -> bytes:
        content = self._content(block)  # still empty
        return event({"type": "content_block_start", "index": block.index, "content_block": content})

    def block_more(self, block: Block, piece: str, logprobs: list[Json]) -> bytes:
        kind, field = _DELTAS[block.kind]
        return event({"type": "content_block_delta", "index": block.index, "delta": {"type": kind, field: piece}})

    def block_ended(self, block: Block) -> bytes:
        return event({"type": "content_block_stop", "index": block.index})

    def completed(self) -> bytes:
        delta = event({"type": "message_delta", "delta": self._reason(), "usage": self._usage()})
        return delta + event({"type": "message_stop"})

    def failed(self, message: str) -> bytes:
        return event(_problem(message, 502))

    def body(self) -> dict[str, Json]:
        content = [self._content(block) for block in self.blocks]
        return {**self._message(), "content": content, **self._reason(), "usage": self._usage()}

    def failure(self, raw: bytes, status: int) -> tuple[bytes, Mapping[str, str]]:
        return json.dumps(_problem(message_in(raw), status)).encode(), {"content-type": "application/json"}

    def problem(self) -> str | None:
        if self.answer.finish in UNFINISHED:  # cut off in the middle of a call: the reason for the end says so
            return None
        wrong = next((call.name for call in self.answer.calls if _input(call.arguments) is None), None)
        if wrong is None:
            return None
        return f"The model called {wrong!r} with arguments that are no JSON object; try again."

    def _content(self, block: Block) -> dict[str, Json]:
        match block.kind:
            case "reasoning":
                return {"type": "thinking", "thinking": block.text, "signature": ""}
            case "call":
                given = _input(block.text) or {}
                return {"type": "tool_use", "id": block.call.id, "name": block.call.name, "input": given}
        return {"type": "text", "text": block.text, "citations": None}

    def _message(self) -> dict[str, Json]:
        return {"id": self._id, "type": "message", "role": "assistant", "model": self.answer.model or self._model}

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


def _input(arguments: str) -> dict[str, Any] | None:
    try:
        given = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return None
    return given if isinstance(given, dict) else None
