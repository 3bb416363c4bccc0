"""`/api/openmem/v1`: the protocol of the public `MemOSClient`; routes translate to calls of `MemOS`.

Errors have both a fitting HTTP status and the protocol's own code: the client raises for a status and passes on what
the answer says; in an answer with status 200 it would only miss the data.
"""

from __future__ import annotations

from fastapi import FastAPI

from memos.api.families import create_group
from memos.api.openmem import files, lookups, memories, messages
from memos.api.openmem.shapes import error_response
from memos.kernel.memos import MemOS


def create(memos: MemOS, local_token: str | None) -> FastAPI:
    app = create_group("hippocube openmem", memos, error_response, local_token=local_token, documented=True)
    for router in (
        messages.router,
        memories.router,
        files.router,
        lookups.router,
        lookups.profiles_router,
        messages.chat_router,
    ):
        app.include_router(router)
    return app
