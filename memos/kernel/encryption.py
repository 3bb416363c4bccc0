"""Turns encryption at rest of an installation on or off, and changes its master key.

A conversion is a row of steps that each look at what is there: one that was cut off is run again, and goes on. Until it
is done nothing opens the installation, and nothing that is not rebuilt is removed before its other form is on the disk.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import sqlalchemy as sa
from pydantic import SecretStr

from memos.core.settings import Settings
from memos.errors import BackendUnavailable, Conflict, IntegrityError, InvalidInput, MemosError, NotFound
from memos.kernel.local_models import FOLDER as ACTIVATION
from memos.kernel.opening import FIRST_GENERATION, current_generation
from memos.memcube.backup import backups
from memos.memcube.backup.archive import read_manifest
from memos.memcube.backup.files import disk_errors, sync_folder
from memos.memcube.encryption.files import SUFFIX, seal_folder, unseal_folder
from memos.memcube.encryption.keys import KEYS_FILE, SETTING, Keyring, KeyState, master_key, read_keys
from memos.memcube.encryption.ledger_keys import LedgerKeyring, open_stored, read_stored
from memos.memcube.encryption.vault import (
    FILES,
    adapter_name,
    forget_memory,
    has_content,
    index_name,
    ledger_key,
    open_keys,
    renew_copies,
)
from memos.memcube.installation import FolderLock
from memos.memcube.ledger import adapters as adapter_rows
from memos.memcube.ledger import schema, sqlcipher
from memos.memcube.ledger.engine import Ledger
from memos.memcube.ledger.sealing import ColumnSealer, rewrite
from memos.memcube.parametric import forgetting

_LEDGER, _ASIDE = "ledger.db", "ledger.db.converting"


@dataclass(frozen=True, slots=True)
class Conversion:
    """What a conversion did."""

    home: Annotated[str, "Folder of the installation, or its ledger on a server"]
    encrypted: Annotated[bool, "Whether it is encrypted now"]
    plain_backups: Annotated[tuple[str, ...], "Known backups that anybody can read who has their files"]


@dataclass(frozen=True, slots=True)
class Rotation:
    """Result of a change of the master key."""

    home: Annotated[str, "Folder of the installation, or its ledger on a server"]
    setting: Annotated[str, "What MEMOS_ENCRYPTION_KEY has to be from now on"]
    not_renewed: Annotated[tuple[str, ...], "Folders of backups whose copy of the keys could not be renewed"]


def encrypt(settings: Settings) -> Conversion:
    """Encrypt an installation that nobody has open; run it again if it was cut off.

    Raises: NotFound (no installation), InvalidInput (no key is set), PermissionDenied (another key), Conflict (it is
    encrypted), BackendUnavailable (in use, a full disk, the extra is missing).
    """
    if settings.encryption_key is None:
        raise InvalidInput(SETTING, "is not set: say where the master key is, for example file:/etc/hippocube.key")
    if settings.ledger_url is not None:
        return _encrypt_server(settings, master_key(settings.encryption_key))
    home = _home(settings)
    master = master_key(settings.encryption_key)
    with _locked(home):
        sqlcipher.driver()
        keys = _keys(home, master)
        if keys.state is KeyState.ON:
            raise Conflict(f"{home} is encrypted already.")
        forget_memory(home, keys)
        keys.set_state(KeyState.ENCRYPTING)
        _convert_ledger(home, None, ledger_key(keys))
        _seal_indexes(home / "vector", keys)
        with _opened(home, keys) as connection:
            cubes = dict(connection.execute("SELECT id, cube_id FROM adapters").fetchall())
        _seal_adapters(home / forgetting.FOLDER, keys, cubes)
        _remove(home / ACTIVATION)
        keys.set_state(KeyState.ON)
        return Conversion(str(home), True, tuple(_plain_backups(home, keys)))


def decrypt(settings: Settings) -> Conversion:
    """Turn encryption off; run it again if it was cut off. The keys stay, so that encrypted backups can be restored.

    Raises: as `encrypt`.
    """
    if settings.ledger_url is not None:
        return _decrypt_server(settings)
    home = _home(settings)
    with _locked(home):
        keys = open_keys(home, settings.encryption_key)
        if keys is None:
            raise Conflict(f"{home} is not encrypted.")
        forget_memory(home, keys)
        keys.set_state(KeyState.DECRYPTING)
        _convert_ledger(home, ledger_key(keys), None)
        _unseal_indexes(home / "vector", keys)
        _unseal_adapters(home / forgetting.FOLDER, keys)
        _remove(home / ACTIVATION)
        keys.set_state(KeyState.OFF)
        return Conversion(str(home), False, tuple(_plain_backups(home, None)))


def rotate(settings: Settings, place: str) -> Rotation:
    """Wrap the keys with another master key, at once and while others use the installation.

    Args:
        settings: Those of the installation, with the present master key.
        place: Where the new master key is, as the setting says it.

    Raises: NotFound (no installation, or it is not encrypted), InvalidInput, PermissionDenied, BackendUnavailable.
    """
    if settings.ledger_url is not None:
        return _rotate_server(settings, place)
    home = _home(settings)
    keys = open_keys(home, settings.encryption_key)
    if keys is None:
        raise NotFound("encrypted installation", str(home), "Run `memos data encrypt` first.")
    new = master_key(place)
    keys.rotate(new)
    if (content := read_keys(home / KEYS_FILE)) is not None:
        Keyring.open(home / KEYS_FILE, content, new)
    with _opened(home, keys) as connection:
        folders = [folder for (folder,) in connection.execute("SELECT folder FROM backups")]
    return Rotation(str(home), place, tuple(renew_copies(keys, backups.places(folders))))


def _home(settings: Settings) -> Path:
    home = settings.home.absolute()
    if not has_content(home / _LEDGER):
        raise NotFound("installation", str(home), "Pass the folder that contains ledger.db.")
    return home


@contextmanager
def _locked(home: Path) -> Iterator[None]:
    lock = FolderLock(home)
    lock.acquire()
    try:
        with disk_errors(home):
            yield
    finally:
        lock.release()


def _keys(home: Path, master: bytes) -> Keyring:
    path = home / KEYS_FILE
    content = read_keys(path)
    if content is not None:
        return Keyring.open(path, content, master)
    if not sqlcipher.is_plain(home / _LEDGER):
        raise IntegrityError(f"{home / _LEDGER} is encrypted or damaged, and {path} is missing; put back a copy of it.")
    return Keyring.create(path, master, KeyState.ENCRYPTING)


# The ledger


def _convert_ledger(home: Path, key: bytes | None, target_key: bytes | None) -> None:
    """Copy the ledger into a file with another key, compare both, and put it in the place of the first."""
    path, aside = home / _LEDGER, home / _ASIDE
    _remove(aside)
    if sqlcipher.is_plain(path) is (target_key is None):  # done before
        return
    error = sqlcipher.driver().Error
    try:
        _empty_log(path, key)
        os.close(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        sqlcipher.copy(path, key, aside, target_key)
        before, after = _tables(path, key), _tables(aside, target_key)
    except error as failure:
        _remove(aside)
        raise BackendUnavailable(
            f"The ledger {path} could not be converted ({failure}); it is as it was. Run the command again."
        ) from failure
    if before != after:
        _remove(aside)
        raise IntegrityError(f"The copy of {path} is not equal to it; check the disk. The ledger is as it was.")
    with aside.open("rb") as file:
        os.fsync(file.fileno())
    aside.replace(path)
    sync_folder(home)


def _empty_log(path: Path, key: bytes | None) -> None:
    with closing(sqlcipher.connect(path, key, isolation_level=None)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        [mode] = connection.execute("PRAGMA journal_mode=DELETE").fetchone()
    if mode != "delete":
        raise BackendUnavailable(f"Another program has {path} open; stop it and run the command again.")


def _tables(path: Path, key: bytes | None) -> dict[str, int]:
    """Return the number of rows of every table of a file that is intact. Raises: the driver's errors."""
    with closing(sqlcipher.connect(path, key)) as connection:
        [found] = connection.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise sqlcipher.driver().DatabaseError(f"it is damaged: {found}")
        named = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        return {
            name: connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]  # noqa: S608 - a table's own name
            for (name,) in named
        }


@contextmanager
def _opened(home: Path, keys: Keyring | None) -> Iterator[Any]:
    place = f"{(home / _LEDGER).as_uri()}?mode=ro"
    with closing(sqlcipher.connect(place, ledger_key(keys), uri=True)) as connection:
        yield connection


def _plain_backups(home: Path, keys: Keyring | None) -> Iterator[str]:
    with _opened(home, keys) as connection:
        folders = [folder for (folder,) in connection.execute("SELECT folder FROM backups ORDER BY created_at")]
    return _readable(folders)


def _readable(folders: Iterable[str]) -> Iterator[str]:
    """Yield those of these backups that need no key."""
    for folder in folders:
        try:
            if read_manifest(folder).keys is None:
                yield folder
        except MemosError:  # removed, or elsewhere now
            continue


# A ledger on PostgreSQL


@contextmanager
def _on_server(settings: Settings) -> Iterator[Ledger]:
    """Open a ledger on a server that holds something, and that nobody else has open."""
    home = settings.home.absolute()
    with ExitStack() as stack:
        if settings.needs_folder:
            with disk_errors(home):
                home.mkdir(parents=True, exist_ok=True, mode=0o700)
            stack.enter_context(_locked(home))
        ledger = Ledger.open((settings.ledger_url or SecretStr("")).get_secret_value())
        stack.callback(ledger.close)
        ledger.hold(alone="moving")
        with ledger.read() as connection:
            if connection.scalar(sa.select(schema.cubes.c.id).limit(1)) is None:
                raise NotFound("installation", ledger.description, "A new one is encrypted from its first start.")
        yield ledger


def _encrypt_server(settings: Settings, master: bytes) -> Conversion:
    if settings.index.vectors == "pgvector":
        raise InvalidInput(
            "MEMOS_INDEX__VECTORS", "is `pgvector`, which keeps tags, info and vectors in the clear: use Qdrant"
        )
    home = settings.home.absolute()
    with _on_server(settings) as ledger:
        content = read_stored(ledger)
        if content is None:
            keys = LedgerKeyring.create_in(ledger, master, KeyState.ENCRYPTING)
        else:
            keys = LedgerKeyring.open_in(ledger, content, master)
        if keys.state is KeyState.ON:
            raise Conflict(f"{ledger.description} is encrypted already.")
        forget_memory(home, keys)
        keys.set_state(KeyState.ENCRYPTING)
        ledger.seal(ColumnSealer(keys, may_be_plain=True))
        rewrite(ledger)
        with ledger.read() as connection:
            cubes = {row.id: row.cube for row in adapter_rows.trained(connection)}
        _seal_indexes(home / "vector", keys)
        _seal_adapters(home / forgetting.FOLDER, keys, cubes)
        _remove(home / ACTIVATION)
        keys.set_state(KeyState.ON)
        folders = [made.folder for made in backups.known(ledger)]
        return Conversion(ledger.description, True, tuple(_readable(folders)))


def _decrypt_server(settings: Settings) -> Conversion:
    home = settings.home.absolute()
    with _on_server(settings) as ledger:
        keys = open_stored(ledger, settings.encryption_key)
        if keys is None:
            raise Conflict(f"{ledger.description} is not encrypted.")
        forget_memory(home, keys)
        keys.set_state(KeyState.DECRYPTING)
        ledger.seal(ColumnSealer(keys, writes_plain=True))
        rewrite(ledger)
        _unseal_indexes(home / "vector", keys)
        _unseal_adapters(home / forgetting.FOLDER, keys)
        _remove(home / ACTIVATION)
        keys.set_state(KeyState.OFF)
        folders = [made.folder for made in backups.known(ledger)]
        return Conversion(ledger.description, False, tuple(_readable(folders)))


def _rotate_server(settings: Settings, place: str) -> Rotation:
    ledger = Ledger.open((settings.ledger_url or SecretStr("")).get_secret_value())
    try:
        keys = open_stored(ledger, settings.encryption_key)
        if keys is None:
            raise NotFound("encrypted installation", ledger.description, "Run `memos data encrypt` first.")
        new = master_key(place)
        keys.rotate(new)
        if open_stored(ledger, place) is None:
            raise IntegrityError(f"The keys in {ledger.description} were removed meanwhile; put them back.")
        folders = [made.folder for made in backups.known(ledger)]
        return Rotation(ledger.description, place, tuple(renew_copies(keys, backups.places(folders))))
    finally:
        ledger.close()


# Indexes and adapters


def _seal_indexes(vector: Path, keys: Keyring) -> None:
    for folder in sorted(path for path in vector.glob("*") if path.is_dir()):
        try:
            generation = current_generation(folder)
        except IntegrityError:  # rebuilt from the ledger
            generation = folder / FIRST_GENERATION
        if generation.is_dir():
            target = vector / f"{folder.name}{SUFFIX}"
            seal_folder(generation, target, FILES, keys.shared(FILES), index_name(folder.name))
        _remove(folder)


def _unseal_indexes(vector: Path, keys: Keyring) -> None:
    key = keys.shared(FILES)
    for sealed in sorted(vector.glob(f"*{SUFFIX}")):
        space = sealed.name.removesuffix(SUFFIX)
        _unseal(sealed, vector / space, index_name(space), {FILES: key}, inside=FIRST_GENERATION)
    for leftover in vector.glob(f"*{SUFFIX}.new"):
        _remove(leftover)


def _seal_adapters(folder: Path, keys: Keyring, cubes: Mapping[str, str]) -> None:
    for adapter in sorted(path for path in folder.glob("*") if path.is_dir()):
        if adapter.name in cubes:
            key_id = keys.for_cube(cubes[adapter.name])
            key = keys.key(key_id)
            assert key is not None
            seal_folder(adapter, folder / f"{adapter.name}{SUFFIX}", key_id, key, adapter_name(adapter.name))
        _remove(adapter)


def _unseal_adapters(folder: Path, keys: Keyring) -> None:
    for sealed in sorted(folder.glob(f"*{SUFFIX}")):
        id_ = sealed.name.removesuffix(SUFFIX)
        _unseal(sealed, folder / id_, adapter_name(id_), keys)


def _unseal(sealed: Path, folder: Path, about: str, keys: Keyring | dict[str, bytes], inside: str = "") -> None:
    aside = folder.with_name(f"{folder.name}.new")
    _remove(aside)
    try:
        unseal_folder(sealed, aside / inside, about, keys.get if isinstance(keys, dict) else keys.key)
    except IntegrityError:  # damaged: an index is rebuilt, an adapter trained again
        _remove(aside)
    else:
        _remove(folder)
        aside.rename(folder)
        sync_folder(folder.parent)
    _remove(sealed)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
