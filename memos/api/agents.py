"""Choose an agent's cubes, its user's and its project's, and write the text that its session begins with.

Imports no kernel, so that `memos mcp` answers at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from memos.core.text.validation import check_name
from memos.errors import Conflict, NotFound, PermissionDenied, shown

if TYPE_CHECKING:
    from memos.api.dialects import RequestIdentity
    from memos.kernel.memos import MemOS

_PROFILE_TOKENS = 1_000
_SUBJECTS = 10
_NAME_CHARS = 128


def in_project(memos: MemOS, identity: RequestIdentity, project: str) -> RequestIdentity:
    """Return the identity with a cube of its own for a project, made when new; its user's cube is read too.

    Raises: InvalidInput, PermissionDenied (the cube of that name is somebody else's).
    """
    cube = _cube_of(identity.home, check_name("project", project, 1_000))
    try:
        found = memos.cubes.get(cube, actor=identity.actor)
    except NotFound:
        with suppress(Conflict):  # made meanwhile, or somebody else's, which is then not found again
            memos.cubes.create(cube, actor=identity.actor, description=f"Project {project}"[:_NAME_CHARS])
        found = memos.cubes.get(cube, actor=identity.actor)
    if found.owner != identity.actor:
        raise PermissionDenied(f"The cube {shown(cube)} belongs to {shown(found.owner)}; work without a project.")
    return replace(identity, home=cube, also=(identity.home,))


def _cube_of(home: str, project: str) -> str:
    name = f"{home}/{project}"
    if len(name) <= _NAME_CHARS:
        return name
    return f"{name[: _NAME_CHARS - 17]}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def profile_of(memos: MemOS, actor: str, cubes: Sequence[str]) -> str:
    """Return the profiles of everybody the cubes know: the user, and those spoken of."""
    told = [
        memos.profiles.render(cube, subject, _PROFILE_TOKENS, actor=actor)
        for cube in cubes
        for subject in memos.profiles.subjects(cube, actor=actor)[:_SUBJECTS]
    ]
    return "\n".join(text for text in told if text)


def standing_of(memos: MemOS, actor: str, cubes: Sequence[str], max_tokens: int) -> str:
    """Return standing instructions and preferences of the cubes, and what is current in them."""
    each = max(1, max_tokens // len(cubes))
    told = [memos.tiers.working_memory(cube=cube, actor=actor, max_tokens=each).text for cube in cubes]
    return "\n".join(text for text in told if text)
