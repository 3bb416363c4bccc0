"""Imports the data folder of a MemoryOS program: each user and each assistant into a cube of its own."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from zoneinfo import ZoneInfo

from memos.core.types import LOCAL_OWNER, Json
from memos.errors import InvalidInput, NotFound, shown
from memos.kernel.importing import Import, ImportSummary, OnBad, Part, import_parts
from memos.kernel.memos import MemOS
from memos.reader.importers.memoryos import FORMAT, Owner, owners, records


def info_of(meta_data: Json) -> dict[str, Json]:
    """Return metadata as an item's info; nested values become JSON text. Raises: InvalidInput."""
    if meta_data is None:
        return {}
    if not isinstance(meta_data, Mapping):
        raise InvalidInput("meta_data", f"must be an object, not {type(meta_data).__name__}")
    return {name: _flat(value) for name, value in meta_data.items() if value is not None}


def _flat(value: Json) -> Json:
    scalars = value if isinstance(value, list | tuple) else [value]
    if all(isinstance(each, str | bool | int | float) for each in scalars):
        return value
    return _dumped("meta_data", value)


def metadata_of(metadata: Json) -> Mapping[str, Json] | None:
    if metadata is None:
        return None
    if not isinstance(metadata, Mapping):
        raise InvalidInput("user_conversation_meta_data", f"must be an object, not {type(metadata).__name__}")
    _dumped("user_conversation_meta_data", metadata)
    return metadata


def _dumped(where: str, value: Json) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(where, "cannot be written as JSON; use text, numbers, lists and objects") from error


KNOWLEDGE = "memoryos knowledge"
"""Conversation of imported knowledge and profiles, which nobody said."""

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_READABLE_CHARS = 32


def check_id(where: str, value: Json) -> str:
    if not isinstance(value, str):
        raise InvalidInput(where, f"must be text, not {type(value).__name__}")
    if not value.strip():
        raise InvalidInput(where, "is empty; give an id")
    return value


def cube_of_user(user_id: str) -> str:
    return f"memoryos-user-{_safe(user_id)}"


def cube_of_assistant(assistant_id: str) -> str:
    """Return the cube that holds an assistant's imported knowledge, shared by all its users."""
    return f"memoryos-assistant-{_safe(assistant_id)}"


def conversation_with(assistant_id: str) -> str:
    return f"with-{_safe(assistant_id)}"


def _safe(given: str) -> str:
    if _PLAIN.fullmatch(given):
        return given
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", given)[:_READABLE_CHARS]
    # The tilde is in no plain id, so no plain one can be spelt like this.
    return f"~{readable}~{hashlib.sha256(given.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


DEFAULT_ASSISTANT = "default_assistant_profile"

_NOTE = "embeddings, heat, session summaries and chain notes are not imported: they are computed again from the pages"


def import_memoryos(
    memos: MemOS,
    folder: Path,
    *,
    cube: str | None = None,
    actor: str = LOCAL_OWNER,
    conversation: str | None = None,
    on_bad: OnBad = "skip",
    on_progress: Callable[[int, int], None] | None = None,
) -> ImportSummary:
    """Import the pages, knowledge and profiles of a MemoryOS program's data folder; none is stored twice.

    `cube` is for the only user and all assistants, by default one each; `conversation` is that of the pages.
    Raises: InvalidInput (unreadable, or `cube` would mix users), NotFound, Conflict (a cube was made meanwhile).
    """
    found = owners(folder)
    users = [owner for owner in found if owner.kind == "user"]
    if cube is not None and len(users) > 1:
        raise InvalidInput(
            "cube", f"would mix {len(users)} users in one cube; leave it out, so that each user gets a cube"
        )
    talk = conversation or conversation_with(_assistant(found))
    parts: list[Part] = []
    new: dict[str, Owner] = {}
    for owner in found:
        target = cube or (cube_of_user(owner.id) if owner.kind == "user" else cube_of_assistant(owner.id))
        zone = _zone(memos, target, actor)
        if zone is None and cube is not None:
            raise NotFound("cube", cube)
        if zone is None:
            new[target] = owner
        read = partial(records, owner, folder, talk, KNOWLEDGE)
        parts.append(Part(target, zone or ZoneInfo(memos.settings.time_zone), read))

    def make_cubes() -> None:
        for name, owner in new.items():
            memos.cubes.create(name, actor=actor, description=described(owner.kind, owner.id))

    doing = Import(memos, str(folder), FORMAT, actor, on_bad, on_progress, _NOTE)
    return import_parts(doing, parts, make_cubes)


def described(kind: str, id_: str) -> str:
    return f"MemoryOS {kind} {shown(id_)}"


def _assistant(found: list[Owner]) -> str:
    """Return the folder's assistant; the original's default unless there is exactly one."""
    assistants = [owner.id for owner in found if owner.kind == "assistant"]
    return assistants[0] if len(assistants) == 1 else DEFAULT_ASSISTANT


def _zone(memos: MemOS, cube: str, actor: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(memos.cubes.get(cube, actor=actor).time_zone)
    except NotFound:
        return None
