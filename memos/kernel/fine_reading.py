"""`MemOS.read_finely` and what was read by what: has stored messages read into facts, and tells the records of it."""

from __future__ import annotations

from memos.core.types import ExtractionRecord, Scope
from memos.errors import NotFound
from memos.kernel.handles import Handles
from memos.memcube.ledger import items, reading


class FineReading:
    """Fine reading of one open installation, as callers ask for it."""

    def __init__(self, handles: Handles) -> None:
        self._handles = handles

    def want(self, scope: Scope, conversation: str | None) -> tuple[str, ...]:
        """Have what never was read finely, of a conversation or of the cube; return the tasks. Raises: NotFound."""
        with self._handles.changing(scope) as change:
            connection, cube = change.connection, change.cube
            if conversation is not None and not reading.is_conversation(connection, cube, conversation):
                raise NotFound("conversation", conversation, "See what there is with `memos list`.")
            return tuple(reading.want_all(connection, cube, conversation, change.now))

    def records(self, item: str, scope: Scope) -> tuple[ExtractionRecord, ...]:
        """Return what read a message, or what a derived item was read by, oldest first. Raises: NotFound."""
        with self._handles.ledger.read() as connection:
            items.require(connection, scope.cubes, item)
            return tuple(reading.records(connection, item))
