"""Quotas of API keys: requests a minute; items, bytes and model tokens a UTC day. Calls without a key have none.

Stored items are counted in the transaction that stores them, so a failure costs nothing.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa

from memos.core.clock import Clock
from memos.core.identities import Caller, Key, KeyLimits
from memos.core.types import LOCAL_OWNER
from memos.errors import LimitReached
from memos.kernel.access.guard import caller
from memos.memcube.ledger import access
from memos.memcube.ledger.engine import Ledger

_REQUESTS = "requests"
_ITEMS = "items"
_BYTES = "bytes"
_TOKENS = "tokens"
_REMEMBERED = 10_000


class Quotas:
    """Counts the usage of API keys, across all processes of a ledger. Thread-safe."""

    def __init__(self, ledger: Ledger, clock: Clock, defaults: KeyLimits) -> None:
        self._ledger = ledger
        self._clock = clock
        self._defaults = defaults
        self._minutes: dict[str, tuple[str, int]] = {}
        self._spent: Counter[str] = Counter()
        self._lock = threading.Lock()

    def limits_of(self, key: Key) -> KeyLimits:
        return key.limits.over(self._defaults)

    def request(self, asking: Caller) -> None:
        limit = None if _is_free(asking) else self.limits_of(asking.key).requests_per_minute
        if limit is None:
            return
        now, key = self._clock.now().astimezone(UTC), asking.key.counts_as
        if self._ledger.is_sqlite:  # no other process counts, and a minute needs not outlive this one
            taken = self._in_memory(key, _minute(now), limit)
        else:
            with self._ledger.write() as connection:
                taken = access.count_usage(connection, key, _REQUESTS, _minute(now), 1, limit)
        if not taken:
            raise LimitReached(
                f"The limit of {limit:,} requests per minute for this key is reached; wait for the next minute.",
                retry_after_s=60 - now.second,
            )

    def charge(self, connection: sa.Connection, items: int, size_bytes: int) -> None:
        asking = caller()
        if asking is None or _is_free(asking):
            return
        limits, now = self.limits_of(asking.key), self._clock.now()
        _take(connection, asking.key, (_ITEMS, items, limits.items_per_day), now)
        _take(connection, asking.key, (_BYTES, size_bytes, limits.bytes_per_day), now)

    @property
    def spent(self) -> dict[str, int]:
        with self._lock:
            return dict(self._spent)

    @contextmanager
    def reserve_tokens(self, most_tokens: int, purpose: str) -> Iterator[Callable[[int], None]]:
        """Reserve tokens for a model call; yields what takes those really used. Raises: LimitReached (not called)."""
        spent = 0

        def took(tokens: int) -> None:
            nonlocal spent
            spent += tokens

        try:
            with self._reserve(most_tokens, lambda: spent):
                yield took
        finally:
            with self._lock:
                self._spent[purpose] += spent

    @contextmanager
    def _reserve(self, most_tokens: int, spent: Callable[[], int]) -> Iterator[None]:
        asking = caller()
        limit = None if asking is None or _is_free(asking) else self.limits_of(asking.key).tokens_per_day
        if asking is None or limit is None:
            yield
            return
        now = self._clock.now()
        with self._ledger.write() as connection:
            _take(connection, asking.key, (_TOKENS, most_tokens, limit), now)
        try:
            yield
        finally:
            with self._ledger.write() as connection:
                access.count_usage(connection, asking.key.counts_as, _TOKENS, _date(now), spent() - most_tokens, None)

    def used(self, key: Key) -> dict[str, int]:
        with self._ledger.read() as connection:
            found = access.used(connection, key.counts_as, _date(self._clock.now()))
        return {what: found.get(what, 0) for what in (_ITEMS, _BYTES, _TOKENS)}

    def _in_memory(self, key: str, minute: str, limit: int) -> bool:
        with self._lock:
            span, used = self._minutes.get(key, (minute, 0))
            used = used if span == minute else 0
            if used >= limit:
                return False
            if len(self._minutes) >= _REMEMBERED:
                self._minutes = {id_: entry for id_, entry in self._minutes.items() if entry[0] == minute}
            self._minutes[key] = minute, used + 1
            return True


def _take(connection: sa.Connection, key: Key, use: tuple[str, int, int | None], now: datetime) -> None:
    what, amount, limit = use
    if limit is None or amount == 0:
        return
    if not access.count_usage(connection, key.counts_as, what, _date(now), amount, limit):
        raise LimitReached(
            f"The limit of {limit:,} {what} per UTC day for this key leaves fewer than {amount:,} today; wait for the "
            "next day, send less, or ask an admin for a higher limit.",
            retry_after_s=_until_tomorrow_s(now),
        )


def _is_free(asking: Caller) -> bool:
    return asking.identity.id == LOCAL_OWNER


def _minute(now: datetime) -> str:
    return f"{now:%Y-%m-%dT%H:%M}"


def _date(now: datetime) -> str:
    return f"{now.astimezone(UTC):%Y-%m-%d}"


def _until_tomorrow_s(now: datetime) -> int:
    now = now.astimezone(UTC)
    tomorrow = now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    return math.ceil((tomorrow - now).total_seconds())
