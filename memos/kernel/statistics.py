"""`MemOS.statistics`: figures of cubes and of the whole installation."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Annotated

import sqlalchemy as sa

from memos.core.identities import Right
from memos.core.types import LOCAL_OWNER, Segment, Task, TaskState
from memos.errors import InvalidInput
from memos.kernel.context import Context, retry_read
from memos.llm.client import LLMClients
from memos.memcube.ledger import cubes as cube_rows
from memos.memcube.ledger import queries, queues
from memos.memcube.ledger.engine import Ledger
from memos.memcube.ledger.queries import CubeSummary, InstallationCounts, StoredCounts
from memos.memcube.ledger.segments import ARCHIVED, OPEN
from memos.scheduler.scheduler import Scheduler

BUSIEST = 20  # cubes reported when none is named
_MOST_NAMED = 100
_HOTTEST = 10
_LONGEST_RUNNING = 20
_WINDOW = timedelta(minutes=1)
_ENDED_WITHIN = timedelta(hours=1)
_ADD, _MOVE = "add", "move"


@dataclass(frozen=True, slots=True)
class CubeOverview:
    """Figures of a cube; `events` is the number of its newest event, recorded at `changed_at`.

    `short_pages` counts an erased page until it would have moved on. `long_items` were derived from messages,
    `messages` are the others; both include deleted and superseded ones. Rates count calls of `add` and events of kind
    move.
    """

    cube: Annotated[str, "Its id"]
    events: Annotated[int, "Number of its newest event"]
    changed_at: Annotated[datetime | None, "When that was"]
    messages: Annotated[int, "Messages in it"]
    short_pages: Annotated[int, "Pages of the short tier"]
    open_segments: Annotated[int, "Segments of the mid tier"]
    archived_segments: Annotated[int, "Segments in the archive"]
    long_items: Annotated[int, "Memories made of messages"]
    waiting: Annotated[int, "Tasks that wait"]
    running: Annotated[int, "Tasks that run"]
    adds_per_s: Annotated[float, "Adds a second, lately"]
    moves_per_min: Annotated[float, "Moves between tiers a minute, lately"]
    tokens_today: Annotated[int, "Tokens of language models today"]
    hottest: Annotated[tuple[Segment, ...], "Hottest segments, of cubes that were named"] = ()


@dataclass(frozen=True, slots=True)
class Overview:
    """Figures of one moment; rates are those of the `seconds` before it.

    `cubes` come busiest first: most waiting or running tasks, then changed last; `more_cubes` counts the rest. `tasks`
    counts by kind and state, ended ones of the last hour. `running` are running tasks, longest first. `tokens_today`
    covers all requested cubes.
    """

    at: Annotated[datetime, "Time of the measurement"]
    seconds: Annotated[float, "Seconds over which rates are measured"]
    cubes: Annotated[tuple[CubeOverview, ...], "The busiest cubes first"]
    more_cubes: Annotated[int, "Cubes left out"]
    tasks: Annotated[Mapping[str, Mapping[str, int]], "Tasks by kind and state; ended ones of the last hour"]
    running: Annotated[tuple[Task, ...], "Tasks that run, the longest first"]
    tokens_today: Annotated[int, "Tokens of language models today"]


@dataclass(frozen=True, slots=True)
class OverviewRequest:
    """The request of an overview: these cubes, by default the busiest; rates since an earlier overview."""

    now: datetime
    cubes: Sequence[str] | None = None
    since: Overview | None = None

    def __post_init__(self) -> None:
        if self.cubes is not None and len(self.cubes) > _MOST_NAMED:
            raise InvalidInput("cubes", f"has {len(self.cubes):,} names, more than the limit of {_MOST_NAMED}")
        if self.since is not None and not isinstance(self.since, Overview):
            raise InvalidInput("since", f"must be an earlier overview, not {type(self.since).__name__}")

    @property
    def start(self) -> datetime:
        """Return the start of the interval for rates."""
        return self.now - _WINDOW if self.since is None else self.since.at

    @property
    def seconds(self) -> float:
        """Return the length of the interval for rates; 0 if the clock went back."""
        return max(0.0, (self.now - self.start).total_seconds())

    def before(self, cube: str) -> CubeOverview | None:
        """Return a cube's figures in the earlier overview, None if it is not in it."""
        return next((known for known in self.since.cubes if known.cube == cube), None) if self.since else None


def take_overview(ledger: Ledger, scheduler: Scheduler, asked: OverviewRequest) -> Overview:
    """Return the figures of the requested cubes; hottest segments only of cubes named explicitly."""
    with ledger.read() as connection:
        waiting = queries.waiting(connection, asked.cubes)
        running = queries.running(connection, asked.cubes)
        ended = queries.ended(connection, asked.cubes, asked.now - _ENDED_WITHIN)
        tokens = queues.tokens_today(connection, asked.cubes, asked.now)
        waiting_of: Counter[str] = Counter()
        for (cube, _), number in waiting.items():
            waiting_of[cube] += number
        tasks = _Tasks(waiting_of, Counter(task.cube for task in running))
        heads = sorted(queries.newest_events(connection, asked.cubes), key=tasks.busy)
        shown = heads[: BUSIEST if asked.cubes is None else None]
        cubes = _cubes(connection, asked, shown, tasks, tokens)
    if asked.cubes is not None:
        cubes = [replace(cube, hottest=_hottest(scheduler, cube.cube)) for cube in cubes]
    return Overview(
        asked.now,
        asked.seconds,
        tuple(cubes),
        len(heads) - len(shown),
        _by_kind(waiting, running, ended),
        tuple(running[:_LONGEST_RUNNING]),
        sum(tokens.values()),
    )


@dataclass(frozen=True, slots=True)
class _Tasks:
    waiting: Mapping[str, int]
    running: Mapping[str, int]

    def busy(self, head: CubeSummary) -> tuple[int, float, str]:
        left = self.waiting.get(head.cube, 0) + self.running.get(head.cube, 0)
        return -left, 0.0 if head.at is None else -head.at.timestamp(), head.cube


def _cubes(
    connection: sa.Connection,
    asked: OverviewRequest,
    shown: Sequence[CubeSummary],
    tasks: _Tasks,
    tokens: Mapping[str, int],
) -> list[CubeOverview]:
    names = [head.cube for head in shown]
    stored = _stored(connection, asked, shown)
    short = queries.short_pages(connection, names)
    segments = queries.segments_by_state(connection, names)
    found = []
    for head in shown:
        adds, moves = _recent(connection, asked, head)
        cube = head.cube
        found.append(
            CubeOverview(
                cube=cube,
                events=head.seq,
                changed_at=head.at,
                messages=stored[cube].messages,
                short_pages=short.get(cube, 0),
                open_segments=segments.get((cube, OPEN), 0),
                archived_segments=segments.get((cube, ARCHIVED), 0),
                long_items=stored[cube].items - stored[cube].messages,
                waiting=tasks.waiting.get(cube, 0),
                running=tasks.running.get(cube, 0),
                adds_per_s=adds / asked.seconds if asked.seconds else 0.0,
                moves_per_min=60 * moves / asked.seconds if asked.seconds else 0.0,
                tokens_today=tokens.get(cube, 0),
            )
        )
    return found


def _stored(connection: sa.Connection, asked: OverviewRequest, shown: Sequence[CubeSummary]) -> dict[str, StoredCounts]:
    kept: dict[str, StoredCounts] = {}
    for head in shown:
        before = asked.before(head.cube)
        if before is not None and (before.events, before.changed_at) == (head.seq, head.at):
            kept[head.cube] = StoredCounts(before.messages, before.messages + before.long_items)
    changed = [head.cube for head in shown if head.cube not in kept]
    return kept | (queries.stored(connection, changed) if changed else {})


def _recent(connection: sa.Connection, asked: OverviewRequest, head: CubeSummary) -> tuple[int, int]:
    if head.at is None or (asked.since is None and head.at <= asked.start):
        return 0, 0
    before = asked.before(head.cube)
    # By number where it is known: what was committed late has an earlier time.
    after = cube_rows.number_at(connection, head.cube, asked.start) if before is None else before.events
    if after >= head.seq:
        return 0, 0
    found = cube_rows.tally(connection, head.cube, after, (_ADD, _MOVE))
    return found.get(_ADD, 0), found.get(_MOVE, 0)


def _by_kind(
    waiting: Mapping[tuple[str, str], int], running: Sequence[Task], ended: Mapping[tuple[str, str], int]
) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    counted = [(kind, str(TaskState.WAITING), number) for (_, kind), number in waiting.items()]
    counted += [(task.kind, str(TaskState.RUNNING), 1) for task in running]
    counted += [(kind, state, number) for (kind, state), number in ended.items()]
    for kind, state, number in sorted(counted):
        states = found.setdefault(kind, {})
        states[state] = states.get(state, 0) + number
    return found


def _hottest(scheduler: Scheduler, cube: str) -> tuple[Segment, ...]:
    return tuple(segment for segment in scheduler.segments(cube, _HOTTEST) if segment.state == OPEN)


@dataclass(frozen=True, slots=True)
class InstallationTotals:
    """Figures of one moment.

    `tiers` counts pages (short), segments (mid, archive) and memories (long); `tasks` by kind and state, ended ones of
    the last hour; `outbox` rows by index, `waiting` or `parked`; `events` by kind since this process first counted;
    `tokens_today` those of background tasks, `tokens` all tokens of models in this process by purpose; `caches` hits
    and misses in this process.
    """

    at: datetime
    cubes: int
    messages: int
    tiers: Mapping[str, int]
    tasks: Mapping[tuple[str, str], int]
    outbox: Mapping[tuple[str, str], int]
    events: Mapping[str, int]
    tokens_today: int
    tokens: Mapping[str, int]
    caches: Mapping[str, tuple[int, int]]


class Statistics:
    """Figures of cubes and of the installation. Thread-safe."""

    def __init__(
        self,
        context: Context,
        scheduler: Scheduler,
        askers: LLMClients,
        embedding_cache_counts: Callable[[], tuple[int, int]],
    ) -> None:
        self._context = context
        self._scheduler = scheduler
        self._askers = askers
        self._embedding_cache_counts = embedding_cache_counts
        self._counted: dict[str, int] | None = None
        self._events: Counter[str] = Counter()
        self._lock = threading.Lock()

    @retry_read
    def overview(
        self, cubes: Sequence[str] | None = None, *, actor: str = LOCAL_OWNER, since: Overview | None = None
    ) -> Overview:
        """Return how full the tiers are, what the background does and how fast; without `cubes` of the busiest.

        Rates are those since an earlier overview, else of the last minute. Raises: InvalidInput, NotFound.
        """
        named = self._context.scopes.cubes_of(cubes, actor, Right.READ)
        return take_overview(
            self._context.ledger, self._scheduler, OverviewRequest(self._context.clock.now(), named, since)
        )

    def totals(self, *, actor: str = LOCAL_OWNER) -> InstallationTotals:
        """Return the numbers of now, for admins. Raises: PermissionDenied, BackendUnavailable."""
        self._context.scopes.check_admin(actor)
        now = self._context.clock.now()
        with self._lock, self._context.ledger.read() as connection:
            found = queries.installation_counts(connection)
            self._count_events(connection)
            return InstallationTotals(
                now,
                found.cubes,
                found.messages,
                _tiers(found),
                _tasks_by_state(connection, now),
                _outbox(found, (one.target for one in self._context.indexes.projections)),
                dict(self._events),
                sum(queues.tokens_today(connection, None, now).values()),
                self._context.quotas.spent,
                {"embeddings": self._embedding_cache_counts(), "answers": self._askers.cache_counts},
            )

    def _count_events(self, connection: sa.Connection) -> None:
        heads = queries.newest_events(connection, None)
        before = self._counted
        for head in heads:
            known = head.seq if before is None else before.get(head.cube, 0)
            if known < head.seq:
                self._events.update(cube_rows.tally_all(connection, head.cube, known))
        self._counted = {head.cube: head.seq for head in heads}


def _tasks_by_state(connection: sa.Connection, now: datetime) -> dict[tuple[str, str], int]:
    found: Counter[tuple[str, str]] = Counter()
    for (_, kind), number in queries.waiting(connection, None).items():
        found[kind, str(TaskState.WAITING)] += number
    for task in queries.running(connection, None):
        found[task.kind, str(TaskState.RUNNING)] += 1
    for (kind, state), number in queries.ended(connection, None, now - _ENDED_WITHIN).items():
        found[kind, state] += number
    return dict(found)


def _tiers(found: InstallationCounts) -> dict[str, int]:
    return {
        "short": found.short_pages,
        "mid": found.segments.get(OPEN, 0),
        "long": found.items - found.messages,
        "archive": found.segments.get(ARCHIVED, 0),
    }


def _outbox(found: InstallationCounts, targets: Iterable[str]) -> dict[tuple[str, str], int]:
    states = {(target, state): 0 for target in targets for state in ("waiting", "parked")}
    return states | {(target, "parked" if parked else "waiting"): n for (target, parked), n in found.outbox.items()}
