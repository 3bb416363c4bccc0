"""`MemOS.browse`: what a person who looks through a cube sees besides the memories themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from memos.core.browsing import FacetName, Facets, HeatPoint, Link, MemoryStanding, Passage, Places
from memos.core.filters import fields_of, parse
from memos.core.types import DEFAULT_CUBE, LOCAL_OWNER, Event, Json
from memos.kernel.context import Context, retry_read
from memos.memcube import standing
from memos.memcube.ledger import browsing, items
from memos.reader.arguments import ids_of, members_of, within
from memos.scheduler.heat import History, Policy, Warmth, heat_then
from memos.scheduler.scheduler import Scheduler

_MOST_VALUES = 1_000
_MOST_AROUND = 20
_MOST_PASSAGES = 20
_AHEAD = timedelta(days=14)
_POINTS = 60

Events_ = list[Event]


class Browsing:
    """Counts of a cube's memories by property, and details of a single one."""

    def __init__(
        self, context: Context, scheduler: Scheduler, kv_blocks: Callable[[str, str], Mapping[str, int]]
    ) -> None:
        self._context = context
        self._scheduler = scheduler
        self._kv_blocks = kv_blocks

    @retry_read
    def facets(
        self,
        *,
        cube: str = DEFAULT_CUBE,
        actor: str = LOCAL_OWNER,
        filter: Mapping[str, Json] | None = None,
        by: Sequence[str] = (),
        limit: int = 20,
    ) -> Facets:
        """Count the memories that pass a filter by type, status, speaker and others; of very many, those added last.

        Unless the filter names a status, deleted ones are counted by status only.

        Args:
            cube: The cube.
            actor: Who asks.
            filter: What they must pass (docs/reference/filters.md).
            by: The properties to count by; by default all.
            limit: The most values of each property.

        Raises: InvalidInput, NotFound (cube).
        """
        scope = self._context.scopes.check([cube], actor, embeds=False)
        wanted = members_of("by", by, FacetName)
        names = [name for name in FacetName if name in wanted or not wanted]
        most, node = within("limit", limit, 1, _MOST_VALUES), parse(filter)
        deleted = "status" in fields_of(node)
        with self._context.ledger.read() as connection:
            now = self._context.clock.now()
            return browsing.facets(connection, scope.cubes[0], node, names, most, now, deleted=deleted)

    @retry_read
    def standings(
        self, item_ids: Sequence[str], *, cube: str = DEFAULT_CUBE, actor: str = LOCAL_OWNER
    ) -> tuple[MemoryStanding, ...]:
        """Return whether memories of a cube hold now, in the order of their ids; unknown ones are left out.

        Raises: InvalidInput, NotFound (cube).
        """
        scope = self._context.scopes.check([cube], actor, embeds=False)
        wanted = ids_of(item_ids, least=0)
        with self._context.ledger.read() as connection:
            states = items.current(connection, scope.cubes, wanted)
            found = standing.standings(connection, list(states.values()), self._context.clock.now())
        return tuple(MemoryStanding(id_, *found[id_]) for id_ in wanted if id_ in found)

    @retry_read
    def passages(
        self, item: str, *, cube: str | None = None, actor: str = LOCAL_OWNER, around: int = 3
    ) -> tuple[Passage, ...]:
        """Return the messages an item comes from, with `around` messages before and after each.

        At most 20. Raises: NotFound, InvalidInput.
        """
        scope = self._context.scopes.check_item(item, cube, actor, embeds=False)
        around = within("around", around, 0, _MOST_AROUND)
        with self._context.ledger.read() as connection:
            items.require(connection, scope.cubes, item)
            now = self._context.clock.now()
            return tuple(browsing.passages(connection, scope.cubes[0], item, around, _MOST_PASSAGES, now))

    @retry_read
    def events(self, item: str, *, cube: str | None = None, actor: str = LOCAL_OWNER, limit: int = 100) -> Events_:
        """Return the events about an item, newest first. Raises: NotFound, InvalidInput."""
        scope = self._context.scopes.check_item(item, cube, actor, embeds=False)
        limit = within("limit", limit, 1, 10_000)
        with self._context.ledger.read() as connection:
            items.require(connection, scope.cubes, item)
            return browsing.events_of(connection, scope.cubes[0], item, limit)

    @retry_read
    def links(
        self, item: str, *, cube: str | None = None, actor: str = LOCAL_OWNER, limit: int = 100
    ) -> tuple[Link, ...]:
        """Return the links of an item to others, in both directions, newest first. Raises: NotFound, InvalidInput."""
        scope = self._context.scopes.check_item(item, cube, actor, embeds=False)
        limit = within("limit", limit, 1, 10_000)
        with self._context.ledger.read() as connection:
            items.require(connection, scope.cubes, item)
            return tuple(browsing.links_of(connection, scope.cubes[0], item, limit))

    @retry_read
    def places(self, item: str, *, cube: str | None = None, actor: str = LOCAL_OWNER) -> Places:
        """Return where an item is kept: its topic, prompt prefix, attention state and adapters; and its heat.

        Raises: NotFound.
        """
        scope = self._context.scopes.check_item(item, cube, actor, embeds=False)
        [cube] = scope.cubes
        now = self._context.clock.now()
        with self._context.ledger.read() as connection:
            items.require(connection, scope.cubes, item)
            row = browsing.place_of(connection, item)
            policy = self._scheduler.cube_rules.of(connection, cube).policy
            used = row.last is not None
            warmth = Warmth(row.level, row.visits, row.interactions, row.last) if used else Warmth()
            segment = browsing.segment_of(connection, item, row)
            return Places(
                pinned=row.pinned,
                archived=row.cold,
                segment=None if segment is None else self._scheduler.segment(connection, cube, segment),
                heat=policy.heat(warmth, now) if used else 0.0,
                visits=warmth.visits,
                used_at=warmth.last,
                curve=_curve(policy, warmth, row.history or [], now),
                prefix=row.ordinal,
                kv_blocks=dict(self._kv_blocks(cube, item)),
                adapters=tuple(browsing.learned_by(connection, cube, item)),
                forgotten_by_adapters=browsing.is_excluded(connection, item),
            )


def _curve(policy: Policy, warmth: Warmth, history: History, now: datetime) -> tuple[HeatPoint, ...]:
    if warmth.last is None:
        return ()
    begin = min([warmth.last, *(datetime.fromtimestamp(second, UTC) for second, _, _ in history[:1])])
    end = max(now, warmth.last) + _AHEAD
    step = (end - begin) / (_POINTS - 1)
    points = []
    for number in range(_POINTS):
        at = begin + (end - begin) * (number / (_POINTS - 1))
        heat = policy.heat(warmth, at) if at >= warmth.last else heat_then(history, at)
        # A use between two points shows in the later one.
        used = [after for second, _, after in history if (at - step).timestamp() < second <= at.timestamp()]
        points.append(HeatPoint(at, max([heat, *used])))
    return tuple(points)
