"""`MemOS.review`: items that wait until a person has looked at them; no search finds them before that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from zoneinfo import ZoneInfo

from memos.core.identities import Right
from memos.core.types import DEFAULT_CUBE, LOCAL_OWNER, Item, PendingItem, Scope, Status
from memos.errors import Conflict
from memos.kernel.context import Context
from memos.memcube import changes
from memos.memcube.changes import Change
from memos.memcube.ledger import items, tasks
from memos.memcube.ledger import queries as pending
from memos.memcube.ledger import tier_moves as moves
from memos.reader import messages as fast
from memos.reader.arguments import edits_of, version_of, within
from memos.scheduler.jobs import facts as tidy

# Of what a person read and let stand, at least.
_CONFIRMED = 0.95


class Review:
    """The pending items of an installation: approved, edited or rejected by hand."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def list(self, *, cube: str = DEFAULT_CUBE, actor: str = LOCAL_OWNER, limit: int = 100) -> tuple[PendingItem, ...]:
        """Return what awaits review in a cube with its sources and why it waits, oldest first. Raises: NotFound."""
        scope = self._context.scopes.check([cube], actor, embeds=False)
        limit = within("limit", limit, 1, 10_000)
        with self._context.ledger.read() as connection:
            return tuple(pending.of_cube(connection, scope.cubes[0], limit))

    def approve(
        self, item: str, *, cube: str | None = None, actor: str = LOCAL_OWNER, expected_version: int | None = None
    ) -> Item:
        """Let an item be found. Raises: NotFound, Conflict (not pending, or no longer at `expected_version`)."""
        scope = self._context.scopes.check_item(item, cube, actor, right=Right.WRITE)
        with self._context.change(scope) as change:
            before = _waiting(change, item)
            edits = {"status": Status.ACTIVE, "confidence": max(before.confidence, _CONFIRMED)}
            changes.update(change, item, _version(expected_version), edits, f"approved by {scope.actor}")
            moves.read_again(
                change.connection, change.cube, [item], change.now
            )  # its page may have been read without it
            _line_up(change)
        return self._settled(item, scope)

    def edit(
        self,
        item: str,
        text: str,
        *,
        cube: str | None = None,
        actor: str = LOCAL_OWNER,
        expected_version: int | None = None,
    ) -> Item:
        """Let an item be found with another text. Raises: InvalidInput, NotFound, Conflict as `approve` does."""
        scope = self._context.scopes.check_item(item, cube, actor, right=Right.WRITE)
        masking = self._context.scopes.masking(scope)
        edits = edits_of(masking.fields({"memory": text}))
        with self._context.change(scope) as change:
            before = _waiting(change, item)
            edits = {**_stated(before, edits, scope), "status": Status.ACTIVE}
            reason = f"edited and approved by {scope.actor}"
            changes.update(change, item, _version(expected_version), edits, reason)
            masking.record(change)
            moves.read_again(change.connection, change.cube, [item], change.now)
            _line_up(change)
        return self._settled(item, scope)

    def reject(self, item: str, *, cube: str | None = None, actor: str = LOCAL_OWNER) -> Item:
        """Delete an item; a rollback lets it wait again. Raises: NotFound, Conflict (not pending)."""
        scope = self._context.scopes.check_item(item, cube, actor, embeds=False, right=Right.WRITE)
        with self._context.change(scope) as change:
            _waiting(change, item)
            changes.delete(change, [item], f"rejected by {scope.actor}")
        return self._settled(item, scope)

    def _settled(self, item: str, scope: Scope) -> Item:
        self._context.wait_indexed()
        with self._context.ledger.read() as connection:
            state = items.require(connection, scope.cubes, item)
            return replace(state, sources=items.sources_of(connection, [item]).get(item, ()))


def _line_up(change: Change) -> None:
    """Have what is known put in order with what was approved: it may be another value of the same key."""
    tasks.enqueue(change.connection, change.cube, [tidy.task()], change.now)


def _waiting(change: Change, item: str) -> Item:
    """Return an item that is pending. Raises: NotFound, Conflict."""
    state = items.require(change.connection, [change.cube], item)
    if state.status is not Status.PENDING:
        raise Conflict(
            f"Item {item} is {state.status}, not pending: there is nothing to review. See what is with "
            "`memos review list`."
        )
    return state


def _stated(before: Item, edits: Mapping[str, Any], scope: Scope) -> dict[str, Any]:
    """Return edits with what is read out of the new text: what the old one said must not stand for it."""
    zone = ZoneInfo(scope.time_zone)
    return {**fast.stated(edits["memory"], before.speaker, before.role, before.said_at, zone), **edits}


def _version(expected: int | None) -> int | None:
    return None if expected is None else version_of("expected_version", expected)
