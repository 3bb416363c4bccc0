"""The register of every table and folder: what data it may hold, and who erases, verifies and rebuilds it.

A test walks an installation and fails for a table or path that is missing here.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import IO

from memos.errors import BackendUnavailable, PermissionDenied


class DataKind(StrEnum):
    TEXT = "memory text"
    DERIVED = "vectors, terms or digests made from memory text"
    IDS = "ids, times, counts and settings only"


@dataclass(frozen=True, slots=True)
class DataLocation:
    name: str
    holds: DataKind
    erased_by: str
    verified_by: str
    rebuilt_from: str
    sealed_by: str = ""
    """What makes a file unreadable in an encrypted installation; tables are in `ledger.db`."""


_ROWS = "memos.memcube.erasure.erase"
_PURGE = "memos.memcube.erasure.purge"
_LEDGER = "memos.memcube.verify.ledger_differences"
_INDEX = "memos.memcube.verify.index_differences"
_BACKUP = "ledger backup"
_TOLD = "memos.memcube.backup.backups.tell"
_ARCHIVE = "memos.memcube.backup.archive.check"
_FORGET = "memos.memcube.parametric.forgetting.forget"
_ADAPTERS = "memos.memcube.parametric.forgetting.differences"
_SQLCIPHER = "memos.memcube.ledger.sqlcipher.unlock"
_VAULT = "memos.memcube.encryption.vault"
_SEALER = "memos.memcube.backup.sealed.TableSealer.write"

TABLES: tuple[DataLocation, ...] = (
    DataLocation("alembic_version", DataKind.IDS, "", "memos.memcube.ledger.engine.Ledger.open", "program"),
    DataLocation("meta", DataKind.IDS, "", _LEDGER, _BACKUP),
    DataLocation("cubes", DataKind.TEXT, "memos.memcube.erasure.drop", _LEDGER, _BACKUP),
    DataLocation("conversations", DataKind.TEXT, _ROWS, _LEDGER, _BACKUP),
    DataLocation("items", DataKind.IDS, _ROWS, _LEDGER, _BACKUP),
    DataLocation("versions", DataKind.TEXT, _ROWS, _LEDGER, _BACKUP),
    DataLocation("messages", DataKind.TEXT, _ROWS, _LEDGER, _BACKUP),
    DataLocation("sources", DataKind.IDS, _ROWS, _LEDGER, _BACKUP),
    DataLocation("links", DataKind.IDS, _ROWS, _LEDGER, _BACKUP),
    DataLocation("mentions", DataKind.TEXT, _ROWS, _LEDGER, "ledger"),
    DataLocation("entity_aliases", DataKind.TEXT, _ROWS, _LEDGER, _BACKUP),
    DataLocation("events", DataKind.DERIVED, _ROWS, _LEDGER, _BACKUP),
    DataLocation("outbox", DataKind.IDS, _ROWS, _LEDGER, "ledger"),
    DataLocation("requests", DataKind.DERIVED, _ROWS, _LEDGER, _BACKUP),
    DataLocation("request_items", DataKind.IDS, _ROWS, _LEDGER, _BACKUP),
    DataLocation("tombstones", DataKind.IDS, "", _LEDGER, _BACKUP),
    DataLocation("tombstone_items", DataKind.IDS, "", _LEDGER, _BACKUP),
    DataLocation("backups", DataKind.IDS, "", _LEDGER, _BACKUP),
    DataLocation("tombstone_backups", DataKind.IDS, "", _LEDGER, _BACKUP),
    DataLocation("tasks", DataKind.IDS, _ROWS, _LEDGER, _BACKUP),
    DataLocation("queues", DataKind.IDS, "memos.memcube.erasure.drop", _LEDGER, _BACKUP),
    DataLocation("usage", DataKind.IDS, "memos.memcube.erasure.drop", _LEDGER, _BACKUP),
    DataLocation("segments", DataKind.TEXT, _ROWS, _LEDGER, _BACKUP),
    DataLocation("pages", DataKind.IDS, _ROWS, _LEDGER, _BACKUP),
    DataLocation("warmth", DataKind.IDS, _ROWS, _LEDGER, _BACKUP),
    DataLocation("files", DataKind.TEXT, _ROWS, _LEDGER, _BACKUP),
    DataLocation("file_parts", DataKind.TEXT, _ROWS, _LEDGER, _BACKUP),
    DataLocation("file_items", DataKind.IDS, _ROWS, _LEDGER, _BACKUP),
    DataLocation("extractions", DataKind.TEXT, _ROWS, _LEDGER, _BACKUP),
    DataLocation("extraction_items", DataKind.IDS, _ROWS, _LEDGER, _BACKUP),
    DataLocation("retention_rules", DataKind.IDS, "memos.memcube.erasure.drop", _LEDGER, _BACKUP),
    DataLocation("identities", DataKind.IDS, "", _LEDGER, _BACKUP),
    DataLocation("memberships", DataKind.IDS, "", _LEDGER, _BACKUP),
    DataLocation("grants", DataKind.IDS, "memos.memcube.erasure.drop", _LEDGER, _BACKUP),
    DataLocation("api_keys", DataKind.IDS, "", _LEDGER, _BACKUP),
    DataLocation("console_sessions", DataKind.IDS, "", _LEDGER, _BACKUP),
    DataLocation("access_log", DataKind.IDS, "", _LEDGER, _BACKUP),
    DataLocation("repeats", DataKind.DERIVED, _ROWS, _LEDGER, _BACKUP),
    DataLocation("submissions", DataKind.DERIVED, "memos.memcube.ledger.idempotency.forget", _LEDGER, _BACKUP),
    DataLocation("key_usage", DataKind.IDS, "", _LEDGER, _BACKUP),
    DataLocation("leases", DataKind.IDS, "", _LEDGER, _BACKUP),
    DataLocation("prefix_entries", DataKind.IDS, _ROWS, _LEDGER, "memos.scheduler.jobs.prefix.ComposeJob"),
    DataLocation("adapter_consents", DataKind.IDS, "memos.memcube.erasure.drop", _LEDGER, _BACKUP),
    DataLocation("adapter_exclusions", DataKind.IDS, _ROWS, _LEDGER, _BACKUP),
    DataLocation("adapters", DataKind.DERIVED, _FORGET, _ADAPTERS, "ledger"),
    DataLocation("adapter_items", DataKind.DERIVED, _FORGET, _ADAPTERS, "ledger"),
)

# Of a vector index in PostgreSQL: `vectors_`, a digest of the embedder, and these endings.
VECTOR_TABLES: tuple[DataLocation, ...] = (
    DataLocation("vector_spaces", DataKind.IDS, "", "memos.backends.pgvector.schema.create", "program"),
    DataLocation("points", DataKind.DERIVED, _PURGE, _INDEX, "ledger"),
    DataLocation("terms", DataKind.DERIVED, _PURGE, _INDEX, "ledger"),
)

PATHS: tuple[DataLocation, ...] = (
    DataLocation("ledger.db", DataKind.TEXT, _PURGE, _LEDGER, _BACKUP, _SQLCIPHER),
    DataLocation("ledger.db-wal", DataKind.TEXT, _PURGE, _LEDGER, "ledger.db", _SQLCIPHER),
    DataLocation("ledger.db-shm", DataKind.IDS, "", _LEDGER, "ledger.db"),
    DataLocation("vector", DataKind.DERIVED, _PURGE, _INDEX, "ledger", f"{_VAULT}.SealedIndex.keep"),
    DataLocation(
        "activation",
        DataKind.DERIVED,
        _PURGE,
        "memos.memcube.activation.store.BlockStore.verify",
        "prompts",
        f"{_VAULT}.BlockSealer.seal",
    ),
    # Weights, and while they are trained the exercises they are trained on, in words.
    DataLocation("adapters", DataKind.TEXT, _FORGET, _ADAPTERS, "ledger", f"{_VAULT}.SealedAdapters.keep"),
    # Data keys, wrapped.
    DataLocation(
        "keys.json",
        DataKind.IDS,
        "memos.memcube.encryption.keys.Keyring.destroy",
        "memos.memcube.encryption.keys.Keyring.open",
        "its copy beside the backups",
    ),
    DataLocation("keys.lock", DataKind.IDS, "", "memos.memcube.encryption.keys.Keyring.set_state", "program"),
    DataLocation("signing.key", DataKind.IDS, "", "memos.memcube.signing.open_key", ""),
    DataLocation("holder", DataKind.IDS, "", "memos.kernel.opening.open_installation", "program"),
    DataLocation("lock", DataKind.IDS, "", "memos.memcube.installation.FolderLock", "program"),
)

# A backup still holds items erased later; its list of erasures is extended, and a restore leaves them out.
BACKUP_PATHS: tuple[DataLocation, ...] = (
    *(DataLocation(f"{table.name}.jsonl.gz", table.holds, "" if table.holds is DataKind.IDS else _TOLD, _ARCHIVE, "",
                   _SEALER)
      for table in TABLES if table.name not in ("alembic_version", "outbox", "mentions", "adapters", "adapter_items")),
    DataLocation("manifest.json", DataKind.IDS, "", "memos.memcube.backup.archive.read_manifest", ""),
    DataLocation("erased.jsonl", DataKind.IDS, "", "memos.memcube.backup.backups.read_erased", ""),
)  # fmt: skip


# One process at a time in an embedded folder: an advisory file lock that names its holder.


class FolderLock:
    """An advisory lock on a folder, from `acquire` to `release`; the OS drops it when the process dies."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "lock"
        self._file: IO[str] | None = None

    def acquire(self) -> None:
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
                f"{self._path.parent} is in use by {_name(holder)}; stop that program, or choose another --data-dir."
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
