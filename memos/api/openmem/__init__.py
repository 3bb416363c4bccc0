"""`/api/openmem/v1`: what the public `MemOSClient` speaks; each route only translates to calls of `MemOS`.

Errors have the HTTP status that fits beside the protocol's own code, since the client raises for a status and hands the
answer on with what it raises; in an answer of status 200 it finds the data missing, and raises without the code.
"""

from __future__ import annotations

from fastapi import FastAPI

from memos.api.families import create_group
from memos.api.openmem import chats, files, lookups, memories, messages
from memos.api.openmem.shapes import error_response
from memos.kernel.memos import MemOS


def create(memos: MemOS, local_token: str | None) -> FastAPI:
    """Return the application of these routes."""
    app = create_group("memstrata openmem", memos, error_response, local_token=local_token, documented=True)
    for router in (
        messages.router,
        memories.router,
        files.router,
        lookups.router,
        lookups.profiles_router,
        chats.router,
    ):
        app.include_router(router)
    return app
