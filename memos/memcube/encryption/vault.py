"""What an open installation needs to keep its files sealed: opened keys, and a folder in memory for files in use.

The vector index and adapters are used by engines that map or write plain files. Those are in a folder in memory, from
the opening of the installation to its end, and are kept sealed in its own folder. What a killed program left in memory
is taken up by the next opening; after a restart of the machine the files that were sealed last are used, and the index
is compared with the ledger, as after any crash.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import shutil
import stat
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import sqlalchemy as sa

from memos.core.clock import new_id
from memos.errors import BackendUnavailable, IntegrityError, InvalidInput, MemosError, PermissionDenied
from memos.memcube.backup import backups
from memos.memcube.backup.places import Place
from memos.memcube.encryption.files import SUFFIX, seal_bytes, seal_folder, unseal_bytes, unseal_folder
from memos.memcube.encryption.keys import KEYS_FILE, SETTING, Keyring, KeyState, master_key, read_keys
from memos.memcube.ledger import adapters as adapter_rows
from memos.memcube.ledger import schema as t
from memos.memcube.ledger.engine import Ledger
from memos.memcube.ledger.sqlcipher import driver, is_plain

log = logging.getLogger("memos.encryption")

FILES = "files"
"""The name of the installation's data key for files of no single cube."""
_LEDGER, _NAMES, _BLOCKS = "ledger", "names", "blocks"
_MEMORY = (Path("/dev/shm"),)  # noqa: S108 - memory, in a folder that only its owner can enter
_IN_MEMORY = frozenset({"tmpfs", "ramfs"})
_MOUNTS = Path("/proc/self/mounts")


def unlock(home: Path, place: str | None, *, may_be_plain: bool = False) -> Keyring | None:
    """Open the keys of an installation in a folder, or make them for a new one; None if it is not encrypted.

    Of a ledger on a server that is `memos.memcube.encryption.ledger_keys.unlock_ledger`.

    Args:
        home: The folder of the installation, which exists.
        place: The setting `encryption_key`.
        may_be_plain: Accept a key although the installation is not encrypted.

    Raises:
        InvalidInput: A key is set, but the installation is not encrypted, or the key cannot be read.
        PermissionDenied: The key is missing, or is another one.
        BackendUnavailable: A conversion was cut off, or the extra is missing.
        IntegrityError: The file of keys is damaged or missing.
    """
    path, ledger = home / KEYS_FILE, home / "ledger.db"
    keys, content = open_keys(home, place), read_keys(path)
    has_ledger = has_content(ledger)
    if keys is None:
        if place is None:
            return None
        if has_ledger and (content is not None or is_plain(ledger)):
            if may_be_plain:
                return None
            raise InvalidInput(SETTING, f"is set, but {home} is not encrypted: run `memos data encrypt`, or unset it")
        if has_ledger:
            raise IntegrityError(
                f"{path} is missing, and without it {ledger} cannot be read: put back a copy, such as the one beside "
                "the backups. Nothing was changed."
            )
        master = master_key(place)
        driver()  # nothing is made if the extra is missing
        if content is None:
            return Keyring.create(path, master, KeyState.ON)
        keys = Keyring.open(path, content, master)
        keys.set_state(KeyState.ON)
        return keys
    if keys.state is not KeyState.ON:
        word = "encrypt" if keys.state is KeyState.ENCRYPTING else "decrypt"
        raise BackendUnavailable(
            f"The conversion of {home} was cut off: run `memos data {word}` again to finish it. Nothing was lost.",
            permanent=True,
        )
    return keys


def open_keys(home: Path, place: str | None) -> Keyring | None:
    """Open the keys of an encrypted installation; None if it is not encrypted. Raises: as `unlock`."""
    content = read_keys(home / KEYS_FILE)
    if content is None or content.state is KeyState.OFF:
        return None
    if place is None:
        raise PermissionDenied(f"{home} is encrypted: set {SETTING} to where its master key is. Nothing was changed.")
    return Keyring.open(home / KEYS_FILE, content, master_key(place))


def has_content(path: Path) -> bool:
    """Return True if a file is there and not empty."""
    return path.is_file() and path.stat().st_size > 0


def ledger_key(keys: Keyring | None) -> bytes | None:
    """Return the key of the ledger's file, None for a plain one."""
    return None if keys is None else keys.shared(_LEDGER)


class Vault:
    """The sealed files of an open installation, which is locked if it is `alone`; `close` removes what is in memory."""

    def __init__(self, home: Path, keys: Keyring, *, alone: bool = True) -> None:
        self.home = home
        self.keys = keys
        # Processes that share a ledger on a server have a folder each.
        self.working = _memory_folder(home, keys.id if alone else f"{keys.id} {os.getpid()} {new_id()}")
        self._is_kept = True

    def index(self, space: str) -> SealedIndex:
        return SealedIndex(self, self.home / "vector" / f"{space}{SUFFIX}", index_name(space))

    def blocks(self) -> BlockSealer:
        return BlockSealer(self.keys)

    def adapters(self, name: str, ledger: Ledger) -> SealedAdapters:
        return SealedAdapters(self, ledger, self.home / name, self.working / name)

    def destroy_keys(self, ledger: Ledger, cubes: Collection[str]) -> dict[str, int]:
        """Destroy the keys of those cubes that were erased, also in copies beside backups; return how many, by cube."""
        with ledger.read() as connection:
            query = sa.select(t.tombstones.c.cube_id, t.tombstones.c.at, t.tombstones.c.removed)
            query = query.where(t.tombstones.c.cube_id.in_(cubes))
            erased = [(row.cube_id, row.at) for row in connection.execute(query) if row.removed.get("cubes")]
        destroyed = self.keys.destroy(erased)
        if erased:
            renew_copies(self.keys, backups.places(made.folder for made in backups.known(ledger)))
        return destroyed

    def not_kept(self) -> None:
        """Leave the folder in memory at the end: something in it could not be sealed."""
        self._is_kept = False

    def close(self) -> None:
        if self._is_kept:
            shutil.rmtree(self.working, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def forget_memory(home: Path, keys: Keyring) -> None:
    """Remove what a killed program left in memory; the installation is locked."""
    shutil.rmtree(_memory_folder(home, keys.id), ignore_errors=True)


def _memory_folder(home: Path, id_: str) -> Path:
    root = next(filter(_is_in_memory, _candidates()), None)
    if root is None:
        raise BackendUnavailable(
            "Encryption needs a folder in memory for the vector index, and /dev/shm is none: mount a tmpfs there "
            "(in a container, --shm-size).",
            permanent=True,
        )
    digest = hashlib.sha256(f"{home.resolve()}\n{id_}".encode(errors="surrogateescape")).hexdigest()[:24]
    folder = root / f"hippocube-{os.geteuid()}-{digest}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError as error:
        raise BackendUnavailable(f"Cannot create {folder} ({error.strerror}), which encryption needs.") from error
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise BackendUnavailable(f"{folder} belongs to somebody else, or others can read it; remove it.")
    return folder


def _candidates() -> tuple[Path, ...]:
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return _MEMORY if not runtime else (*_MEMORY, Path(runtime))


def _is_in_memory(folder: Path) -> bool:
    """Return True if a folder is on a file system in memory, which only Linux has here."""
    try:
        lines = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        place = folder.resolve()
    except OSError:
        return False
    mounts = {Path(fields[1]): fields[2] for fields in map(str.split, lines) if len(fields) > 2}
    holder = next((parent for parent in (place, *place.parents) if parent in mounts), None)
    return holder is not None and mounts[holder] in _IN_MEMORY and os.access(folder, os.W_OK | os.X_OK)


@dataclass(frozen=True, slots=True)
class SealedIndex:
    """The sealed form of one embedder's vector index."""

    vault: Vault
    sealed: Path
    about: str

    def restore(self, folder: Path, first: str) -> bool:
        """Put the sealed files into a folder in memory, unless a killed program left some there; True if it did."""
        if folder.exists() or not self.sealed.exists():
            return False
        aside = folder.with_name(f"{folder.name}.new")
        shutil.rmtree(aside, ignore_errors=True)
        key = self.vault.keys.shared(FILES)
        try:
            unseal_folder(self.sealed, aside / first, self.about, lambda _: key)
        except IntegrityError as error:
            log.warning("%s It is rebuilt from the ledger.", error)
            shutil.rmtree(aside, ignore_errors=True)
            return False
        aside.rename(folder)
        return True

    def keep(self, generation: Path) -> None:
        """Seal the files of a generation, which are flushed. Raises: BackendUnavailable."""
        try:
            seal_folder(generation, self.sealed, FILES, self.vault.keys.shared(FILES), self.about)
        except MemosError as error:
            self.vault.not_kept()
            log.warning("the vector index could not be sealed (%s)", error)
            raise

    def remove_others(self) -> list[str]:
        """Remove the sealed indexes of other embedders."""
        others = [path for path in self.sealed.parent.glob("*") if path != self.sealed]
        for path in others:
            path.unlink(missing_ok=True)
        return [path.name.removesuffix(SUFFIX) for path in others]


@dataclass(frozen=True, slots=True)
class SealedAdapters:
    """The sealed form of the trained adapters, each with the key of its cube."""

    vault: Vault
    ledger: Ledger
    sealed: Path
    working: Path

    def restore(self) -> None:
        """Put all adapters into memory. Raises: BackendUnavailable (no space)."""
        self.working.mkdir(mode=0o700, exist_ok=True)
        for path in self.sealed.glob(f"*{SUFFIX}"):
            folder = self.working / path.name.removesuffix(SUFFIX)
            if folder.exists():
                continue
            aside = folder.with_name(f"{folder.name}.new")
            shutil.rmtree(aside, ignore_errors=True)
            try:
                unseal_folder(path, aside, adapter_name(folder.name), self.vault.keys.key)
            except IntegrityError as error:
                log.warning("%s Train the adapter again.", error)
                continue
            aside.rename(folder)

    def keep(self) -> None:
        """Seal adapters that are new, and remove those that the ledger no longer has. Raises: BackendUnavailable."""
        with self.ledger.read() as connection:
            rows = {row.id: row.cube for row in adapter_rows.trained(connection)}
        for path in self.sealed.glob(f"*{SUFFIX}*") if self.sealed.exists() else ():
            if path.name.removesuffix(SUFFIX) not in rows:
                path.unlink(missing_ok=True)
        for id_, cube in rows.items():
            target = self.sealed / f"{id_}{SUFFIX}"
            if target.exists() or not (self.working / id_).is_dir():
                continue
            key_id = self.vault.keys.for_cube(cube)
            key = self.vault.keys.key(key_id)
            assert key is not None
            try:
                seal_folder(self.working / id_, target, key_id, key, adapter_name(id_))
            except MemosError:
                self.vault.not_kept()
                raise


def index_name(space: str) -> str:
    """Return what a sealed index says it is."""
    return f"index {space}"


def adapter_name(id_: str) -> str:
    """Return what a sealed adapter says it is."""
    return f"adapter {id_}"


@dataclass(frozen=True, slots=True)
class BlockSealer:
    """Seals KV blocks with the keys of their cubes; the names of their files are keyed digests of theirs."""

    keys: Keyring

    def name(self, key: str) -> str:
        return hmac.new(self.keys.shared(_NAMES), key.encode(), hashlib.sha256).hexdigest()

    def seal(self, key: str, cube: str, content: bytes) -> bytes:
        key_id = self.keys.for_cube(cube)
        data_key = self.keys.key(key_id)
        assert data_key is not None
        return seal_bytes(key_id, data_key, content, f"block {self.name(key)}")

    def unseal(self, name: str, content: bytes) -> bytes:
        return unseal_bytes(content, f"block {name}", self.keys.key)

    @property
    def index_key(self) -> bytes:
        return self.keys.shared(_BLOCKS)


def renew_copies(keys: Keyring, places: Collection[Place]) -> list[str]:
    """Write the keys over their copies beside backups; return the places where that failed, which are logged."""
    failed = []
    for place in places:
        try:
            keys.copy_into(place, only_existing=True)
        except MemosError as error:
            failed.append(str(place))
            what = "cannot renew the copy of the keys in %s (%s); copy %s there, or it keeps what was destroyed"
            log.warning(what, place, error, keys.where)
    return failed
