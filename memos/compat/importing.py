"""Imports a MemoryOS folder: each user into the cube that `Memoryos` uses for them, each assistant into its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from zoneinfo import ZoneInfo

from memos.compat import names
from memos.core.types import LOCAL_OWNER
from memos.errors import InvalidInput, NotFound, shown
from memos.kernel.importing import Import, ImportSummary, OnBad, Part, import_parts
from memos.kernel.memos import MemOS
from memos.reader.importers.memoryos import FORMAT, Owner, owners, records

DEFAULT_ASSISTANT = "default_assistant_profile"

_NOTE = "embeddings, heat, session summaries and chain notes are not taken over: they are made again from the pages"


def import_memoryos(
    memos: MemOS,
    folder: Path,
    *,
    cube: str | None = None,
    actor: str = LOCAL_OWNER,
    conversation: str | None = None,
    on_bad: OnBad = "stop",
    on_progress: Callable[[int, int], None] | None = None,
) -> ImportSummary:
    """Store the pages, knowledge and profiles of a MemoryOS program's data folder; cubes are made when new.

    Pages come in order of time into the conversation that `Memoryos` has with the folder's assistant, else into
    `conversation`. With a `cube` everything of the folder's only user and of its assistants goes there. What was
    imported before is not stored again. With `on_bad="stop"` nothing is stored when a record is unreadable.
    Raises: InvalidInput, NotFound (the given cube), Conflict.
    """
    found = owners(folder)
    users = [owner for owner in found if owner.kind == "user"]
    if cube is not None and len(users) > 1:
        raise InvalidInput("cube", f"would mix {len(users)} users; leave it out, each then gets a cube")
    talk = conversation or names.conversation_with(_assistant(found))
    parts: list[Part] = []
    new: dict[str, Owner] = {}
    for owner in found:
        target = cube or _cube_of(owner)
        zone = _zone(memos, target, actor)
        if zone is None and cube is not None:
            raise NotFound("cube", cube)
        if zone is None:
            new[target] = owner
        read = partial(records, owner, folder, talk, names.KNOWLEDGE)
        parts.append(Part(target, zone or ZoneInfo(memos.settings.time_zone), read))

    def make_cubes() -> None:
        for name, owner in new.items():
            memos.cubes.create(name, actor=actor, description=described(owner.kind, owner.id))

    doing = Import(memos, folder, FORMAT, actor, on_bad, on_progress, _NOTE)
    return import_parts(doing, parts, make_cubes)


def described(kind: str, id_: str) -> str:
    """Return a cube's description: whose it is, as far as that can be written."""
    return f"MemoryOS {kind} {shown(id_)}"


def _assistant(found: list[Owner]) -> str:
    """Return the folder's assistant, the original's default one unless there is exactly one."""
    assistants = [owner.id for owner in found if owner.kind == "assistant"]
    return assistants[0] if len(assistants) == 1 else DEFAULT_ASSISTANT


def _cube_of(owner: Owner) -> str:
    return names.cube_of_user(owner.id) if owner.kind == "user" else names.cube_of_assistant(owner.id)


def _zone(memos: MemOS, cube: str, actor: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(memos.cubes.get(cube, actor=actor).time_zone)
    except NotFound:
        return None
