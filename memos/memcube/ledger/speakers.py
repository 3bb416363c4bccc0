"""Who speaks in cubes, as far as they are few; read from an index, a probe for each name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import sqlalchemy as sa

from memos.core.types import Role
from memos.memcube.ledger.prepared import HotSelect
from memos.memcube.ledger.schema import messages

MOST = 8
"""Names beyond which somebody's name tells much: one of two says a bit, one of a hundred nearly seven."""

_SPEAKING = (Role.USER.value, Role.ASSISTANT.value)


def _distinct() -> sa.Select[tuple[str]]:
    """Return what reads names in order, each by a probe for the next after it: no row of a name is read twice.

    It is asked for one cube and one role at a time: of several of either no probe finds the first name.
    """
    theirs = sa.and_(
        messages.c.cube_id.in_(sa.bindparam("cubes", expanding=True)),
        messages.c.role.in_(sa.bindparam("roles", expanding=True)),
    )
    names = sa.select(sa.func.min(messages.c.name).label("name")).where(theirs).cte("names", recursive=True)
    following = sa.select(sa.func.min(messages.c.name)).where(theirs, messages.c.name > names.c.name)
    names = names.union_all(sa.select(following.scalar_subquery()).where(names.c.name.is_not(None)))
    return sa.select(names.c.name).where(names.c.name.is_not(None)).limit(MOST + 2)


def _name(row: Iterable[str]) -> str:
    [name] = row
    return name


_DISTINCT = HotSelect(_distinct(), _name)


def few(connection: sa.Connection, cubes: Sequence[str]) -> list[str]:
    """Return the names under which people and assistants speak in these cubes; none when they are more than `MOST`.

    Who was given no name speaks under the name of a role, which is none of these.
    """
    if len(cubes) > MOST:
        return []
    found: dict[str, None] = {}
    for cube in cubes:
        for role in _SPEAKING:
            found |= dict.fromkeys(_DISTINCT.rows(connection, cubes=[cube], roles=[role]))
    names = [name for name in found if name not in tuple(Role)]
    return names if len(names) <= MOST else []
