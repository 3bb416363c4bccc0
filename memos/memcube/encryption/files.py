"""Sealed files: AES-256-GCM in frames, each with the id of its key, and folders as one sealed file.

A frame's associated data are what the file is, the frame's number and whether it is the last: frames of another file,
in another order, or cut off are noticed. Nonces are random, and far fewer than 2**32 for one key.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

from memos.errors import IntegrityError
from memos.memcube.backup.files import created, disk_errors, sync_folder
from memos.memcube.encryption.keys import NONCE_BYTES, cipher

MAGIC = b"HIPPOCUBE-SEALED-1\n"
FRAME_BYTES = 1 << 20
SUFFIX = ".sealed"

# Bytes of the sealed content, and of the key's id before it.
_HEAD = struct.Struct(">IH?")
_TAG_BYTES = 16
_MOST_FRAME = 64 << 20
_BLOCK = 1 << 12
_ZEROS = bytes(_BLOCK)

KeyOf = Callable[[str], bytes | None]
"""Returns a data key by its id, None if it was destroyed."""


class SealedWriter:
    """Writes frames into a file; `finish` writes the last one, without which nobody takes the file as whole."""

    def __init__(self, out: IO[bytes], about: str) -> None:
        self._out, self._about, self._number = out, about.encode(), 0
        out.write(MAGIC)

    def write(self, key_id: str, key: bytes, content: bytes, *, last: bool = False) -> None:
        """Seal one frame with a key."""
        nonce, name = os.urandom(NONCE_BYTES), key_id.encode()
        head = _HEAD.pack(NONCE_BYTES + len(content) + _TAG_BYTES, len(name), last) + name
        self._out.write(head + nonce)
        self._out.write(cipher(key).encrypt(nonce, content, _told(self._about, self._number, head)))
        self._number += 1

    def finish(self, key_id: str, key: bytes) -> None:
        self.write(key_id, key, b"", last=True)


def frames(source: IO[bytes], about: str, key_of: KeyOf) -> Iterator[tuple[str, bytes | None]]:
    """Yield the id of each frame's key and the frame's content, None where the key was destroyed.

    Raises: IntegrityError (changed, cut off, of another place).
    """
    if source.read(len(MAGIC)) != MAGIC:
        raise _damaged(about)
    number, last = 0, False
    while not last:
        head = source.read(_HEAD.size)
        if len(head) < _HEAD.size:
            raise _damaged(about)
        size, name_bytes, last = _HEAD.unpack(head)
        name = source.read(name_bytes)
        if size > _MOST_FRAME:
            raise _damaged(about)
        raw = source.read(size)
        try:
            key_id = name.decode()
        except UnicodeDecodeError as error:
            raise _damaged(about) from error
        key = key_of(key_id)
        content = None if key is None else _opened(key, raw, _told(about.encode(), number, head + name), about)
        number += 1
        if last:
            return
        yield key_id, content


def seal_bytes(key_id: str, key: bytes, content: bytes, about: str) -> bytes:
    """Return one small file's sealed content."""
    nonce, name = os.urandom(NONCE_BYTES), key_id.encode()
    head = _HEAD.pack(NONCE_BYTES + len(content) + _TAG_BYTES, len(name), True) + name
    return MAGIC + head + nonce + cipher(key).encrypt(nonce, content, _told(about.encode(), 0, head))


def unseal_bytes(raw: bytes, about: str, key_of: KeyOf) -> bytes:
    """Return what `seal_bytes` sealed. Raises: IntegrityError (changed, or its key was destroyed)."""
    place = len(MAGIC) + _HEAD.size
    if not raw.startswith(MAGIC) or len(raw) < place:
        raise _damaged(about)
    size, name_bytes, _ = _HEAD.unpack_from(raw, len(MAGIC))
    start = place + name_bytes
    key = key_of(raw[place:start].decode(errors="replace"))
    if key is None:
        raise IntegrityError(f"The key of {about} was destroyed.")
    if len(raw) != start + size:
        raise _damaged(about)
    return _opened(key, raw[start:], _told(about.encode(), 0, raw[len(MAGIC) : start]), about)


def _told(about: bytes, number: int, head: bytes) -> bytes:
    return struct.pack(">Q", number) + head + about


def _opened(key: bytes, raw: bytes, told: bytes, about: str) -> bytes:
    opener = cipher(key)
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - an extra

    try:
        return opener.decrypt(raw[:NONCE_BYTES], raw[NONCE_BYTES:], told)
    except (InvalidTag, ValueError) as error:
        raise _damaged(about) from error


def _damaged(about: str) -> IntegrityError:
    return IntegrityError(f"The sealed file of {about} was changed, cut off, or sealed with another key.")


# Folders


def seal_folder(folder: Path, target: Path, key_id: str, key: bytes, about: str) -> None:
    """Write the files of a folder into one sealed file, which takes its name when it is whole.

    Blocks of zeros are left out, as the vector index reserves far more than it fills. Raises: BackendUnavailable.
    """
    aside = target.with_name(f"{target.name}.new")
    with disk_errors(target.parent):
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        aside.unlink(missing_ok=True)
        with created(aside) as out:
            writer = SealedWriter(out, about)
            for path in sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()):
                if path.name != "lock":
                    _seal_file(writer, path, str(path.relative_to(folder)), key_id, key)
            writer.finish(key_id, key)
        aside.replace(target)
        sync_folder(target.parent)


def _seal_file(writer: SealedWriter, path: Path, name: str, key_id: str, key: bytes) -> None:
    with path.open("rb") as file:
        head = {"name": name, "size": os.fstat(file.fileno()).st_size}
        writer.write(key_id, key, b"F" + json.dumps(head).encode())
        held, start, place = bytearray(), 0, 0
        while block := file.read(_BLOCK):
            if block == _ZEROS[: len(block)] or len(held) >= FRAME_BYTES:
                if held:
                    writer.write(key_id, key, b"D" + struct.pack(">Q", start) + bytes(held))
                held.clear()
            if block != _ZEROS[: len(block)]:
                start = start if held else place
                held += block
            place += len(block)
        if held:
            writer.write(key_id, key, b"D" + struct.pack(">Q", start) + bytes(held))


def unseal_folder(sealed: Path, folder: Path, about: str, key_of: KeyOf) -> None:
    """Write the files of a sealed folder into a new folder. Raises: IntegrityError, BackendUnavailable (no space)."""
    try:
        with disk_errors(folder.parent), sealed.open("rb") as source:
            folder.mkdir(mode=0o700, parents=True)
            _unseal_files(source, folder, about, key_of)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _unseal_files(source: IO[bytes], folder: Path, about: str, key_of: KeyOf) -> None:
    out: IO[bytes] | None = None
    try:
        for _, content in frames(source, about, key_of):
            if content is None:
                raise IntegrityError(f"The key of {about} was destroyed.")
            if content[:1] == b"F":
                told = json.loads(content[1:])
                path = folder / told["name"]
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                if out is not None:
                    out.close()
                out = path.open("xb")
                out.truncate(told["size"])
            elif out is not None:
                [start] = struct.unpack_from(">Q", content, 1)
                out.seek(start)
                out.write(content[9:])
    finally:
        if out is not None:
            with suppress(OSError):
                out.close()
