"""The prompt prefix of a cube: memories as text that stays the same, so that its KV can be cached.

An entry never moves: a change is appended behind it. Only what must not be said any more is removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from memos.core.text import rendering
from memos.core.text.rendering import is_untrusted, memory_section, remembered
from memos.core.tokens import estimate_tokens
from memos.core.types import UNSAID, Item, Standing, Status
from memos.memcube.ledger import items, tasks
from memos.memcube.ledger.schema import cubes, row_of, warmth
from memos.memcube.ledger.schema import items as items_
from memos.memcube.ledger.schema import prefix_entries as t
from memos.memcube.ledger.tasks import NewTask
from memos.memcube.standing import standings

COMPOSE, WARM = "compose", "warm"
"""Kinds of tasks: the prefix of a cube is composed; a model computes its KV before somebody asks."""


@dataclass(frozen=True, slots=True)
class PrefixRow:
    ordinal: int
    item: str
    version: int
    added_at: datetime


def compose_task() -> NewTask:
    return NewTask(COMPOSE, {}, key="")


def warm_task() -> NewTask:
    return NewTask(WARM, {}, key="")


def of(connection: sa.Connection, cube: str) -> list[PrefixRow]:
    query = sa.select(t.c.ordinal, t.c.item_id, t.c.version, t.c.added_at).where(t.c.cube_id == cube)
    return [PrefixRow(*row) for row in connection.execute(query.order_by(t.c.ordinal))]


def append(connection: sa.Connection, cube: str, rows: Sequence[PrefixRow]) -> None:
    if rows:
        connection.execute(sa.insert(t), [row_of(t, row, cube_id=cube) for row in rows])


def replace(connection: sa.Connection, cube: str, rows: Sequence[PrefixRow]) -> None:
    connection.execute(sa.delete(t).where(t.c.cube_id == cube))
    append(connection, cube, rows)


def cubes_to_compose(connection: sa.Connection) -> list[str]:
    used = sa.exists(sa.select(warmth.c.item_id).where(warmth.c.cube_id == cubes.c.id))
    held = sa.exists(sa.select(t.c.ordinal).where(t.c.cube_id == cubes.c.id))
    return list(connection.scalars(sa.select(cubes.c.id).where(used | held).order_by(cubes.c.id)))


def items_changed(connection: sa.Connection, cube: str, item_ids: Iterable[str], now: datetime) -> None:
    for batch in items.in_batches(item_ids):
        if connection.scalar(sa.select(t.c.ordinal).where(t.c.item_id.in_(batch)).limit(1)) is not None:
            tasks.enqueue(connection, cube, [compose_task(), warm_task()], now)
            return


_MOST_ROOMS = 2
_SHOWN = (Status.ACTIVE, Status.SUPERSEDED)


@dataclass(frozen=True, slots=True)
class PrefixText:
    """The memories that each prompt of a cube begins with, as a fenced section that only grows at its end.

    Its first `stable` characters stay what they are when it grows; `starts` are (character, item id): where the text
    of each begins. `shown` are the numbers of the marks and the memories that are so; `last` is the highest number.
    """

    section: str
    stable: int
    starts: tuple[tuple[int, str], ...]
    tokens: int
    shown: tuple[tuple[int, Item], ...]
    last: int


@dataclass(frozen=True, slots=True)
class Line:
    """A line: an entry as it was composed, or, a `correction`, what became of it; ordered by `at`."""

    at: datetime
    ordinal: int
    version: int
    dated: datetime
    text: str
    item: str
    correction: bool = False

    @property
    def tokens(self) -> int:
        return estimate_tokens(self.shown(marks=True) + "\n")

    def shown(self, *, marks: bool) -> str:
        if marks:
            return rendering.citation(f"m{self.ordinal}", self.dated, self.text)
        return f"- {rendering.dated(self.dated, self.text)}"


def read(connection: sa.Connection, cube: str, now: datetime, room: int, *, marks: bool) -> PrefixText | None:
    """Return the text of a cube's prefix as it stands, None when there is none; with `marks` to be cited by.

    With corrections it may take twice its `room` in tokens; beyond that there is none until it is composed anew.
    """
    rows = of(connection, cube)
    if not rows:
        return None
    states = items.with_sources(connection, [cube], [row.item for row in rows])
    lines = lines_of(connection, rows, states, now)
    if sum(line.tokens for line in lines) > _MOST_ROOMS * room:
        return None
    return _part(lines, rows, states, marks=marks)


def lines_of(
    connection: sa.Connection, rows: Sequence[PrefixRow], states: Mapping[str, Item], now: datetime
) -> list[Line]:
    """Return the lines of entries in order, without those of missing, expired or untrusted items."""
    shown = [row for row in rows if row.item in states and may_include(states[row.item], now)]
    changed = [row.item for row in shown if states[row.item].version != row.version]
    versions = items.all_versions(connection, changed) if changed else {}
    outdated = _outdated(connection, [states[row.item] for row in shown], now)
    found: list[Line] = []
    for row in shown:
        state = states[row.item]
        after = [each for each in versions.get(row.item, [state]) if each.version >= row.version]
        found += _lines(row, after, now)
        if row.item in outdated:
            since, told = outdated[row.item]
            found.append(_correction(row, state, max(since, row.added_at), f"{told}: {_told(state)}"))
    return sorted(found, key=lambda line: (line.at, line.correction, line.ordinal, line.version))


def _outdated(connection: sa.Connection, states: Sequence[Item], now: datetime) -> dict[str, tuple[datetime, str]]:
    """Return when something was stored that replaces or may replace an item, and what to say of the item since then.

    Of what was superseded or has ended, its versions tell.
    """
    stands = standings(connection, states, now)
    by = {
        state.id: stand.replaced_by
        for state in states
        if (stand := stands[state.id]).replaced_by is not None and state.status is Status.ACTIVE
    }
    stored = {each.id: each.created_at for each in items.rows_in(connection, _STORED, items_.c.id, by.values())}
    return {
        id_: (stored[newer], "no longer so" if stands[id_].standing is Standing.REPLACED else "possibly outdated")
        for id_, newer in by.items()
        if newer in stored
    }


_STORED = sa.select(items_.c.id, items_.c.created_at)


def may_include(state: Item, now: datetime) -> bool:
    """Return True if a memory may be part of a prefix: it exists, and only its speakers are its source."""
    expired = state.expires_at is not None and state.expires_at <= now
    return state.status in _SHOWN and not expired and not is_untrusted(state.sources)


def _part(
    lines: Sequence[Line], rows: Iterable[PrefixRow], states: Mapping[str, Item], *, marks: bool
) -> PrefixText | None:
    if not lines:
        return None
    texts = [line.shown(marks=marks) for line in lines]
    section = memory_section(texts)
    starts, place = [], section.index(texts[0])
    for line, text in zip(lines, texts, strict=True):
        starts.append((place, line.item))
        place += len(text) + 1
    told = {line.item for line in lines}
    shown = tuple(
        (row.ordinal, states[row.item]) for row in rows if row.item in told and states[row.item].status is Status.ACTIVE
    )
    last = max(line.ordinal for line in lines)
    return PrefixText(section, place - 1, tuple(starts), estimate_tokens(section), shown, last)


def entry_line(row: PrefixRow, state: Item) -> Line:
    return Line(row.added_at, row.ordinal, state.version, date_of(state), _told(state), row.item)


def _lines(row: PrefixRow, versions: Sequence[Item], now: datetime) -> list[Line]:
    first = versions[0]
    found = [entry_line(row, first)]
    before = first
    for after in versions[1:]:
        if after.status is Status.ACTIVE and (before.memory != after.memory or before.status is not Status.ACTIVE):
            found.append(_correction(row, after, after.updated_at, f"corrected: {_told(after)}"))
        elif after.status is Status.SUPERSEDED and before.status is not Status.SUPERSEDED:
            found.append(_correction(row, after, after.updated_at, f"no longer so: {_told(before)}"))
        before = after
    # A fact that was already over when added ("in May I ran a marathon") was stated as such.
    over = first.valid_to is not None and first.valid_to <= row.added_at
    if before.status is Status.ACTIVE and before.valid_to is not None and before.valid_to <= now and not over:
        ended = max(before.valid_to, before.updated_at, row.added_at)
        found.append(_correction(row, before, ended, f"no longer so: {_told(before)}"))
    return found


def _correction(row: PrefixRow, state: Item, at: datetime, what: str) -> Line:
    return Line(at, row.ordinal, state.version, at, what, row.item, correction=True)


def _told(state: Item) -> str:
    text = state.memory.replace("\n", "\n  ")
    return remembered(text if state.type in UNSAID else rendering.with_speaker(state.speaker, text))


def date_of(state: Item) -> datetime:
    """Return the day that is shown of a memory: one of its own, which no further source changes."""
    return state.valid_from or state.said_at or state.created_at
