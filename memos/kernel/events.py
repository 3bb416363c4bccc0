"""`MemOS.events`: the changes of a cube in commit order, once or as a stream.

It polls the ledger, so it sees the changes of every process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from sqlalchemy import Connection

from memos.core.identities import Right
from memos.core.text.validation import check_name
from memos.core.types import DEFAULT_CUBE, LOCAL_OWNER, Event
from memos.errors import ConnectionLost, InvalidInput
from memos.kernel.context import Context
from memos.memcube.ledger import cubes
from memos.memcube.ledger.cubes import EventQuery
from memos.reader.arguments import seconds_of, switch, within

_POLL_S = 0.5
_AT_ONCE = 500
_MOST_KINDS = 100
_MOST_EVENTS = 2**63 - 1

Events_ = list[Event]  # `list` is a method here
_Read = TypeVar("_Read")


class _Whose(NamedTuple):
    cube: str
    actor: str


class Events:
    """The events of an installation's cubes."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def list(  # noqa: PLR0913 - the wire contract names them all
        self,
        cube: str = DEFAULT_CUBE,
        *,
        actor: str = LOCAL_OWNER,
        after: int = 0,
        kinds: Sequence[str] = (),
        limit: int = 100,
        before: int | None = None,
        newest: bool = False,
        item: str | None = None,
    ) -> Events_:
        """Return a cube's events after number `after` and before `before`, oldest first, or newest first.

        `item` narrows them to those that name a memory or a file. Raises: InvalidInput, NotFound (cube).
        """
        self._context.scopes.cubes_of([cube], actor, Right.READ)
        wanted = EventQuery(
            _number("after", after),
            _kinds(kinds),
            within("limit", limit, 1, 10_000),
            None if before is None else _number("before", before),
            switch("newest", newest),
            None if item is None else check_name("item", item, 64),
        )
        return self._seen(_Whose(cube, actor), lambda connection: cubes.events_after(connection, cube, wanted))

    def head(self, cube: str = DEFAULT_CUBE, *, actor: str = LOCAL_OWNER) -> int:
        """Return the number of a cube's newest event. Raises: NotFound (cube)."""
        self._context.scopes.cubes_of([cube], actor, Right.READ)
        with self._context.ledger.read() as connection:
            return cubes.head(connection, cube)

    def follow(
        self,
        cube: str = DEFAULT_CUBE,
        *,
        actor: str = LOCAL_OWNER,
        after: int | None = None,
        kinds: Sequence[str] = (),
        timeout_s: float | None = None,
        stop: threading.Event | None = None,
    ) -> Iterator[Event]:
        """Yield events as they are committed, after number `after` or, without it, from now on.

        Ends after `timeout_s` or when `stop` is set; otherwise never. Raises: InvalidInput, NotFound (the cube does not
        exist, or was dropped meanwhile), BackendUnavailable (the ledger is out of reach).
        """
        self._context.scopes.cubes_of([cube], actor, Right.READ)
        wanted = EventQuery(0 if after is None else _number("after", after), _kinds(kinds), _AT_ONCE)
        deadline = None if timeout_s is None else time.monotonic() + seconds_of("timeout_s", timeout_s)
        with self._context.ledger.read() as connection:
            head = cubes.head(connection, cube)
        start = head if after is None else wanted.after
        return self._followed(_Whose(cube, actor), start, wanted, deadline, stop or threading.Event())

    def _followed(
        self, whose: _Whose, start: int, wanted: EventQuery, deadline: float | None, stop: threading.Event
    ) -> Iterator[Event]:
        after, seen = start, 0
        while not stop.is_set():
            try:
                head, found = self._behind(whose, after, wanted)
            except ConnectionLost:  # a server that is really away refuses the next connection
                head, found = seen, []
            if head < seen:  # dropped and made again: its numbers begin anew
                after, seen = 0, 0
                continue
            seen = head
            for event in found:
                yield event
                if stop.is_set():
                    return
            # What was passed over for its kind is not read again.
            after = found[-1].seq if len(found) == wanted.limit else max(after, head)
            if not _go_on(deadline, stop, at_once=len(found) == wanted.limit):
                return

    def _behind(self, whose: _Whose, after: int, wanted: EventQuery) -> tuple[int, Events_]:
        def read(connection: Connection) -> tuple[int, Events_]:
            head = cubes.head(connection, whose.cube)
            if head <= after:
                return head, []
            return head, cubes.events_after(connection, whose.cube, EventQuery(after, wanted.kinds, wanted.limit))

        return self._seen(whose, read)

    def _seen(self, whose: _Whose, read: Callable[[Connection], _Read]) -> _Read:
        """Return what was read if the actor may still read it: nothing read after a revocation is returned."""
        with self._context.ledger.read() as connection:
            found = read(connection)
        self._context.scopes.cubes_of([whose.cube], whose.actor, Right.READ)
        return found


def _go_on(deadline: float | None, stop: threading.Event, *, at_once: bool) -> bool:
    left = _POLL_S if deadline is None else min(_POLL_S, deadline - time.monotonic())
    return left > 0 and not stop.wait(0 if at_once else left)


def _number(where: str, value: int) -> int:
    return within(where, value, 0, _MOST_EVENTS)


def _kinds(kinds: Sequence[str]) -> tuple[str, ...]:
    if isinstance(kinds, str | bytes) or not isinstance(kinds, Sequence):
        raise InvalidInput("kinds", f"must be a list of names, not {type(kinds).__name__}")
    if len(kinds) > _MOST_KINDS:
        raise InvalidInput("kinds", f"has {len(kinds):,} names, more than the limit of {_MOST_KINDS}")
    return tuple(dict.fromkeys(check_name("kinds", kind, 64) for kind in kinds))
