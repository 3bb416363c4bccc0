"""Whether memories still hold: by their status, the end of their validity, and the statements that replaced them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import sqlalchemy as sa

from memos.core.clock import from_micros, to_micros
from memos.core.types import DERIVED, REPLACING, TOLD, Item, ItemType, Standing, Status
from memos.memcube.ledger import items, relations
from memos.memcube.ledger.timeline import LIKELY, SURE


class Replacement(NamedTuple):
    """Two items of which the newer one, said at `at` (microseconds), replaces the older with a confidence."""

    older: str
    newer: str
    confidence: float
    at: int | None = None


class Stand(NamedTuple):
    """How a memory stands, what replaced it, and since when it stands so."""

    standing: Standing
    replaced_by: str | None = None
    since: datetime | None = None


def standing_of(item: Item, replacements: Sequence[Replacement], now: datetime) -> Stand:
    """Return whether an item holds, by the replacements of which it is the older one."""
    if item.status is Status.SUPERSEDED:
        return Stand(Standing.REPLACED, item.superseded_by, item.valid_to)
    if item.type not in TOLD and item.valid_to is not None and item.valid_to <= now:
        return Stand(Standing.ENDED, None, item.valid_to)
    mine = [each for each in replacements if each.older == item.id and each.confidence >= LIKELY]
    if not mine:
        return Stand(Standing.CURRENT, None, item.valid_from)
    best = max(mine, key=lambda each: (each.confidence, each.newer))
    standing = Standing.REPLACED if best.confidence >= SURE else Standing.POSSIBLY_OUTDATED
    return Stand(standing, best.newer, None if best.at is None else from_micros(best.at))


def standings(connection: sa.Connection, states: Sequence[Item], at: datetime) -> dict[str, Stand]:
    """Return how each item stands at a time, by present knowledge.

    A fact that is the whole of one message stands as the message does.
    """
    said = _whole_messages(connection, states)
    micros = to_micros(at)
    by_older: dict[str, list[Replacement]] = defaultdict(list)
    known = dict.fromkeys([*(state.id for state in states), *said.values()])
    for older, newer, confidence, said_at, kind in relations.replacements(connection, list(known)):
        if kind in REPLACING and (said_at is None or said_at <= micros):
            by_older[older].append(Replacement(older, newer, confidence, said_at))
    found = {}
    for state in states:
        mine = [each._replace(older=state.id) for each in by_older[said.get(state.id, state.id)]]
        found[state.id] = standing_of(state, [*by_older[state.id], *mine], at)
    return found


def _whole_messages(connection: sa.Connection, states: Sequence[Item]) -> Mapping[str, str]:
    """Return the message of each fact that is the whole of one."""
    facts = {state.id: _words(state.memory) for state in states if state.type in DERIVED - {ItemType.PROFILE}}
    if not facts:
        return {}
    cubes = sorted({state.cube for state in states})

    def said(ids: Collection[str]) -> dict[str, tuple[str, ...]]:
        return {brief.id: _words(brief.memory) for brief in items.briefs(connection, cubes, ids)}

    return items.whole_messages(connection, facts, said)


def _words(text: str) -> tuple[str, ...]:
    return tuple(text[: items.BRIEF_CHARS].casefold().split())
