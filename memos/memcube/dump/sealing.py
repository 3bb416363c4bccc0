"""Seals a stream with a passphrase, chunk by chunk, and opens it again; knows nothing of what is in it.

AES-256-GCM in the STREAM construction: the nonce holds the chunk's number and whether it is the last, the header is
authenticated with each chunk, so that a changed, missing, moved or added byte is noticed.
Source: Hoang, Reyhanitabar, Rogaway, Vizar, https://eprint.iacr.org/2015/189; scrypt: RFC 7914.
"""

from __future__ import annotations

import hashlib
import os
import struct
import unicodedata
from typing import IO, TYPE_CHECKING, Any

from memos.errors import BackendUnavailable, InvalidInput

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

MAGIC = b"MEMCUBE-SEALED-1"

# Magic, log2 of scrypt's N, its r and p, salt, beginning of every nonce, bytes of a chunk; big-endian.
_HEADER = struct.Struct(">16sBII16s7sI")
_LOG_N, _R, _P = 17, 8, 1
_SCRYPT_BYTES = 256 << 20
_CHUNK = 1 << 20
_TAG = 16
_LEAST_CHARS = 8
_MOST_BYTES = 1024


def check_passphrase(passphrase: str) -> bytes:
    """Return a passphrase as bytes, its letters composed (NFC). Raises: InvalidInput (too short, unusable)."""
    if not isinstance(passphrase, str):
        raise InvalidInput("passphrase", f"must be text, not {type(passphrase).__name__}")
    try:
        raw = unicodedata.normalize("NFC", passphrase).encode()
    except UnicodeEncodeError as error:
        raise InvalidInput("passphrase", "has a lone surrogate; write it in valid Unicode") from error
    if len(passphrase) < _LEAST_CHARS or len(raw) > _MOST_BYTES:
        raise InvalidInput(
            "passphrase", f"must have {_LEAST_CHARS} characters at least and {_MOST_BYTES} bytes at most"
        )
    return raw


class Sealer:
    """A file to write into that seals what it is given; `finish` writes the end, without which nothing opens it."""

    def __init__(self, out: IO[bytes], passphrase: bytes) -> None:
        salt, self._prefix = os.urandom(16), os.urandom(7)
        self._header = _HEADER.pack(MAGIC, _LOG_N, _R, _P, salt, self._prefix, _CHUNK)
        self._cipher = _cipher(_key(passphrase, salt, _LOG_N, _R, _P))
        self._out, self._held, self._number = out, bytearray(), 0
        out.write(self._header)

    def write(self, data: Any) -> int:
        """Take bytes; whole chunks are written once it is known that they are not the last."""
        given = memoryview(data).cast("B")
        self._held += given
        while len(self._held) > _CHUNK:
            self._seal(bytes(self._held[:_CHUNK]), last=False)
            del self._held[:_CHUNK]
        return len(given)

    def flush(self) -> None:
        """Hand over what is written."""
        self._out.flush()

    def finish(self) -> None:
        """Write the last chunk."""
        self._seal(bytes(self._held), last=True)
        self._held.clear()

    def _seal(self, chunk: bytes, *, last: bool) -> None:
        nonce = _nonce(self._prefix, self._number, last=last)
        self._out.write(self._cipher.encrypt(nonce, chunk, self._header))
        self._number += 1


def is_sealed(beginning: bytes) -> bool:
    """Say whether a file that begins so is sealed."""
    return beginning.startswith(MAGIC)


def unseal(sealed: IO[bytes], out: IO[bytes], passphrase: bytes) -> None:
    """Write what is sealed into `out`; only when this returns is it known to be what was sealed, and all of it.

    Raises: InvalidInput (another passphrase, or changed, cut off, not sealed by this program).
    """
    raw = sealed.read(_HEADER.size)
    if len(raw) != _HEADER.size:
        raise _wrong()
    magic, log_n, r, p, salt, prefix, size = _HEADER.unpack(raw)
    costs_too_much = not 10 <= log_n <= 20 or r < 1 or 128 * r << log_n > _SCRYPT_BYTES or not 1 <= p <= 4
    if magic != MAGIC or costs_too_much or not 1024 <= size <= 16 << 20:
        raise InvalidInput("file", "is sealed in a way that this program does not open; use the one that made it")
    cipher = _cipher(_key(passphrase, salt, log_n, r, p))
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - an extra

    number, chunk = 0, sealed.read(size + _TAG)
    while True:
        following = sealed.read(size + _TAG) if len(chunk) == size + _TAG else b""
        try:
            out.write(cipher.decrypt(_nonce(prefix, number, last=not following), chunk, raw))
        except (InvalidTag, ValueError) as error:
            raise _wrong() from error
        if not following:
            return
        number, chunk = number + 1, following


def _wrong() -> InvalidInput:
    return InvalidInput("passphrase", "does not open this file, or the file was changed or cut off; nothing was loaded")


def _nonce(prefix: bytes, number: int, *, last: bool) -> bytes:
    if number >= 1 << 32:
        raise InvalidInput("file", "is too large to be sealed; leave the passphrase out and seal it otherwise")
    return prefix + number.to_bytes(4, "big") + bytes([last])


def _key(passphrase: bytes, salt: bytes, log_n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(passphrase, salt=salt, n=1 << log_n, r=r, p=p, maxmem=2 * _SCRYPT_BYTES, dklen=32)


def _cipher(key: bytes) -> AESGCM:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise BackendUnavailable(
            "A passphrase needs the extra `sealing`: pip install '.[sealing]' in the clone.",
            permanent=True,
        ) from error
    return AESGCM(key)
