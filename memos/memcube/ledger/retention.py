"""Rows of retention rules, and the items that a rule matches at a given time."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import sqlalchemy as sa

from memos.core.filters import Condition, Op
from memos.core.retention import RetentionAction, RetentionRule
from memos.core.types import ItemType, LinkKind, Status
from memos.errors import NotFound
from memos.memcube.ledger import filter_sql
from memos.memcube.ledger.filter_sql import compile_sql
from memos.memcube.ledger.schema import fields_of, items, links, retention_rules, row_of, versions

MAX_AGE_DAYS = 36_500
"""A hundred years; larger values in a damaged row are capped."""

TOUCHED = {
    RetentionAction.ARCHIVE: frozenset({Status.ACTIVE}),
    RetentionAction.DELETE: frozenset(Status) - {Status.DELETED},
    RetentionAction.ERASE: frozenset(Status),
}
"""Statuses that an action applies to; its result is not among them, so that a rule matches an item only once."""

_STRENGTH = list(RetentionAction)


REMEDY = "List rules with `memos cube retention list`."


class ScanPosition(NamedTuple):
    created_at: datetime
    id: str


def add(connection: sa.Connection, rule: RetentionRule) -> None:
    lists = {name: list(getattr(rule, name)) for name in ("types", "tags", "statuses")}
    connection.execute(sa.insert(retention_rules).values(row_of(retention_rules, rule, **lists)))


def of_cube(connection: sa.Connection, cube: str) -> list[RetentionRule]:
    """Return a cube's rules, the strongest action first; the first rule that matches an item applies."""
    rows = connection.execute(sa.select(retention_rules).where(retention_rules.c.cube_id == cube))
    return sorted(map(_to_rule, rows), key=lambda rule: (-_STRENGTH.index(rule.action), rule.created_at, rule.id))


def find(connection: sa.Connection, rule_id: str) -> RetentionRule | None:
    row = connection.execute(sa.select(retention_rules).where(retention_rules.c.id == rule_id)).one_or_none()
    return None if row is None else _to_rule(row)


def require(connection: sa.Connection, rule_id: str) -> RetentionRule:
    rule = find(connection, rule_id)
    if rule is None:
        raise NotFound("retention rule", rule_id, REMEDY)
    return rule


def remove(connection: sa.Connection, rule_id: str) -> None:
    connection.execute(sa.delete(retention_rules).where(retention_rules.c.id == rule_id))


def cubes_with_rules(connection: sa.Connection) -> list[str]:
    cube = retention_rules.c.cube_id
    return list(connection.scalars(sa.select(cube).distinct().order_by(cube)))


def due(
    connection: sa.Connection, rule: RetentionRule, at: datetime, after: ScanPosition | None, limit: int
) -> list[ScanPosition]:
    query = _matching(connection, rule, at).order_by(items.c.created_at, items.c.id).limit(limit)
    if after is not None:
        last = (sa.literal(after.created_at, items.c.created_at.type), sa.literal(after.id))
        query = query.where(sa.tuple_(items.c.created_at, items.c.id) > sa.tuple_(*last))
    return [ScanPosition(row.created_at, row.id) for row in connection.execute(query)]


def still_due(connection: sa.Connection, rule: RetentionRule, at: datetime, ids: Sequence[str]) -> list[str]:
    return list(connection.scalars(_matching(connection, rule, at).where(items.c.id.in_(ids))))


def any_pinned(connection: sa.Connection, ids: Collection[str]) -> bool:
    query = sa.select(items.c.id).where(items.c.id.in_(ids), items.c.pinned.is_(True)).limit(1)
    return connection.scalar(query) is not None


def _matching(connection: sa.Connection, rule: RetentionRule, at: datetime) -> sa.Select[Any]:
    statuses = TOUCHED[rule.action].intersection(rule.statuses or Status)
    age = timedelta(days=min(rule.age_days, MAX_AGE_DAYS))
    query = (
        sa.select(items.c.id, items.c.created_at)
        .join(versions, versions.c.item_id == items.c.id)
        .where(items.c.cube_id == rule.cube, items.c.created_at <= at - age, items.c.pinned.is_(False))
        .where(versions.c.recorded_to.is_(None), versions.c.status.in_(sorted(statuses)))
    )
    if rule.types:
        query = query.where(versions.c.type.in_(rule.types))
    if rule.tags:
        query = query.where(compile_sql(Condition("tags", Op.IN, rule.tags), filter_sql.of(connection, [rule.cube])))
    return query.where(_holds_no_pinned_one())


def _holds_no_pinned_one() -> sa.ColumnElement[bool]:
    """Return the condition that no pinned item is derived from this one, since it would be erased with it."""
    kind, further = links.c.kind == LinkKind.DERIVED_FROM, links.alias("further")
    first = sa.select(links.c.from_id).where(links.c.to_id == items.c.id, kind).correlate(items)
    made = first.cte("made", recursive=True, nesting=True)
    more = sa.select(further.c.from_id).join(made, further.c.to_id == made.c.from_id)
    made = made.union(more.where(further.c.kind == LinkKind.DERIVED_FROM))
    held = items.alias("held")
    found = sa.select(sa.literal(1)).select_from(made.join(held, held.c.id == made.c.from_id))
    return sa.not_(found.where(held.c.pinned.is_(True)).exists())


def _to_rule(row: Any) -> RetentionRule:
    lists = {"types": tuple(map(ItemType, row.types)), "statuses": tuple(map(Status, row.statuses))}
    return RetentionRule(**fields_of(row) | lists | {"action": RetentionAction(row.action), "tags": tuple(row.tags)})
