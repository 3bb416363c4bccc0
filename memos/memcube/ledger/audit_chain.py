"""The hash chain over the access log: whoever changes, removes or inserts an entry breaks it.

An entry's digest covers who did it, about whom, and its body, with a salt; its link covers the link before, the entry's
number, id, time and kind, and that digest. So people and bodies can be forgotten and the chain still be checked.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa

from memos.core.clock import new_id, to_micros
from memos.core.types import Json
from memos.memcube.ledger.schema import access_log, meta

HEAD = "audit:head"
"""Key in `meta` of the number and link of the newest entry."""

START = '{"chain": "", "number": 0}'
"""The head of an empty log."""

_BATCH = 1_000


class AuditMark(NamedTuple):
    """An entry's place in the chain: its number from 1, and its link as hexadecimal digits."""

    number: int
    chain: str


def append(connection: sa.Connection, at: datetime, actor: str, kind: str, subject: str, body: Json) -> AuditMark:
    """Append an entry and return its place. Call it last in a transaction: others wait for it until the commit."""
    head = _lock(connection)
    row = {"id": new_id(), "at": at, "actor": actor, "kind": kind, "subject": subject, "body": body}
    sealed = _seal(row, head)
    connection.execute(sa.insert(access_log).values(row | sealed))
    return _move(connection, sealed)


def adopt(connection: sa.Connection) -> None:
    """Chain the entries of a log that has none, such as one from a backup of an earlier version."""
    if connection.scalar(sa.select(meta.c.key).where(meta.c.key == HEAD)) is None:
        connection.execute(sa.insert(meta).values(key=HEAD, value=START))
    head = _lock(connection)
    log = access_log.c
    # Named, since a migration runs this before later ones have added columns.
    told = sa.select(log.id, log.at, log.actor, log.kind, log.subject, log.body)
    for row in connection.execute(told.where(log.number.is_(None)).order_by(log.at, log.id)).all():
        sealed = _seal(row._asdict(), head)
        connection.execute(sa.update(access_log).where(access_log.c.id == row.id).values(sealed))
        head = _move(connection, sealed)


def broken(connection: sa.Connection) -> str | None:
    """Check the whole chain; return what is wrong, None if it is intact."""
    told = connection.scalar(sa.select(meta.c.value).where(meta.c.key == HEAD))
    if told is None:
        return "the head of the chain is missing"
    try:
        head = _read(told)
    except (ValueError, KeyError, TypeError):
        return "the head of the chain was changed"
    link, number = "", 0
    rows = connection.execute(sa.select(access_log).order_by(access_log.c.number), execution_options=_STREAMED)
    for row in rows:
        number += 1
        if row.number != number or row.chain is None or row.digest is None:
            return f"entry {number} is missing, or has no place in the chain"
        digest = bytes(row.digest)
        if row.salt is not None and _digest(bytes(row.salt), row.actor, row.subject, row.body) != digest:
            return f"entry {number} was changed"
        link = _link(link, number, row.id, row.at, row.kind, digest)
        if bytes(row.chain).hex() != link:
            return f"entry {number} does not follow entry {number - 1}"
    if (number, link) != head:
        return f"the log ends at entry {number}, but the chain at entry {head.number}"
    return None


def holds(connection: sa.Connection, mark: AuditMark) -> bool:
    """Return True if the chain has this link at this number."""
    found = connection.scalar(sa.select(access_log.c.chain).where(access_log.c.number == mark.number))
    return found is not None and bytes(found).hex() == mark.chain


def place_of(connection: sa.Connection, kind: str, subject: str) -> AuditMark | None:
    """Return the place of the newest entry of a kind about a subject."""
    log = access_log.c
    query = sa.select(log.number, log.chain).where(log.kind == kind, log.subject == subject)
    row = connection.execute(query.order_by(log.number.desc()).limit(1)).one_or_none()
    return None if row is None or row.chain is None else AuditMark(row.number, bytes(row.chain).hex())


def forget(connection: sa.Connection, names: Collection[str], instead: str) -> int:
    """Replace these names of people in the log and drop the bodies about them; the chain can still be checked."""
    log = access_log.c
    told = sa.or_(log.actor.in_(names), log.subject.in_(names))
    shown = {log.actor: log.actor, log.subject: log.subject}
    values: dict[str, Any] = {
        column.name: sa.case((column.in_(names), instead), else_=kept) for column, kept in shown.items()
    }
    query = sa.update(access_log).where(told).values(**values, body={}, salt=None)
    return connection.execute(query).rowcount


_STREAMED = {"yield_per": _BATCH}


def _lock(connection: sa.Connection) -> AuditMark:
    told = connection.scalar(sa.select(meta.c.value).where(meta.c.key == HEAD).with_for_update())
    if told is None:
        adopt(connection)
        told = connection.execute(sa.select(meta.c.value).where(meta.c.key == HEAD)).scalar_one()
    return _read(told)


def _read(told: str) -> AuditMark:
    head = json.loads(told)
    return AuditMark(int(head["number"]), str(head["chain"]))


def _seal(row: dict[str, Any], head: AuditMark) -> dict[str, Any]:
    salt = os.urandom(16)
    digest = _digest(salt, row["actor"], row["subject"], row["body"])
    number = head.number + 1
    chain = bytes.fromhex(_link(head.chain, number, row["id"], row["at"], row["kind"], digest))
    return {"number": number, "salt": salt, "digest": digest, "chain": chain}


def _move(connection: sa.Connection, sealed: dict[str, Any]) -> AuditMark:
    mark = AuditMark(sealed["number"], sealed["chain"].hex())
    value = json.dumps(mark._asdict(), sort_keys=True)
    connection.execute(sa.update(meta).where(meta.c.key == HEAD).values(value=value))
    return mark


def _digest(salt: bytes, actor: str, subject: str, body: Json) -> bytes:
    told = json.dumps([actor, subject, body], ensure_ascii=False, sort_keys=True)
    return hashlib.sha256(salt + told.encode("utf-8", "surrogatepass")).digest()


def _link(before: str, number: int, id_: str, at: datetime, kind: str, digest: bytes) -> str:
    told = json.dumps([before, number, id_, to_micros(at), kind, digest.hex()])
    return hashlib.sha256(told.encode()).hexdigest()
