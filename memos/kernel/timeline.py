"""`MemOS.timeline`: what held on a day, what changed between two, and the life of a person or a topic."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from zoneinfo import ZoneInfo

import sqlalchemy as sa

from memos.core.clock import from_micros, to_micros
from memos.core.text.matching import normalized_value
from memos.core.text.validation import check_name
from memos.core.timeline import Day, Held, Life, LifeEntry, LifeLine, Replaced, TimeDiff, TimeSpan, TimeStep
from memos.core.types import DEFAULT_CUBE, LOCAL_OWNER, Item, ItemType, Json, Scope, Standing, Status
from memos.errors import InvalidInput, shown
from memos.kernel.context import Context
from memos.memcube.ledger import entities, expiry, items, timeline
from memos.memcube.ledger.entities import NAME_CHARS, Part
from memos.memcube.ledger.timeline import Choice, Place, told_at
from memos.memcube.standing import Stand, standings
from memos.reader.arguments import read_time, switch, within

_STEPS = 60
_ABOUT = 2_000  # newest memories that name somebody, among which a day or a difference is looked for
_STATED = (Part.SUBJECT, Part.SOURCE, Part.TARGET)


class Timeline:
    """`MemOS.timeline`: a cube on other days. A date without a time means its end, in the cube's time zone."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def span(self, *, cube: str = DEFAULT_CUBE, actor: str = LOCAL_OWNER) -> TimeSpan:
        """Return the time of a cube in equal parts, with how much was told in each. Raises: NotFound."""
        scope = self._context.scopes.check([cube], actor, embeds=False)
        now = self._context.clock.now()
        with self._context.ledger.read() as connection:
            ends = timeline.span(connection, scope.cubes[0], now)
            if ends is None:
                return TimeSpan(None, None)
            first, last = ends
            step = max((last - first) / _STEPS, timedelta(seconds=1))
            counted = timeline.counts(connection, scope.cubes[0], first, step, now)
        number = min(_STEPS, int((last - first) / step)) or 1
        # The last moment belongs to the last part.
        counted[number - 1] = counted.get(number - 1, 0) + sum(n for place, n in counted.items() if place >= number)
        steps = [TimeStep(first + step * place, counted.get(place, 0)) for place in range(number)]
        return TimeSpan(first, last, tuple(steps))

    def day(  # noqa: PLR0913 - the choices of one list
        self,
        at: Json = None,
        *,
        cube: str = DEFAULT_CUBE,
        actor: str = LOCAL_OWNER,
        stored: bool = False,
        kind: str = "statements",
        about: str | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> Day:
        """Return what held at a time, told last first.

        Args:
            at: A day, which counts to its end, or a time; by default now.
            cube: The cube.
            actor: Who asks.
            stored: Return what the cube contained then, as it was then, instead of what held by all that is known now.
            kind: `statements` is what people said and facts, `values` what has a value, `all` everything.
            about: A person or thing that the memories name.
            limit: Most memories.
            after: The `after` of the page before.

        Raises:
            InvalidInput: An argument is not usable.
            NotFound: The cube does not exist.
        """
        scope = self._context.scopes.check([cube], actor, embeds=False)
        moment, limit = self._moment("at", at, scope), within("limit", limit, 1, 1_000)
        place, stored = _place(after), switch("stored", stored)
        with self._context.ledger.read() as connection:
            choice = _choice(connection, scope.cubes[0], kind, about, self._context.clock.now())
            read = timeline.stored_at if stored else timeline.held_at
            found = read(connection, scope.cubes[0], moment, choice, limit + 1, place)
            if stored:
                held = [Held(item, item.created_at, Standing.CURRENT, since=item.created_at) for item in found[:limit]]
            else:
                held = _held(connection, found[:limit], moment)
        more = f"{to_micros(held[-1].at)}:{held[-1].item.id}" if len(found) > limit else None
        return Day(moment, tuple(held), more)

    def difference(
        self,
        since: Json,
        until: Json = None,
        *,
        cube: str = DEFAULT_CUBE,
        actor: str = LOCAL_OWNER,
        kind: str = "statements",
        about: str | None = None,
        limit: int = 100,
    ) -> TimeDiff:
        """Return what was added, replaced and ended between two times, the last first.

        Days count to their ends; without `until` the second time is now. Raises: InvalidInput, NotFound.
        """
        scope = self._context.scopes.check([cube], actor, embeds=False)
        if since is None:
            raise InvalidInput("since", "is required; give a day such as 2025-03-01")
        first, last = self._moment("since", since, scope), self._moment("until", until, scope)
        if first > last:
            raise InvalidInput("since", "is after `until`; swap them")
        limit, now = within("limit", limit, 1, 1_000), self._context.clock.now()
        with self._context.ledger.read() as connection:
            choice = _choice(connection, scope.cubes[0], kind, about, now)
            new = timeline.added(connection, scope.cubes[0], first, last, choice, limit + 1)
            gone = timeline.changed(connection, scope.cubes[0], first, last, choice, limit + 1)
            by = {each.by for each in gone[:limit] if each.by is not None}
            known = items.current(connection, scope.cubes, sorted(by))
            newer = {item.id: item for item in expiry.live(known.values(), now)}
            added = _held(connection, new[:limit], last)
        changes = [Replaced(each.item, each.at, newer.get(each.by or ""), each.sure) for each in gone[:limit]]
        return TimeDiff(
            first,
            last,
            tuple(added),
            tuple(each for each in changes if each.by is not None),
            tuple(each for each in changes if each.by is None),
            max(len(new), len(gone)) <= limit,
        )

    def life(self, name: str, *, cube: str = DEFAULT_CUBE, actor: str = LOCAL_OWNER, limit: int = 100) -> Life:
        """Return a person, a thing or a property such as `residence` over time, read from its newest memories.

        Empty if no memory names it. Raises: InvalidInput, NotFound.
        """
        scope = self._context.scopes.check([cube], actor, embeds=False)
        cube, limit = scope.cubes[0], within("limit", limit, 1, 1_000)
        check_name("name", name, 4 * NAME_CHARS)
        now = self._context.clock.now()
        with self._context.ledger.read() as connection:
            root, names = _names(connection, cube, name)
            stated = entities.mentioning(connection, cube, names, _ABOUT, _STATED)
            states = timeline.by_ids(connection, cube, stated, now)
            keyed = [state for state in states if state.key is not None]
            if not states:
                keyed = timeline.with_property(connection, cube, entities.fold(name), _ABOUT, now)
            about = sorted(entities.mentioning(connection, cube, names, _ABOUT), reverse=True)
            # A trait repeats what a fact says.
            named = [state for state in timeline.by_ids(connection, cube, about[:limit], now) if not _is_trait(state)]
            stands = standings(connection, [*keyed, *named], now)
            spelled = entities.spellings(connection, cube, [root]).get(root, name)
        memories = tuple(Held(item, told_at(item), *stands[item.id]) for item in named)
        return Life(spelled, _lines(keyed, stands), memories, len(about) <= limit)

    def _moment(self, where: str, at: Json, scope: Scope) -> datetime:
        """Return a time; a day without a time is its end."""
        moment = read_time(where, at, ZoneInfo(scope.time_zone), self._context.clock.now())
        is_day = isinstance(at, str) and len(at.strip()) == len("2025-03-01") and at.strip()[4:5] == "-"
        if not is_day:
            return moment
        try:
            return moment + timedelta(days=1) - timedelta(microseconds=1)
        except OverflowError as error:
            raise InvalidInput(where, f"{shown(at)} is too late; use an earlier day") from error


def _held(connection: sa.Connection, found: Sequence[Item], at: datetime) -> list[Held]:
    """Return items that hold at a time; one that was replaced later holds until then.

    A correction may be stored long after the change: what was superseded later is in doubt once another value began.
    """
    stands = standings(connection, found, at)
    late = [item for item in found if item.status is Status.SUPERSEDED and item.key is not None]
    others: dict[str | None, list[Item]] = defaultdict(list)
    for other in items.with_keys(connection, found[0].cube, sorted({item.key or "" for item in late})) if late else ():
        others[other.key].append(other)
    held = []
    for item in found:
        standing, by, since = stands[item.id]
        if standing in (Standing.REPLACED, Standing.ENDED):
            standing, by, since = Standing.CURRENT, None, item.valid_from
        for other in sorted(others[item.key] if item in late else (), key=_begins):
            if _begins(item) < _begins(other) <= at and normalized_value(item.value) != normalized_value(other.value):
                standing, by, since = Standing.POSSIBLY_OUTDATED, other.id, _begins(other)
        held.append(Held(item, told_at(item), standing, by, since))
    return held


def _names(connection: sa.Connection, cube: str, name: str) -> tuple[str, list[str]]:
    root = entities.root_of(connection, cube, name)
    return root, [root, *(alias.name for alias in entities.aliases(connection, cube, root))]


def _choice(connection: sa.Connection, cube: str, kind: str, about: str | None, now: datetime) -> Choice:
    if kind not in timeline.KINDS:
        raise InvalidInput("kind", f"{shown(kind)} is unknown; use one of {', '.join(timeline.KINDS)}")
    if about is None or not about.strip():
        return Choice(now, kind)
    _, names = _names(connection, cube, check_name("about", about, 4 * NAME_CHARS))
    return Choice(now, kind, entities.mentioning(connection, cube, names, _ABOUT))


def _is_trait(item: Item) -> bool:
    return item.type is ItemType.PROFILE


def _lines(keyed: Sequence[Item], stands: Mapping[str, Stand]) -> tuple[LifeLine, ...]:
    by_key: dict[tuple[str, str], list[Item]] = defaultdict(list)
    for item in keyed:
        whose, _, attribute = (item.key or "").partition("|")
        # A trait repeats what a fact says; tools have keys of another form.
        if attribute and item.value and not _is_trait(item):
            by_key[whose, attribute].append(item)
    lines = []
    for (whose, attribute), same in by_key.items():
        same.sort(key=lambda item: (_begins(item), item.id))
        speaker = same[-1].speaker
        subject = speaker if entities.fold(speaker) == entities.fold(whose) else whose
        lines.append(LifeLine(subject, attribute, tuple(_entries(same, stands))))
    return tuple(sorted(lines, key=lambda line: (-len(line.entries), line.subject, line.property)))


def _begins(item: Item) -> datetime:
    return item.valid_from or told_at(item)


def _entries(same: Sequence[Item], stands: Mapping[str, Stand]) -> list[LifeEntry]:
    """Return the values of items in order; the same value said again is one entry, and stands as said last.

    A value that no longer holds ends when the next one begins, which may be before a correction of it was stored.
    """
    groups = [list(group) for _, group in groupby(same, key=lambda item: normalized_value(item.value))]
    entries = []
    for group, following in zip(groups, [*groups[1:], None], strict=True):
        first, last = group[0], group[-1]
        standing, _, since = stands[last.id]
        until = None
        if standing is not Standing.CURRENT and (following is not None or standing is not Standing.POSSIBLY_OUTDATED):
            until = since if following is None else _begins(following[0])
        entries.append(
            LifeEntry(
                first.value or "", _begins(first), until, standing, first.id, first.memory, first.speaker, len(group)
            )
        )
    return entries


def _place(after: str | None) -> Place | None:
    if after is None:
        return None
    at, colon, item = after.partition(":")
    if not (colon and item and at.removeprefix("-").isdecimal() and at.isascii() and len(at) < 18):
        raise InvalidInput("after", "must be the `after` of the page before")
    return Place(from_micros(int(at)), item)
