"""`/openai/v1`: an OpenAI-compatible proxy that adds memory to requests and passes them to the chat endpoint."""

from __future__ import annotations

from fastapi import FastAPI

from memos.api.families import create_group
from memos.api.openai_proxy import routes
from memos.api.openai_proxy.messages import error_response
from memos.api.openai_proxy.upstream import Upstream
from memos.kernel.memos import MemOS


def create(memos: MemOS, local_token: str | None, upstream: Upstream) -> FastAPI:
    app = create_group("hippocube proxy", memos, error_response, local_token=local_token)
    app.state.upstream = upstream
    app.include_router(routes.router)
    return app
