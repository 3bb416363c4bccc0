"""`MemOS.idempotency`: a call that makes something, sent again with its idempotency key, makes it no second time.

The key is noted in the transaction that makes the thing, so neither a crash nor a race lets it be made twice. Knows
ids of what was made, never its content; `add` has keys of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

import sqlalchemy as sa

from memos.core.clock import Clock
from memos.core.text.validation import check_name
from memos.core.types import LOCAL_OWNER, Json
from memos.errors import BackendUnavailable, Conflict, InvalidInput, MemosError
from memos.kernel.access.guard import current_identity
from memos.memcube.ledger import repeats as rows
from memos.memcube.ledger.engine import Ledger
from memos.memcube.ledger.repeats import Call, Earlier
from memos.reader.arguments import json_copy

_Made = TypeVar("_Made")


@dataclass(frozen=True, slots=True)
class Creation:
    """One call that makes something: its idempotency key, its name, all it was given, and the cube it is about."""

    key: str
    call: str
    given: Json
    actor: str = LOCAL_OWNER
    cube: str | None = None


@dataclass(slots=True)
class _Claim:
    call: Call
    noted: bool = False


class _Repeated(MemosError):
    """Another call used the key meanwhile; never seen outside."""


_CLAIM: ContextVar[_Claim | None] = ContextVar("memos_claim", default=None)


class Idempotency:
    """Remembers for a day which calls made what, each identity's by itself. Thread-safe."""

    def __init__(self, ledger: Ledger, clock: Clock, check_open: Callable[[], None]) -> None:
        self._ledger = ledger
        self._clock = clock
        self._check_open = check_open

    def once(
        self,
        creation: Creation | None,
        make: Callable[[], _Made],
        *,
        ids: Callable[[_Made], Sequence[str]],
        again: Callable[[tuple[str, ...]], _Made],
    ) -> _Made:
        """Return what `make` made, or, when the key was used for the same call within a day, `again` of its `ids`.

        `make` is called with its one transaction noting the key; without a creation it is just called.
        Raises: Conflict (the key was used for another call, or that one has not answered), InvalidInput.
        """
        if creation is None:
            return make()
        self._check_open()
        call = _call_of(creation)
        with self._ledger.read() as connection:
            earlier = rows.find(connection, call, self._clock.now())
        if earlier is not None:
            return again(_made(earlier))
        claim = _Claim(call)
        token = _CLAIM.set(claim)
        try:
            made = make()
        except _Repeated:
            with self._ledger.read() as connection:
                earlier = rows.find(connection, call, self._clock.now())
            return again(_made(earlier or Earlier(same=True, made=None)))
        finally:
            _CLAIM.reset(token)
        if claim.noted:
            # It is made: that its answer could not be noted must not look as if it were not.
            with suppress(BackendUnavailable), self._ledger.write() as connection:
                rows.answer(connection, call, ids(made))
        return made

    def note(self, connection: sa.Connection) -> None:
        """Note in a transaction that has begun which call it belongs to, if it is one that has a key."""
        claim = _CLAIM.get()
        if claim is None or claim.noted:
            return
        if not rows.claim(connection, claim.call, self._clock.now()):
            raise _Repeated
        claim.noted = True


def _call_of(creation: Creation) -> Call:
    key = check_name("idempotency_key", creation.key)
    try:
        body = json.dumps([creation.call, json_copy(creation.given)], sort_keys=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput("body", "cannot be written as JSON; use text, numbers, lists and objects") from error
    return Call(current_identity(creation.actor), key, body, creation.cube)


def _made(earlier: Earlier) -> tuple[str, ...]:
    if not earlier.same:
        raise Conflict("The idempotency key was used for another call within a day: use a new one for a new call.")
    if earlier.made is None:
        raise Conflict(
            "A call with this idempotency key is being answered, or was cut off when it was done: repeat it in a "
            "moment, and look what is there before you use another key."
        )
    return earlier.made
