"""`MemOS.submissions`: requests that store something and may come twice, and how far what they began is.

Knows no wire format: what makes two requests the same is a text that the surface gives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from memos.core.text.validation import check_name
from memos.core.types import Json, Reading
from memos.errors import NotFound
from memos.kernel.context import Context
from memos.memcube.ledger import idempotency as rows
from memos.memcube.ledger import reading


class Progress(StrEnum):
    """How far a submission is."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Submission:
    """One request; `answer` is what it was answered, None while it is carried out or when that broke off.

    `fresh` says that it was taken for the first time.
    """

    id: str
    caller: str
    answer: Mapping[str, Json] | None
    fresh: bool = False

    @property
    def key(self) -> str:
        """The idempotency key of what is stored for it."""
        return f"submission:{self.id}"


class Submissions:
    """The submissions of an installation: the same from the same caller within a minute is one."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def take(self, caller: str, body: str, cubes: Sequence[str]) -> Submission:
        """Return the caller's submission of this body of the last minute, else a new one.

        Raises: BackendUnavailable (disk full).
        """
        with self._context.write() as connection:
            return _shown(rows.find_or_create(connection, caller, body, cubes, self._context.clock.now()))

    def answered(self, submission: Submission, answer: Mapping[str, Json], *, known: bool = True) -> Submission:
        """Keep what a submission is answered, ids only; return it with the first answer it was given.

        One that is not to be `known` any more was only kept from being carried out twice at once.
        """
        with self._context.write() as connection:
            rows.answer(connection, submission.id, answer, known=known)
            kept = rows.get(connection, submission.id)
        return submission if kept is None else _shown(kept)

    def withdraw(self, submission: Submission) -> None:
        """Forget a submission that stored nothing, so that the same may be sent again at once."""
        with self._context.write() as connection:
            rows.remove(connection, submission.id)

    def get(self, id_: str, caller: str | None) -> Submission:
        """Return a submission, a caller's own only; None may see all. Raises: NotFound, InvalidInput."""
        id_ = check_name("task", id_, 64)
        with self._context.ledger.read() as connection:
            found = rows.get(connection, id_)
        if found is None or (caller is not None and found.caller != caller):
            raise NotFound("task", id_)
        return _shown(found)

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
            going_on = rows.is_read_on(connection, wanted, reading.READ)
        return Progress.RUNNING if going_on else Progress.FAILED


def _shown(row: rows.Row) -> Submission:
    return Submission(row.id, row.caller, row.answer, row.fresh)
