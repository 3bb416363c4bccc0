"""What the ledger holds of one person: of a user of the installation, or of somebody who is spoken of."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import sqlalchemy as sa

from memos.memcube.ledger import audit_chain, filter_sql, items
from memos.memcube.ledger import schema as t
from memos.memcube.ledger.columns import is_sealed
from memos.memcube.ledger.entities import PERSON, fold

_V = t.versions.c
_WHO = frozenset({"actor", "created_by", "allowed_by", "excluded_by", "decided_by"})


def selves(connection: sa.Connection, user: str) -> tuple[str, ...]:
    """Return a user and the agents that act for it."""
    query = sa.select(t.identities.c.id).where(t.identities.c.acts_for == user).order_by(t.identities.c.id)
    return (user, *connection.scalars(query))


def cubes_among(connection: sa.Connection, readable: Collection[str] | None) -> list[tuple[str, str]]:
    """Return id and owner of these cubes, or of all, by id."""
    query = sa.select(t.cubes.c.id, t.cubes.c.owner).order_by(t.cubes.c.id)
    rows = connection.execute(query).all()
    return [(row.id, row.owner) for row in rows if readable is None or row.id in readable]


def count_items(connection: sa.Connection, cube: str, others_than: Collection[str] = ()) -> int:
    """Count a cube's memories, or those that others than these added."""
    query = sa.select(sa.func.count()).select_from(t.versions).where(_V.cube_id == cube, _V.version == 1)
    if others_than:
        query = query.where(_V.actor.not_in(others_than))
    return connection.scalar(query) or 0


def added_by(connection: sa.Connection, cube: str, actors: Collection[str]) -> set[str]:
    """Return the memories of a cube that these actors added."""
    query = sa.select(_V.item_id).where(_V.cube_id == cube, _V.version == 1, _V.actor.in_(actors))
    return set(connection.scalars(query))


def files_by(connection: sa.Connection, cube: str, actors: Collection[str]) -> list[str]:
    """Return the files of a cube that these actors added."""
    query = sa.select(t.files.c.id).where(t.files.c.cube_id == cube, t.files.c.actor.in_(actors))
    return list(connection.scalars(query))


def spellings(connection: sa.Connection, cube: str, name: str) -> set[str]:
    """Return the folded forms of a name in a cube: its own, and those that were merged with it."""
    a = t.entity_aliases.c
    own = fold(name)
    roots = set(connection.scalars(sa.select(a.root).where(a.cube_id == cube, a.name == own))) | {own}
    same = connection.scalars(sa.select(a.name).where(a.cube_id == cube, a.root.in_(roots)))
    return {*roots, *same}


def about(connection: sa.Connection, cube: str, names: Collection[str]) -> set[str]:
    """Return the memories that somebody with one of these folded names said, or that state something of them."""
    m = t.mentions.c
    found = set(
        connection.scalars(sa.select(m.item_id).where(m.cube_id == cube, m.name.in_(names), m.part.in_(PERSON)))
    )
    dialect = filter_sql.of(connection, [cube])
    for name in names:
        near = sa.or_(dialect.has_folded(_V.speaker, name), dialect.has_folded(sa.func.coalesce(_V.key, ""), name))
        rows = connection.execute(sa.select(_V.item_id, _V.speaker, _V.key).where(_V.cube_id == cube, near))
        found.update(
            row.item_id for row in rows if name in (fold(row.speaker), fold((row.key or "").partition("|")[0]))
        )
    return found


def mentioning(connection: sa.Connection, cube: str, names: Collection[str]) -> set[str]:
    """Return the memories any version of which has one of these folded names in it, as a whole word."""
    m, dialect = t.mentions.c, filter_sql.of(connection, [cube])
    found = set(connection.scalars(sa.select(m.item_id).where(m.cube_id == cube, m.name.in_(names))))
    plain = (_V.memory, sa.func.coalesce(_V.value, ""), _V.speaker, sa.func.coalesce(_V.key, ""))
    is_read_whole = is_sealed(connection)
    lists = tuple(sa.cast(column, sa.Text) for column in (_V.tags, _V.info, _V.entities))
    talks = sa.select(t.items.c.id, t.conversations.c.name).join(t.conversations)
    for name in names:
        whole, written = _as_word(name), json.dumps(name)[1:-1]
        near = [dialect.has_folded(column, name) for column in plain]
        near += [dialect.has_folded(column, written) for column in lists]
        query = sa.select(_V.item_id, *plain, _V.tags, _V.info, _V.entities).where(_V.cube_id == cube)
        rows = connection.execute(query if is_read_whole else query.where(sa.or_(*near)))
        found.update(row[0] for row in rows if _has(whole, row[1:]))
        held = talks.where(t.conversations.c.cube_id == cube, dialect.has_folded(t.conversations.c.name, name))
        found.update(row.id for row in connection.execute(held) if _has(whole, [row.name]))
    return found


def _has(whole: re.Pattern[str], values: Iterable[Any]) -> bool:
    texts = (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for value in values)
    return any(whole.search(" ".join(text.casefold().split())) for text in texts)


def _as_word(name: str) -> re.Pattern[str]:
    """Return the pattern of a folded name; between letters of scripts without spaces, it is a word anywhere."""
    before = "" if _is_wide(name[0]) else r"(?<!\w)"
    after = "" if _is_wide(name[-1]) else r"(?!\w)"
    return re.compile(before + re.escape(name) + after)


def _is_wide(sign: str) -> bool:
    return unicodedata.east_asian_width(sign) in "WF"


# Accounts


def account(connection: sa.Connection, names: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """Return what is held of these identities themselves, by table, without secrets."""
    log = t.access_log.c
    wanted: tuple[tuple[sa.Table, sa.ColumnElement[bool], frozenset[str]], ...] = (
        (t.identities, t.identities.c.id.in_(names), frozenset()),
        (t.memberships, t.memberships.c.member_id.in_(names), frozenset()),
        (t.grants, t.grants.c.identity_id.in_(names), frozenset()),
        (t.api_keys, t.api_keys.c.identity_id.in_(names), frozenset({"digest"})),
        (t.console_sessions, t.console_sessions.c.identity_id.in_(names), frozenset({"digest"})),
        (t.repeats, t.repeats.c.identity_id.in_(names), frozenset({"digest", "salt"})),
        (t.submissions, t.submissions.c.caller.in_(names), frozenset({"digest", "answer"})),
        (t.access_log, sa.or_(log.actor.in_(names), log.subject.in_(names)), frozenset({"salt", "digest", "chain"})),
    )
    return {
        table.name: [
            {key: value for key, value in row._asdict().items() if key not in secret}
            for row in connection.execute(sa.select(table).where(where).order_by(*table.primary_key))
        ]
        for table, where, secret in wanted
    }


def forget_account(connection: sa.Connection, names: Sequence[str], cubes: Collection[str], instead: str) -> None:
    """Remove keys, sessions, roles and memberships of identities, and write another name wherever theirs is.

    The rows of the identities stay under that name, disabled: without any identity an installation is open to all.
    `cubes` were theirs and are gone.
    """
    k, told = t.api_keys.c, [*names, *cubes]
    keys = list(connection.scalars(sa.select(k.id).where(k.identity_id.in_(names))))
    for batch in items.in_batches(keys):
        connection.execute(sa.delete(t.key_usage).where(t.key_usage.c.key_id.in_(batch)))
        connection.execute(sa.update(t.api_keys).where(k.counts_for.in_(batch)).values(counts_for=None))
    for column in (
        k.identity_id,
        t.console_sessions.c.identity_id,
        t.memberships.c.member_id,
        t.memberships.c.group_id,
        t.grants.c.identity_id,
        t.repeats.c.identity_id,
        t.repeats.c.cube_id,
        t.submissions.c.caller,
    ):
        connection.execute(sa.delete(column.table).where(column.in_(told)))
    for row in connection.execute(sa.select(t.submissions.c.id, t.submissions.c.cubes)).all():
        if not set(cubes).isdisjoint(row.cubes):
            connection.execute(sa.delete(t.submissions).where(t.submissions.c.id == row.id))
    for name in names:
        # Events of cubes that stay: roles that were given to them, or taken.
        named = t.events.c.body.contains(json.dumps(name, ensure_ascii=False), autoescape=True)
        connection.execute(sa.update(t.events).where(named).values(body=None, salt=None))
    for table in t.metadata.sorted_tables:
        for column in table.columns:
            if column.name in _WHO and table is not t.access_log:
                connection.execute(sa.update(table).where(column.in_(names)).values({column.name: instead}))
    for number, name in enumerate(names):
        blank = {"name": "", "home": None, "acts_for": None, "admin": False, "disabled": True}
        to = instead if number == 0 else f"{instead}-{number + 1}"
        connection.execute(sa.update(t.identities).where(t.identities.c.id == name).values(id=to, **blank))
    audit_chain.forget(connection, told, instead)


def rename_tombstones(connection: sa.Connection, receipts: Sequence[str], instead: str) -> None:
    """Write another name for the cubes of these receipts, unless a backup needs theirs to leave them out."""
    held = sa.select(t.tombstone_backups.c.tombstone_id)
    for batch in items.in_batches(receipts):
        mine = t.tombstones.c.id.in_(batch), t.tombstones.c.id.not_in(held)
        connection.execute(sa.update(t.tombstones).where(*mine).values(cube_id=instead))


# What an archive shows


def versions_of(connection: sa.Connection, ids: Collection[str]) -> dict[str, list[dict[str, Any]]]:
    """Return every version of these memories, the oldest first."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in items.rows_in(connection, sa.select(t.versions), _V.item_id, ids):
        found.setdefault(row.item_id, []).append(row._asdict())
    for rows in found.values():
        rows.sort(key=lambda row: row["version"])
    return found


def messages_of(connection: sa.Connection, ids: Collection[str]) -> dict[str, list[dict[str, Any]]]:
    """Return the messages that these memories were made of, with the conversation of each."""
    s = t.sources.c
    joined = t.sources.join(t.messages, t.messages.c.id == s.message_id).outerjoin(
        t.conversations, t.conversations.c.id == t.messages.c.conversation_id
    )
    query = sa.select(s.item_id, t.messages, t.conversations.c.name.label("conversation")).select_from(joined)
    found: dict[str, list[dict[str, Any]]] = {}
    for row in items.rows_in(connection, query, s.item_id, ids):
        told = row._asdict()
        found.setdefault(told.pop("item_id"), []).append(told)
    return found


def in_cube(connection: sa.Connection, table: sa.Table, cube: str, *secret: str) -> list[dict[str, Any]]:
    """Return the rows of a table about a cube, without some columns."""
    columns = [column for column in table.columns if column.name not in secret]
    where = (table.c.id if table is t.cubes else table.c.cube_id) == cube
    rows = connection.execute(sa.select(*columns).where(where).order_by(*table.primary_key))
    return [row._asdict() for row in rows]
