"""Decrypt the files of an installation for a scan that looks for remnants of erased text."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from memos.errors import IntegrityError, MemosError
from memos.memcube.backup import sealed as backup_tables
from memos.memcube.encryption.files import SUFFIX, unseal_bytes, unseal_folder
from memos.memcube.encryption.keys import Keyring
from memos.memcube.encryption.vault import FILES, BlockSealer, adapter_name, index_name
from memos.memcube.ledger import sqlcipher

_BLOCK_BYTES = 1 << 20


class SealedContents:
    """Decrypt the encrypted files of an open installation.

    Args:
        keys: The keys.
        home: The folder of the installation.
        scratch: Where to unpack, a folder in memory.
    """

    def __init__(self, keys: Keyring, home: Path, scratch: Path) -> None:
        self._keys = keys
        self._home = home
        self._scratch = scratch

    @contextmanager
    def folder(self, path: Path) -> Iterator[Path | None]:
        """Decrypt a vector index, an adapter or the index of KV blocks into a folder; yield None for other files.

        Raises: IntegrityError (damaged, or of other keys), BackendUnavailable (no space in memory).
        """
        name = path.name.removesuffix(SUFFIX)
        target = Path(tempfile.mkdtemp(prefix="scan-", dir=self._scratch))
        try:
            if self.is_database(path):
                copied = target / path.name
                copied.touch(mode=0o600)
                try:
                    sqlcipher.copy(path, BlockSealer(self._keys).index_key, copied, None)
                except sqlcipher.driver().Error as error:
                    raise IntegrityError(f"{path} is encrypted with another key, or damaged.") from error
                yield target
                return
            for about in (index_name(name), adapter_name(name)):
                with suppress(IntegrityError):
                    unseal_folder(path, target / "in", about, self._key)
                    break
            yield target if (target / "in").exists() else None
        finally:
            shutil.rmtree(target, ignore_errors=True)

    def parts(self, path: Path) -> Iterator[bytes]:
        """Yield the decrypted content of a KV block or a backup table, without rows of cubes whose key was destroyed.

        Raises: IntegrityError (damaged, or of other keys).
        """
        name = path.name.split(".")[0]
        with suppress(IntegrityError):
            yield unseal_bytes(path.read_bytes(), f"block {name}", self._keys.key)
            return
        held = bytearray()
        try:
            with path.open("rb") as source:
                for line in backup_tables.lines(source, name, self._keys, set()):
                    held += line + b"\n"
                    if len(held) >= _BLOCK_BYTES:
                        yield bytes(held)
                        held.clear()
        except (ValueError, MemosError) as error:
            raise IntegrityError(f"{path} is sealed with keys that this installation has not, or damaged.") from error
        yield bytes(held)

    def is_database(self, path: Path) -> bool:
        """Return True if a file is the encrypted index of KV blocks."""
        return path.parent.parent == self._home and path.suffix == ".db" and not sqlcipher.is_plain(path)

    def _key(self, key_id: str) -> bytes | None:
        return self._keys.shared(FILES) if key_id == FILES else self._keys.key(key_id)
