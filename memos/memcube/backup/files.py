"""Files that hold memory text outside an installation: their owner's alone, whole after a crash, digested.

Knows nothing of what is in them.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from memos.errors import BackendUnavailable, InvalidInput, MemosError, PermissionDenied

Progress = Callable[[int, int], None]

_TOLD_EVERY = 500


class ProgressReporter:
    def __init__(self, on_progress: Progress | None, total: int, done: int = 0) -> None:
        self._on_progress = on_progress
        self._total = total
        self._done = done

    def tick(self, count: int = 1) -> None:
        before, self._done = self._done, self._done + count
        if self._on_progress is not None and before // _TOLD_EVERY != self._done // _TOLD_EVERY:
            self._on_progress(self._done, max(self._total, self._done))

    def finish(self) -> None:
        if self._on_progress is not None:
            self._on_progress(self._done, self._done)


class DigestedFile:
    def __init__(self, file: Any) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes | memoryview) -> int:
        self._note(data)
        self._file.write(data)
        return len(data)

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._file.read(size)
        self._note(data)
        return data

    def flush(self) -> None:
        self._file.flush()

    def hexdigest(self) -> str:
        return self._digest.hexdigest()

    def _note(self, data: bytes | memoryview) -> None:
        self._digest.update(data)
        self.size += len(data)


@contextmanager
def created(path: Path) -> Iterator[IO[bytes]]:
    """Make a new file its owner alone may read; it is on disk when the block ends."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def signed(told: dict[str, Any]) -> bytes:
    """Return an object as a line of JSON that holds its own digest: a changed byte is noticed."""
    return _json({**told, "sha256": hashlib.sha256(_json(told)).hexdigest()}) + b"\n"


def unsigned(raw: bytes) -> dict[str, Any] | None:
    try:
        told = json.loads(raw)
        digest = told.pop("sha256")
        return told if hashlib.sha256(_json(told)).hexdigest() == digest else None
    except (ValueError, RecursionError, AttributeError, KeyError, TypeError):
        return None


@contextmanager
def disk_errors(folder: object) -> Iterator[None]:
    """Translate the operating system's errors. Raises: InvalidInput, PermissionDenied, BackendUnavailable."""
    try:
        yield
    except MemosError:
        raise
    except OSError as error:
        if isinstance(error, FileExistsError | NotADirectoryError):
            raise InvalidInput(str(folder), "is not a folder; choose another") from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ELOOP):
            why = f"Cannot use {folder} ({error.strerror}); choose a folder you can write to."
            raise PermissionDenied(why) from error
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise BackendUnavailable(f"The disk that holds {folder} is full: free some space and repeat.") from error
        raise BackendUnavailable(f"The folder {folder} cannot be used ({error.strerror}); choose another.") from error


def _json(told: dict[str, Any]) -> bytes:
    return json.dumps(told, ensure_ascii=False, sort_keys=True).encode()
