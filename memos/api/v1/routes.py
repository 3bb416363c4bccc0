"""Puts the routes of `/api/v1` together; each module of them only translates between HTTP and one call of `MemOS`."""

from __future__ import annotations

from fastapi import FastAPI

from memos.api.families import family
from memos.api.v1 import (
    activation,
    chat,
    cubes,
    documents,
    events,
    evidence,
    images,
    keys,
    knowledge,
    memories,
    profile,
    search,
    tasks,
    tiers,
    tools,
    travel,
    users,
)
from memos.api.v1 import models as adapters
from memos.api.v1 import review as keeping
from memos.api.v1.errors import show
from memos.api.v1.openapi import DOCUMENT, describe, operation_id
from memos.kernel.memos import MemOS

# Those with a fixed word come before those with an id in its place.
_ROUTES = (
    evidence, memories, search, chat, tiers, travel, cubes, users, keys, documents, knowledge, images, tools, profile,
    keeping, tasks, events, adapters, activation,
)  # fmt: skip


def create(memos: MemOS, local_token: str | None) -> FastAPI:
    """Return the application of these routes."""
    app = family(
        "memstrata", memos, show, local_token=local_token, summary="Memory for agents",
        open_paths=frozenset({DOCUMENT}), large=frozenset({"/cubes/load", "/cubes/inspect"}),
    )  # fmt: skip
    for routes in _ROUTES:
        app.include_router(routes.router, generate_unique_id_function=operation_id)
    describe(app)
    return app
