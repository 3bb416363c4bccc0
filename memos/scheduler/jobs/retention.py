"""Apply retention rules, erase what has expired and what was deleted long ago, in one transaction per batch.

Idempotent. Each batch is read again within its transaction, to spare items that were pinned, changed or restored
meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import sqlalchemy as sa

from memos.core.identities import Right
from memos.core.retention import RetentionAction, RetentionEffect, RetentionRule
from memos.core.types import Scope
from memos.errors import NotFound
from memos.memcube import changes, erasure
from memos.memcube.changes import Change, Changing
from memos.memcube.ledger import expiry, files, idempotency, items, retention
from memos.memcube.ledger.engine import Ledger
from memos.memcube.ledger.retention import ScanPosition
from memos.scheduler.task import TaskRun

ACTOR = "retention"

# Other writers wait while a batch is processed: 0.3 s on a slow machine.
_BATCH = 200
_SHOWN = 100


@dataclass(frozen=True, slots=True)
class RetentionJob:
    """The periodic job: erase what has expired and what was deleted over `kept_days` ago, then apply all rules."""

    changing: Changing
    kept_days: float

    def run(self, run: TaskRun) -> None:
        run.check_cancelled()
        self._erase_timed_out(run)
        self._erase_expired(run)
        at = run.clock.now()
        idempotency.forget_old(run.ledger, at)
        with run.ledger.read() as connection:
            cubes = retention.cubes_with_rules(connection)
        for done, cube in enumerate(cubes):
            run.check_cancelled(done / len(cubes))
            with suppress(NotFound):  # dropped meanwhile
                for _ in apply_rules(run.ledger, self.changing, Scope(ACTOR, (cube,), right=Right.OWN), at):
                    run.check_cancelled(done / len(cubes))

    def _erase_timed_out(self, run: TaskRun) -> None:
        now = run.clock.now()
        while True:
            with run.ledger.read() as connection:
                found = expiry.expired(connection, now, _BATCH)
            if not found:
                return
            for cube, batch in found.items():
                run.check_cancelled()
                with suppress(NotFound), self.changing(Scope(ACTOR, (cube,), right=Right.OWN)) as change:
                    # Read again: somebody may have given them more time.
                    ids = expiry.expired(change.connection, now, _BATCH, batch).get(cube, [])
                    if ids:
                        receipt = erasure.erase(change, ids)
                        told = {"why": "time to live", "items": len(ids), "receipt": receipt.id}
                        changes.record(change, "expire", told)

    def _erase_expired(self, run: TaskRun) -> None:
        before = run.clock.now() - timedelta(days=self.kept_days)
        with run.ledger.read() as connection:
            found = erasure.expired(connection, before)
        for cube, expired in found.items():
            for batch in items.in_batches(expired):
                run.check_cancelled()
                with suppress(NotFound), self.changing(Scope(ACTOR, (cube,), right=Right.OWN)) as change:
                    # Read again: a rollback may have restored items.
                    ids = erasure.expired(change.connection, before, batch).get(cube)
                    if ids:
                        erasure.erase(change, ids)
        with run.ledger.read() as connection:
            gone = files.expired(connection, before)
        for cube in gone:
            run.check_cancelled()
            with suppress(NotFound), self.changing(Scope(ACTOR, (cube,), right=Right.OWN)) as change:
                if ids := files.expired(change.connection, before).get(cube):
                    erasure.erase(change, [], file_ids=ids)


def apply_rules(ledger: Ledger, changing: Changing, scope: Scope, at: datetime) -> Iterator[RetentionEffect]:
    with ledger.read() as connection:
        rules = retention.of_cube(connection, scope.cubes[0])
    for rule in rules:
        for batch in _batches(ledger, rule, at):
            with changing(scope) as change:
                effect = _apply(change, rule, at, batch)
            if effect is None:
                break
            yield effect


def preview(connection: sa.Connection, cube: str, at: datetime) -> list[RetentionEffect]:
    """Return what `apply_rules` would do; an item that several rules match is counted for the first of them."""
    seen: set[str] = set()
    effects = []
    for rule in retention.of_cube(connection, cube):
        found: list[str] = []
        after: ScanPosition | None = None
        while batch := retention.due(connection, rule, at, after, _BATCH):
            after = batch[-1]
            fresh = [place.id for place in batch if place.id not in seen]
            found += _sparing_pinned(connection, rule, fresh)
        seen.update(found)
        derived = erasure.derived(connection, found) - seen if rule.action is RetentionAction.ERASE else set()
        seen |= derived
        effects.append(RetentionEffect(rule, len(found), tuple(found[:_SHOWN]), len(derived)))
    return effects


def _sparing_pinned(connection: sa.Connection, rule: RetentionRule, ids: list[str]) -> list[str]:
    if rule.action is not RetentionAction.ERASE or not _takes_pinned(connection, ids):
        return ids
    return [id_ for id_ in ids if not _takes_pinned(connection, [id_])]


def _takes_pinned(connection: sa.Connection, ids: Sequence[str]) -> bool:
    return any(retention.any_pinned(connection, batch) for batch in items.in_batches(erasure.derived(connection, ids)))


def merged_effects(effects: Sequence[RetentionEffect]) -> tuple[RetentionEffect, ...]:
    by_rule: dict[str, RetentionEffect] = {}
    for effect in effects:
        one = by_rule.get(effect.rule.id, RetentionEffect(effect.rule, 0, ()))
        shown = (*one.items, *effect.items)[:_SHOWN]
        by_rule[effect.rule.id] = replace(
            one, count=one.count + effect.count, items=shown, derived=one.derived + effect.derived
        )
    return tuple(by_rule.values())


def _batches(ledger: Ledger, rule: RetentionRule, at: datetime) -> Iterator[list[str]]:
    """Yield the ids of a rule's matches in batches, each read in a transaction of its own."""
    after: ScanPosition | None = None
    while True:
        with ledger.read() as connection:
            batch = retention.due(connection, rule, at, after, _BATCH)
        if not batch:
            return
        after = batch[-1]
        yield [place.id for place in batch]


def _apply(change: Change, rule: RetentionRule, at: datetime, batch: Sequence[str]) -> RetentionEffect | None:
    connection, reason = change.connection, f"retention rule {rule.id}"
    if retention.find(connection, rule.id) is None:
        return None
    ids = _sparing_pinned(connection, rule, retention.still_due(connection, rule, at, batch))
    if not ids:
        return RetentionEffect(rule, 0, ())
    derived, told = 0, {"rule": rule.id, "action": rule.action, "items": len(ids)}
    match rule.action:
        case RetentionAction.ARCHIVE:
            changes.archive(change, ids, reason)
        case RetentionAction.DELETE:
            erasure.delete(change, ids, reason)
        case RetentionAction.ERASE:
            receipt = erasure.erase(change, ids)
            told["receipt"] = receipt.id
            derived = len(receipt.item_ids) - len(ids)
    changes.record(change, "retention", told)
    return RetentionEffect(rule, len(ids), tuple(ids[:_SHOWN]), derived)
