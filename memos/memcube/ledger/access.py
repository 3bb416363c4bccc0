"""Rows of identities, groups, grants and API keys, and the role of an identity on a cube."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa

from memos.core.audit import AuditEntry
from memos.core.clock import from_micros, to_micros
from memos.core.identities import (
    EVERYONE,
    RANK,
    CubeRole,
    Grant,
    Identity,
    IdentityKind,
    Key,
    KeyLimits,
    Right,
    Session,
)
from memos.core.types import Json
from memos.errors import NotFound
from memos.memcube.ledger import audit_chain, queues
from memos.memcube.ledger.audit_chain import AuditMark
from memos.memcube.ledger.cubes import exists, unknown
from memos.memcube.ledger.schema import (
    access_log,
    api_keys,
    console_sessions,
    cubes,
    events,
    fields_of,
    grants,
    identities,
    key_usage,
    memberships,
    meta,
    row_of,
)


def add_identity(connection: sa.Connection, identity: Identity) -> None:
    connection.execute(sa.insert(identities).values(row_of(identities, identity)))


def change_identity(connection: sa.Connection, id_: str, **values: Any) -> None:
    connection.execute(sa.update(identities).where(identities.c.id == id_).values(**values))


def any_identity(connection: sa.Connection) -> bool:
    """Return True if there is an identity; without any, the installation has one user and no access checks."""
    return connection.scalar(sa.select(identities.c.id).limit(1)) is not None


def find_identity(connection: sa.Connection, id_: str) -> Identity | None:
    row = connection.execute(sa.select(identities).where(identities.c.id == id_)).one_or_none()
    return None if row is None else _to_identity(row)


def require_identity(connection: sa.Connection, id_: str) -> Identity:
    found = find_identity(connection, id_)
    if found is None:
        raise NotFound("user, agent or group", id_)
    return found


def list_identities(connection: sa.Connection, kind: IdentityKind | None, limit: int, after: str) -> list[Identity]:
    query = sa.select(identities).where(identities.c.id > after).order_by(identities.c.id).limit(limit)
    if kind is not None:
        query = query.where(identities.c.kind == kind)
    return [_to_identity(row) for row in connection.execute(query)]


def join(connection: sa.Connection, group: str, member: str, now: datetime) -> None:
    known = (memberships.c.group_id == group, memberships.c.member_id == member)
    if connection.scalar(sa.select(memberships.c.group_id).where(*known)) is None:
        connection.execute(sa.insert(memberships).values(group_id=group, member_id=member, created_at=now))


def leave(connection: sa.Connection, group: str, member: str) -> None:
    where = (memberships.c.group_id == group, memberships.c.member_id == member)
    connection.execute(sa.delete(memberships).where(*where))


def members(connection: sa.Connection, group: str) -> list[str]:
    query = sa.select(memberships.c.member_id).where(memberships.c.group_id == group)
    return list(connection.scalars(query.order_by(memberships.c.member_id)))


def grant(connection: sa.Connection, given: Grant) -> None:
    """Set a role on a cube, replacing an earlier one."""
    ungrant(connection, given.cube, given.identity)
    connection.execute(sa.insert(grants).values(row_of(grants, given)))


def ungrant(connection: sa.Connection, cube: str, identity: str) -> bool:
    where = (grants.c.cube_id == cube, grants.c.identity_id == identity)
    return connection.execute(sa.delete(grants).where(*where)).rowcount > 0


def grants_of(connection: sa.Connection, cube: str) -> list[Grant]:
    rows = connection.execute(sa.select(grants).where(grants.c.cube_id == cube).order_by(grants.c.identity_id))
    return [Grant(**fields_of(row) | {"role": CubeRole(row.role)}) for row in rows]


def require_cube(connection: sa.Connection, cube: str) -> None:
    if not exists(connection, cube):
        raise unknown(cube)


def roles(connection: sa.Connection, identity: str, among: Collection[str] | None = None) -> dict[str, CubeRole]:
    """Return the role on each cube: as owner, by grants to it, its user and its groups, or as everyone."""
    acting = sa.select(identities.c.acts_for).where(identities.c.id == identity, identities.c.acts_for.is_not(None))
    selves = [identity, *connection.scalars(acting)]
    groups = sa.select(memberships.c.group_id).where(memberships.c.member_id.in_(selves))
    given = sa.select(grants.c.cube_id, grants.c.role).where(
        sa.or_(grants.c.identity_id.in_([*selves, EVERYONE]), grants.c.identity_id.in_(groups))
    )
    own = sa.select(cubes.c.id, sa.literal(str(CubeRole.OWNER))).where(cubes.c.owner.in_(selves))
    if among is not None:
        given, own = given.where(grants.c.cube_id.in_(among)), own.where(cubes.c.id.in_(among))
    found: dict[str, CubeRole] = {}
    for query in (given, own):
        for cube, role in connection.execute(query):
            if cube not in found or RANK[CubeRole(role)] > RANK[found[cube]]:
                found[cube] = CubeRole(role)
    return found


def add_key(connection: sa.Connection, key: Key, digest: str) -> None:
    others = {"digest": digest, "rights": [str(right) for right in key.rights], "limits": limits_row(key.limits)}
    connection.execute(sa.insert(api_keys).values(row_of(api_keys, key, **others)))


def limits_row(limits: KeyLimits) -> dict[str, int]:
    return {name: value for name, value in asdict(limits).items() if value is not None}


def change_key(connection: sa.Connection, id_: str, **values: Any) -> None:
    connection.execute(sa.update(api_keys).where(api_keys.c.id == id_).values(**values))


def key_with(connection: sa.Connection, digest: str) -> Key | None:
    row = connection.execute(sa.select(api_keys).where(api_keys.c.digest == digest)).one_or_none()
    return None if row is None else _to_key(row)


def require_key(connection: sa.Connection, id_: str) -> Key:
    row = connection.execute(sa.select(api_keys).where(api_keys.c.id == id_)).one_or_none()
    if row is None:
        raise NotFound("key", id_)
    return _to_key(row)


def keys_of(connection: sa.Connection, identity: str | None) -> list[Key]:
    query = sa.select(api_keys).order_by(api_keys.c.id)
    if identity is not None:
        query = query.where(api_keys.c.identity_id == identity)
    return [_to_key(row) for row in connection.execute(query)]


def _to_identity(row: sa.Row[Any]) -> Identity:
    return Identity(**fields_of(row) | {"kind": IdentityKind(row.kind)})


def _to_key(row: sa.Row[Any]) -> Key:
    told = fields_of(row) | {"rights": tuple(map(Right, row.rights)), "limits": KeyLimits(**(row.limits or {}))}
    told["cubes"] = None if row.cubes is None else tuple(row.cubes)
    del told["digest"]
    return Key(**told)


def revoke_keys(connection: sa.Connection, among: Collection[str], now: datetime) -> int:
    """Revoke every key of identities; return how many were open."""
    its = (api_keys.c.identity_id.in_(among), api_keys.c.revoked_at.is_(None))
    return connection.execute(sa.update(api_keys).where(*its).values(revoked_at=now)).rowcount


def agents_of(connection: sa.Connection, user: str) -> list[str]:
    return list(connection.scalars(sa.select(identities.c.id).where(identities.c.acts_for == user)))


def home_of(connection: sa.Connection, cube: str) -> str | None:
    """Return the enabled identity whose home a cube is."""
    its = (identities.c.home == cube, identities.c.disabled.is_(False))
    return connection.scalar(sa.select(identities.c.id).where(*its))


def owned_by(connection: sa.Connection, among: Collection[str]) -> list[str]:
    return list(connection.scalars(sa.select(cubes.c.id).where(cubes.c.owner.in_(among)).order_by(cubes.c.id)))


def grants_to(connection: sa.Connection, among: Collection[str]) -> list[Grant]:
    rows = connection.execute(sa.select(grants).where(grants.c.identity_id.in_(among)).order_by(grants.c.cube_id))
    return [Grant(**fields_of(row) | {"role": CubeRole(row.role)}) for row in rows]


def leave_all(connection: sa.Connection, among: Collection[str]) -> list[str]:
    """Take identities out of all groups; return these."""
    its = memberships.c.member_id.in_(among)
    found = list(connection.scalars(sa.select(memberships.c.group_id).where(its).distinct()))
    connection.execute(sa.delete(memberships).where(its))
    return sorted(found)


def count_usage(connection: sa.Connection, key: str, what: str, span: str, amount: int, limit: int | None) -> bool:
    """Add an amount to a counter unless that exceeds the limit; return True if it was added.

    A negative amount is a refund. The row is changed by a single statement, so concurrent transactions never exceed the
    limit together.
    """
    where = (key_usage.c.key_id == key, key_usage.c.what == what, key_usage.c.span == span)
    if queues.insert_new(connection, key_usage, {"key_id": key, "what": what, "span": span, "used": 0}):
        before = (key_usage.c.key_id == key, key_usage.c.what == what, key_usage.c.span < span)
        connection.execute(sa.delete(key_usage).where(*before))
    fits = () if limit is None else (key_usage.c.used + amount <= limit,)
    counted = sa.update(key_usage).where(*where, *fits).values(used=key_usage.c.used + amount)
    return connection.execute(counted).rowcount == 1


def used(connection: sa.Connection, key: str, span: str) -> dict[str, int]:
    query = sa.select(key_usage.c.what, key_usage.c.used).where(key_usage.c.key_id == key, key_usage.c.span == span)
    return {row.what: row.used for row in connection.execute(query)}


def add_session(connection: sa.Connection, session: Session, digest: str, *, link: bool = False) -> None:
    """Add a session, or a one-time link that starts one, and remove what has expired."""
    connection.execute(sa.delete(console_sessions).where(console_sessions.c.expires_at <= session.created_at))
    row = row_of(console_sessions, session, digest=digest, link=link)
    connection.execute(sa.insert(console_sessions).values(row))


def session_with(connection: sa.Connection, digest: str, *, link: bool = False) -> Session | None:
    of_kind = console_sessions.c.link.is_(link)
    row = connection.execute(sa.select(console_sessions).where(console_sessions.c.digest == digest, of_kind)).first()
    return None if row is None else _to_session(row)


def sessions_of(connection: sa.Connection, identity: str | None) -> list[Session]:
    query = sa.select(console_sessions).where(console_sessions.c.link.is_(False))
    if identity is not None:
        query = query.where(console_sessions.c.identity_id == identity)
    newest_first = query.order_by(console_sessions.c.created_at.desc(), console_sessions.c.id)
    return [_to_session(row) for row in connection.execute(newest_first)]


def remove_session(connection: sa.Connection, id_: str) -> bool:
    return connection.execute(sa.delete(console_sessions).where(console_sessions.c.id == id_)).rowcount == 1


def end_sessions(connection: sa.Connection, among: Collection[str]) -> int:
    """Remove the sessions of identities; return how many there were."""
    its = console_sessions.c.identity_id.in_(among)
    return connection.execute(sa.delete(console_sessions).where(its)).rowcount


def _to_session(row: sa.Row[Any]) -> Session:
    return Session(row.id, row.identity_id, row.key_id, row.client, row.created_at, row.expires_at)


def record(connection: sa.Connection, at: datetime, actor: str, kind: str, subject: str, body: Json) -> AuditMark:
    """Log a sign-in, an erasure, or a change to a user, group or key; `subject` is what it is about."""
    return audit_chain.append(connection, at, actor, kind, subject, body)


READ = "read"
"""Kind of an entry that tells of a read; its subject is the cube, `*` for all that one may read."""
_READS = "record_reads"


def records_reads(connection: sa.Connection) -> bool:
    return connection.scalar(sa.select(meta.c.value).where(meta.c.key == _READS)) is not None


def set_records_reads(connection: sa.Connection, *, enabled: bool) -> None:
    connection.execute(sa.delete(meta).where(meta.c.key == _READS))
    if enabled:
        connection.execute(sa.insert(meta).values(key=_READS, value="on"))


class AuditPlace(NamedTuple):
    """A place in the audit: entries are ordered by time, cube ("" for the access log), number and id."""

    at: datetime
    cube: str
    number: int
    id: str

    @classmethod
    def read(cls, text: str) -> AuditPlace | None:
        """Return the place of an entry's id, None if it is none."""
        micros, _, rest = text.partition(".")
        number, _, name = rest.partition(".")
        if not (micros.isascii() and micros.isdigit() and number.isascii() and number.isdigit() and name):
            return None
        if len(micros) > _MOST_DIGITS or len(number) > _MOST_DIGITS:
            return None
        at = from_micros(int(micros))
        return cls(at, name, int(number), "") if int(number) else cls(at, "", 0, name)

    @classmethod
    def of(cls, entry: AuditEntry) -> AuditPlace:
        return cls(entry.at, entry.cube or "", entry.number or 0, "" if entry.cube else entry.id)


_MOST_DIGITS = 16


class AuditQuery(NamedTuple):
    """Entries to find: before a place, of these kinds, by this actor; all where None or empty."""

    before: AuditPlace | None
    kinds: tuple[str, ...]
    actor: str | None
    limit: int


def access_entries(
    connection: sa.Connection,
    wanted: AuditQuery,
    about: str | None,
    owned: Collection[str] = (),
    *,
    reads: bool = False,
) -> list[AuditEntry]:
    """Return entries of the access log, newest first; with `about` those by or about this identity.

    Reads of cubes that are `owned` are among them; with `reads` nothing else is.
    """
    log = access_log.c
    query = sa.select(access_log)
    if wanted.before is not None:
        at, cube, _, id_ = wanted.before
        earlier = log.at <= at if cube else sa.or_(log.at < at, sa.and_(log.at == at, log.id < id_))
        query = query.where(log.at <= at, earlier)
    seen = sa.and_(log.kind == READ, log.subject.in_(owned))
    if reads:
        query = query.where(seen)
    elif about is not None:
        query = query.where(sa.or_(log.actor == about, sa.and_(log.subject == about, log.kind != READ), seen))
    rows = connection.execute(_narrowed(query, access_log, wanted).order_by(log.at.desc(), log.id.desc()))
    return [
        AuditEntry(f"{to_micros(row.at)}.0.{row.id}", row.at, row.actor, row.kind, None, None, row.subject, row.body)
        for row in rows
    ]


def count_entries(connection: sa.Connection) -> int:
    """Return the number of entries of the access log."""
    return connection.scalar(sa.select(sa.func.count()).select_from(access_log)) or 0


def cube_entries(connection: sa.Connection, cube: str, wanted: AuditQuery) -> list[AuditEntry]:
    """Return a cube's events, newest first."""
    columns = (events.c.seq, events.c.at, events.c.actor, events.c.kind, events.c.item_id, events.c.body)
    query = sa.select(*columns).where(events.c.cube_id == cube)
    if wanted.before is not None:
        at, other, number, _ = wanted.before
        if cube == other:
            query = query.where(events.c.seq < number)
        else:
            query = query.where(events.c.at <= at if cube < other else events.c.at < at)
    rows = connection.execute(_narrowed(query, events, wanted).order_by(events.c.seq.desc()))
    return [
        AuditEntry(
            f"{to_micros(row.at)}.{row.seq}.{cube}",
            row.at,
            row.actor,
            row.kind,
            cube,
            row.seq,
            row.item_id,
            None if row.body is None else json.loads(row.body),
        )
        for row in rows
    ]


def changed_last(connection: sa.Connection, among: Collection[str] | None, limit: int) -> list[str]:
    """Return the cubes that changed last, the newest change first."""
    heads = cubes.join(events, sa.and_(events.c.cube_id == cubes.c.id, events.c.seq == cubes.c.event_seq))
    query = sa.select(cubes.c.id).select_from(heads).order_by(events.c.at.desc(), cubes.c.id).limit(limit)
    return list(connection.scalars(query if among is None else query.where(cubes.c.id.in_(among))))


def _narrowed(query: sa.Select[Any], table: sa.Table, wanted: AuditQuery) -> sa.Select[Any]:
    if wanted.kinds:
        query = query.where(table.c.kind.in_(wanted.kinds))
    if wanted.actor is not None:
        query = query.where(table.c.actor == wanted.actor)
    return query.limit(wanted.limit)
