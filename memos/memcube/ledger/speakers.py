"""Who speaks in cubes, as far as they are few; read from an index, a probe for each name."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from memos.memcube.ledger.schema import messages
from memos.model import Role

MOST = 8
"""Names beyond which somebody's name tells much: one of two says a bit, one of a hundred nearly seven."""

_SPEAKING = (Role.USER, Role.ASSISTANT)


def _distinct() -> sa.Select[tuple[str]]:
    """Return what reads names in order, each by a probe for the next after it: no row of a name is read twice."""
    theirs = sa.and_(messages.c.cube_id == sa.bindparam("cube"), messages.c.role == sa.bindparam("role"))
    names = sa.select(sa.func.min(messages.c.name).label("name")).where(theirs).cte("names", recursive=True)
    following = sa.select(sa.func.min(messages.c.name)).where(theirs, messages.c.name > names.c.name)
    names = names.union_all(sa.select(following.scalar_subquery()).where(names.c.name.is_not(None)))
    return sa.select(names.c.name).where(names.c.name.is_not(None)).limit(MOST + 2)


_DISTINCT = _distinct()


def few(connection: sa.Connection, cubes: Sequence[str]) -> list[str]:
    """Return the names under which people and assistants speak in these cubes; none when they are more than `MOST`.

    Who was given no name speaks under the name of a role, which is none of these.
    """
    if len(cubes) > MOST:
        return []
    found: dict[str, None] = {}
    for cube in cubes:
        for role in _SPEAKING:
            found |= dict.fromkeys(connection.scalars(_DISTINCT, {"cube": cube, "role": role}))
    names = [name for name in found if name not in tuple(Role)]
    return names if len(names) <= MOST else []
