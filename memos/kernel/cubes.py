"""`MemOS.cubes` and `MemOS.knowledge`: create, describe, list and delete cubes; knowledge bases of documents."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Annotated

import sqlalchemy as sa

from memos.core.clock import new_id
from memos.core.identities import Right
from memos.core.text.validation import check_name, check_new_id, check_text
from memos.core.types import DEFAULT_CUBE, LOCAL_OWNER, Cube, CubeKind, EraseReceipt, FileState, Scope, StoredFile
from memos.errors import InvalidInput, NotFound, PermissionDenied
from memos.kernel.context import Context, retry_read, retry_write
from memos.kernel.documents import Documents, Files, Given
from memos.memcube import changes, erasure
from memos.memcube.ledger import adapters, files
from memos.memcube.ledger import cubes as cube_rows
from memos.reader.arguments import member_of, switch, zone_of

_LONGEST_OWNER = 90

Cubes_ = list[Cube]  # `list` is a method here


class Cubes:
    """The cubes of an installation."""

    def __init__(self, context: Context, finish_erasure: Callable[[EraseReceipt], EraseReceipt]) -> None:
        self._context = context
        self._finish_erasure = finish_erasure

    @retry_write
    def create(
        self,
        cube: str,
        *,
        actor: str = LOCAL_OWNER,
        description: str = "",
        time_zone: str | None = None,
        redact_pii: bool = False,
        kind: CubeKind = CubeKind.MEMORY,
    ) -> Cube:
        """Create an empty cube owned by the actor; `redact_pii` masks personal data in what is added.

        Raises: InvalidInput, Conflict, PermissionDenied (the actor is unknown here).
        """
        context = self._context
        cube = check_new_id("cube", cube)
        context.scopes.readable(check_name("actor", actor, 128))
        context.access.check_key(Right.OWN)
        context.access.check_unlimited("create cubes")
        zone = zone_of(time_zone or context.settings.time_zone)
        redact_pii = switch("redact_pii", redact_pii)
        masking = context.scopes.masking(Scope(actor, (cube,), redact_pii=redact_pii))
        description = masking.text("description", check_text("description", description, 10_000))
        made = Cube(
            cube,
            actor,
            description,
            zone.key,
            context.scopes.fingerprint,
            context.clock.now(),
            kind=member_of("kind", kind, CubeKind),
            redact_pii=redact_pii,
        )
        with context.access.changing(), context.write() as connection:
            cube_rows.create(connection, made)
            cube_rows.record_event(connection, cube, made.created_at, actor, "create", None, {})
        return made

    @retry_read
    def get(self, cube: str, *, actor: str = LOCAL_OWNER) -> Cube:
        """Return one cube. Raises: NotFound."""
        scope = self._context.scopes.check([cube], actor, embeds=False)
        with self._context.ledger.read() as connection:
            return cube_rows.get(connection, scope.cubes[0])

    @retry_read
    def list(self, *, actor: str = LOCAL_OWNER) -> Cubes_:
        """Return the cubes the actor may read, by id. Raises: PermissionDenied (its key may not read)."""
        self._context.lifecycle.check_open()
        self._context.access.check_key(Right.READ)
        readable = self._context.scopes.readable(check_name("actor", actor, 128))
        with self._context.ledger.read() as connection:
            every = cube_rows.list_all(connection)
        return every if readable is None else [cube for cube in every if cube.id in readable]

    def rights(self, cube: str, *, actor: str = LOCAL_OWNER) -> tuple[Right, ...]:
        """Return the rights an actor has in a cube, no more than those of its key. Raises: NotFound."""
        found = []
        for right in Right:
            with suppress(PermissionDenied):
                self._context.scopes.check([cube], actor, embeds=False, right=right, recorded=False)
                found.append(right)
        return tuple(found)

    @retry_write
    def change(
        self, cube: str, *, actor: str = LOCAL_OWNER, description: str | None = None, redact_pii: bool | None = None
    ) -> Cube:
        """Change a cube's description, or masking of personal data added later. Raises: InvalidInput, NotFound."""
        context = self._context
        scope = context.scopes.check([cube], actor, embeds=False, right=Right.OWN)
        if description is None and redact_pii is None:
            raise InvalidInput("description", "nothing to change; give a description or redact_pii")
        scope = scope if redact_pii is None else replace(scope, redact_pii=switch("redact_pii", redact_pii))
        text = None if description is None else check_text("description", description, 10_000)
        with context.change(scope) as change:
            if text is not None:
                text = context.scopes.masking(scope).text("description", text)
                cube_rows.set_description(change.connection, change.cube, text)
            if redact_pii is not None:
                cube_rows.set_redaction(change.connection, change.cube, redact_pii=redact_pii)
            changes.record(change, "change", {} if redact_pii is None else {"redact_pii": redact_pii})
        self._context.scopes.forget()
        return self.get(cube, actor=actor)

    @retry_write
    def drop(self, cube: str, *, actor: str = LOCAL_OWNER) -> EraseReceipt:
        """Erase everything in a cube, then the cube. Raises: NotFound."""
        context = self._context
        scope = context.scopes.check([cube], actor, embeds=False, right=Right.OWN)
        with context.access.changing():
            with context.change(scope) as change:
                receipt = erasure.drop(change, context.key)
            self._context.scopes.forget()
        return self._finish_erasure(receipt)

    def create_home(self, connection: sa.Connection, owner: str, adopt: bool) -> str:
        """Create an identity's own cube and return its id: the owner's, or a longer one if that is taken.

        With `adopt` a cube of that id made by the local owner becomes it, except the default cube.
        """
        cube, now = owner, self._context.clock.now()
        if cube_rows.exists(connection, cube):
            theirs = cube_rows.get(connection, cube).owner == LOCAL_OWNER
            if adopt and theirs and cube != DEFAULT_CUBE:
                cube_rows.set_owner(connection, cube, owner)
                adapters.disallow(connection, cube)  # the new owner has not consented to training
                cube_rows.record_event(connection, cube, now, owner, "create", None, {})
                return cube
            cube = f"{owner[:_LONGEST_OWNER]}-{new_id()}"
        zone = zone_of(self._context.settings.time_zone).key
        cube_rows.create(connection, Cube(cube, owner, "", zone, self._context.scopes.fingerprint, now))
        cube_rows.record_event(connection, cube, now, owner, "create", None, {})
        return cube


@dataclass(frozen=True, slots=True)
class KnowledgeBase:
    """A cube of documents; `files` counts them by state."""

    id: Annotated[str, "Id, also used as a cube id"]
    description: Annotated[str, "Description"]
    owner: Annotated[str, "Who owns it"]
    items: Annotated[int, "Number of passages and other memories"]
    files: Annotated[Mapping[FileState, int], "Files by state"]


Bases = tuple[KnowledgeBase, ...]  # `list` is a method here


@dataclass(frozen=True, slots=True)
class KnowledgeBases:
    """Knowledge bases; each is a cube, so searches can include them."""

    context: Context
    documents: Documents
    cubes: Cubes

    def create(
        self, id: str, description: str = "", *, actor: str = LOCAL_OWNER, redact_pii: bool = False
    ) -> KnowledgeBase:
        """Create an empty knowledge base; `redact_pii` masks personal data in it. Raises: InvalidInput, Conflict."""
        self.cubes.create(id, actor=actor, description=description, kind=CubeKind.KNOWLEDGE, redact_pii=redact_pii)
        return self.get(id, actor=actor)

    def get(self, id: str, *, actor: str = LOCAL_OWNER) -> KnowledgeBase:
        """Return a knowledge base and how many of its files are in which state. Raises: NotFound."""
        scope = self.context.scopes.check([id], actor, embeds=False)
        with self.context.ledger.read() as connection:
            cube = cube_rows.get(connection, scope.cubes[0])
            if cube.kind is not CubeKind.KNOWLEDGE:
                raise NotFound(
                    "knowledge base", id, "It is a cube, not a knowledge base; create one with `memos docs create`."
                )
            return _base(cube, files.counts(connection, cube.id))

    def list(self, *, actor: str = LOCAL_OWNER) -> Bases:
        """Return the knowledge bases by id."""
        self.context.lifecycle.check_open()
        readable = self.context.scopes.readable(check_name("actor", actor, 128))
        with self.context.ledger.read() as connection:
            cubes = [cube for cube in cube_rows.list_all(connection) if cube.kind is CubeKind.KNOWLEDGE]
            if readable is not None:
                cubes = [cube for cube in cubes if cube.id in readable]
            return tuple(_base(cube, files.counts(connection, cube.id)) for cube in cubes)

    def drop(self, id: str, *, actor: str = LOCAL_OWNER) -> EraseReceipt:
        """Erase everything in a knowledge base, then itself. Raises: NotFound."""
        return self.cubes.drop(self.get(id, actor=actor).id, actor=actor)

    def add(self, id: str, file: Given, *, actor: str = LOCAL_OWNER) -> StoredFile:
        """Keep a file and have it read, as `documents.add` does. Raises: InvalidInput, NotFound, BackendUnavailable."""
        return self.documents.add(file, cube=self.get(id, actor=actor).id, actor=actor)

    def files(self, id: str, *, actor: str = LOCAL_OWNER, states: Collection[str] = ()) -> Files:
        """Return the files, the newest first; without `states` those that are not deleted. Raises: NotFound."""
        return self.documents.list(cube=self.get(id, actor=actor).id, actor=actor, states=states)

    def file(self, id: str, file: str, *, actor: str = LOCAL_OWNER) -> StoredFile:
        """Return one file as it stands. Raises: NotFound."""
        return self.documents.get(file, cube=self.get(id, actor=actor).id, actor=actor)

    def delete(self, id: str, file: str, *, actor: str = LOCAL_OWNER) -> StoredFile:
        """Delete a file and everything made of it. Raises: NotFound."""
        return self.documents.delete(file, cube=self.get(id, actor=actor).id, actor=actor)


def _base(cube: Cube, found: Mapping[FileState, int]) -> KnowledgeBase:
    return KnowledgeBase(cube.id, cube.description, cube.owner, cube.items, dict(found))
