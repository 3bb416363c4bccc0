"""Backs an installation up, restores it, and moves it between an embedded folder and servers.

Opens ledgers without their indexes where no index is needed; afterwards the indexes are filled from the ledger.
"""

from __future__ import annotations

import os
import shutil
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import sqlalchemy as sa
from pydantic import ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from memos.core.clock import RisingClock, SystemClock
from memos.core.ports import Embedder
from memos.core.setting_sources import without_former
from memos.core.settings import Neo4jSettings, QdrantSettings, Settings
from memos.core.types import Difference
from memos.errors import BackendUnavailable, InvalidInput, NotFound, PermissionDenied
from memos.kernel.memos import MemOS
from memos.kernel.opening import write_private
from memos.memcube.backup import backups, rows
from memos.memcube.backup.archive import Manifest, read_manifest
from memos.memcube.backup.files import Progress, disk_errors
from memos.memcube.backup.places import beside
from memos.memcube.backup.restore import CopySummary, Restored, copy_ledger, restore_archive, unfinished_copy
from memos.memcube.encryption.keys import (
    KEYS_FILE,
    SETTING,
    Keyring,
    KeysFile,
    KeyState,
    copy_name,
    master_key,
    read_copy,
    read_keys,
)
from memos.memcube.encryption.ledger_keys import store, unlock_ledger
from memos.memcube.encryption.vault import forget_memory, has_content, ledger_key, unlock
from memos.memcube.installation import PATHS, FolderLock
from memos.memcube.ledger import cubes, schema
from memos.memcube.ledger.engine import Ledger, sqlite_url
from memos.memcube.ledger.postgres import has_keys


@dataclass(frozen=True, slots=True)
class RestoreSummary(Restored):
    """Result of a restore. If not `indexed`, the cubes have a different embedder: run `memos data reembed`."""

    indexed: bool
    differences: tuple[Difference, ...]


@dataclass(frozen=True, slots=True)
class MoveSummary(CopySummary):
    """Result of a move. `indexed` as for a restore."""

    source: str
    target: str
    indexed: bool
    differences: tuple[Difference, ...]


def backup(settings: Settings, folder: Path | str, *, on_progress: Progress | None = None) -> Manifest:
    """Back up an installation that is not open in this process; one with a ledger on a server may be in use.

    Raises: NotFound (no installation), Conflict (the folder holds something), BackendUnavailable (in use, disk full).
    """
    with _ledger(settings, must_exist=True, alone=False) as (ledger, keys):
        with ledger.read() as connection:
            clock = RisingClock(SystemClock(), cubes.newest_event(connection))
        return backups.back_up(ledger, folder, clock, on_progress, apart_from=settings.home, keys=keys)


def restore(
    folder: Path | str,
    settings: Settings,
    *,
    replace: bool = False,
    embedder: Embedder | None = None,
    on_rows: Progress | None = None,
    on_items: Progress | None = None,
    keys_file: Path | None = None,
) -> RestoreSummary:
    """Put a backup back into a new or, with `replace`, an existing installation; what was erased since stays erased.

    The keys of an encrypted backup are those of the installation, or of `keys_file`, by default the copy beside the
    backup; a new installation takes them over.

    Raises: NotFound (no backup, or no keys), IntegrityError (damaged, newer), Conflict (not empty), PermissionDenied
    (another master key), BackendUnavailable (in use).
    """
    with _ledger(settings, must_exist=False, alone=True, taking=(folder, keys_file)) as (ledger, mine):
        keys = _keys_of(folder, read_manifest(folder).keys, keys_file, settings, mine)
        _drop_leftovers(ledger, settings, mine)
        now = SystemClock().now()
        done = restore_archive(folder, ledger, now, replace=replace, on_progress=on_rows, keys=keys)
    indexed, differences = _bring_up(settings, embedder, on_items)
    return RestoreSummary(**asdict(done), indexed=indexed, differences=differences)


def migrate(
    source: Settings,
    target: Settings,
    *,
    embedder: Embedder | None = None,
    on_rows: Progress | None = None,
    on_items: Progress | None = None,
) -> MoveSummary:
    """Copy an installation to another place with its whole history; the source stays as it is.

    The target has all rows or none; repeat what was cut off. Raises: NotFound (no installation), InvalidInput (the same
    place), Conflict (the target holds other memories).
    """
    _refuse_same(source, target)
    with (
        _ledger(source, must_exist=True, alone=True, may_be_plain=True) as (theirs, _),
        _ledger(target, must_exist=False, alone=True) as (ours, keys),
    ):
        _drop_leftovers(ours, target, keys)
        copied = copy_ledger(theirs, ours, on_rows)
        summary = partial(MoveSummary, copied.rows, copied.known, theirs.description, ours.description)
    indexed, differences = _bring_up(target, embedder, on_items)
    return summary(indexed, differences)


def settings_of(option: str, place: str) -> Settings:
    """Return the settings of a place: a folder of an embedded installation, or a TOML file with fields of `Settings`.

    What neither says comes from `MEMOS_*`, but never where the stores are. Raises: InvalidInput, NotFound.
    """
    index = Settings().index.model_copy(update={"vectors": "qdrant"})
    stores = {"ledger_url": None, "qdrant": QdrantSettings(), "neo4j": Neo4jSettings(), "index": index}
    if not place.endswith(".toml"):
        return Settings().model_copy(update={**stores, "home": Path(place)})
    try:
        told = tomllib.loads(Path(place).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise NotFound(
            "file", place, f"Create it with the settings of the installation, or pass a folder as {option}."
        ) from error
    except (OSError, ValueError) as error:
        raise InvalidInput(option, f'{place} cannot be read ({error}); write it like `home = "/srv/memos"`') from error
    if unknown := sorted(without_former(told, Settings.model_fields)[0].keys() - Settings.model_fields.keys()):
        raise InvalidInput(option, f"{place} has the unknown setting {unknown[0]!r}; see docs/reference/settings.md")
    base = {name: getattr(Settings(), name) for name in Settings.model_fields if name not in stores} | {"index": index}
    if "ledger_url" in told:
        del base["encryption_key"]  # that of the folder here; a server's is named beside it
    try:
        return Settings().model_copy(update=dict(_Told(**{**base, **told})))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise InvalidInput(option, f"{place}: {where}: {first['msg']}") from error


class _Told(Settings):
    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        *_: PydanticBaseSettingsSource,
        **__: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)


def _bring_up(
    settings: Settings, embedder: Embedder | None, on_progress: Progress | None
) -> tuple[bool, tuple[Difference, ...]]:
    with MemOS.open(settings.home, settings=settings, embedder=embedder) as memos:
        mine = memos.embedder.fingerprint
        if any(cube.fingerprint != mine for cube in memos.cubes.list()):
            memos.maintenance.finish_erasures()
            return False, ()
        memos.maintenance.catch_up(on_progress=on_progress)
        memos.maintenance.finish_erasures()
        return True, memos.maintenance.verify(repair=True).differences


@contextmanager
def _ledger(
    settings: Settings,
    *,
    must_exist: bool,
    alone: bool,
    may_be_plain: bool = False,
    taking: tuple[Path | str, Path | None] | None = None,
) -> Iterator[tuple[Ledger, Keyring | None]]:
    """Open a ledger without its indexes, and its keys if it is encrypted; `alone`, nobody else may have it.

    A new installation takes over the keys of a backup, `taking` them from beside it or from the file that is named.

    Raises: NotFound, BackendUnavailable.
    """
    home, path = settings.home, settings.home / "ledger.db"
    embedded = settings.needs_folder
    with ExitStack() as stack:
        if settings.ledger_url is None and must_exist and not path.is_file():
            raise NotFound("installation", str(home), "Pass the folder that contains ledger.db.")
        if settings.ledger_url is None or (embedded and alone):
            with disk_errors(home):
                home.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = FolderLock(home)
            lock.acquire()
            stack.callback(lock.release)
        keys: Keyring | None = None
        if settings.ledger_url is None:
            if taking is not None:
                _take_keys(home, settings, *taking)
            keys = unlock(home, settings.encryption_key, may_be_plain=may_be_plain)
            with disk_errors(home):
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            ledger = Ledger.open(sqlite_url(path), ledger_key(keys))
        else:
            ledger = Ledger.open(settings.ledger_url.get_secret_value())
        stack.callback(ledger.close)
        if settings.ledger_url is not None:
            if taking is not None:
                _store_keys(ledger, settings, *taking)
            keys = unlock_ledger(ledger, settings.encryption_key, may_be_plain=may_be_plain)
        if alone:
            ledger.hold(alone="moving")
        if must_exist:
            with ledger.read() as connection:
                problem = unfinished_copy(connection)
            if problem is not None:
                raise BackendUnavailable(problem)
        yield ledger, keys


def _take_keys(home: Path, settings: Settings, folder: Path | str, named: Path | None) -> None:
    if (home / KEYS_FILE).exists() or has_content(home / "ledger.db"):
        return
    if (content := _keys_in(folder, settings, named)) is not None:
        with disk_errors(home):
            write_private(home / KEYS_FILE, content.written().decode())


def _store_keys(ledger: Ledger, settings: Settings, folder: Path | str, named: Path | None) -> None:
    with ledger.read() as connection:
        if has_keys(connection) or connection.scalar(sa.select(schema.cubes.c.id).limit(1)) is not None:
            return
    if (content := _keys_in(folder, settings, named)) is not None:
        store(ledger, replace(content, state=KeyState.ON))


def _keys_of(
    folder: Path | str, wanted: str | None, named: Path | None, settings: Settings, mine: Keyring | None
) -> Keyring | None:
    """Return the opened keys of a backup, None for a plain one. Raises: NotFound, PermissionDenied, InvalidInput."""
    if wanted is None or (mine is not None and mine.id == wanted):
        return mine
    if settings.encryption_key is None:
        raise PermissionDenied(f"The backup in {folder} is encrypted: set {SETTING} to where its master key is.")
    path = named or Path(copy_name(wanted))
    content = _copy_of(folder, wanted, named)
    if content is None or content.id != wanted:
        raise NotFound(
            "keys",
            str(path),
            "The backup is encrypted with keys of its installation: pass a copy of its keys.json as --keys.",
        )
    return Keyring.open(path, content, master_key(settings.encryption_key))


def _keys_in(folder: Path | str, settings: Settings, named: Path | None) -> KeysFile | None:
    """Return the keys of an encrypted backup, which the master key opens; None for a plain one."""
    wanted = read_manifest(folder).keys
    if wanted is None:
        return None
    _keys_of(folder, wanted, named, settings, None)
    content = _copy_of(folder, wanted, named)
    assert content is not None
    return content


def _copy_of(folder: Path | str, wanted: str, named: Path | None) -> KeysFile | None:
    return read_keys(named) if named is not None else read_copy(beside(folder), wanted)


def _drop_leftovers(ledger: Ledger, settings: Settings, keys: Keyring | None) -> None:
    """Remove embedded indexes of a ledger that never had an item: they belong to a lost ledger."""
    with ledger.read() as connection:
        if not rows.is_blank(connection):
            return
    if keys is not None:
        forget_memory(settings.home, keys)
    for holder in PATHS:
        if holder.rebuilt_from == "ledger" and (settings.home / holder.name).is_dir():
            with disk_errors(settings.home):
                shutil.rmtree(settings.home / holder.name)


def _refuse_same(source: Settings, target: Settings) -> None:
    if source.ledger_url is not None and source.ledger_url == target.ledger_url:
        raise InvalidInput("--to", "has the same ledger as --from")
    uses = [place.needs_folder for place in (source, target)]
    if all(uses) and source.home.resolve() == target.home.resolve():
        raise InvalidInput("--to", f"has the same folder as --from ({target.home}); give it another as `home`")
