"""Where backups are: a folder, or a prefix in a bucket of an S3-compatible store.

Knows nothing of what is in them. What is written to a bucket waits in a file without a name, which no crash leaves.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import IO, Any, Protocol

from memos.errors import BackendUnavailable, InvalidInput, NotFound, PermissionDenied
from memos.memcube.backup.files import created, disk_errors, sync_folder

S3 = "s3://"
"""The beginning of a place in a bucket."""

_CONNECT, _TIMEOUT = timedelta(seconds=5), timedelta(minutes=10)
_RETRIES, _RETRY_FOR = 4, timedelta(seconds=30)


class Place(Protocol):
    """A place with files that nobody else writes. Raises: BackendUnavailable, PermissionDenied, NotFound."""

    def __str__(self) -> str:
        """Return the full name of the place, as the ledger has it."""

    def prepare(self) -> None:
        """Make the place where that is needed."""

    def names(self) -> set[str]:
        """Return the names of the files there."""

    def create(self, name: str) -> AbstractContextManager[IO[bytes]]:
        """Yield a new file; it is there, whole and durable, when the block ends without an error."""

    def put_last(self, name: str, data: bytes) -> None:
        """Write a file that is there whole or not at all, after all others."""

    def open(self, name: str) -> AbstractContextManager[IO[bytes]]:
        """Open a file. Raises: FileNotFoundError."""

    def append(self, name: str, lines: Callable[[bytes], bytes]) -> None:
        """Add to the whole lines of a file what `lines` makes of them; callers take turns where a bucket is shared."""

    def unlink(self, name: str) -> None:
        """Remove a file, if it is there."""

    def remove(self) -> None:
        """Remove the place itself, if nothing is in it."""

    def exists(self) -> bool:
        """Return True if there is such a place."""


def place_of(where: str | Path | Place) -> Place:
    """Return a folder's place, or that of `s3://BUCKET/PREFIX`. Raises: InvalidInput."""
    if isinstance(where, FolderPlace | BucketPlace):
        return where
    text = str(where)
    return BucketPlace(text) if text.startswith(S3) else FolderPlace(Path(text))


def inside(where: str | Path, name: str) -> str:
    """Return a place within another."""
    return f"{str(where).rstrip('/')}/{name}" if str(where).startswith(S3) else str(Path(where) / name)


def beside(where: str | Path | Place) -> Place:
    """Return the place that a backup is in, for what belongs to several. Raises: InvalidInput (a bucket itself)."""
    place = place_of(where)
    if isinstance(place, FolderPlace):
        return FolderPlace(place.folder.resolve().parent)
    above, _, _ = str(place).rpartition("/")
    if above.removeprefix(S3).count("/") < 1:
        raise InvalidInput(
            str(place), "has no prefix for the keys beside it: use one such as s3://bucket/backups/monday"
        )
    return BucketPlace(above)


class FolderPlace:
    """A folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __str__(self) -> str:
        return str(self.folder.resolve())

    def prepare(self) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def names(self) -> set[str]:
        return {path.name for path in self.folder.iterdir()}

    def create(self, name: str) -> AbstractContextManager[IO[bytes]]:
        return created(self.folder / name)

    def put_last(self, name: str, data: bytes) -> None:
        part = self.folder / f"{name}.part"
        with created(part) as file:
            file.write(data)
        part.rename(self.folder / name)
        sync_folder(self.folder)

    def open(self, name: str) -> AbstractContextManager[IO[bytes]]:
        return (self.folder / name).open("rb")

    def append(self, name: str, lines: Callable[[bytes], bytes]) -> None:
        descriptor = os.open(self.folder / name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            before = file.read()
            whole = before.rfind(b"\n") + 1  # a crash may have cut off a line
            new = lines(before[:whole])
            file.truncate(whole)
            file.seek(whole)
            file.write(new)
            file.flush()
            os.fsync(file.fileno())
        sync_folder(self.folder)

    def unlink(self, name: str) -> None:
        (self.folder / name).unlink(missing_ok=True)

    def remove(self) -> None:
        with suppress(OSError):
            self.folder.rmdir()

    def exists(self) -> bool:
        return self.folder.exists()


class BucketPlace:
    """A prefix in a bucket; the address and the credentials are those of the usual `AWS_*` variables."""

    def __init__(self, url: str) -> None:
        bucket, _, prefix = url.removeprefix(S3).partition("/")
        prefix = prefix.strip("/")
        if not bucket or not prefix or any(part in ("", ".", "..") for part in prefix.split("/")):
            raise InvalidInput(
                "backup", f"{url:.200} must be a bucket and a prefix, such as s3://bucket/backups/monday"
            )
        self._bucket, self._prefix = bucket, prefix
        self._made: Any = None

    def __str__(self) -> str:
        return f"{S3}{self._bucket}/{self._prefix}"

    def prepare(self) -> None:
        """Do nothing: a prefix is there with its first file, and the names are asked next."""

    def names(self) -> set[str]:
        with self._errors():
            return {entry["path"] for part in self._store.list() for entry in part}

    @contextmanager
    def create(self, name: str) -> Iterator[IO[bytes]]:
        with disk_errors(Path(tempfile.gettempdir())), tempfile.TemporaryFile() as file:
            yield file
            file.seek(0)
            with self._errors():
                # In parts, each sent again if that failed; of an upload that was cut off no file is seen.
                self._store.put(name, file)

    def put_last(self, name: str, data: bytes) -> None:
        with self._errors():
            self._store.put(name, data)

    @contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        with tempfile.TemporaryFile() as file:
            with self._errors(name):
                for part in self._store.get(name).stream():
                    file.write(part)
            file.seek(0)
            yield file

    def append(self, name: str, lines: Callable[[bytes], bytes]) -> None:
        with self._errors(name):
            before = bytes(self._store.get(name).bytes())
        self.put_last(name, before + lines(before))

    def unlink(self, name: str) -> None:
        with self._errors():
            self._store.delete(name)

    def remove(self) -> None:
        """Do nothing: a prefix without files is not there."""

    def exists(self) -> bool:
        return bool(self.names())

    @property
    def _store(self) -> Any:
        if self._made is None:
            try:
                from obstore.store import S3Store  # noqa: PLC0415 - an optional extra
            except ImportError as error:
                raise BackendUnavailable(
                    f"{self} needs a client of S3; install it with: `pip install '.[s3]'` in hippocube's clone."
                ) from error
            address = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
            with self._errors():
                self._made = S3Store(
                    self._bucket,
                    prefix=self._prefix,
                    config={"endpoint": address} if address else None,
                    client_options={
                        "allow_http": address.startswith("http://"),
                        "connect_timeout": _CONNECT,
                        "timeout": _TIMEOUT,
                    },
                    retry_config={"max_retries": _RETRIES, "retry_timeout": _RETRY_FOR},
                )
        return self._made

    @contextmanager
    def _errors(self, name: str | None = None) -> Iterator[None]:
        """Translate the client's errors; a `name` that is not there is a FileNotFoundError."""
        from obstore import exceptions  # noqa: PLC0415

        try:
            yield
        except (FileNotFoundError, exceptions.NotFoundError) as error:
            if name is not None and "NoSuchBucket" not in str(error):
                raise FileNotFoundError(name) from error
            raise NotFound("bucket", self._bucket, "Create it, or correct the place of the backup.") from error
        except (PermissionError, exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
            raise PermissionDenied(
                f"{self} refused the credentials; check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and the rights to "
                "list, read, write and delete there."
            ) from error
        except exceptions.BaseError as error:
            if "NoSuchBucket" in str(error):
                raise NotFound("bucket", self._bucket, "Create it, or correct the place of the backup.") from error
            raise BackendUnavailable(
                f"{self} cannot be reached; check AWS_ENDPOINT_URL, AWS_REGION, the credentials and the network."
            ) from error
