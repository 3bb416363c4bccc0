"""SQLCipher: SQLite whose pages, journal and log are encrypted with a key of 32 bytes.

The build is `sqlcipher3`, which has the interface of `sqlite3` and an SQLite of its own.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

from memos.memcube.encryption.keys import missing_extra

PLAIN = b"SQLite format 3\0"
"""How a file of SQLite begins that is not encrypted; one of SQLCipher begins with random bytes."""


def driver() -> ModuleType:
    """Return the module of the driver. Raises: BackendUnavailable (the extra is missing)."""
    try:
        from sqlcipher3 import dbapi2  # type: ignore[import-untyped]  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise missing_extra() from error
    module: ModuleType = dbapi2
    return module


def connect(path: Path | str, key: bytes | None, **options: Any) -> Any:
    """Open a file; None for the key opens a plain one."""
    connection = driver().connect(str(path), **options)
    if key is not None:
        unlock(connection, key)
    return connection


def unlock(connection: Any, key: bytes) -> None:
    """Give a new connection its key, before anything else is done with it."""
    # As raw bytes, so that no passphrase is stretched: https://www.zetetic.net/sqlcipher/sqlcipher-api/#PRAGMA_key
    connection.execute("PRAGMA cipher_log_level = NONE").close()  # what fails is raised, and told once
    connection.execute(f"PRAGMA key = \"x'{key.hex()}'\"").close()


def is_plain(path: Path) -> bool:
    """Return True if a file is an SQLite database that is not encrypted."""
    with path.open("rb") as file:
        return file.read(len(PLAIN)) == PLAIN


def copy(source: Path, key: bytes | None, target: Path, target_key: bytes | None) -> None:
    """Copy a database into a new file with another key, None for no encryption. Raises: the driver's errors."""
    connection = connect(source, key)
    try:
        told = "''" if target_key is None else f"\"x'{target_key.hex()}'\""
        connection.execute(f"ATTACH DATABASE ? AS copied KEY {told}", (str(target),))
        connection.execute("SELECT sqlcipher_export('copied')").fetchall()
        for name in ("user_version", "application_id"):
            [value] = connection.execute(f"PRAGMA main.{name}").fetchone()
            connection.execute(f"PRAGMA copied.{name} = {int(value)}")
        connection.execute("DETACH DATABASE copied")
    finally:
        connection.close()
