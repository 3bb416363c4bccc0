"""The registry of LoRA adapters: their training sets, their states, and which one may answer.

Whether an adapter is stale is computed from its memories when it is needed; nothing marks adapters when a memory is
changed or erased. Functions take an open write transaction unless they only read; changes lock the cube first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

import sqlalchemy as sa

from memos.core.clock import new_id
from memos.core.types import Json, Status
from memos.errors import Conflict, InvalidInput, NotFound
from memos.memcube.ledger import cubes, items, queues
from memos.memcube.ledger.schema import adapter_consents as consents
from memos.memcube.ledger.schema import adapter_exclusions as exclusions
from memos.memcube.ledger.schema import adapter_items as seen_items
from memos.memcube.ledger.schema import adapters as t
from memos.memcube.ledger.schema import fields_of, row_of, versions
from memos.memcube.ledger.tasks import NewTask


def exclude(connection: sa.Connection, cube: str, ids: Sequence[str], by: str, now: datetime) -> list[str]:
    """Exclude memories of a cube from training; return those that were not excluded before."""
    known = among(connection, ids)
    new = [id_ for id_ in dict.fromkeys(ids) if id_ not in known]
    rows = [{"item_id": id_, "cube_id": cube, "excluded_by": by, "excluded_at": now} for id_ in new]
    if rows:
        connection.execute(sa.insert(exclusions), rows)
    return new


def include(connection: sa.Connection, cube: str, ids: Collection[str]) -> list[str]:
    found = sorted(among(connection, ids))
    for batch in items.in_batches(found):
        connection.execute(sa.delete(exclusions).where(exclusions.c.cube_id == cube, exclusions.c.item_id.in_(batch)))
    return found


def excluded(connection: sa.Connection, cube: str) -> frozenset[str]:
    return frozenset(connection.scalars(sa.select(exclusions.c.item_id).where(exclusions.c.cube_id == cube)))


def among(connection: sa.Connection, ids: Collection[str]) -> set[str]:
    return set(items.scalars_in(connection, sa.select(exclusions.c.item_id), exclusions.c.item_id, ids))


LEARN = "learn"
"""Kind of the task that trains an adapter of a cube."""
ARRIVED = "arrived"
"""Key in the measures of an adapter that was imported."""
OF_NIGHT = "night"
"""Key in the payload of a task that was planned automatically and only runs at night."""


class AdapterState(StrEnum):
    TRAINING = "training"
    REFUSED = "refused"
    """It failed its evaluation."""
    READY = "ready"
    """It passed its evaluation and may be activated."""
    ACTIVE = "active"
    RETIRED = "retired"
    """Another adapter was activated in its place."""


TRAINED = frozenset({AdapterState.READY, AdapterState.ACTIVE, AdapterState.RETIRED})
"""The states of adapters that passed their evaluation and have weights."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A memory an adapter was trained on; `digest` is the SHA-256 of its text, in hex."""

    item: str
    version: int
    digest: str


@dataclass(frozen=True, slots=True)
class NewAdapter:
    """`base` and `data_hash` are SHA-256 digests of base model and training set; `parent` was active before."""

    cube: str
    model: str
    base: str
    recipe: Mapping[str, Json]
    data_hash: str
    parent: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a training; `digest` is the SHA-256 of the weights file, `reason` contains no memory text."""

    state: AdapterState
    measures: Mapping[str, Json]
    digest: str | None = None
    size_bytes: int | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class AdapterRow:
    """An adapter; `number` counts those of its cube from 1. `shard` is "" except for those of version 0.1."""

    id: str
    cube: str
    shard: str
    number: int
    state: AdapterState
    model: str
    base: str
    recipe: Mapping[str, Json]
    data_hash: str
    measures: Mapping[str, Json] | None
    reason: str | None
    digest: str | None
    size_bytes: int | None
    parent: str | None
    created_at: datetime
    finished_at: datetime | None

    @property
    def failed_here(self) -> bool:
        return self.state is AdapterState.REFUSED and not (self.measures or {}).get(ARRIVED)


def learn_task(payload: Mapping[str, Json] | None = None) -> NewTask:
    return NewTask(LEARN, payload or {}, key="")


def allow(connection: sa.Connection, cube: str, by: str, now: datetime) -> None:
    if not cubes.exists(connection, cube):
        raise cubes.unknown(cube)
    queues.insert_new(connection, consents, {"cube_id": cube, "allowed_by": by, "allowed_at": now})


def disallow(connection: sa.Connection, cube: str) -> None:
    """Withdraw the consent: no adapter of the cube answers any more."""
    connection.execute(sa.delete(consents).where(consents.c.cube_id == cube))


def is_allowed(connection: sa.Connection, cube: str) -> bool:
    return connection.scalar(sa.select(consents.c.cube_id).where(consents.c.cube_id == cube)) is not None


def allowed(connection: sa.Connection) -> list[str]:
    return list(connection.scalars(sa.select(consents.c.cube_id).order_by(consents.c.cube_id)))


def begin(
    connection: sa.Connection, new: NewAdapter, seen: Sequence[Seen], now: datetime, *, arrived: bool = False
) -> AdapterRow:
    """Register a training and its memories, before anything is written to files.

    An erasure finds the files to remove by these rows, so the memories must be unchanged since they were read. An
    adapter that `arrived` was trained elsewhere and needs no consent until it is activated.
    """
    if not seen:
        raise InvalidInput("seen", "must not be empty; an adapter is trained on at least one memory")
    cubes.lock(connection, new.cube)
    if not arrived and not is_allowed(connection, new.cube):
        raise Conflict(f"The owner of cube {new.cube!r} has not allowed training on its memories.")
    check_current(connection, new.cube, seen)
    highest = sa.select(sa.func.max(t.c.number)).where(t.c.cube_id == new.cube)
    id_, number = new_id(), (connection.scalar(highest) or 0) + 1
    made_of = {"model": new.model, "base": new.base, "recipe": dict(new.recipe), "data_hash": new.data_hash}
    values = {"id": id_, "cube_id": new.cube, "shard": "", "number": number, "state": AdapterState.TRAINING, **made_of}
    connection.execute(sa.insert(t).values(**values, parent=new.parent, created_at=now))
    rows = [row_of(seen_items, each, adapter_id=id_) for each in {each.item: each for each in seen}.values()]
    connection.execute(sa.insert(seen_items), rows)
    return _require(connection, id_)


def finish(connection: sa.Connection, id_: str, outcome: Outcome, now: datetime) -> AdapterRow:
    if outcome.state not in (AdapterState.READY, AdapterState.REFUSED):
        raise InvalidInput("state", f"must be ready or refused at the end of a training, not {outcome.state}")
    if outcome.state is AdapterState.READY and outcome.digest is None:
        raise InvalidInput("digest", "is required for an adapter that is ready")
    told = {"state": outcome.state, "measures": dict(outcome.measures), "reason": outcome.reason, "finished_at": now}
    training = sa.update(t).where(t.c.id == id_, t.c.state == AdapterState.TRAINING)
    ended = training.values(**told, digest=outcome.digest, size_bytes=outcome.size_bytes)
    changed = connection.execute(ended).rowcount
    row = _require(connection, id_)
    if not changed:
        raise Conflict(f"Adapter {id_} is {row.state}, not in training.")
    return row


def activate(connection: sa.Connection, id_: str) -> AdapterRow:
    """Activate an adapter, and retire the active one. Raises: NotFound, Conflict (not trained, refused, or stale)."""
    cubes.lock(connection, _require(connection, id_).cube)
    row = _require(connection, id_)  # read again under the lock
    if row.state not in TRAINED:
        raise Conflict(f"Adapter {id_} is {row.state}: only an adapter that passed its evaluation can be activated.")
    if connection.scalar(sa.select(t.c.id).where(t.c.id == id_, _changed())) is not None:
        raise Conflict(f"Adapter {id_} was trained on memories that were changed or removed since; train again.")
    same = sa.update(t).where(t.c.cube_id == row.cube)
    # First, since a constraint allows one active adapter. Version 0.1 may have left one per shard.
    former = same.where(t.c.state == AdapterState.ACTIVE, t.c.id != id_)
    connection.execute(former.values(state=AdapterState.RETIRED))
    connection.execute(same.where(t.c.id == id_).values(state=AdapterState.ACTIVE))
    return _require(connection, id_)


def of(connection: sa.Connection, cube: str) -> list[AdapterRow]:
    query = sa.select(t).where(t.c.cube_id == cube).order_by(t.c.created_at.desc(), t.c.id.desc())
    return [_to_row(row) for row in connection.execute(query)]


def get(connection: sa.Connection, id_: str) -> AdapterRow | None:
    row = connection.execute(sa.select(t).where(t.c.id == id_)).one_or_none()
    return None if row is None else _to_row(row)


def seen(connection: sa.Connection, id_: str) -> list[Seen]:
    query = sa.select(seen_items.c.item_id, seen_items.c.version, seen_items.c.digest)
    return [Seen(*row) for row in connection.execute(query.where(seen_items.c.adapter_id == id_).order_by("item_id"))]


def that_saw(connection: sa.Connection, cube: str, ids: Collection[str]) -> list[str]:
    query = sa.select(t.c.id).join(seen_items, seen_items.c.adapter_id == t.c.id).where(t.c.cube_id == cube)
    return sorted(set(items.scalars_in(connection, query, seen_items.c.item_id, ids)))


def trained(connection: sa.Connection) -> list[AdapterRow]:
    query = sa.select(t).where(t.c.state.in_(sorted(TRAINED))).order_by(t.c.id)
    return [_to_row(row) for row in connection.execute(query)]


def known(connection: sa.Connection, ids: Collection[str]) -> set[str]:
    query = sa.select(t.c.id).where(t.c.state != AdapterState.REFUSED)
    return set(items.scalars_in(connection, query, t.c.id, ids))


def active(connection: sa.Connection, cube: str) -> str | None:
    query = sa.select(t.c.id).where(t.c.cube_id == cube, t.c.state == AdapterState.ACTIVE)
    return connection.scalar(query.order_by(t.c.created_at.desc(), t.c.id.desc()).limit(1))


def serving(connection: sa.Connection, cube: str, base: str) -> AdapterRow | None:
    """Return a cube's adapter for this base model that may answer: active, with consent, and not stale."""
    allowed = sa.exists(sa.select(consents.c.cube_id).where(consents.c.cube_id == t.c.cube_id).correlate(t))
    query = (
        sa.select(t)
        .where(t.c.cube_id == cube, t.c.base == base, t.c.state == AdapterState.ACTIVE, allowed, ~_changed())
        .order_by(t.c.created_at.desc(), t.c.id.desc())
    )
    row = connection.execute(query.limit(1)).one_or_none()
    return None if row is None else _to_row(row)


def stale(connection: sa.Connection, cube: str) -> list[AdapterRow]:
    return [row for row in outdated(connection, [cube]) if row.state in TRAINED]


def outdated(connection: sa.Connection, cube_ids: Collection[str] | None = None) -> list[AdapterRow]:
    """Return stale adapters in any state, of all cubes or some; files of trainings contain memory text too."""
    query = sa.select(t).where(_changed()).order_by(t.c.cube_id, t.c.id)
    if cube_ids is not None:
        query = query.where(t.c.cube_id.in_(sorted(cube_ids)))
    return [_to_row(row) for row in connection.execute(query)]


def remove(connection: sa.Connection, id_: str) -> None:
    connection.execute(sa.delete(seen_items).where(seen_items.c.adapter_id == id_))
    connection.execute(sa.delete(t).where(t.c.id == id_))


def remove_cube(connection: sa.Connection, cube: str) -> None:
    of_cube = sa.select(t.c.id).where(t.c.cube_id == cube)
    connection.execute(sa.delete(seen_items).where(seen_items.c.adapter_id.in_(of_cube)))
    connection.execute(sa.delete(t).where(t.c.cube_id == cube))
    connection.execute(sa.delete(exclusions).where(exclusions.c.cube_id == cube))
    disallow(connection, cube)


def _changed() -> sa.ColumnElement[bool]:
    """Return the condition that a memory of the training set is changed, inactive, moved, removed or excluded."""
    different = sa.select(seen_items.c.item_id).where(seen_items.c.adapter_id == t.c.id, ~sa.exists(_unchanged()))
    return sa.exists(different.correlate(t))


def _unchanged() -> sa.Select[Any]:
    excluded = sa.select(exclusions.c.item_id).where(exclusions.c.item_id == seen_items.c.item_id)
    return (
        sa.select(versions.c.id)
        .where(versions.c.item_id == seen_items.c.item_id, versions.c.version == seen_items.c.version)
        .where(versions.c.cube_id == t.c.cube_id)
        .where(versions.c.recorded_to.is_(None), versions.c.status == Status.ACTIVE)
        .where(~sa.exists(excluded.correlate(seen_items)))
        .correlate(seen_items, t)
    )


def check_current(connection: sa.Connection, cube: str, seen: Sequence[Seen]) -> None:
    """Check that memories are unchanged and not excluded. Raises: Conflict."""
    ids = [each.item for each in seen]
    query = sa.select(versions.c.item_id, versions.c.version).where(versions.c.cube_id == cube)
    query = query.where(versions.c.recorded_to.is_(None), versions.c.status == Status.ACTIVE)
    now = {row.item_id: row.version for row in items.rows_in(connection, query, versions.c.item_id, ids)}
    for item in among(connection, ids):
        now.pop(item, None)
    if changed := sum(now.get(each.item) != each.version for each in seen):
        raise Conflict(f"{changed} of the memories to train on were changed or removed meanwhile; train again.")


def _require(connection: sa.Connection, id_: str) -> AdapterRow:
    row = get(connection, id_)
    if row is None:
        raise NotFound("adapter", id_, "It may have been removed with a memory it was trained on.")
    return row


def _to_row(row: sa.Row[Any]) -> AdapterRow:
    return AdapterRow(**fields_of(row) | {"state": AdapterState(row.state)})
