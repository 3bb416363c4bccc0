"""Rows of creating calls with an idempotency key, kept for a day as ids and digests."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa

from memos.memcube.ledger import queues
from memos.memcube.ledger.engine import Ledger
from memos.memcube.ledger.schema import repeats

KEPT = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class Call:
    """A call with an idempotency key: `body` is its text, `cube` the cube it was about."""

    identity: str
    key: str
    body: str
    cube: str | None


@dataclass(frozen=True, slots=True)
class Earlier:
    """An earlier call with the same key; `made` is None until it has answered."""

    same: bool
    made: tuple[str, ...] | None


def find(connection: sa.Connection, call: Call, now: datetime) -> Earlier | None:
    """Return the call that used the key within a day, or None."""
    row = connection.execute(sa.select(repeats).where(*_of(call), repeats.c.created_at > now - KEPT)).one_or_none()
    if row is None:
        return None
    same = hmac.compare_digest(_digest(bytes(row.salt), call.body), bytes(row.digest))
    return Earlier(same, None if row.made is None else tuple(row.made))


def claim(connection: sa.Connection, call: Call, now: datetime) -> bool:
    """Record the start of a call; False if another used the key within a day."""
    connection.execute(sa.delete(repeats).where(*_of(call), repeats.c.created_at <= now - KEPT))
    salt = os.urandom(16)
    row = {
        "identity_id": call.identity,
        "idempotency_key": call.key,
        "cube_id": call.cube,
        "salt": salt,
        "digest": _digest(salt, call.body),
        "made": None,
        "created_at": now,
    }
    return queues.insert_new(connection, repeats, row)


def answer(connection: sa.Connection, call: Call, made: Sequence[str]) -> None:
    connection.execute(sa.update(repeats).where(*_of(call)).values(made=list(made)))


def forget_items(connection: sa.Connection, cube: str, ids: Collection[str]) -> int:
    """Drop calls that made one of these items or files, whose digests cover their content; return how many."""
    calls = connection.execute(sa.select(repeats).where(repeats.c.cube_id == cube))
    gone = [row for row in calls if row.made is not None and not set(ids).isdisjoint(row.made)]
    for row in gone:
        named = (repeats.c.identity_id == row.identity_id, repeats.c.idempotency_key == row.idempotency_key)
        connection.execute(sa.delete(repeats).where(*named))
    return len(gone)


def forget_old(ledger: Ledger, now: datetime) -> None:
    old = repeats.c.created_at <= now - KEPT
    with ledger.read() as connection:
        if connection.scalar(sa.select(repeats.c.identity_id).where(old).limit(1)) is None:
            return
    with ledger.write() as connection:
        connection.execute(sa.delete(repeats).where(old))


def _of(call: Call) -> tuple[sa.ColumnElement[bool], ...]:
    return repeats.c.identity_id == call.identity, repeats.c.idempotency_key == call.key


def _digest(salt: bytes, body: str) -> bytes:
    return hashlib.sha256(salt + body.encode()).digest()
