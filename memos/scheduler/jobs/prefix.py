"""Compose the prompt prefix of a cube from memories that are pinned, or hot and stable.

Entries keep their position, so that their KV can be reused: new ones are appended, cooled and corrected ones stay until
they take a quarter of the size limit. Then the prefix is rewritten in the order of creation. Idempotent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa

from memos.core.settings import Settings
from memos.core.types import Item, ItemType, Json, Standing, Status
from memos.memcube import changes, prompt_prefix
from memos.memcube.ledger import items, tasks
from memos.memcube.ledger import schema as t
from memos.memcube.prompt_prefix import Line, PrefixRow
from memos.memcube.standing import standings
from memos.scheduler.heat import Warmth
from memos.scheduler.jobs.segments import ACTOR
from memos.scheduler.rules import CubeRules
from memos.scheduler.task import TaskRun

# Types included for their heat. Messages, documents and tools are left to search: they are evidence, not knowledge.
_KINDS = sorted(
    str(kind)
    for kind in (
        ItemType.USER, ItemType.ASSISTANT, ItemType.LONG_TERM, ItemType.PREFERENCE, ItemType.INSTRUCTION,
        ItemType.PROFILE, ItemType.SKILL, ItemType.SUMMARY,
    )
)  # fmt: skip
STABLE_FOR = timedelta(days=3)  # a hot memory must be unchanged for this long
_MOST = 500
# Hysteresis: an entry stays above this share of the promotion heat, since its removal invalidates the KV behind it.
_DEMOTE_SHARE = 0.5
# The prefix is rewritten when stale entries exceed this share of its size limit, or this part of its current size.
_STALE_SHARE, _STALE_PART = 0.25, 0.5
_PINNED = math.inf
_MAX_ORDINAL = 9999
_ENTRY_DIVISOR = 4  # a memory may take a quarter of the size limit


@dataclass(frozen=True, slots=True)
class PrefixRules:
    """The size limit of a prompt prefix in tokens, and how long a hot memory must be unchanged to be included."""

    tokens: int
    stable: timedelta


@dataclass(frozen=True, slots=True)
class ComposeJob:
    """Composes a cube's prompt prefix; `forget`, called first, removes the KV of memories that are gone."""

    rules: CubeRules
    prefix: PrefixRules
    forget: Callable[[], object]

    @classmethod
    def by(cls, settings: Settings, forget: Callable[[], object]) -> ComposeJob:
        """Return the job for these settings; prefixes are empty if no model reuses KV."""
        return cls(CubeRules(settings.heat), PrefixRules(settings.prefix_room, STABLE_FOR), forget)

    def run(self, run: TaskRun) -> None:
        self.forget()
        run.check_cancelled(0.1)
        with run.finishing() as connection:
            cube = run.task.cube
            change = changes.begin(connection, cube, ACTOR, run.clock)
            before = prompt_prefix.of(connection, cube)
            heats = self._heats(connection, cube, change.now)
            after, fresh = self._composed(connection, cube, before, heats, change.now)
            if after == before:
                return
            if fresh:
                prompt_prefix.replace(connection, cube, after)
            else:
                prompt_prefix.append(connection, cube, after[len(before) :])
            changes.record(change, "compose", _body(before, after, heats, anew=fresh))
            if after:
                tasks.enqueue(connection, cube, [prompt_prefix.warm_task()], change.now)

    def _heats(self, connection: sa.Connection, cube: str, now: datetime) -> dict[str, float]:
        if not self.prefix.tokens:
            return {}
        rules = self.rules.of(connection, cube)
        policy, warm = rules.policy, rules.thresholds.promote_above * _DEMOTE_SHARE
        least = policy.level_of(warm, now) - policy.slack
        so = t.versions.c.valid_to.is_(None) | (t.versions.c.valid_to > now)
        query = (
            sa.select(t.items.c.id, t.warmth.c.level, t.warmth.c.visits, t.warmth.c.interactions, t.warmth.c.last)
            .join(t.versions, t.versions.c.id == t.items.c.version_id)
            .where(t.items.c.cube_id == cube, t.versions.c.status == Status.ACTIVE)
            .limit(_MOST)
        )
        pinned = query.outerjoin(t.warmth, t.warmth.c.item_id == t.items.c.id).where(t.items.c.pinned.is_(True))
        found = {row.id: _PINNED for row in connection.execute(pinned.order_by(t.items.c.created_at))}
        hot = query.join(t.warmth, t.warmth.c.item_id == t.items.c.id).where(
            so, t.warmth.c.cube_id == cube, t.warmth.c.level >= least, t.versions.c.type.in_(_KINDS)
        )
        for row in connection.execute(hot.order_by(t.warmth.c.level.desc(), t.items.c.id)):
            heat = policy.heat(Warmth(row.level, row.visits, row.interactions, row.last), now)
            if heat >= warm:
                found.setdefault(row.id, heat)
        return found

    def _composed(
        self,
        connection: sa.Connection,
        cube: str,
        before: Sequence[PrefixRow],
        heats: Mapping[str, float],
        now: datetime,
    ) -> tuple[list[PrefixRow], bool]:
        states = items.with_sources(connection, [cube], list({*heats, *(row.item for row in before)}))
        gone = _ended(connection, heats, states, now) | _replaced(connection, heats, states, now)
        heats = {id_: heat for id_, heat in heats.items() if id_ not in gone}
        there = {row.item for row in before}
        chosen = self._chosen(heats, states, there, self.rules.of(connection, cube).thresholds.promote_above, now)
        lines = prompt_prefix.lines_of(connection, before, states, now)
        stale = sum(line.tokens for line in lines if line.correction or line.item not in chosen)
        missing = len({line.item for line in lines}) < len(before)
        new = sorted((states[id_] for id_ in chosen if id_ not in there), key=lambda item: (item.created_at, item.id))
        last = max((row.ordinal for row in before), default=0)
        added = [PrefixRow(last + place, item.id, item.version, now) for place, item in enumerate(new, 1)]
        standing = sum(line.tokens for line in lines)
        grown = standing + sum(_line(row, states).tokens for row in added)
        much = stale > min(_STALE_SHARE * self.prefix.tokens, _STALE_PART * standing)
        if not missing and not much and (not added or grown <= self.prefix.tokens):
            return [*before, *added], False
        every = sorted((states[id_] for id_ in chosen), key=lambda item: (item.created_at, item.id))
        return [PrefixRow(place, item.id, item.version, now) for place, item in enumerate(every, 1)], True

    def _chosen(
        self, heats: Mapping[str, float], states: Mapping[str, Item], there: set[str], above: float, now: datetime
    ) -> set[str]:
        ranked = sorted(heats, key=lambda id_: (heats[id_] != _PINNED, id_ not in there, -heats[id_], id_))
        left, chosen = self.prefix.tokens, set[str]()
        for id_ in ranked:
            state = states.get(id_)
            if state is None or not prompt_prefix.may_include(state, now):
                continue
            hot = heats[id_] >= above and now - state.updated_at >= self.prefix.stable
            if not (hot or id_ in there or heats[id_] == _PINNED):
                continue
            cost = _line(PrefixRow(_MAX_ORDINAL, id_, state.version, now), {id_: state}).tokens
            if cost <= min(left, self.prefix.tokens // _ENTRY_DIVISOR):
                chosen.add(id_)
                left -= cost
        return chosen


def _ended(
    connection: sa.Connection, heats: Mapping[str, float], states: Mapping[str, Item], now: datetime
) -> set[str]:
    over = [
        id_
        for id_, heat in heats.items()
        if heat == _PINNED and id_ in states and (end := states[id_].valid_to) is not None and end <= now
    ]
    first = {id_: versions[0] for id_, versions in items.all_versions(connection, over).items()}
    return {id_ for id_ in over if first[id_].valid_to != states[id_].valid_to}


def _replaced(
    connection: sa.Connection, heats: Mapping[str, float], states: Mapping[str, Item], now: datetime
) -> set[str]:
    """Return what a newer statement replaced, unless it is pinned: then the prefix says so."""
    hot = [states[id_] for id_, heat in heats.items() if heat != _PINNED and id_ in states]
    return {id_ for id_, stand in standings(connection, hot, now).items() if stand.standing is Standing.REPLACED}


def _line(row: PrefixRow, states: Mapping[str, Item]) -> Line:
    return prompt_prefix.entry_line(row, states[row.item])


def _body(
    before: Sequence[PrefixRow], after: Sequence[PrefixRow], heats: Mapping[str, float], *, anew: bool
) -> dict[str, Json]:
    was, now = [row.item for row in before], [row.item for row in after]
    promoted = [id_ for id_ in now if id_ not in set(was)]
    return {
        "promoted": promoted,
        "demoted": [id_ for id_ in was if id_ not in set(now)],
        "heat": {id_: round(heats[id_], 4) for id_ in promoted if heats[id_] != _PINNED},
        "entries": len(now),
        "anew": anew,
    }
