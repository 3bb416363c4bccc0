"""Where backups are: a folder, or a prefix in a bucket of an S3-compatible store.

Knows nothing of what is in them. What is written to a bucket waits in a file without a name, which no crash leaves.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Protocol

from memos.errors import BackendUnavailable, InvalidInput, NotFound, PermissionDenied
from memos.memcube.backup.files import created, disk_errors, sync_folder

S3 = "s3://"
"""The beginning of a place in a bucket."""

_ATTEMPTS, _CONNECT_S, _READ_S = 4, 5, 60


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
        self._bucket, self._prefix = bucket, f"{prefix}/"
        self._made: Any = None

    def __str__(self) -> str:
        return f"{S3}{self._bucket}/{self._prefix.rstrip('/')}"

    def prepare(self) -> None:
        with self._errors():
            self._client.head_bucket(Bucket=self._bucket)

    def names(self) -> set[str]:
        with self._errors():
            pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=self._prefix)
            keys = [entry["Key"] for page in pages for entry in page.get("Contents", ())]
        return {key.removeprefix(self._prefix) for key in keys}

    @contextmanager
    def create(self, name: str) -> Iterator[IO[bytes]]:
        with disk_errors(Path(tempfile.gettempdir())), tempfile.TemporaryFile() as file:
            yield file
            file.seek(0)
            with self._errors():
                # In parts, each sent again if that failed; of an upload that was cut off no file is seen.
                self._client.upload_fileobj(file, self._bucket, self._prefix + name)

    def put_last(self, name: str, data: bytes) -> None:
        with self._errors():
            self._client.put_object(Bucket=self._bucket, Key=self._prefix + name, Body=data)

    @contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        with tempfile.TemporaryFile() as file:
            with self._errors(name):
                self._client.download_fileobj(self._bucket, self._prefix + name, file)
            file.seek(0)
            yield file

    def append(self, name: str, lines: Callable[[bytes], bytes]) -> None:
        with self._errors(name):
            before = self._client.get_object(Bucket=self._bucket, Key=self._prefix + name)["Body"].read()
        self.put_last(name, before + lines(before))

    def unlink(self, name: str) -> None:
        with self._errors():
            self._client.delete_object(Bucket=self._bucket, Key=self._prefix + name)

    def remove(self) -> None:
        """Do nothing: a prefix without files is not there."""

    def exists(self) -> bool:
        return bool(self.names())

    @property
    def _client(self) -> Any:
        if self._made is None:
            try:
                import boto3  # noqa: PLC0415 - an optional extra, 0.3 s to import
                from botocore.config import Config  # noqa: PLC0415
            except ImportError as error:
                raise BackendUnavailable(
                    f"{self} needs a client of S3; install it with: `pip install '.[s3]'` in hippocube's clone."
                ) from error
            config = Config(
                connect_timeout=_CONNECT_S,
                read_timeout=_READ_S,
                retries={"total_max_attempts": _ATTEMPTS, "mode": "standard"},
                # Stores other than Amazon's may not know the checksums that are newer than S3's own.
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
            )
            with self._errors():
                self._made = boto3.session.Session().client("s3", config=config)
        return self._made

    @contextmanager
    def _errors(self, name: str | None = None) -> Iterator[None]:
        from boto3.exceptions import Boto3Error  # noqa: PLC0415
        from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError  # noqa: PLC0415

        try:
            yield
        except ClientError as error:
            raise self._told(error.response.get("Error", {}).get("Code", ""), name) from error
        except NoCredentialsError as error:
            raise PermissionDenied(
                f"There are no credentials for {self}; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
            ) from error
        except (Boto3Error, BotoCoreError, ValueError) as error:
            cause = error.__cause__ or error.__context__
            if isinstance(cause, ClientError):
                raise self._told(cause.response.get("Error", {}).get("Code", ""), name) from error
            raise BackendUnavailable(
                f"{self} cannot be reached ({type(error).__name__}); check AWS_ENDPOINT_URL, AWS_REGION and the "
                "network."
            ) from error

    def _told(self, code: str, name: str | None) -> Exception:
        if code in ("NoSuchKey", "404") and name is not None:
            return FileNotFoundError(name)
        if code in ("NoSuchBucket", "404"):
            return NotFound("bucket", self._bucket, "Create it, or correct the place of the backup.")
        if code in (
            "403",
            "AccessDenied",
            "InvalidAccessKeyId",
            "SignatureDoesNotMatch",
            "ExpiredToken",
            "InvalidToken",
        ):
            return PermissionDenied(
                f"{self} refused the credentials ({code}); check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and the "
                "rights to list, read, write and delete there."
            )
        return BackendUnavailable(f"{self} refused a call ({code}); check the store's log.")
