"""`/search`: find memories, or why one is not found."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from memos.api.callers import who
from memos.api.families import Asked, Opened
from memos.api.v1.errors import ERRORS
from memos.api.v1.shapes import SearchShape

router = APIRouter(prefix="/search", tags=["search"], responses=ERRORS)


class SearchBody(BaseModel):
    """What to find, and where."""

    model_config = ConfigDict(extra="forbid")

    query: str = Field(description="The question")
    cubes: list[str] | None = Field(None, description="Cubes to search; default: the user's own")
    user: str | None = Field(None, description="User or agent to act for; default: whom the key belongs to")
    top_k: int = Field(10, description="Most hits")
    filter: dict[str, Any] | None = Field(None, description="Filter (docs/filters.md)")
    as_of: str | int | float | None = Field(None, description="Search what was stored by this time")
    reference_time: str | int | float | None = Field(None, description="When the question is asked; default: now")
    token_budget: int | None = Field(None, description="Also return a text of at most so many tokens")
    explain: bool = Field(False, description="Say what each arm gave")


@router.post("")
def search(body: SearchBody, memos: Opened, caller: Asked) -> SearchShape:
    """Return the best memories for a question."""
    acting = who(memos, caller, body.user, new=False)
    found = memos.search(
        body.query, cubes=[acting.home] if body.cubes is None else body.cubes, actor=acting.actor, top_k=body.top_k,
        filter=body.filter, as_of=body.as_of, reference_time=body.reference_time, token_budget=body.token_budget,
        explain=body.explain,
    )  # fmt: skip
    return SearchShape.model_validate(found)
