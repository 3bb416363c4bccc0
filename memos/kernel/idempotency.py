"""`MemOS.idempotency` and `MemOS.submissions`: requests that come twice store nothing twice.

A call that creates something has a key, which is noted in the transaction that creates it, so neither a crash nor a
race lets it be created twice. A submission has none: what is the same is a text that the surface gives. Both know the
ids of what was stored, never its content; `add` has keys of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

import sqlalchemy as sa

from memos.core.clock import Clock
from memos.core.text.validation import check_name
from memos.core.types import LOCAL_OWNER, Json, Reading
from memos.errors import Aborted, BackendUnavailable, Conflict, InvalidInput, MemosError, NotFound
from memos.kernel.access.guard import current_identity
from memos.memcube.ledger import idempotency as rows
from memos.memcube.ledger import reading
from memos.memcube.ledger.engine import Ledger, retry_aborted
from memos.memcube.ledger.idempotency import Call, Earlier, Submission
from memos.reader.arguments import json_copy

if TYPE_CHECKING:
    from memos.kernel.context import Context

__all__ = ["Creation", "Idempotency", "Progress", "Submission", "Submissions"]

_Made = TypeVar("_Made")


@dataclass(frozen=True, slots=True)
class Creation:
    """A call that creates something: its idempotency key, its name, its arguments, and the cube it is about."""

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

        `make` is called with its one transaction noting the key; without a creation it is just called. Raises: Conflict
        (the key was used for another call, or that one has not answered), InvalidInput.
        """
        if creation is None:
            return make()
        self._check_open()
        call = _call_of(creation)
        with self._ledger.read() as connection:
            earlier = rows.find_call(connection, call, self._clock.now())
        if earlier is not None:
            return again(_made(earlier))
        claim = _Claim(call)
        token = _CLAIM.set(claim)
        try:
            made = make()
        except _Repeated:
            with self._ledger.read() as connection:
                earlier = rows.find_call(connection, call, self._clock.now())
            return again(_made(earlier or Earlier(same=True, made=None)))
        finally:
            _CLAIM.reset(token)
        if claim.noted:
            # It is made: that its answer could not be noted must not look as if it were not.
            with suppress(BackendUnavailable, Aborted):
                self._answer(call, ids(made))
        return made

    @retry_aborted
    def _answer(self, call: Call, made: Sequence[str]) -> None:
        with self._ledger.write() as connection:
            rows.answer_call(connection, call, made)

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """Open a transaction that notes which call it belongs to, if that has a key and no transaction noted it yet."""
        claim = _CLAIM.get()
        with self._ledger.write() as connection:
            if claim is not None and not claim.noted and not rows.claim_call(connection, claim.call, self._clock.now()):
                raise _Repeated
            yield connection
        if claim is not None:
            claim.noted = True  # not before it is saved: a transaction that is aborted and repeated notes it again


def _call_of(creation: Creation) -> Call:
    key = check_name("idempotency_key", creation.key)
    try:
        body = json.dumps([creation.call, json_copy(creation.given)], sort_keys=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput("body", "is not JSON; use strings, numbers, lists and objects") from error
    return Call(current_identity(creation.actor), key, body, creation.cube)


def _made(earlier: Earlier) -> tuple[str, ...]:
    if not earlier.same:
        raise Conflict(
            "The idempotency key was used for another call in the last 24 hours; use a new key for a new call."
        )
    if earlier.made is None:
        raise Conflict(
            "A call with this idempotency key is still running, or was interrupted; repeat it in a moment, and check "
            "what was stored before you use another key."
        )
    return earlier.made


class Progress(StrEnum):
    """Progress of a submission."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"


class Submissions:
    """The submissions of an installation: the same from the same caller within a minute is one."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def take(self, caller: str, body: str, cubes: Sequence[str]) -> Submission:
        """Return the caller's submission of this body in a minute, or a new one. Raises: BackendUnavailable."""
        with self._context.write() as connection:
            return rows.submit(connection, caller, body, cubes, self._context.clock.now())

    def answered(self, submission: Submission, answer: Mapping[str, Json], *, known: bool = True) -> Submission:
        """Keep a submission's answer, ids only; return it with its first. Not `known` any more, it blocked a double."""
        with self._context.write() as connection:
            rows.answer_submission(connection, submission.id, answer, known=known)
            kept = rows.find_submission(connection, submission.id)
        return kept or submission

    def withdraw(self, submission: Submission) -> None:
        """Forget a submission that stored nothing, so that the same may be sent again at once."""
        with self._context.write() as connection:
            rows.withdraw_submission(connection, submission.id)

    def get(self, id_: str, caller: str | None) -> Submission:
        """Return a submission, a caller's own only; None may see all. Raises: NotFound, InvalidInput."""
        id_ = check_name("task", id_, 64)
        with self._context.ledger.read() as connection:
            found = rows.find_submission(connection, id_)
        if found is None or (caller is not None and found.caller != caller):
            raise NotFound("task", id_)
        return found

    def progress(self, submission: Submission) -> Progress:
        """Return how far the fine reading is of what a submission stored."""
        if submission.answer is None:
            return Progress.RUNNING
        return self.read_so_far([str(item) for item in submission.answer.get("items", ())])

    def read_so_far(self, ids: Sequence[str]) -> Progress:
        """Return how far the fine reading of messages is; those nobody wants read are through."""
        with self._context.ledger.read() as connection:
            states = reading.states(connection, ids)
            wanted = [item for item, state in states.items() if state is Reading.WANTED]
            if not wanted:
                return Progress.COMPLETED
            going_on = reading.is_coming(connection, wanted)
        return Progress.RUNNING if going_on else Progress.FAILED
