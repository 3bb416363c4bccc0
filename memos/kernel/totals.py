"""`MemOS.totals`: the numbers of a whole installation, for who watches it; none names a cube, user or memory."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa

from memos.backends.encoders.cache import CachedEmbedder
from memos.core.clock import Clock
from memos.core.types import LOCAL_OWNER, TaskState
from memos.kernel.access.quotas import Quotas
from memos.llm.client import Askers
from memos.memcube.ledger import events
from memos.memcube.ledger import queries as counts
from memos.memcube.ledger import queues as usage
from memos.memcube.ledger.engine import Ledger
from memos.memcube.ledger.queries import Whole
from memos.memcube.ledger.segments import ARCHIVED, OPEN

_ENDED_WITHIN = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class InstallationTotals:
    """The numbers of one moment.

    `tiers` holds pages (short), segments (mid, archive) and memories (long); `tasks` counts by kind and state, of those
    that ended what ended within an hour; `outbox` what an index has yet to take, by index and `waiting` or `parked`;
    `events` those of each kind since this process first counted; `tokens_today` those of background tasks, `tokens` all
    that this process had models take, by purpose; `caches` hits and misses of this process.
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


class Totals:
    """Counts one open installation; thread-safe."""

    def __init__(
        self, ledger: Ledger, clock: Clock, askers: Askers, embedder: CachedEmbedder, admin: Callable[[str], None],
        *, quotas: Quotas,
    ) -> None:  # fmt: skip
        self._ledger, self._clock, self._quotas = ledger, clock, quotas
        self._askers, self._embedder = askers, embedder
        self._check_admin = admin
        self._counted: dict[str, int] | None = None
        self._events: Counter[str] = Counter()
        self._lock = threading.Lock()

    def __call__(self, *, actor: str = LOCAL_OWNER) -> InstallationTotals:
        """Return the numbers of now, for admins. Raises: PermissionDenied, BackendUnavailable."""
        self._check_admin(actor)
        now = self._clock.now()
        with self._lock, self._ledger.read() as connection:
            found = counts.whole(connection)
            self._count_events(connection)
            return InstallationTotals(
                now, found.cubes, found.messages, _tiers(found), self._tasks(connection, now), _outbox(found),
                dict(self._events), sum(usage.tokens_today(connection, None, now).values()), self._quotas.spent,
                {"embeddings": (self._embedder.hits, self._embedder.misses), "answers": self._askers.remembered},
            )  # fmt: skip

    def _count_events(self, connection: sa.Connection) -> None:
        heads = counts.heads(connection, None)
        before = self._counted
        for head in heads:
            known = head.seq if before is None else before.get(head.cube, 0)
            if known < head.seq:
                self._events.update(events.tally_all(connection, head.cube, known))
        self._counted = {head.cube: head.seq for head in heads}

    def _tasks(self, connection: sa.Connection, now: datetime) -> dict[tuple[str, str], int]:
        found: Counter[tuple[str, str]] = Counter()
        for (_, kind), number in counts.waiting(connection, None).items():
            found[kind, str(TaskState.WAITING)] += number
        for task in counts.running(connection, None):
            found[task.kind, str(TaskState.RUNNING)] += 1
        for (kind, state), number in counts.ended(connection, None, now - _ENDED_WITHIN).items():
            found[kind, state] += number
        return dict(found)


def _tiers(found: Whole) -> dict[str, int]:
    return {
        "short": found.short_pages, "mid": found.segments.get(OPEN, 0), "long": found.items - found.messages,
        "archive": found.segments.get(ARCHIVED, 0),
    }  # fmt: skip


def _outbox(found: Whole) -> dict[tuple[str, str], int]:
    states = {(target, state): 0 for target in ("vector", "graph") for state in ("waiting", "parked")}
    return states | {(target, "parked" if parked else "waiting"): n for (target, parked), n in found.outbox.items()}
