"""The outbox: items that an index must project again; rows are removed once the index has flushed durably."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from memos.memcube.ledger.items import in_batches
from memos.memcube.ledger.postgres import lock_items
from memos.memcube.ledger.schema import meta, outbox

Target = Literal["vector", "graph"]

_GRAPH = "mark:follows-graph"


@dataclass(frozen=True, slots=True)
class OutboxRow:
    id: int
    cube: str
    item: str
    attempts: int


def targets(connection: sa.Connection) -> tuple[Target, ...]:
    """Return the indexes of this ledger; on PostgreSQL this cannot change before the transaction ends."""
    query = _FOLLOWS_GRAPH if connection.dialect.name == "sqlite" else _FOLLOWS_GRAPH.with_for_update(read=True)
    return ("vector", "graph") if connection.scalar(query) == "yes" else ("vector",)


def follow_graph(connection: sa.Connection) -> None:
    """Queue changes for the graph index too; if that was off, the whole index is compared at the next opening."""
    if _set_follows_graph(connection, "yes"):
        # A random mark differs from that in the index, which is then treated as one that lost writes.
        set_mark(connection, "graph", secrets.randbelow(2**48))


def leave_graph(connection: sa.Connection) -> None:
    """Stop queueing changes for a graph index, and drop pending ones."""
    _set_follows_graph(connection, "no")
    connection.execute(sa.delete(outbox).where(outbox.c.target == "graph"))


def _set_follows_graph(connection: sa.Connection, value: str) -> bool:
    insert = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    connection.execute(insert(meta).values(key=_GRAPH, value="").on_conflict_do_nothing())
    if connection.scalar(_FOLLOWS_GRAPH.with_for_update()) == value:
        return False
    connection.execute(sa.update(meta).where(meta.c.key == _GRAPH).values(value=value))
    return True


_FOLLOWS_GRAPH = sa.select(meta.c.value).where(meta.c.key == _GRAPH)


def enqueue(
    connection: sa.Connection, cube: str, item_ids: Iterable[str], only: Sequence[Target] | None = None
) -> None:
    ids = list(item_ids)
    if not ids:
        return
    indexes = targets(connection) if only is None else only
    rows = [{"target": target, "cube_id": cube, "item_id": item} for target in indexes for item in ids]
    connection.execute(sa.insert(outbox), rows)


def rows_after(
    connection: sa.Connection, target: Target, after: int, limit: int, seen: Sequence[int] = ()
) -> list[OutboxRow]:
    asked = {"target": target, "after": after, "most": limit}
    query = _ROWS_AFTER.where(outbox.c.id.not_in(seen)) if seen else _ROWS_AFTER
    return [OutboxRow(*row) for row in connection.execute(query, asked)]


def is_behind(connection: sa.Connection, target: Target, after: int, rows: int, seen: Sequence[int] = ()) -> bool:
    query = _ROWS_AFTER.where(outbox.c.id.not_in(seen)) if seen else _ROWS_AFTER
    asked = {"target": target, "after": after, "most": 1, "before": rows - 1}
    return connection.execute(query.offset(sa.bindparam("before")), asked).first() is not None


def claim(connection: sa.Connection, target: Target, limit: int, tried: Collection[int]) -> list[OutboxRow]:
    """Lock unparked rows that nobody else has claimed, without those just `tried`. PostgreSQL only.

    Rows of an item that another transaction writes are skipped: two writers could leave the older state in the index.
    """
    query = _waiting(target).order_by(outbox.c.id).limit(limit).with_for_update(skip_locked=True)
    if tried:
        query = query.where(outbox.c.id.not_in(tried))
    rows = [OutboxRow(*row) for row in connection.execute(query)]
    mine = lock_items(connection, target, list({row.item for row in rows}))
    return [row for row in rows if row.item in mine]


def newest(connection: sa.Connection, target: Target) -> int | None:
    waiting = (outbox.c.target == target, outbox.c.parked == sa.false())
    last: int | None = connection.scalar(sa.select(sa.func.max(outbox.c.id)).where(*waiting))
    return last


def any_up_to(connection: sa.Connection, target: Target, last: int) -> bool:
    return connection.scalar(_waiting(target).where(outbox.c.id <= last).limit(1)) is not None


def _waiting(target: Target) -> sa.Select[Any]:
    return _ROWS.where(outbox.c.target == target, outbox.c.parked == sa.false())


_ROWS = sa.select(outbox.c.id, outbox.c.cube_id, outbox.c.item_id, outbox.c.attempts)
_AFTER = (outbox.c.target == sa.bindparam("target"), outbox.c.id > sa.bindparam("after"))
# Built once: every add runs the first, every search the second.
_ROWS_AFTER = _ROWS.where(*_AFTER, outbox.c.parked == sa.false()).order_by(outbox.c.id).limit(sa.bindparam("most"))
_ITEMS_AFTER = (
    sa.select(outbox.c.item_id)
    .where(*_AFTER, outbox.c.cube_id.in_(sa.bindparam("cubes", expanding=True)))
    .order_by(outbox.c.id.desc())
    .limit(sa.bindparam("most"))
)

_EACH_ITEM_AFTER = _ITEMS_AFTER.order_by(None).group_by(outbox.c.item_id).order_by(sa.func.max(outbox.c.id).desc())


def items_after(
    connection: sa.Connection, target: Target, cubes: Sequence[str], after: int, limit: int, seen: Sequence[int] = ()
) -> list[str]:
    asked = {"target": target, "cubes": list(cubes), "after": after, "most": limit}

    def unseen(query: sa.Select[tuple[str]]) -> list[str]:
        return list(connection.scalars(query.where(outbox.c.id.not_in(seen)) if seen else query, asked))

    rows = unseen(_ITEMS_AFTER)
    found = list(dict.fromkeys(rows))
    # Many changes of few items filled the limit; grouping by item reads all rows, so it is only done then.
    return found if len(rows) < limit or len(found) == limit else unseen(_EACH_ITEM_AFTER)


def remove(connection: sa.Connection, row_ids: Collection[int]) -> None:
    ids = list(row_ids)
    for start in range(0, len(ids), 500):
        connection.execute(sa.delete(outbox).where(outbox.c.id.in_(ids[start : start + 500])))


def remove_items(connection: sa.Connection, item_ids: Iterable[str]) -> None:
    for batch in in_batches(item_ids):
        connection.execute(sa.delete(outbox).where(outbox.c.item_id.in_(batch)))


def count_failure(connection: sa.Connection, row: OutboxRow, error: str, park_after: int) -> None:
    """Count a failure; a row that keeps failing is parked, so that it does not block the others."""
    attempts = row.attempts + 1
    failed = {"attempts": attempts, "error": error[:500], "parked": attempts >= park_after}
    connection.execute(sa.update(outbox).where(outbox.c.id == row.id).values(failed))


def retry_parked(connection: sa.Connection, target: Target) -> None:
    parked_here = (outbox.c.target == target, outbox.c.parked == sa.true())
    connection.execute(sa.update(outbox).where(*parked_here).values(parked=False, attempts=0))


@dataclass(frozen=True, slots=True)
class ParkedRow:
    target: str
    cube: str
    item: str
    error: str


def parked_rows(connection: sa.Connection) -> list[ParkedRow]:
    query = sa.select(outbox).where(outbox.c.parked == sa.true()).order_by(outbox.c.id)
    return [ParkedRow(row.target, row.cube_id, row.item_id, row.error or "") for row in connection.execute(query)]


def count(connection: sa.Connection, target: Target, after: int = 0) -> int:
    return connection.scalar(sa.select(sa.func.count()).where(outbox.c.target == target, outbox.c.id > after)) or 0


def mark(connection: sa.Connection, target: Target) -> int:
    value = connection.scalar(sa.select(meta.c.value).where(meta.c.key == f"mark:{target}"))
    return int(value) if value is not None else 0


def next_mark(connection: sa.Connection, target: Target) -> int:
    """Reserve the mark of the next flush for this transaction. PostgreSQL only."""
    key = f"mark:{target}"
    connection.execute(postgresql.insert(meta).values(key=key, value="0").on_conflict_do_nothing())
    return int(connection.execute(sa.select(meta.c.value).where(meta.c.key == key).with_for_update()).scalar_one()) + 1


def set_mark(connection: sa.Connection, target: Target, value: int) -> None:
    key = f"mark:{target}"
    changed = connection.execute(sa.update(meta).where(meta.c.key == key).values(value=str(value)))
    if changed.rowcount == 0:
        connection.execute(sa.insert(meta).values(key=key, value=str(value)))
