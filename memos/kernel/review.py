"""`MemOS.review`: approve, edit or reject pending items; no search finds them before that."""

from __future__ import annotations

from dataclasses import replace
from zoneinfo import ZoneInfo

from memos.core.identities import Right
from memos.core.types import (
    DEFAULT_CUBE,
    DERIVED,
    FOUND,
    LOCAL_OWNER,
    Item,
    PendingItem,
    Relation,
    ReviewCounts,
    Scope,
    Status,
)
from memos.errors import Conflict, InvalidInput, NotFound
from memos.kernel.context import Context, retry_write
from memos.memcube import changes
from memos.memcube import facts as stored_facts
from memos.memcube.changes import Change
from memos.memcube.ledger import items, queries, relations, tasks, tier_moves
from memos.reader import messages
from memos.reader.arguments import edits_of, switch, version_of, within
from memos.scheduler.jobs import facts

# Of what a person read and let stand, at least.
_CONFIRMED = 0.95
_MOST_COUNTED = 1_000


class Review:
    """Pending items: approve, edit or reject them."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def list(self, *, cube: str = DEFAULT_CUBE, actor: str = LOCAL_OWNER, limit: int = 100) -> tuple[PendingItem, ...]:
        """Return a cube's pending items with sources and reasons, oldest first. Raises: NotFound."""
        scope = self._context.scopes.check([cube], actor, embeds=False)
        limit = within("limit", limit, 1, 10_000)
        with self._context.ledger.read() as connection:
            return tuple(queries.pending_items(connection, scope.cubes[0], limit, self._context.clock.now()))

    def counts(self, *, cube: str = DEFAULT_CUBE, actor: str = LOCAL_OWNER) -> ReviewCounts:
        """Return how much awaits review in a cube, counted up to a limit. Raises: NotFound."""
        scope = self._context.scopes.check([cube], actor, embeds=False)
        with self._context.ledger.read() as connection:
            pending = queries.count_pending(connection, scope.cubes[0], _MOST_COUNTED, self._context.clock.now())
            doubtful = relations.count_supposed(connection, scope.cubes[0], _MOST_COUNTED)
        return ReviewCounts(pending, doubtful, _MOST_COUNTED)

    @retry_write
    def approve(
        self, item: str, *, cube: str | None = None, actor: str = LOCAL_OWNER, expected_version: int | None = None
    ) -> Item:
        """Approve a pending item, so that searches find it. Raises: NotFound, Conflict (not pending, or changed)."""
        scope = self._context.scopes.check_item(item, cube, actor, right=Right.WRITE)
        with self._context.change(scope) as change:
            before = _waiting(change, item)
            edits = {"status": Status.ACTIVE, "confidence": max(before.confidence, _CONFIRMED)}
            changes.update(change, item, _version(expected_version), edits, f"approved by {scope.actor}")
            # Its page may have been read without it.
            tier_moves.read_again(change.connection, change.cube, [item], change.now)
            tasks.enqueue(change.connection, change.cube, [facts.consolidate_task()], change.now)
        return self._settled(item, scope)

    @retry_write
    def edit(
        self,
        item: str,
        text: str,
        *,
        cube: str | None = None,
        actor: str = LOCAL_OWNER,
        expected_version: int | None = None,
    ) -> Item:
        """Approve a pending item with another text. Raises: InvalidInput, NotFound, Conflict (as for `approve`)."""
        scope = self._context.scopes.check_item(item, cube, actor, right=Right.WRITE)
        masking = self._context.scopes.masking(scope)
        edits = edits_of(masking.fields({"memory": text}))
        with self._context.change(scope) as change:
            before = _waiting(change, item)
            # Key and value of the old text must not remain.
            zone = ZoneInfo(scope.time_zone)
            told = messages.restated(before, edits["memory"], zone)
            edits = {**told, **edits, "status": Status.ACTIVE}
            reason = f"edited and approved by {scope.actor}"
            changes.update(change, item, _version(expected_version), edits, reason)
            masking.record(change)
            tier_moves.read_again(change.connection, change.cube, [item], change.now)
            tasks.enqueue(change.connection, change.cube, [facts.consolidate_task()], change.now)
        return self._settled(item, scope)

    @retry_write
    def reject(self, item: str, *, cube: str | None = None, actor: str = LOCAL_OWNER) -> Item:
        """Delete a pending item; a rollback makes it pending again. Raises: NotFound, Conflict (not pending)."""
        scope = self._context.scopes.check_item(item, cube, actor, embeds=False, right=Right.WRITE)
        with self._context.change(scope) as change:
            _waiting(change, item)
            changes.delete(change, [item], f"rejected by {scope.actor}")
        return self._settled(item, scope)

    def relations(
        self, *, cube: str = DEFAULT_CUBE, actor: str = LOCAL_OWNER, limit: int = 100
    ) -> tuple[Relation, ...]:
        """Return what corrections in doubt suppose to be replaced, oldest first, until `decide`. Raises: NotFound."""
        scope = self._context.scopes.check([cube], actor, embeds=False)
        limit = within("limit", limit, 1, 10_000)
        with self._context.ledger.read() as connection:
            return tuple(relations.supposed(connection, scope.cubes[0], limit))

    @retry_write
    def decide(
        self, newer: str, older: str, *, holds: bool, cube: str | None = None, actor: str = LOCAL_OWNER
    ) -> tuple[Relation, ...]:
        """Decide whether a newer statement replaces an older one, whatever rules judged; return the newer's relations.

        Both stay; a search puts the newer first if it `holds`. If not, the relation between them, of any kind, is taken
        back. Raises: NotFound, InvalidInput (the same item twice).
        """
        scope = self._context.scopes.check_item(newer, cube, actor, embeds=False, right=Right.WRITE)
        if newer == older:
            raise InvalidInput("older", "must be another item than `newer`")
        holds = switch("holds", holds)
        with self._context.change(scope) as change:
            for item in (newer, older):
                items.require(change.connection, [change.cube], item)
            relations.decide(change.connection, change.cube, newer, older, holds=holds, actor=actor, now=change.now)
            changes.record_item(change, "relation", newer, {"older": older, "holds": holds})
            return tuple(relations.of_items(change.connection, [newer]))

    @retry_write
    def reopen(
        self, newer: str, older: str, *, cube: str | None = None, actor: str = LOCAL_OWNER
    ) -> tuple[Relation, ...]:
        """Take back a person's decision on two statements, so that it awaits another; return the newer's relations.

        Raises: NotFound (also if nobody decided).
        """
        scope = self._context.scopes.check_item(newer, cube, actor, embeds=False, right=Right.WRITE)
        with self._context.change(scope) as change:
            for item in (newer, older):
                items.require(change.connection, [change.cube], item)
            if not relations.reopen(change.connection, change.cube, newer, older, change.now):
                raise NotFound("decision", f"{newer} {older}", "Nobody has decided on these two.")
            changes.record_item(change, "relation", newer, {"older": older, "holds": None})
            return tuple(relations.of_items(change.connection, [newer]))

    @retry_write
    def merge(
        self,
        item: str,
        into: str,
        *,
        cube: str | None = None,
        actor: str = LOCAL_OWNER,
        expected_version: int | None = None,
    ) -> Item:
        """Replace a memory by another that says the same, which takes over its sources; return the one that stays.

        The one that stays is approved if it was pending, and a correction in doubt about the two is settled. A
        `rollback` of each undoes it. Raises: NotFound, InvalidInput (the same item twice), Conflict (one of them was
        deleted or replaced, or changed).
        """
        scope = self._context.scopes.check_item(item, cube, actor, right=Right.WRITE)
        if item == into:
            raise InvalidInput("into", "must be another item than the one to merge")
        with self._context.change(scope) as change:
            before, stays = _mergeable(change, item), _mergeable(change, into)
            if expected_version is not None and before.version != version_of("expected_version", expected_version):
                raise Conflict(f"Item {item} is at version {before.version}, not {expected_version}; read it again.")
            if {before.type, stays.type} <= DERIVED:
                stored_facts.copy_sources(change, into, item)
            if stays.status is Status.PENDING:
                edits = {"status": Status.ACTIVE, "confidence": max(stays.confidence, _CONFIRMED)}
                changes.update(change, into, None, edits, f"approved by {scope.actor}")
                tier_moves.read_again(change.connection, change.cube, [into], change.now)
            relations.repeat(change.connection, change.cube, item, into, actor=scope.actor, now=change.now)
            replaced = {"status": Status.SUPERSEDED, "superseded_by": into}
            changes.edit(change, before, replaced, f"says the same as {into}", kind="supersede")
            stored_facts.link_superseded(change, into, item)
            tasks.enqueue(change.connection, change.cube, [facts.consolidate_task()], change.now)
        return self._settled(into, scope)

    def _settled(self, item: str, scope: Scope) -> Item:
        self._context.wait_indexed()
        with self._context.ledger.read() as connection:
            state = items.require(connection, scope.cubes, item)
            return replace(state, sources=items.sources_of(connection, [item]).get(item, ()))


def _waiting(change: Change, item: str) -> Item:
    state = items.require(change.connection, [change.cube], item)
    if state.status is not Status.PENDING:
        raise Conflict(
            f"Item {item} is {state.status}, not pending; list pending memories with `memos memory review list`."
        )
    return state


def _mergeable(change: Change, item: str) -> Item:
    state = items.require(change.connection, [change.cube], item)
    if state.status not in FOUND | {Status.PENDING}:
        raise Conflict(f"Item {item} is {state.status}; only memories that are in use or pending can be merged.")
    return state


def _version(expected: int | None) -> int | None:
    return None if expected is None else version_of("expected_version", expected)
