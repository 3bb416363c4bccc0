"""`MemOS.audit`: who did what when, in every cube one may read, and who signed in or changed users and keys."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import merge
from itertools import islice

from memos.core.audit import AuditEntry, ChainReport
from memos.core.identities import Right
from memos.core.text.validation import check_name
from memos.core.types import LOCAL_OWNER
from memos.errors import InvalidInput
from memos.kernel.access.guard import caller
from memos.kernel.context import Context
from memos.memcube.ledger import access, audit_chain
from memos.memcube.ledger import cubes as cube_rows
from memos.memcube.ledger.access import AuditPlace, AuditQuery
from memos.reader.arguments import switch, within

_MOST_CUBES = 100  # each is one query
_MOST_KINDS = 100
_CURSOR_CHARS = 200

Entries = list[AuditEntry]  # `list` is a method below


class Audit:
    """The events of cubes and the access log, as one list, newest first."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def list(
        self,
        *,
        cubes: Sequence[str] | None = None,
        actor: str = LOCAL_OWNER,
        by: str | None = None,
        kinds: Sequence[str] = (),
        before: str | None = None,
        limit: int = 100,
    ) -> Entries:
        """Return what happened, newest first.

        Args:
            cubes: Cubes whose events to return, with reads of those that one owns where reads are recorded; None
                returns events of the 100 readable cubes that changed last, and the access log: of everybody for an
                admin, else what one did oneself, what was done about one, and reads of what one owns.
            actor: Who asks.
            by: Only what this actor did.
            kinds: Only of these kinds.
            before: Id of an entry; continues behind it.
            limit: Maximum number of entries, at most 1,000.

        Raises:
            InvalidInput: An argument is wrong.
            NotFound: A cube does not exist, or the actor may not see it.
        """
        if isinstance(kinds, str) or len(kinds) > _MOST_KINDS:
            raise InvalidInput("kinds", f"must be a list of at most {_MOST_KINDS} names")
        place = None if before is None else AuditPlace.read(check_name("before", before, _CURSOR_CHARS))
        if before is not None and place is None:
            raise InvalidInput("before", "must be the id of an entry")
        wanted = AuditQuery(
            place,
            tuple(dict.fromkeys(check_name("kinds", kind, 64) for kind in kinds)),
            None if by is None else check_name("by", by, 128),
            within("limit", limit, 1, 1_000),
        )
        named = self._context.scopes.cubes_of(cubes, actor, Right.READ, recorded=False)
        about = None if self._context.access.is_admin(actor) else actor
        owned = self._context.access.owned(actor, named)
        asking = caller()
        # Sign-ins and keys of its owner are nothing to a key that is limited to cubes.
        only_reads = cubes is not None or (asking is not None and asking.key.cubes is not None)
        with self._context.ledger.read() as connection:
            found = [access.access_entries(connection, wanted, about, owned, reads=only_reads)]
            for cube in access.changed_last(connection, named, _MOST_CUBES):
                found.append(access.cube_entries(connection, cube, wanted))
        self._context.scopes.cubes_of(
            cubes, actor, Right.READ, recorded=False
        )  # nothing read after a revocation is returned
        return [*islice(merge(*found, key=AuditPlace.of, reverse=True), wanted.limit)]

    def record_reads(self, *, enabled: bool = True, actor: str = LOCAL_OWNER) -> bool:
        """Record reads of cubes from now on, or no longer; the installation keeps this, admins decide it.

        A read is recorded before it is answered, once for each cube and request, with the actor, the key and the
        memory if it was of one; what cannot be recorded is refused. Reads by the local owner are not recorded.
        """
        self._context.scopes.check_admin(actor)
        self._context.lifecycle.check_space()
        self._context.scopes.record_reads(enabled=switch("enabled", enabled), actor=actor)
        return enabled

    def records_reads(self, *, actor: str = LOCAL_OWNER) -> bool:
        """Return True if reads are recorded: everybody may know. Raises: PermissionDenied (unknown actor)."""
        self._context.lifecycle.check_open()
        self._context.access.readable(check_name("actor", actor, 128))
        return self._context.scopes.records_reads

    def verify(self, cube: str | None = None, *, actor: str = LOCAL_OWNER) -> ChainReport:
        """Check that a chain is whole: of a cube's events or, without one, of the access log, which is for admins.

        It takes about a second per 100,000 entries. Raises: NotFound, PermissionDenied.
        """
        if cube is None:
            self._context.scopes.check_admin(actor)
            with self._context.ledger.read() as connection:
                entries, problem = access.count_entries(connection), audit_chain.broken(connection)
            return ChainReport(None, entries, problem is None, problem)
        self._context.scopes.cubes_of([cube], actor, Right.READ, recorded=False)
        with self._context.ledger.read() as connection:
            events, problem = cube_rows.head(connection, cube), cube_rows.broken_event(connection, cube)
        return ChainReport(cube, events, problem is None, problem)
