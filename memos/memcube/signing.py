"""The installation's key: it signs receipts of erasures with Ed25519 and keys their fingerprints.

The secret is 32 random bytes in `signing.key`, for its owner alone, or, where the ledger is on a server and many
processes share it, in the ledger's marks, which no backup, dump or migration copies. The public keys of an
installation, also of former secrets, are in `meta` and travel, so that old receipts stay verifiable.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from memos.core.types import Json
from memos.errors import IntegrityError, PermissionDenied
from memos.memcube.backup.files import disk_errors, sync_folder
from memos.memcube.ledger import queues
from memos.memcube.ledger.engine import Ledger
from memos.memcube.ledger.schema import meta

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

FILE = "signing.key"
"""Name of the file with the secret."""

_MARK = "mark:signing-key"
_PUBLIC = "signer:"
_SECRET_BYTES = 32
_ID_CHARS = 16


@dataclass(frozen=True)
class SigningKey:
    """The secret of an installation. `cryptography` is imported when something is signed or verified."""

    secret: bytes = field(repr=False)

    @cached_property
    def public_key(self) -> str:
        """Return the public key: 32 bytes as base64."""
        return base64.b64encode(self._private.public_key().public_bytes_raw()).decode()

    @property
    def id(self) -> str:
        """Return the fingerprint of the public key: 16 hexadecimal digits."""
        return id_of(self.public_key)

    @cached_property
    def _private(self) -> Ed25519PrivateKey:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415

        return Ed25519PrivateKey.from_private_bytes(self.secret)

    def sign(self, told: Mapping[str, Json]) -> str:
        """Return the signature of an object, as base64."""
        return base64.b64encode(self._private.sign(canonical(told))).decode()

    def derive(self, purpose: str) -> bytes:
        """Return a secret of 32 bytes for one purpose."""
        return hmac.digest(self.secret, purpose.encode(), hashlib.sha256)


def canonical(told: Mapping[str, Json]) -> bytes:
    """Return the bytes of an object that are signed: JSON with sorted names and without spaces, in ASCII."""
    return json.dumps(told, sort_keys=True, separators=(",", ":")).encode()


def id_of(public_key: str) -> str:
    """Return the fingerprint of a public key. Raises: ValueError (it is none)."""
    return hashlib.sha256(_bytes_of(public_key, _SECRET_BYTES)).hexdigest()[:_ID_CHARS]


def is_signed(told: Mapping[str, Json], public_key: str, signature: str) -> bool:
    """Return True if an object was signed with the secret of a public key."""
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415

    try:
        key = Ed25519PublicKey.from_public_bytes(_bytes_of(public_key, _SECRET_BYTES))
        key.verify(_bytes_of(signature, 64), canonical(told))
    except (InvalidSignature, ValueError):
        return False
    return True


def _bytes_of(text: str, count: int) -> bytes:
    try:
        found = base64.b64decode(text, validate=True)
    except (binascii.Error, TypeError) as error:
        raise ValueError("is not base64") from error
    if len(found) != count:
        raise ValueError(f"has {len(found)} bytes instead of {count}")
    return found


def open_key(ledger: Ledger, home: Path) -> SigningKey:
    """Return the installation's key, made at the first time. Raises: IntegrityError, PermissionDenied."""
    return SigningKey(_in_file(home / FILE) if ledger.is_sqlite else _in_ledger(ledger))


def _in_file(path: Path) -> bytes:
    with disk_errors(path.parent):
        with suppress(FileExistsError):
            _create(path, os.urandom(_SECRET_BYTES))
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o077:
            raise PermissionDenied(
                f"Others than its owner can use {path} (mode {mode:03o}), and sign receipts as this installation; run "
                "chmod 600 on it. If others may have read it, move it away instead: a new key is made, and the former "
                "one stays known."
            )
        told = path.read_bytes()
    try:
        return _bytes_of(told.decode("ascii").strip(), _SECRET_BYTES)
    except ValueError as error:
        raise IntegrityError(
            f"{path} holds no key ({error}). Put it back from a copy, or move it away: a new key is made, and receipts "
            "of the former one stay readable."
        ) from error


def _create(path: Path, secret: bytes) -> None:
    """Write a new file whole or not at all. Raises: FileExistsError."""
    if path.exists():
        raise FileExistsError(path)
    new = path.with_name(path.name + ".new")
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(base64.b64encode(secret) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    new.rename(path)
    sync_folder(path.parent)


def _in_ledger(ledger: Ledger) -> bytes:
    query = sa.select(meta.c.value).where(meta.c.key == _MARK)
    for _ in range(2):
        with ledger.read() as connection:
            told = connection.scalar(query)
        if told is not None:
            return _bytes_of(told, _SECRET_BYTES)
        with ledger.write() as connection:  # another process may make it at this moment
            secret = base64.b64encode(os.urandom(_SECRET_BYTES)).decode()
            queues.insert_new(connection, meta, {"key": _MARK, "value": secret})
    raise IntegrityError("The ledger keeps no signing key; check that this program may write the table `meta`.")


def note_public(connection: sa.Connection, key: SigningKey) -> None:
    """Note the public key as one of this installation, unless it is noted already."""
    queues.insert_new(connection, meta, {"key": _PUBLIC + key.id, "value": key.public_key})


def known_keys(connection: sa.Connection) -> dict[str, str]:
    """Return the public keys of this installation, the present one and former ones, by fingerprint."""
    rows: Any = connection.execute(sa.select(meta.c.key, meta.c.value).where(meta.c.key.startswith(_PUBLIC)))
    return {row.key.removeprefix(_PUBLIC): row.value for row in rows}
