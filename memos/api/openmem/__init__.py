"""`/api/openmem/v1`: the protocol of the public `MemOSClient`.

Errors have a fitting HTTP status too: the client raises for one; in an answer with 200 it would only miss the data.
"""

from __future__ import annotations

from fastapi import FastAPI

from memos.api.families import create_group
from memos.api.openmem import files, lookups, memories, messages
from memos.api.openmem.shapes import error_response
from memos.kernel.memos import MemOS


def create(memos: MemOS, local_token: str | None) -> FastAPI:
    return create_group(
        "hippocube openmem",
        memos,
        error_response,
        local_token=local_token,
        documented=True,
        routers=(
            messages.router,
            memories.router,
            files.router,
            lookups.router,
            lookups.profiles_router,
            messages.chat_router,
        ),
    )
