"""`MemOS.images`: the images of messages as callers see them, with their bytes and what a model said of them."""

from __future__ import annotations

from collections.abc import Sequence

from memos.core.text.validation import check_name
from memos.core.types import LOCAL_OWNER, Item, Status, StoredFile
from memos.errors import NotFound
from memos.kernel.handles import Handles
from memos.memcube import images as pictures
from memos.memcube.ledger import files, items


class Images:
    """The images of an installation; each belongs to the message it came with, and is erased with it."""

    def __init__(self, handles: Handles) -> None:
        self._handles = handles

    def of(self, item: str, *, cube: str | None = None, actor: str = LOCAL_OWNER) -> Sequence[StoredFile]:
        """Return the images of a message. Raises: NotFound."""
        scope = self._handles.scoping_item(item, cube, actor, embeds=False)
        with self._handles.ledger.read() as connection:
            items.require(connection, scope.cubes, item)
            return tuple(pictures.of_item(connection, scope.cubes[0], item))

    def get(self, file: str, *, cube: str | None = None, actor: str = LOCAL_OWNER) -> StoredFile:
        """Return what is known of an image: its state, name, size and day. Raises: NotFound."""
        self._handles.check_open()
        file, readable = check_name("file", file, 64), self._handles.readable(check_name("actor", actor, 128))
        with self._handles.ledger.read() as connection:
            of = pictures.cube_of(connection, file)
        if of is None or cube not in (None, of) or (readable is not None and of not in readable):
            raise NotFound("image", file)
        scope = self._handles.scoping([of], actor, embeds=False)
        with self._handles.ledger.read() as connection:
            found = pictures.find(connection, scope.cubes[0], file)
        if found is None:  # erased meanwhile
            raise NotFound("image", file)
        return found

    def content(self, file: str, *, cube: str | None = None, actor: str = LOCAL_OWNER) -> bytes:
        """Return an image's bytes as they came. Raises: NotFound."""
        found = self.get(file, cube=cube, actor=actor)
        with self._handles.ledger.read() as connection:
            return files.content(connection, found.id)

    def description(self, file: str, *, cube: str | None = None, actor: str = LOCAL_OWNER) -> Item | None:
        """Return what a model said of an image, None while nobody has looked or when that was deleted or erased.

        Raises: NotFound.
        """
        found = self.get(file, cube=cube, actor=actor)
        with self._handles.ledger.read() as connection:
            named = [str(item)] if (item := found.info.get("description")) else []
            state = next(iter(items.current(connection, [found.cube], named).values()), None)
        return None if state is None or state.status is Status.DELETED else state
