"""Reads the messages that are wanted finely, one window of a conversation a task, in the transaction that ends it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import sqlalchemy as sa

from memos.core.types import Item, Reading
from memos.errors import ModelError
from memos.memcube import changes
from memos.memcube.changes import Change
from memos.memcube.ledger import items, reading
from memos.reader.facts.windows import Room, Window, window
from memos.scheduler import learning
from memos.scheduler.jobs.segments import ACTOR
from memos.scheduler.learning import Learner, Learnt, ToRead
from memos.scheduler.task import Run

# Short messages are many before they are a window's worth of tokens.
_MOST_WANTED = 100
_MOST_AROUND = 20
_ROOM = Room()


@dataclass(frozen=True, slots=True)
class ReadJob:
    """Enriches what `add` stored; the messages themselves stay as they are, whatever comes of it."""

    learner: Learner
    room: Room = _ROOM

    def run(self, run: Run) -> None:
        """Read the conversation's next window, and leave a task for the one after it."""
        cube, conversation = run.task.cube, run.task.payload.get("conversation")
        with run.ledger.read() as connection:
            if reading.is_read_elsewhere(connection, cube, conversation, run.task.id):
                found, shown = None, None
            else:
                found = self._next(connection, run)
                shown = replace(learning.to_read(connection, cube, found.messages), context=found.context)
        learnt = None if shown is None or not shown.messages else self._learn(run, shown)
        with run.finishing() as connection:
            change = changes.begin(connection, cube, ACTOR, run.clock)
            if found is not None:
                reading.mark(connection, found.passed)
            if found is not None and learnt is not None and _is_as_read(connection, cube, found):
                _keep(change, found, learnt)
            reading.go_on(connection, cube, conversation, run.task.id, change.now)
        if learnt is not None:
            self.learner.settled()

    def _next(self, connection: sa.Connection, run: Run) -> Window:
        """Return the oldest messages that are wanted; fewer at each attempt, since too many may be why it failed."""
        conversation = run.task.payload.get("conversation")
        found = reading.stretch(connection, run.task.cube, conversation, _MOST_WANTED, _MOST_AROUND)
        return window(found.messages, found.wanted, self.room.shrunk(run.task.attempts - 1))

    def _learn(self, run: Run, shown: ToRead) -> Learnt:
        try:
            return self.learner.read(run, shown, asks=self.learner.has_model())
        except ModelError as error:
            if error.permanent and len(shown.messages) > 1:
                # A shorter window may fit the model, or leave out the message that it refuses.
                raise ModelError(str(error), tokens=error.tokens) from error
            raise


def _is_as_read(connection: sa.Connection, cube: str, found: Window) -> bool:
    """Say that nothing of what was shown was changed or erased, nor read by another meanwhile."""
    ids = [message.id for message in found.messages]
    now: dict[str, Item] = items.current(connection, [cube], ids)
    same = all(message.id in now and now[message.id].version_id == message.version_id for message in found.messages)
    states = reading.states(connection, ids)
    return same and all(states.get(id_) is Reading.WANTED for id_ in ids if id_ not in found.context)


def _keep(change: Change, found: Window, learnt: Learnt) -> None:
    read = [message.id for message in found.messages if message.id not in found.context]
    shown = read if learnt.extraction.model is None else [message.id for message in found.messages]
    outcome = learning.keep(change, learnt, shown)
    reading.mark(change.connection, read)
    body = {"messages": read, **learning.told(outcome, learnt.extraction.rejected)}
    changes.record(change, "read", body)
