"""The template of profiles that a cube was given, as JSON in `meta`; a cube without one has the standard template."""

from __future__ import annotations

import hashlib
from collections.abc import Collection

import sqlalchemy as sa

from memos.memcube.ledger.schema import meta


def _key(cube: str) -> str:
    # A cube's id may be longer than a key of `meta`.
    return "template:" + hashlib.sha256(cube.encode()).hexdigest()[:48]


def get(connection: sa.Connection, cube: str) -> str | None:
    """Return the JSON of a cube's own template."""
    found: str | None = connection.scalar(sa.select(meta.c.value).where(meta.c.key == _key(cube)))
    return found


def every(connection: sa.Connection, cubes: Collection[str] | None) -> list[str]:
    """Return the JSON of the own templates of these cubes, or of all."""
    rows = connection.execute(sa.select(meta.c.key, meta.c.value).where(meta.c.key.startswith("template:")))
    keys = None if cubes is None else {_key(cube) for cube in cubes}
    return [row.value for row in rows.all() if keys is None or row.key in keys]


def put(connection: sa.Connection, cube: str, text: str) -> None:
    """Give a cube a template in place of the one it has."""
    remove(connection, cube)
    connection.execute(sa.insert(meta).values(key=_key(cube), value=text))


def remove(connection: sa.Connection, cube: str) -> None:
    """Let a cube have the standard template."""
    connection.execute(sa.delete(meta).where(meta.c.key == _key(cube)))
