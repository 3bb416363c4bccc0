"""One process at a time in an embedded folder: an advisory file lock that names its holder."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from memos.errors import BackendUnavailable, PermissionDenied


class FolderLock:
    """Held from `acquire` to `release`; the operating system drops it when the process dies."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "lock"
        self._file: IO[str] | None = None

    def acquire(self) -> None:
        """Take the lock. Raises: BackendUnavailable naming the holder, PermissionDenied."""
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _unwritable(self._path.parent, error) from error
        file = os.fdopen(descriptor, "r+", encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = file.read()
            file.close()
            raise BackendUnavailable(
                f"{self._path.parent} is in use by {_name(holder)}: end that program, or choose another --data-dir."
            ) from error
        try:
            file.seek(0)
            file.truncate()
            json.dump(
                {"pid": os.getpid(), "program": Path(sys.argv[0]).name, "since": f"{datetime.now(UTC):%F %T}Z"}, file
            )
            file.flush()
        except OSError as error:
            with suppress(OSError):  # closing tries to write what is left once more
                file.close()
            raise _unwritable(self._path.parent, error) from error
        self._file = file

    def release(self) -> None:
        """Give the lock back; safe to call twice."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _name(holder: str) -> str:
    try:
        told = json.loads(holder)
        return f"process {told['pid']} ({told['program']}, since {told['since']})"
    except (ValueError, KeyError, TypeError):
        return "another process"


def _unwritable(folder: Path, error: OSError) -> PermissionDenied | BackendUnavailable:
    if error.errno == errno.ENOSPC:
        return BackendUnavailable(f"The disk that holds {folder} is full: free some space and repeat.")
    return PermissionDenied(f"Cannot write {folder} ({error.strerror}): make it writable or choose another --data-dir.")
