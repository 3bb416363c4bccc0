"""Rows of cubes and conversations, and each cube's event log, a hash chain over salted digests."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import sqlalchemy as sa

from memos.core.clock import new_id
from memos.core.types import Cube, CubeKind, Event, Fingerprint, Json
from memos.errors import Conflict, NotFound
from memos.memcube.ledger import postgres
from memos.memcube.ledger.schema import conversations, cubes, events, items, meta

_GENESIS = bytes(32)
_INSTALLATION = "mark:installation"
_DATABASE = "mark:database"


def create(connection: sa.Connection, cube: Cube) -> None:
    if exists(connection, cube.id):
        raise Conflict(f"Cube {cube.id!r} exists already; choose another id, or use the existing cube.")
    names = ("id", "owner", "description", "time_zone", "created_at", "kind", "redact_pii")
    values = {name: getattr(cube, name) for name in names} | _embedder_row(cube.fingerprint)
    start = {"entity_salt": os.urandom(16), "event_seq": 0, "event_chain": _GENESIS}
    connection.execute(sa.insert(cubes).values(values | start))


def exists(connection: sa.Connection, cube_id: str) -> bool:
    return connection.scalar(sa.select(cubes.c.id).where(cubes.c.id == cube_id)) is not None


def set_owner(connection: sa.Connection, cube_id: str, owner: str) -> None:
    connection.execute(sa.update(cubes).where(cubes.c.id == cube_id).values(owner=owner))


def lock(connection: sa.Connection, cube_id: str) -> datetime | None:
    """Lock a cube's row; return the time of its last event, None on SQLite, where the write transaction is the lock."""
    if connection.dialect.name == "sqlite":
        return None
    row = connection.execute(sa.select(cubes.c.event_seq).where(cubes.c.id == cube_id).with_for_update()).one_or_none()
    if row is None:
        raise unknown(cube_id)
    last = sa.select(events.c.at).where(events.c.cube_id == cube_id, events.c.seq == row.event_seq)
    recorded: datetime | None = connection.scalar(last)
    return recorded


def installation(connection: sa.Connection) -> str:
    """Return the installation's name in index servers, generated once; keys "mark:…" are not copied with the ledger."""
    here = "" if connection.dialect.name == "sqlite" else postgres.identity(connection)
    rows = connection.execute(sa.select(meta.c.key, meta.c.value).where(meta.c.key.in_([_INSTALLATION, _DATABASE])))
    known: dict[str, str] = {row.key: row.value for row in rows}
    if _INSTALLATION in known and known.get(_DATABASE, here) == here:
        name = known[_INSTALLATION]
    else:
        # A new database, or a copy made with the server's own tools, which must not share the original's indexes.
        name = os.urandom(5).hex()
    for key, value in ((_INSTALLATION, name), (_DATABASE, here)):
        if key not in known:
            connection.execute(sa.insert(meta).values(key=key, value=value))
        elif known[key] != value:
            connection.execute(sa.update(meta).where(meta.c.key == key).values(value=value))
    return name


def get(connection: sa.Connection, cube_id: str) -> Cube:
    row = connection.execute(_select().where(cubes.c.id == cube_id)).one_or_none()
    if row is None:
        raise unknown(cube_id)
    return _to_cube(row)


def unknown(cube_id: str) -> NotFound:
    return NotFound("cube", cube_id, f"Create it with `memos cube create {cube_id}`.")


def list_all(connection: sa.Connection) -> list[Cube]:
    return [_to_cube(row) for row in connection.execute(_select().order_by(cubes.c.id))]


class CubeHead(NamedTuple):
    fingerprint: Fingerprint
    time_zone: str
    redact_pii: bool


def heads(connection: sa.Connection, ids: Sequence[str]) -> dict[str, CubeHead]:
    columns = (cubes.c.id, cubes.c.embedder, cubes.c.dimension, cubes.c.prefix_rule, cubes.c.normalised)
    rows = connection.execute(sa.select(*columns, cubes.c.time_zone, cubes.c.redact_pii).where(cubes.c.id.in_(ids)))
    known: dict[str, CubeHead] = {}
    for row in rows:
        fingerprint = Fingerprint(row.embedder, row.dimension, row.prefix_rule, row.normalised)
        known[row.id] = CubeHead(fingerprint, row.time_zone, row.redact_pii)
    for cube_id in ids:
        if cube_id not in known:
            raise unknown(cube_id)
    return known


def zones(connection: sa.Connection, ids: Collection[str]) -> dict[str, ZoneInfo]:
    rows = connection.execute(sa.select(cubes.c.id, cubes.c.time_zone).where(cubes.c.id.in_(ids)))
    return {row.id: ZoneInfo(row.time_zone) for row in rows}


def set_redaction(connection: sa.Connection, cube_id: str, *, redact_pii: bool) -> None:
    connection.execute(sa.update(cubes).where(cubes.c.id == cube_id).values(redact_pii=redact_pii))


def set_description(connection: sa.Connection, cube_id: str, description: str) -> None:
    connection.execute(sa.update(cubes).where(cubes.c.id == cube_id).values(description=description))


def set_fingerprint(connection: sa.Connection, cube_id: str, fingerprint: Fingerprint) -> None:
    connection.execute(sa.update(cubes).where(cubes.c.id == cube_id).values(_embedder_row(fingerprint)))


def _embedder_row(fingerprint: Fingerprint) -> dict[str, Any]:
    told = asdict(fingerprint)
    return {"embedder": told.pop("name"), **told}


def entity_salt(connection: sa.Connection, cube_id: str) -> bytes:
    return bytes(connection.execute(sa.select(cubes.c.entity_salt).where(cubes.c.id == cube_id)).scalar_one())


def _select() -> sa.Select[tuple[object, ...]]:
    count = sa.select(sa.func.count()).select_from(items).where(items.c.cube_id == cubes.c.id).scalar_subquery()
    return sa.select(cubes, count.label("items"))


def _to_cube(row: sa.Row[tuple[object, ...]]) -> Cube:
    fingerprint = Fingerprint(row.embedder, row.dimension, row.prefix_rule, row.normalised)
    kind, redact_pii = CubeKind(row.kind), bool(row.redact_pii)
    names = (row.id, row.owner, row.description, row.time_zone)
    return Cube(*names, fingerprint, row.created_at, row.items, kind, redact_pii)


@dataclass(frozen=True, slots=True)
class NextMessage:
    id: str
    position: int = 0
    page: int = 0
    session: int = 0
    said_at: datetime | None = None
    first_short: int = 0


def conversation(connection: sa.Connection, cube_id: str, name: str, now: datetime) -> NextMessage:
    query = sa.select(conversations).where(conversations.c.cube_id == cube_id, conversations.c.name == name)
    row = connection.execute(query).one_or_none()
    if row is not None:
        return NextMessage(row.id, row.next_position, row.next_page, row.session, row.said_at, row.first_short)
    place = NextMessage(new_id())
    start = {"next_position": 0, "next_page": 0, "session": 0, "created_at": now}
    connection.execute(sa.insert(conversations).values(id=place.id, cube_id=cube_id, name=name, **start))
    return place


def advance(connection: sa.Connection, place: NextMessage) -> None:
    connection.execute(
        sa.update(conversations)
        .where(conversations.c.id == place.id)
        .values(next_position=place.position, next_page=place.page, session=place.session, said_at=place.said_at)
    )


def record_event(
    connection: sa.Connection, cube_id: str, at: datetime, actor: str, kind: str, item_id: str | None, body: Json
) -> None:
    """Append an event to the cube's chain: chain = SHA-256(previous chain, number, SHA-256(salt, body))."""
    query = sa.select(cubes.c.event_seq, cubes.c.event_chain).where(cubes.c.id == cube_id)
    row = connection.execute(query.with_for_update()).one()
    seq = row.event_seq + 1
    text, salt = json.dumps(body, ensure_ascii=False, sort_keys=True), os.urandom(16)
    digest = hashlib.sha256(salt + text.encode()).digest()
    chain = _link(bytes(row.event_chain), seq, digest)
    event = {"cube_id": cube_id, "seq": seq, "at": at, "actor": actor, "kind": kind, "item_id": item_id}
    connection.execute(sa.insert(events).values(**event, body=text, salt=salt, digest=digest, chain=chain))
    connection.execute(sa.update(cubes).where(cubes.c.id == cube_id).values(event_seq=seq, event_chain=chain))


def newest_event(connection: sa.Connection) -> datetime | None:
    heads = cubes.join(events, sa.and_(events.c.cube_id == cubes.c.id, events.c.seq == cubes.c.event_seq))
    newest: datetime | None = connection.scalar(sa.select(sa.func.max(events.c.at)).select_from(heads))
    return newest


def broken_event(connection: sa.Connection, cube_id: str) -> str | None:
    """Verify a cube's event chain; return what is wrong, None if it is intact. Erased bodies do not break it."""
    query = sa.select(cubes.c.event_seq, cubes.c.event_chain).where(cubes.c.id == cube_id)
    head = connection.execute(query).one_or_none()
    if head is None:  # dropped meanwhile
        return None
    chain, seq = _GENESIS, 0
    for row in connection.execute(sa.select(events).where(events.c.cube_id == cube_id).order_by(events.c.seq)):
        seq += 1
        if row.seq != seq:
            return f"event {seq} is missing"
        if row.body is not None and hashlib.sha256(bytes(row.salt) + row.body.encode()).digest() != bytes(row.digest):
            return f"the body of event {seq} was changed"
        chain = _link(chain, seq, bytes(row.digest))
        if chain != bytes(row.chain):
            return f"event {seq} does not follow event {seq - 1}"
    if seq != head.event_seq or chain != bytes(head.event_chain):
        return f"the chain ends at event {seq}, but the cube says {head.event_seq}"
    return None


def _link(previous: bytes, seq: int, digest: bytes) -> bytes:
    return hashlib.sha256(previous + seq.to_bytes(8, "big") + digest).digest()


def _key(cube: str) -> str:
    # Hashed, since a cube's id may be longer than the `key` column.
    return "template:" + hashlib.sha256(cube.encode()).hexdigest()[:48]


def get_template(connection: sa.Connection, cube: str) -> str | None:
    found: str | None = connection.scalar(sa.select(meta.c.value).where(meta.c.key == _key(cube)))
    return found


def own_templates(connection: sa.Connection, cubes: Collection[str] | None) -> list[str]:
    rows = connection.execute(sa.select(meta.c.key, meta.c.value).where(meta.c.key.startswith("template:")))
    keys = None if cubes is None else {_key(cube) for cube in cubes}
    return [row.value for row in rows.all() if keys is None or row.key in keys]


def set_template(connection: sa.Connection, cube: str, text: str) -> None:
    remove(connection, cube)
    connection.execute(sa.insert(meta).values(key=_key(cube), value=text))


def remove(connection: sa.Connection, cube: str) -> None:
    connection.execute(sa.delete(meta).where(meta.c.key == _key(cube)))


@dataclass(frozen=True, slots=True)
class EventQuery:
    after: int = 0
    kinds: tuple[str, ...] = ()
    limit: int = 100
    before: int | None = None
    newest: bool = False
    item: str | None = None


def head(connection: sa.Connection, cube: str) -> int:
    found: int | None = connection.scalar(sa.select(cubes.c.event_seq).where(cubes.c.id == cube))
    if found is None:
        raise unknown(cube)
    return found


def events_after(connection: sa.Connection, cube: str, wanted: EventQuery) -> list[Event]:
    columns = (events.c.seq, events.c.at, events.c.actor, events.c.kind, events.c.item_id, events.c.body)
    query = sa.select(*columns).where(events.c.cube_id == cube, events.c.seq > wanted.after)
    if wanted.kinds:
        query = query.where(events.c.kind.in_(wanted.kinds))
    if wanted.before is not None:
        query = query.where(events.c.seq < wanted.before)
    if wanted.item is not None:
        named = events.c.body.contains(f'"{wanted.item}"', autoescape=True)
        query = query.where(sa.or_(events.c.item_id == wanted.item, named))
    order = events.c.seq.desc() if wanted.newest else events.c.seq
    return [
        Event(cube, *row[:-1], None if row.body is None else json.loads(row.body))
        for row in connection.execute(query.order_by(order).limit(wanted.limit))
    ]


def events_before(
    connection: sa.Connection, cube: str, kind: str, before: int | None, *, window: int, limit: int
) -> list[Event]:
    """Return a cube's last events of a kind before number `before`, newest first; looks at `window` events at most."""
    end = before if before is not None else head(connection, cube) + 1
    columns = (events.c.seq, events.c.at, events.c.actor, events.c.kind, events.c.item_id, events.c.body)
    query = sa.select(*columns).where(events.c.cube_id == cube, events.c.kind == kind)
    query = query.where(events.c.seq < end, events.c.seq >= end - window).order_by(events.c.seq.desc()).limit(limit)
    return [
        Event(cube, *row[:-1], None if row.body is None else json.loads(row.body)) for row in connection.execute(query)
    ]


def number_at(connection: sa.Connection, cube: str, moment: datetime) -> int:
    """Return the number of a cube's last event up to a time, 0 if none; scans backwards from the newest."""
    query = sa.select(events.c.seq).where(events.c.cube_id == cube, events.c.at <= moment)
    return int(connection.scalar(query.order_by(events.c.seq.desc()).limit(1)) or 0)


def tally_all(connection: sa.Connection, cube: str, after: int) -> dict[str, int]:
    query = sa.select(events.c.kind, sa.func.count()).where(events.c.cube_id == cube, events.c.seq > after)
    return {row[0]: row[1] for row in connection.execute(query.group_by(events.c.kind))}


def tally(connection: sa.Connection, cube: str, after: int, kinds: Sequence[str]) -> dict[str, int]:
    query = sa.select(events.c.kind, sa.func.count()).where(events.c.cube_id == cube, events.c.seq > after)
    rows = connection.execute(query.where(events.c.kind.in_(kinds)).group_by(events.c.kind))
    return {row[0]: row[1] for row in rows}
