"""The application of `/api/v1` and its OpenAPI document."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request
from fastapi.openapi.utils import get_openapi
from starlette.responses import JSONResponse

from memos.api.families import create_group
from memos.api.v1 import (
    cubes,
    documents,
    graph,
    health,
    imports,
    memories,
    models,
    profile,
    records,
    review,
    search,
    subjects,
    tasks,
    users,
)
from memos.api.v1.common import error_response
from memos.core.aliases import ALIASES
from memos.kernel.memos import MemOS

DOCUMENT = "/openapi.json"

_KEY = {
    "key": {
        "type": "http",
        "scheme": "bearer",
        "description": "A key made by `memos user key create` or POST /keys; `Authorization: Token KEY` is taken too",
    }
}
_WORDS = "; ".join(
    f"`{alias}` for `{'` or `'.join(w for w in words if w != 'actor')}`" for alias, words in ALIASES.items()
)
_DESCRIPTION = (
    "Bodies and queries also take the words of other programs, where they have the field that a word stands for and no "
    f"other field of that name: {_WORDS}. Two words for one field with different values are refused; a `run_id` beside "
    "another conversation goes into `info`. Answers have the names documented here."
)
# FastAPI documents this status for every route with parameters; here a wrong one is answered with 400.
_NEVER_GIVEN = "422"
_UNUSED = ("HTTPValidationError", "ValidationError")


def describe(app: FastAPI) -> None:
    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    # In a thread: making it takes a second on a slow machine.
    @app.get(DOCUMENT, include_in_schema=False)
    def openapi(request: Request) -> JSONResponse:
        return JSONResponse({**document(), "servers": [{"url": request.scope.get("root_path") or "/"}]})

    app.openapi = document  # type: ignore[method-assign] # as FastAPI's documentation has it


def _document(app: FastAPI) -> dict[str, Any]:
    told = get_openapi(
        title=app.title, version=app.version, summary=app.summary, description=_DESCRIPTION, routes=app.routes
    )
    for methods in told["paths"].values():
        for operation in methods.values():
            operation["responses"].pop(_NEVER_GIVEN, None)
    parts = told.setdefault("components", {})
    for name in _UNUSED:
        parts.get("schemas", {}).pop(name, None)
    parts["securitySchemes"] = _KEY
    told["security"] = [{name: []} for name in _KEY]
    return told


# Routes with a fixed word come before those with an id in its place.
_ROUTERS = (
    memories.evidence_router,
    memories.router,
    records.router,
    search.router,
    search.chat_router,
    memories.tiers_router,
    cubes.files_router,
    cubes.router,
    users.router,
    users.keys_router,
    users.sessions_router,
    users.audit_router,
    subjects.router,
    subjects.proofs_router,
    imports.router,
    imports.backups_router,
    documents.router,
    documents.knowledge_router,
    documents.images_router,
    memories.tools_router,
    profile.router,
    graph.router,
    graph.timeline_router,
    review.router,
    tasks.router,
    tasks.events_router,
    models.router,
    models.activation_router,
    health.router,
)


def create(memos: MemOS, local_token: str | None) -> FastAPI:
    app = create_group(
        "hippocube",
        memos,
        error_response,
        local_token=local_token,
        summary="Memory for agents",
        open_paths=frozenset({DOCUMENT}),
        large=frozenset({"/cubes/load", "/cubes/inspect", "/imports", "/imports/preview"}),
        sessions=True,
        routers=_ROUTERS,
    )
    describe(app)
    return app
