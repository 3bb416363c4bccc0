"""Composes the prefix of a cube: which memories its prompts begin with, since they are hot and stable or pinned.

What stands there keeps its place, or nothing of its KV could be used again: new ones are appended, what has cooled or
was corrected stays until it is a quarter of the room. Then all is written anew, in the order in which the memories
were made. Repeating it changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa

from memos.core.settings import Settings
from memos.core.types import Item, ItemType, Json, Status
from memos.memcube import changes
from memos.memcube import prompt_prefix as prefix_rows
from memos.memcube import prompt_prefix as prefix_text
from memos.memcube.ledger import items, tasks
from memos.memcube.ledger import schema as t
from memos.memcube.prompt_prefix import Line, PrefixRow
from memos.scheduler.heat import Warmth
from memos.scheduler.jobs.segments import ACTOR
from memos.scheduler.rules import CubeRules
from memos.scheduler.task import TaskRun

# Beside what is pinned. Messages, documents and tools are found by searching: they are evidence, not knowledge.
_KINDS = sorted(
    str(kind)
    for kind in (
        ItemType.USER, ItemType.ASSISTANT, ItemType.LONG_TERM, ItemType.PREFERENCE, ItemType.INSTRUCTION,
        ItemType.PROFILE, ItemType.SKILL, ItemType.SUMMARY,
    )
)  # fmt: skip
STABLE_FOR = timedelta(days=3)
"""How long a hot memory has to be unchanged to stand in a prefix."""

_MOST = 500
# Who is near the border would come and go, and each time all behind it is computed again.
_COOLED = 0.5
# Of the room, and of what stands there: to write little anew costs little.
_STALE_SHARE, _STALE_PART = 0.25, 0.5
_PINNED = math.inf
_WIDEST = 9999
_LARGEST = 4
"""No one memory takes more than this part of the room."""


@dataclass(frozen=True, slots=True)
class PrefixRules:
    """What may stand in a prefix: `tokens` in all, of what is as hot as what is read, and after how long unchanged."""

    tokens: int
    stable: timedelta


@dataclass(frozen=True, slots=True)
class ComposeJob:
    """Composes the prefix of a task's cube.

    `forget` removes the KV of memories that are gone, and is called first.
    """

    rules: CubeRules
    prefix: PrefixRules
    forget: Callable[[], object]

    @classmethod
    def by(cls, settings: Settings, forget: Callable[[], object]) -> ComposeJob:
        """Return the job as settings want it; where no model keeps anything a prefix is empty."""
        rules = PrefixRules(settings.prefix_room, STABLE_FOR)
        return cls(CubeRules(settings.heat), rules, forget)

    def run(self, run: TaskRun) -> None:
        """Append what has become hot, or compose all of it anew."""
        self.forget()
        run.go_on(0.1)
        with run.finishing() as connection:
            cube = run.task.cube
            change = changes.begin(connection, cube, ACTOR, run.clock)
            before = prefix_rows.of(connection, cube)
            heats = self._heats(connection, cube, change.now)
            after, fresh = self._composed(connection, cube, before, heats, change.now)
            if after == before:
                return
            if fresh:
                prefix_rows.replace(connection, cube, after)
            else:
                prefix_rows.append(connection, cube, after[len(before) :])
            changes.record(change, "compose", _body(before, after, heats, anew=fresh))
            if after:
                tasks.enqueue(connection, cube, [prefix_rows.warm_task()], change.now)

    def _heats(self, connection: sa.Connection, cube: str, now: datetime) -> dict[str, float]:
        """Return what may stand in the prefix for its heat, the hottest first, with it; what is pinned comes first."""
        if not self.prefix.tokens:
            return {}
        rules = self.rules.of(connection, cube)
        policy, warm = rules.policy, rules.thresholds.promote_above * _COOLED
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
        """Return the entries that there should be, and whether all of them are new."""
        states = items.with_sources(connection, [cube], list({*heats, *(row.item for row in before)}))
        heats = {id_: heat for id_, heat in heats.items() if id_ not in _ended(connection, heats, states, now)}
        there = {row.item for row in before}
        above = self.rules.of(connection, cube).thresholds.promote_above
        chosen = self._chosen(heats, states, there, above, now)
        lines = prefix_text.lines_of(connection, before, states, now)
        stale = sum(line.tokens for line in lines if line.correction or line.item not in chosen)
        gone = len({line.item for line in lines}) < len(before)
        new = sorted((states[id_] for id_ in chosen if id_ not in there), key=lambda item: (item.created_at, item.id))
        last = max((row.ordinal for row in before), default=0)
        added = [PrefixRow(last + place, item.id, item.version, now) for place, item in enumerate(new, 1)]
        standing = sum(line.tokens for line in lines)
        grown = standing + sum(_line(row, states).tokens for row in added)
        much = stale > min(_STALE_SHARE * self.prefix.tokens, _STALE_PART * standing)
        if not gone and not much and (not added or grown <= self.prefix.tokens):
            return [*before, *added], False
        every = sorted((states[id_] for id_ in chosen), key=lambda item: (item.created_at, item.id))
        return [PrefixRow(place, item.id, item.version, now) for place, item in enumerate(every, 1)], True

    def _chosen(
        self,
        heats: Mapping[str, float],
        states: Mapping[str, Item],
        there: set[str],
        above: float,
        now: datetime,
    ) -> set[str]:
        """Return the items that have room: what is pinned, what is there and still warm, then the hottest."""
        ranked = sorted(heats, key=lambda id_: (heats[id_] != _PINNED, id_ not in there, -heats[id_], id_))
        left, chosen = self.prefix.tokens, set[str]()
        for id_ in ranked:
            state = states.get(id_)
            if state is None or not prefix_text.may_stand(state):
                continue
            hot = heats[id_] >= above and now - state.updated_at >= self.prefix.stable
            if not (hot or id_ in there or heats[id_] == _PINNED):
                continue
            cost = _line(PrefixRow(_WIDEST, id_, state.version, now), {id_: state}).tokens
            if cost <= min(left, self.prefix.tokens // _LARGEST):
                chosen.add(id_)
                left -= cost
        return chosen


def _ended(
    connection: sa.Connection, heats: Mapping[str, float], states: Mapping[str, Item], now: datetime
) -> set[str]:
    """Return the pinned items that somebody said to be over; what was about the past from the first is not."""
    over = [
        id_
        for id_, heat in heats.items()
        if heat == _PINNED and id_ in states and (end := states[id_].valid_to) is not None and end <= now
    ]
    first = {id_: versions[0] for id_, versions in items.all_versions(connection, over).items()}
    return {id_ for id_ in over if first[id_].valid_to != states[id_].valid_to}


def _line(row: PrefixRow, states: Mapping[str, Item]) -> Line:
    return prefix_text.entry_line(row, states[row.item])


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
