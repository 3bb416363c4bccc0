"""`/product`: the protocol of programs written for a self-hosted MemOS; routes translate to calls of `MemOS`."""

from __future__ import annotations

from fastapi import FastAPI

from memos.api.families import create_group
from memos.api.product import routes
from memos.api.product.shapes import error_response
from memos.kernel.memos import MemOS


def create(memos: MemOS, local_token: str | None) -> FastAPI:
    return create_group(
        "hippocube, /product",
        memos,
        error_response,
        local_token=local_token,
        open_paths=frozenset({"/health"}),
        routers=(routes.router, routes.cubes_router, routes.chat_router, routes.scheduler_router),
    )
