"""`/product/create_cube`, `register_cube`, `suggestions` and `health`."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from memos.api.auth import who
from memos.api.families import Asked, Opened
from memos.api.product.shapes import Body, done
from memos.core.clock import new_id
from memos.errors import NotFound
from memos.version import __version__

router = APIRouter()

_SUGGESTED = 5
_LOOKED_AT = 50


class CubeBody(Body):
    """A cube to make, or one that is there."""

    cube_name: str | None = None
    owner_id: str | None = None
    user_id: str | None = None
    cube_path: str | None = None
    cube_id: str | None = None
    mem_cube_id: str | None = None


@router.post("/create_cube")
def create_cube(body: CubeBody, memos: Opened, caller: Asked) -> dict[str, Any]:
    """Make an empty cube. `cube_path` means nothing: an installation keeps its cubes itself."""
    whom = who(memos, caller, body.owner_id or body.user_id)
    cube = body.cube_id or body.mem_cube_id or new_id()
    made = memos.cubes.create(cube, actor=whom.actor, description=body.cube_name or "")
    return done({"cube_id": made.id, "cube_name": made.description, "owner_id": made.owner}, "Cube created")


@router.post("/register_cube")
def register_cube(body: CubeBody, memos: Opened, caller: Asked) -> dict[str, Any]:
    """Return a cube that a client wants to use, made when there is none of this id."""
    whom = who(memos, caller, body.owner_id or body.user_id)
    cube = body.cube_id or body.mem_cube_id or body.cube_name or whom.home
    try:
        found = memos.cubes.get(cube, actor=whom.actor)
    except NotFound:
        found = memos.cubes.create(cube, actor=whom.actor, description=body.cube_name or "")
    return done({"cube_id": found.id, "cube_name": found.description, "owner_id": found.owner}, "Cube registered")


class SuggestionsBody(Body):
    """For whom to suggest questions."""

    user_id: str
    mem_cube_id: str | None = None
    language: str | None = None


@router.post("/suggestions")
def suggestions(body: SuggestionsBody, memos: Opened, caller: Asked) -> dict[str, Any]:
    """Suggest questions that memory can answer: about what is newest in it."""
    whom = who(memos, caller, body.user_id, new=False)
    cube = body.mem_cube_id or whom.home
    stats = memos.cubes.get(cube, actor=whom.actor)
    newest = memos.list(cube=cube, actor=whom.actor, limit=_LOOKED_AT, offset=max(0, stats.items - _LOOKED_AT))
    names: dict[str, None] = {}
    for item in reversed(newest):
        names.update(dict.fromkeys(item.entities))
    query = "关于{name}都说了什么？" if body.language == "zh" else "What was said about {name}?"
    return done({"query": [query.format(name=name) for name in list(names)[:_SUGGESTED]]})


@router.get("/health")
async def health() -> dict[str, str]:
    """Say that the server answers."""
    return {"status": "healthy", "service": "memstrata", "version": __version__}
