"""`/openai/v1`: chat completions, which pass through byte by byte, the list of models, and the Responses API."""

from __future__ import annotations

import json
from collections.abc import Mapping

from anyio import to_thread
from fastapi import APIRouter, FastAPI, Request
from starlette.responses import JSONResponse, Response

from memos.api.families import CurrentCaller, CurrentMemos, create_group
from memos.api.proxy import responses
from memos.api.proxy.answers import Answer, Passage
from memos.api.proxy.errors import error_response, problem
from memos.api.proxy.exchanges import CurrentUpstream, Exchange, Wanted, identify, relay
from memos.api.proxy.requests import read_completion
from memos.api.proxy.upstream import Upstream
from memos.core.text.validation import MAX_MESSAGE_BYTES
from memos.core.types import Json
from memos.errors import BackendUnavailable, NotFound
from memos.kernel.memos import MemOS

router = APIRouter()


def create(memos: MemOS, local_token: str | None, upstream: Upstream) -> FastAPI:
    app = create_group(
        "hippocube proxy for OpenAI's clients",
        memos,
        error_response,
        local_token=local_token,
        routers=(router, responses.router),
    )
    app.state.upstream = upstream
    return app


class _AsItIs:
    """Passes an answer of chat completions on as it is."""

    streams = True

    def __init__(self) -> None:
        self.answer = Answer(MAX_MESSAGE_BYTES)
        passage = Passage(self.answer)
        self.feed, self.held, self.end = passage.feed, passage.held, passage.end

    def broken(self, error: BackendUnavailable) -> bytes:
        return f"data: {json.dumps(problem(error, 502))}\n\n".encode()

    def whole(self, raw: bytes) -> tuple[bytes, Mapping[str, str]]:
        return raw, {}

    def failure(self, raw: bytes, status: int) -> tuple[bytes, Mapping[str, str]]:
        return raw, {}

    def note(self, *, inputs: int, whole: bool) -> Json:
        return None


@router.post("/chat/completions")
async def completions(
    request: Request, memos: CurrentMemos, caller: CurrentCaller, upstream: CurrentUpstream
) -> Response:
    """Pass a request on with what is remembered of its last question; remember the exchange when it is answered."""
    completion = read_completion(await request.body())
    upstream.check()  # before anything is looked for
    wanted = Wanted.of(request)

    def recall() -> Exchange:
        acting = identify(memos, caller, wanted, completion.user)
        exchange = Exchange(memos, completion, acting, wanted.conversation, wanted.store is not False)
        exchange.recall()
        return exchange

    return await relay(request, upstream, await to_thread.run_sync(recall), _AsItIs())


@router.get("/models")
async def models(upstream: CurrentUpstream) -> Response:
    """List the one model that answers; none where the server has none."""
    model = upstream.settings.model
    return JSONResponse({"object": "list", "data": [] if model is None else [_model_view(model)]})


@router.get("/models/{model:path}")
async def model_named(model: str, upstream: CurrentUpstream) -> Response:
    """Describe it."""
    if model != upstream.settings.model:
        raise NotFound("model", model[:256], "List the models with GET /models.")
    return JSONResponse(_model_view(model))


def _model_view(name: str) -> dict[str, Json]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "hippocube"}
