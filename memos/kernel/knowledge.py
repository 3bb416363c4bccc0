"""`MemOS.knowledge`: cubes that hold documents to look things up in; what a document is, `memos.documents` knows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from memos.core.text.validation import check_name
from memos.core.types import LOCAL_OWNER, Cube, CubeKind, EraseReceipt, FileState, StoredFile
from memos.errors import NotFound
from memos.kernel.documents import Documents, Files, Given
from memos.kernel.handles import Handles
from memos.memcube.ledger import cubes as cube_rows
from memos.memcube.ledger import files


@dataclass(frozen=True, slots=True)
class KnowledgeBase:
    """One cube of documents; `files` says how many are in which state."""

    id: str
    description: str
    owner: str
    items: int
    files: Mapping[FileState, int]


Bases = tuple[KnowledgeBase, ...]  # `list` is a method here


class Creating(Protocol):
    """Makes a cube."""

    def __call__(
        self, cube: str, *, actor: str = ..., description: str = ..., kind: CubeKind = ..., redact_pii: bool = ...
    ) -> Cube:
        """Return the new cube. Raises: InvalidInput, Conflict."""
        ...


@dataclass(frozen=True, slots=True)
class Knowledge:
    """The knowledge bases of an installation: each is a cube, so a search over several cubes may name them."""

    handles: Handles
    documents: Documents
    creating: Creating
    dropping: Callable[[str, str], EraseReceipt]

    def create(
        self, id: str, description: str = "", *, actor: str = LOCAL_OWNER, redact_pii: bool = False
    ) -> KnowledgeBase:
        """Make an empty knowledge base; with `redact_pii` personal data in its documents is masked.

        Raises: InvalidInput, Conflict when the id is taken.
        """
        self.creating(id, actor=actor, description=description, kind=CubeKind.KNOWLEDGE, redact_pii=redact_pii)
        return self.get(id, actor=actor)

    def get(self, id: str, *, actor: str = LOCAL_OWNER) -> KnowledgeBase:
        """Return a knowledge base and how many of its files are in which state. Raises: NotFound."""
        scope = self.handles.scoping([id], actor, embeds=False)
        with self.handles.ledger.read() as connection:
            cube = cube_rows.get(connection, scope.cubes[0])
            if cube.kind is not CubeKind.KNOWLEDGE:
                raise NotFound("knowledge base", id, "It is a cube of memories; make one with `memos kb create`.")
            return _base(cube, files.counts(connection, cube.id))

    def list(self, *, actor: str = LOCAL_OWNER) -> Bases:
        """Return the knowledge bases by id."""
        self.handles.check_open()
        readable = self.handles.readable(check_name("actor", actor, 128))
        with self.handles.ledger.read() as connection:
            cubes = [cube for cube in cube_rows.list_all(connection) if cube.kind is CubeKind.KNOWLEDGE]
            if readable is not None:
                cubes = [cube for cube in cubes if cube.id in readable]
            return tuple(_base(cube, files.counts(connection, cube.id)) for cube in cubes)

    def drop(self, id: str, *, actor: str = LOCAL_OWNER) -> EraseReceipt:
        """Erase everything in a knowledge base, then itself. Raises: NotFound."""
        return self.dropping(self.get(id, actor=actor).id, actor)

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
        """Take a file out of sight with all that was made of it. Raises: NotFound."""
        return self.documents.delete(file, cube=self.get(id, actor=actor).id, actor=actor)


def _base(cube: Cube, found: Mapping[FileState, int]) -> KnowledgeBase:
    return KnowledgeBase(cube.id, cube.description, cube.owner, cube.items, dict(found))
