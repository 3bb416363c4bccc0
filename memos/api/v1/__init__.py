"""`/api/v1`: our own routes, one resource a module; each only translates between HTTP and one call of `MemOS`."""

from __future__ import annotations

from fastapi import FastAPI

from memos.api.families import family
from memos.api.v1 import chat, memories, search
from memos.api.v1.errors import show
from memos.kernel import MemOS


def create(memos: MemOS, local_token: str | None) -> FastAPI:
    """Return the application of these routes."""
    app = family("memstrata", memos, show, local_token=local_token, summary="Memory for agents", documented=True)
    for routes in (chat, memories, search):
        app.include_router(routes.router)
    return app
