"""For whom a request acts and with which cubes: users, agents, what is public, knowledge bases. Knows no route."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from memos.api.auth import Who, who
from memos.api.openmem.bodies import MOST_PEOPLE, Names, Subject, only_one, required
from memos.core.identities import EVERYONE, Caller
from memos.core.types import CubeKind, Json
from memos.errors import Conflict, InvalidInput, NotFound
from memos.kernel.memos import MemOS

PUBLIC: Final = "public"
"""The cube of what everybody may find."""

ALL: Final = "all"
_SCOPES: Final = frozenset({"user", "public", "knowledgebase"})


def subject(memos: MemOS, caller: Caller, body: Subject, *, new: bool = False) -> Who:
    """Return for whom a request acts. Raises: InvalidInput, PermissionDenied, NotFound."""
    agent = only_one(user_id=body.user_id, agent_id=body.agent_id) == "agent_id"
    return who(memos, caller, body.agent_id if agent else body.user_id, agent=agent, new=new)


def known(memos: MemOS, caller: Caller, body: Subject) -> Who | None:
    """Return for whom a request acts that only looks; None when an admin names nobody yet."""
    try:
        return subject(memos, caller, body)
    except NotFound:
        if not caller.identity.admin:
            raise
        return None


def everybody(memos: MemOS, caller: Caller, users: Names, agents: Names) -> list[tuple[dict[str, str], Who]]:
    """Return for whom something is stored, with the names it is stored under.

    Users come first: with both, an agent is the one that stores for them. Raises: InvalidInput, PermissionDenied.
    """
    named = {"user_id": _names("user_id", users), "agent_id": _names("agent_id", agents)}
    if not named["user_id"]:
        required("user_id or agent_id", named["agent_id"])
        return [({"agent_id": id_}, who(memos, caller, id_, agent=True)) for id_ in named["agent_id"]]
    if len(named["agent_id"]) > 1:
        raise InvalidInput("agent_id", "names several agents; with users give one at the most")
    by = {"agent_id": named["agent_id"][0]} if named["agent_id"] else {}
    return [({"user_id": id_, **by}, who(memos, caller, id_)) for id_ in named["user_id"]]


def knowledge(memos: MemOS, caller: Caller, ids: Sequence[str] | None) -> list[str]:
    """Return the cubes of knowledge bases the key's owner may look into. Raises: NotFound, InvalidInput."""
    if not ids:
        return []
    actor = caller.identity.id
    if ALL in ids:
        if len(ids) > 1:
            raise InvalidInput("knowledgebase_ids", f"has {ALL!r} and others; give either")
        return [base.id for base in memos.knowledge.list(actor=actor)]
    for id_ in ids:
        base_of(memos, caller, id_)
    return list(dict.fromkeys(ids))


def base_of(memos: MemOS, caller: Caller, id_: str) -> str:
    """Return the cube of a knowledge base. Raises: NotFound, as for a cube that is none."""
    try:
        return memos.knowledge.get(id_, actor=caller.identity.id).id
    except NotFound as error:
        raise NotFound("knowledge base", id_) from error


def public_cube(memos: MemOS, caller: Caller) -> str:
    """Return the cube of what is public; an admin's request makes it where it makes users too. Raises: InvalidInput."""
    me = caller.identity
    if PUBLIC not in {cube.id for cube in memos.cubes.list(actor=me.id)}:
        if not (me.admin and memos.settings.server.new_users):
            raise InvalidInput(
                "allow_public", f"is true, and there is no cube {PUBLIC!r} here: an admin can make and share one"
            )
        with suppress(Conflict):  # somebody else's request made it meanwhile
            memos.cubes.create(PUBLIC, actor=me.id, description="what everybody may find")
            memos.sharing.grant(PUBLIC, EVERYONE, "reader", actor=me.id)
    return PUBLIC


def readable_public(memos: MemOS, actor: str) -> list[str]:
    """Return the public cube where there is one that the actor may look into."""
    return [cube.id for cube in memos.cubes.list(actor=actor) if cube.id == PUBLIC and cube.kind is CubeKind.MEMORY]


def scoped_filter(given: Json, cubes: dict[str, list[str]]) -> Json:
    """Return one filter for a search over all `cubes`, by scope, of a plain filter or one for each scope."""
    if not isinstance(given, dict) or not given or not set(given) <= _SCOPES:
        return given
    parts = []
    for scope, names in cubes.items():
        if names:
            here: Json = {"cube": {"in": names}}
            parts.append({"and": [here, given[scope]]} if given.get(scope) else here)
    return {"or": parts} if parts else None


def _names(field: str, given: Names) -> list[str]:
    names = [given] if isinstance(given, str) else list(given or [])
    if len(names) > MOST_PEOPLE:
        raise InvalidInput(field, f"names {len(names)}, at most {MOST_PEOPLE} are taken")
    return list(dict.fromkeys(required(field, name) for name in names if name != "" or isinstance(given, list)))
