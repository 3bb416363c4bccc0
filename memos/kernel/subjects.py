"""`MemOS.subjects`: show, export and forget what is held about a person.

A request covers what its actor may do anyway: an admin's, every cube; a user's own, the cubes that it owns and what it
added to cubes that are shared with it. So nobody learns, or loses, anything of another tenant.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from heapq import nlargest
from pathlib import Path
from typing import IO, Any

import sqlalchemy as sa

from memos.core.clock import new_id
from memos.core.erasures import SubjectCube, SubjectExport, SubjectPreview, SubjectReceipt
from memos.core.identities import Right
from memos.core.text.validation import check_name
from memos.core.types import LOCAL_OWNER, Item
from memos.errors import Conflict, InvalidInput, NotFound, PermissionDenied
from memos.kernel.context import Context, retry_write
from memos.kernel.maintenance import Maintenance
from memos.memcube import changes, erasure, subject_archive
from memos.memcube.backup.files import created, disk_errors, sync_folder
from memos.memcube.ledger import access, files, items, subjects
from memos.memcube.ledger.entities import fold
from memos.memcube.subject_archive import Section
from memos.reader.arguments import switch, within

USER, PERSON = "user", "person"
_SAMPLE = 20
_RELATIONS = {True: "owned", False: "shared"}


@dataclass(frozen=True, slots=True)
class _Part:
    """What one cube holds of a person: ids of memories that go, of files that go, and of mentions by others."""

    cube: str
    relation: str
    goes: frozenset[str]
    derived: frozenset[str]
    by_others: int
    mentions: frozenset[str]
    files: tuple[str, ...]
    allowed: bool

    @property
    def doomed(self) -> int:
        return len(self.goes) + len(self.derived) if self.allowed else 0

    @property
    def is_dropped(self) -> bool:
        return self.relation == _RELATIONS[True] and self.allowed


class Subjects:
    """Requests of persons about what is held of them."""

    def __init__(self, context: Context, maintenance: Maintenance) -> None:
        self._context = context
        self._maintenance = maintenance

    def preview(
        self,
        subject: str,
        *,
        kind: str = USER,
        cubes: Sequence[str] | None = None,
        mentions: bool = False,
        actor: str = LOCAL_OWNER,
    ) -> SubjectPreview:
        """Return what is held about a person, and what `forget` with the same arguments would remove.

        Args:
            subject: A user, or the name of a person who is spoken of.
            kind: `user` for a user of the installation: the cubes it owns, what it and its agents added to other cubes,
                and its account. `person` for a name: what that person said and what is stated of them.
            cubes: Only these cubes; None covers all that the actor may read.
            mentions: Also erase the memories of others that mention the person.
            actor: Who asks: an admin, or the user itself; for a person, whoever may write in the cubes.

        Raises:
            InvalidInput: An argument is wrong.
            NotFound: A cube does not exist, or the actor may not see it.
            PermissionDenied: It is about a user, and the actor is neither that user nor an admin.
        """
        who, names = self._who(subject, kind, actor, Right.READ)
        mentions = switch("mentions", mentions)
        with self._context.ledger.read() as connection:
            parts = self._parts(
                connection, who, names, kind, self._cubes(connection, cubes, actor), actor, mentions=mentions
            )
            mentioning = _newest(connection, parts, (id_ for part in parts for id_ in part.mentions))
            examples = _newest(connection, parts, (id_ for part in parts for id_ in part.goes | part.derived))
            account = subjects.account(connection, who) if kind == USER else {}
        return SubjectPreview(
            kind,
            sum(part.doomed for part in parts),
            sum(len(part.mentions) for part in parts),
            sum(len(part.goes) + len(part.derived) for part in parts if not part.allowed),
            tuple(_shown(part) for part in parts),
            {table: len(rows) for table, rows in account.items() if rows},
            mentioning,
            examples,
        )

    def export(
        self,
        subject: str,
        file: str | Path,
        *,
        kind: str = USER,
        cubes: Sequence[str] | None = None,
        actor: str = LOCAL_OWNER,
    ) -> SubjectExport:
        """Write what is held about a person into a new ZIP file, as JSON, as pages to read, and as original files.

        It has what `preview` counts, and mentions by others. Raises: as `preview`, Conflict (the file exists),
        BackendUnavailable (the disk is full).
        """
        path = Path(file)
        if path.exists() or path.is_symlink() or not path.name:
            raise Conflict(f"{str(path)!r} exists already; choose another name, or remove it.")
        with self._archived(subject, kind, cubes, actor) as write, disk_errors(path.parent):
            aside = path.with_name(f".{path.name}.part")
            aside.unlink(missing_ok=True)
            try:
                with created(aside) as out:
                    counts = write(out)
                size = aside.stat().st_size
                aside.rename(path)
                sync_folder(path.parent)
            finally:
                aside.unlink(missing_ok=True)
        memories, held, covered = counts
        return SubjectExport(str(path), memories, held, covered, size)

    @retry_write
    def forget(
        self,
        subject: str,
        *,
        expected: int,
        kind: str = USER,
        cubes: Sequence[str] | None = None,
        mentions: bool = False,
        wait: bool = True,
        actor: str = LOCAL_OWNER,
    ) -> SubjectReceipt:
        """Erase what is held about a person in every form, all of it or nothing.

        Of a user, the cubes that it owns go, with what others added to them; what it added to other cubes; its keys,
        sessions, roles and memberships. In logs and histories another name stands for it. It is one transaction: after
        a kill either nothing has happened, or all of it, and the next start purges files and logs. Calling it again
        erases what came since.

        Args:
            subject: As in `preview`.
            expected: `goes` of the preview.
            kind: As in `preview`.
            cubes: As in `preview`; for a person only.
            mentions: As in `preview`.
            wait: Purge files and logs before this returns.
            actor: As in `preview`.

        Raises:
            Conflict: Another number of memories would go now.
            BackendUnavailable: The rows are gone, files are still being purged.
            InvalidInput, NotFound, PermissionDenied: As `preview`.
        """
        context = self._context
        who, names = self._who(subject, kind, actor, Right.OWN)
        if kind == USER and cubes is not None:
            raise InvalidInput("cubes", "applies to a person; a user is forgotten everywhere")
        if kind == USER:
            context.access.check_unlimited("forget a user")  # whose keys and other cubes it could not touch otherwise
        expected = within("expected", expected, 0, 10**12)
        mentions, wait = switch("mentions", mentions), switch("wait", wait)
        id_ = new_id()
        instead = f"erased-{id_}"
        with context.access.changing(), context.write() as connection:
            # Every cube is locked before anything is erased: the audit log, which each erasure locks, comes last.
            among = self._cubes(connection, cubes, actor, recorded=False)  # the log tells of what is forgotten
            begun = {cube: changes.begin(connection, cube, actor, context.clock) for cube, _ in among}
            parts = self._parts(connection, who, names, kind, among, actor, mentions=mentions)
            goes = sum(part.doomed for part in parts)
            if goes != expected:
                raise Conflict(f"{goes:,} memories would go now, not {expected:,}; look at the preview again.")
            erased = []
            for part in parts:
                if part.is_dropped:
                    erased.append(erasure.drop(begun[part.cube], context.key))
                elif part.allowed and (part.goes or part.files):
                    erased.append(
                        erasure.erase(begun[part.cube], sorted(part.goes), file_ids=part.files, key=context.key)
                    )
            account: dict[str, int] = {}
            if kind == USER:
                account = {table: len(rows) for table, rows in subjects.account(connection, who).items() if rows}
                dropped = [part.cube for part in parts if part.is_dropped]
                subjects.forget_account(connection, who, dropped, instead)
                subjects.rename_tombstones(
                    connection, [receipt.id for receipt in erased if receipt.cube in dropped], instead
                )
            by = instead if actor in who and kind == USER else actor
            told = {"kind": kind, "receipts": [receipt.id for receipt in erased]}
            access.record(connection, context.clock.now(), by, "forget", id_, told)
        context.scopes.forget()
        self._maintenance.forget_calls([part.cube for part in parts])
        if wait:
            self._maintenance.purge()
        receipts = tuple(self._maintenance.finish_erasure(receipt, wait=False) for receipt in erased)
        return SubjectReceipt(
            id_,
            kind,
            instead if kind == USER else None,
            goes,
            receipts,
            account,
            sum(len(part.mentions) for part in parts if not part.is_dropped) if not mentions else 0,
            sum(len(part.goes) + len(part.derived) for part in parts if not part.allowed),
        )

    def _who(self, subject: str, kind: str, actor: str, right: Right) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the identities of a user, none of a person, and the names that others may call them."""
        context = self._context
        context.lifecycle.check_open()
        if kind not in (USER, PERSON):
            raise InvalidInput("kind", f"must be `{USER}` or `{PERSON}`; got {kind!r:.40}")
        # A person may be called what a message may name its speaker.
        subject = check_name("subject", subject, 256 if kind == PERSON else 128)
        actor = check_name("actor", actor, 128)
        context.access.check(actor, (), right)
        if kind == PERSON:
            if not fold(subject):
                raise InvalidInput("subject", "must be a name")
            return (), (subject,)
        if subject == LOCAL_OWNER:
            raise InvalidInput("subject", "is the owner of the installation; drop cubes, or remove the data folder")
        if actor != subject:
            context.scopes.check_admin(actor)
        with context.ledger.read() as connection:
            found = access.find_identity(connection, subject)
            who = subjects.selves(connection, subject)
        named = () if found is None or not fold(found.name) else (found.name,)
        return who, tuple(dict.fromkeys((subject, *named)))

    def _cubes(
        self, connection: sa.Connection, cubes: Sequence[str] | None, actor: str, *, recorded: bool = True
    ) -> list[tuple[str, str]]:
        """Return the cubes that an actor may read, with their owners."""
        readable = self._context.scopes.cubes_of(cubes, actor, Right.READ, recorded=recorded)
        if cubes is None and readable is not None:
            # A user may do what the agents that act for it may.
            agents = subjects.selves(connection, actor)[1:]
            readable = tuple({*readable, *(cube for agent in agents for cube in self._readable(agent))})
        return subjects.cubes_among(connection, readable)

    def _readable(self, agent: str) -> frozenset[str]:
        try:
            return self._context.scopes.readable(agent) or frozenset()
        except PermissionDenied:  # disabled
            return frozenset()

    def _parts(
        self,
        connection: sa.Connection,
        who: Sequence[str],
        names: Sequence[str],
        kind: str,
        among: Sequence[tuple[str, str]],
        actor: str,
        *,
        mentions: bool,
    ) -> list[_Part]:
        found, actors = [], subjects.selves(connection, actor)
        for cube, owner in among:
            owned = kind == USER and owner in who
            part = self._owned(connection, cube, who, actors) if owned else None
            part = part or self._elsewhere(connection, cube, who, names, actors, mentions=mentions)
            if part.goes or part.mentions or part.files or owned:
                found.append(part)
        return found

    def _owned(self, connection: sa.Connection, cube: str, who: Sequence[str], actors: Sequence[str]) -> _Part:
        every = frozenset(items.matching_ids(connection, [cube], None))
        others = subjects.count_items(connection, cube, who)
        allowed = self._may(actors, cube, Right.OWN)
        held = tuple(files.of_cube(connection, cube))
        return _Part(cube, _RELATIONS[True], every, frozenset(), others, frozenset(), held, allowed)

    def _elsewhere(
        self,
        connection: sa.Connection,
        cube: str,
        who: Sequence[str],
        names: Sequence[str],
        actors: Sequence[str],
        *,
        mentions: bool,
    ) -> _Part:
        spelt = {each for name in names for each in subjects.spellings(connection, cube, name)}
        if who:
            goes, held = subjects.added_by(connection, cube, who), subjects.files_by(connection, cube, who)
            goes |= {row.item_id for file in held for row in files.parts(connection, file)}
        else:
            goes, held = subjects.about(connection, cube, spelt), []
        named = subjects.mentioning(connection, cube, spelt) - goes
        goes |= named if mentions else set()
        derived = erasure.derived(connection, goes) if goes else set()
        left = named - goes - derived
        allowed = self._may(actors, cube, Right.WRITE)
        relation = _RELATIONS[False] if who else "searched"
        return _Part(cube, relation, frozenset(goes), frozenset(derived), 0, frozenset(left), tuple(held), allowed)

    def _may(self, actors: Sequence[str], cube: str, right: Right) -> bool:
        """Return True if any of these, the actor or an agent that acts for it, has a right in a cube."""
        for actor in actors:
            with suppress(NotFound, PermissionDenied):
                self._context.access.check(actor, [cube], right)
                return True
        return False

    @contextmanager
    def _archived(self, subject: str, kind: str, cubes: Sequence[str] | None, actor: str) -> Iterator[Any]:
        """Yield a function that writes the archive into a file, and returns the memories, files and cubes in it."""
        who, names = self._who(subject, kind, actor, Right.READ)
        covers = (
            "It covers every cube of the installation."
            if self._context.scopes.readable(actor) is None
            else "It covers the cubes that the person it was made for may read; others were not looked at."
        )
        about = {
            "subject": subject,
            "kind": kind,
            "made_at": self._context.clock.now(),
            "made_for": actor,
            "covers": covers,
        }
        with self._context.ledger.read() as connection:
            parts = self._parts(
                connection, who, names, kind, self._cubes(connection, cubes, actor), actor, mentions=False
            )
            account = subjects.account(connection, who) if kind == USER else {}
            sections = list(_sections(parts))

            def write(out: IO[bytes]) -> tuple[int, int, int]:
                count = subject_archive.write(connection, out, about, account, sections)
                return count, sum(len(section.file_ids) for section in sections), len(parts)

            yield write
        self._context.scopes.cubes_of(cubes, actor, Right.READ)  # nothing read after a revocation is returned


def open_export(
    service: Subjects, subject: str, *, kind: str = USER, cubes: Sequence[str] | None = None, actor: str = LOCAL_OWNER
) -> IO[bytes]:
    """Return an archive as an open file without a name, at its beginning; close it. Raises: as `Subjects.export`."""
    context = service._context
    home = context.lifecycle.disk_folder
    context.lifecycle.check_space()
    out = _scratch(home)
    try:
        with service._archived(subject, kind, cubes, actor) as write:
            write(out)
        out.seek(0)
    except BaseException:
        out.close()
        raise
    return out


def _scratch(folder: Path | None) -> IO[bytes]:
    return tempfile.TemporaryFile(dir=folder)


def _sections(parts: Sequence[_Part]) -> Iterator[Section]:
    for part in parts:
        owned = part.relation == _RELATIONS[True]
        if part.goes or part.files or owned:
            ids = sorted(part.goes | part.derived)
            yield Section(part.cube, part.relation, ids, part.files, whole=owned)
        if part.mentions:
            yield Section(part.cube, "mentions by others", sorted(part.mentions))


def _newest(connection: sa.Connection, parts: Sequence[_Part], ids: Iterable[str]) -> tuple[Item, ...]:
    """Return the newest of these memories as they stand now, the newest first."""
    newest = nlargest(_SAMPLE, ids)  # ids begin with the time
    states = items.current(connection, [part.cube for part in parts], newest) if newest else {}
    return tuple(states[id_] for id_ in newest if id_ in states)


def _shown(part: _Part) -> SubjectCube:
    counts = (len(part.goes), len(part.derived), part.by_others, len(part.mentions), len(part.files))
    return SubjectCube(part.cube, part.relation, *counts, part.allowed)
