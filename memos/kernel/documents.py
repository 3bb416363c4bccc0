"""`MemOS.documents` and `MemOS.images`: store files, follow their reading, get and remove them."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path, PurePath

from memos.core.browsing import DocumentPassage
from memos.core.clock import new_id
from memos.core.identities import Right
from memos.core.ports import FileSource
from memos.core.text.validation import check_name, check_text
from memos.core.types import (
    DEFAULT_CUBE,
    LOCAL_OWNER,
    EraseReceipt,
    FileKind,
    FileState,
    Item,
    Json,
    Status,
    StoredFile,
)
from memos.errors import Conflict, InvalidInput, NotFound
from memos.kernel.context import Context, retry_write
from memos.memcube import documents, erasure, images
from memos.memcube.ledger import expiry, files, items, outbox
from memos.reader.arguments import members_of, within
from memos.reader.masking import Masking
from memos.scheduler.task import poll_until

Given = str | Path | tuple[str, bytes]  # a path, or a name and the bytes
Files = tuple[StoredFile, ...]  # `list` is a method here

_NAME_CHARS = 255
# Of files that may be all letters, and are broken when some of them change.
_NO_TEXT = (b"%PDF", b"PK", b"{\\rtf")
# Also what turns the direction of writing or shows nothing: a name must not look like another one.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff]")
_SHOWN = frozenset(FileState) - {FileState.DELETED}


class Documents:
    """Documents of cubes of any kind."""

    def __init__(
        self,
        context: Context,
        wake: Callable[[], object],
        finish_erasure: Callable[[EraseReceipt], EraseReceipt],
        web: FileSource | None = None,
    ) -> None:
        self._context = context
        self._finish_erasure = finish_erasure
        self._wake = wake
        self._web = web

    def fetch(self, where: str, url: str) -> tuple[str, bytes]:
        """Download a file from a public URL, if `MEMOS_SERVER__FETCH_FILES` allows it; return its name and bytes.

        Raises: InvalidInput (naming the argument `where`), BackendUnavailable, BackendTimeout.
        """
        if self._web is None:
            raise InvalidInput(
                where,
                "is a URL, but fetching files is off; give the file's bytes as base64, or set "
                "MEMOS_SERVER__FETCH_FILES",
            )
        got = self._web.fetch(where, url)
        return _name(got.name or "file"), got.data

    @retry_write
    def add(self, file: Given, *, cube: str = DEFAULT_CUBE, actor: str = LOCAL_OWNER) -> StoredFile:
        """Store a file and queue its reading; `wait` tells when it can be searched.

        A file with bytes the cube already has is returned instead. Once read, it replaces the file of the same name.
        Raises: InvalidInput, NotFound, BackendUnavailable.
        """
        scope = self._context.scopes.check([cube], actor, right=Right.WRITE)
        name, data = _loaded(file, self._context.settings.limits.file_bytes)
        digest, masking = hashlib.sha256(data).hexdigest(), self._context.scopes.masking(scope)
        name, data = masking.text("file name", name), _masked(data, masking)
        info = {"masked": dict(masking.kinds)} if masking.masked else {}
        with self._context.change(scope) as change:
            new = StoredFile(
                new_id(),
                change.cube,
                FileKind.DOCUMENT,
                name,
                "application/octet-stream",
                len(data),
                digest,
                FileState.PROCESSING,
                scope.actor,
                change.now,
                info=info,
            )
            kept = documents.store_document(change, new, data)
            if kept.id == new.id:
                masking.record(change)
        self._wake()
        return kept

    def wait(
        self, file: str, timeout_s: float | None = None, *, cube: str | None = None, actor: str = LOCAL_OWNER
    ) -> StoredFile:
        """Wait until a file was read or failed, and is indexed. Raises: NotFound, BackendTimeout."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        for _ in poll_until(timeout_s):
            found = self.get(file, cube=cube, actor=actor)
            if found.state is not FileState.PROCESSING:
                break
        left = self._unindexed()
        while left and (deadline is None or time.monotonic() < deadline):
            before = left
            self._context.wait_indexed()
            left = self._unindexed()
            if left >= before:  # an index is down, or others add as fast
                break
        return found

    def get(self, file: str, *, cube: str | None = None, actor: str = LOCAL_OWNER) -> StoredFile:
        """Return a file's state, also of a deleted one. Raises: NotFound."""
        return self._found(file, cube, actor)

    def list(
        self,
        *,
        cube: str = DEFAULT_CUBE,
        actor: str = LOCAL_OWNER,
        states: Collection[str] = (),
        limit: int = 10_000,
        after: str | None = None,
    ) -> Files:
        """Return a cube's files, newest first; by default those that are not deleted.

        `after`, the id of a file, continues behind it. Raises: InvalidInput, NotFound.
        """
        wanted = members_of("states", states, FileState) or _SHOWN
        limit, after = within("limit", limit, 1, 10_000), None if after is None else check_name("after", after, 64)
        scope = self._context.scopes.check([cube], actor, embeds=False)
        with self._context.ledger.read() as connection:
            return tuple(files.page(connection, scope.cubes[0], wanted, limit, after))

    def passages(
        self,
        file: str,
        *,
        cube: str | None = None,
        actor: str = LOCAL_OWNER,
        start: int = 0,
        page: int | None = None,
        limit: int = 100,
    ) -> tuple[DocumentPassage, ...]:
        """Return the passages of a file from character `start` on, in order, all or only those on a page.

        Together they are its Markdown; the `end` of the last one is where to go on. Raises: InvalidInput, NotFound.
        """
        start, limit = within("start", start, 0, 2**53), within("limit", limit, 1, 1_000)
        page = None if page is None else within("page", page, 0, 2**31 - 1)
        found = self._found(file, cube, actor)
        if found.state is FileState.DELETED:
            return ()
        with self._context.ledger.read() as connection:
            return tuple(files.passages(connection, found, start, limit, page))

    @retry_write
    def read_again(self, file: str, *, cube: str | None = None, actor: str = LOCAL_OWNER) -> StoredFile:
        """Read a file again from its stored bytes, also a failed or deleted one; return the file that replaces it.

        Its old passages stay until the new ones are there. Raises: NotFound (also when its bytes were erased).
        """
        found = self._found(file, cube, actor)
        scope = self._context.scopes.check([found.cube], actor, right=Right.WRITE)
        data = self.content(file, cube=found.cube, actor=actor)
        with self._context.change(scope) as change:
            files.require(change.connection, [change.cube], found.id)
            new = documents.read_again(change, found, data)
        self._wake()
        return new

    def content(self, file: str, *, cube: str | None = None, actor: str = LOCAL_OWNER) -> bytes:
        """Return a file's original bytes; the Markdown if masked. Raises: NotFound (also when erased)."""
        found = self._found(file, cube, actor)
        with self._context.ledger.read() as connection:
            data = files.content(connection, found.id)
        if len(data) != found.bytes:
            raise NotFound("content of file", file, "It was erased with one of its passages; add the file again.")
        return data

    def markdown(self, file: str, *, cube: str | None = None, actor: str = LOCAL_OWNER) -> str:
        """Return a file as Markdown, without erased passages. Raises: NotFound, Conflict (it was not read)."""
        found = self._found(file, cube, actor)
        with self._context.ledger.read() as connection:
            text = files.text(connection, found.id)
        if not text:
            why = f"failed: it {found.error}" if found.error else f"is {found.state}"
            raise Conflict(f"File {file} has no text to show, because it {why}.")
        return text

    @retry_write
    def delete(
        self, file: str, *, cube: str | None = None, actor: str = LOCAL_OWNER, reason: str = "deleted"
    ) -> StoredFile:
        """Delete a file and everything made of it, to be erased after the retention period. Raises: NotFound."""
        found = self._found(file, cube, actor)
        reason = check_text("reason", reason, 1000)
        scope = self._context.scopes.check([found.cube], actor, embeds=False, right=Right.WRITE)
        with self._context.change(scope) as change:
            now = files.require(change.connection, [change.cube], found.id)
            documents.delete(change, now, reason)
        self._context.wait_indexed()
        return self._found(file, found.cube, actor)

    @retry_write
    def erase(self, file: str, *, cube: str | None = None, actor: str = LOCAL_OWNER) -> EraseReceipt:
        """Erase a file, its bytes, its passages and everything made of them. Raises: NotFound."""
        found = self._found(file, cube, actor)
        scope = self._context.scopes.check([found.cube], actor, embeds=False, right=Right.WRITE)
        with self._context.change(scope) as change:
            now = files.require(change.connection, [change.cube], found.id)
            parts = [row.item_id for row in files.parts(change.connection, now.id)]
            receipt = erasure.erase(change, parts, file_ids=[now.id], key=self._context.key)
        return self._finish_erasure(receipt)

    def _found(self, file: Json, cube: str | None, actor: str) -> StoredFile:
        self._context.lifecycle.check_open()
        file = check_name("file", file, 64)
        with self._context.ledger.read() as connection:
            found = files.require_document(connection, file)
            [found] = files.shown(connection, [found])
        readable = self._context.scopes.readable(check_name("actor", actor, 128))
        if readable is not None and found.cube not in readable:
            raise files.unknown(file)  # as if there were none
        if found.cube not in self._context.scopes.check([cube or found.cube], actor, embeds=False).cubes:
            raise NotFound("file", file, f"Cube {cube!r} has no file with this id.")
        return found

    def _unindexed(self) -> int:
        with self._context.ledger.read() as connection:
            return sum(outbox.count(connection, one.target) for one in self._context.indexes.projections)


def _loaded(file: Given, most: int) -> tuple[str, bytes]:
    if isinstance(file, str | Path):
        path = Path(file)
        return _name(path.name), _read(path, most)
    if not isinstance(file, tuple) or len(file) != 2:
        raise InvalidInput("file", "must be a path, or a tuple of name and bytes")
    name, data = file
    if not isinstance(data, bytes | bytearray | memoryview):
        raise InvalidInput("file", f"must have its content as bytes, not {type(data).__name__}")
    if memoryview(data).nbytes > most:
        raise _too_large(memoryview(data).nbytes, most)
    return _name(name), bytes(data)


def _masked(data: bytes, masking: Masking) -> bytes:
    if data.startswith(_NO_TEXT):
        return data
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return data
    masked = masking.whole("file", text)
    return data if masked == text else masked.encode()


def _name(given: Json) -> str:
    name = PurePath(check_name("file name", given, 4096).replace("\\", "/")).name
    name = " ".join(_CONTROLS.sub(" ", name).split())
    return check_name("file name", "" if name == ".." else name, _NAME_CHARS)


def _read(path: Path, most: int) -> bytes:
    try:
        # What waits for a writer, such as a named pipe, must not hold the caller.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "its path contains a NUL character"
        raise InvalidInput("file", f"{path.name!r:.100} cannot be opened ({why})") from error
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise InvalidInput("file", f"{path.name!r:.100} is not a regular file; name the files in a folder one by one")
    with os.fdopen(descriptor, "rb") as file:
        if found.st_size > most:
            raise _too_large(found.st_size, most)
        try:
            data = file.read(most + 1)
        except OSError as error:
            raise InvalidInput("file", f"{path.name!r:.100} cannot be read ({error.strerror})") from error
    if len(data) > most:  # it grew meanwhile
        raise _too_large(len(data), most)
    return data


def _too_large(size: int, most: int) -> InvalidInput:
    return InvalidInput(
        "file", f"has {size:,} bytes, more than the limit of {most:,}; split it, or raise MEMOS_LIMITS__FILE_BYTES"
    )


class Images:
    """Images of messages; each is erased with its message."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def of(self, item: str, *, cube: str | None = None, actor: str = LOCAL_OWNER) -> Sequence[StoredFile]:
        """Return the images of a message. Raises: NotFound."""
        scope = self._context.scopes.check_item(item, cube, actor, embeds=False)
        with self._context.ledger.read() as connection:
            items.require(connection, scope.cubes, item)
            return tuple(images.of_item(connection, scope.cubes[0], item))

    def get(self, file: str, *, cube: str | None = None, actor: str = LOCAL_OWNER) -> StoredFile:
        """Return an image's state, name, size and date. Raises: NotFound."""
        self._context.lifecycle.check_open()
        file, readable = check_name("file", file, 64), self._context.scopes.readable(check_name("actor", actor, 128))
        with self._context.ledger.read() as connection:
            of = images.cube_of(connection, file)
        if of is None or cube not in (None, of) or (readable is not None and of not in readable):
            raise NotFound("image", file)
        scope = self._context.scopes.check([of], actor, embeds=False)
        with self._context.ledger.read() as connection:
            found = images.find(connection, scope.cubes[0], file)
            of_item = [found.item] if found is not None and found.item is not None else []
            expired = expiry.expired_among(connection, of_item, self._context.clock.now())
        if found is None or expired:  # None: erased meanwhile
            raise NotFound("image", file)
        return found

    def content(self, file: str, *, cube: str | None = None, actor: str = LOCAL_OWNER) -> bytes:
        """Return an image's original bytes. Raises: NotFound."""
        found = self.get(file, cube=cube, actor=actor)
        with self._context.ledger.read() as connection:
            return files.content(connection, found.id)

    def description(self, file: str, *, cube: str | None = None, actor: str = LOCAL_OWNER) -> Item | None:
        """Return a model's description of an image, None if there is none or it was deleted. Raises: NotFound."""
        found = self.get(file, cube=cube, actor=actor)
        with self._context.ledger.read() as connection:
            named = [str(item)] if (item := found.info.get("description")) else []
            state = next(iter(items.current(connection, [found.cube], named).values()), None)
        return None if state is None or state.status is Status.DELETED else state
