"""Forgets what was learned: adapters that saw memories which are different now, with their files; and verifies these.

An adapter's files are in `FOLDER/<id>/` of the installation, made after its row. So a folder without a row is always
one to remove, whatever was killed when.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

import sqlalchemy as sa

from memos.core.lora import wrong_with
from memos.core.types import Json, TaskState
from memos.errors import BackendUnavailable, NotFound
from memos.memcube.backup.files import sync_folder
from memos.memcube.ledger import adapters as adapter_rows
from memos.memcube.ledger import cubes as ledger_cubes
from memos.memcube.ledger import tasks
from memos.memcube.ledger.adapters import AdapterRow, AdapterState
from memos.memcube.ledger.engine import Ledger
from memos.memcube.ledger.tasks import TaskQuery
from memos.memcube.parametric.training import KEPT

FOLDER = "adapters"
_BY = "scheduler"
_WAITING = TaskQuery((TaskState.WAITING,), (adapter_rows.LEARN,))


@dataclass(frozen=True, slots=True)
class Forgotten:
    adapter: str
    cube: str
    files: int
    size_bytes: int


def forget(
    ledger: Ledger,
    folder: Path | None,
    cubes: Collection[str] | None = None,
    end_trainings: Callable[[Callable[[str], bool]], None] = lambda _: None,
    learn_again: Callable[[sa.Connection, str], None] = lambda *_: None,
) -> list[Forgotten]:
    """Remove the adapters of these cubes, or of all, with outdated memories, and every folder without a row.

    Rows go first, so that nothing reads files that are being deleted; then `end_trainings` gets a predicate for the ids
    to keep and ends the trainings that write the others. `learn_again` is called, in the transaction, with each cube
    that loses its active adapter. `folder` is None if this process has no folder for adapters. Safe to call again at
    any time.

    Raises: BackendUnavailable (files that cannot be removed).
    """
    removed = {row.id: row.cube for row in _remove_rows(ledger, cubes, learn_again)}
    end_trainings(partial(_is_there, ledger))
    if folder is None or not folder.exists():
        return [Forgotten(id_, cube, 0, 0) for id_, cube in sorted(removed.items())]
    try:
        found = _remove_files(ledger, folder)
    except OSError as error:
        raise BackendUnavailable(
            f"Files of adapters could not be removed ({error.strerror or error}); check {folder}. Erased memories stay "
            "in them until they are removed."
        ) from error
    return [Forgotten(id_, removed.get(id_, ""), *found.get(id_, (0, 0))) for id_ in sorted({*removed, *found})]


def differences(ledger: Ledger, folder: Path | None) -> list[tuple[str, str]]:
    with ledger.read() as connection:
        rows = adapter_rows.trained(connection)
    told = [
        (row.id, "the folder of its files is missing" if folder is None else wrong_with(folder / row.id, row.digest))
        for row in rows
    ]
    return [(id_, what) for id_, what in told if what is not None]


def _is_there(ledger: Ledger, id_: str) -> bool:
    with ledger.read() as connection:
        return adapter_rows.get(connection, id_) is not None


def plan_again(connection: sa.Connection, cube: str, night: str | None, now: datetime) -> None:
    if night is None:
        return
    if adapter_rows.is_allowed(connection, cube) and not tasks.find(connection, [cube], _WAITING):
        recorded = ledger_cubes.lock(connection, cube)
        now = now if recorded is None else max(now, recorded)
        new = adapter_rows.learn_task({adapter_rows.OF_NIGHT: True, "why": "forgotten"})
        [task] = tasks.enqueue(connection, cube, [new], now)
        body: dict[str, Json] = {"task": task, "why": "forgotten"}
        ledger_cubes.record_event(connection, cube, now, _BY, "plan_learning", None, body)


def _remove_rows(
    ledger: Ledger, cubes: Collection[str] | None, learn_again: Callable[[sa.Connection, str], None]
) -> list[AdapterRow]:
    with ledger.read() as connection:
        if not adapter_rows.outdated(connection, cubes):
            return []
    with ledger.write() as connection:
        for cube in sorted({row.cube for row in adapter_rows.outdated(connection, cubes)}):
            with suppress(NotFound):  # dropped; of all others before any row, as whoever changes a cube's adapters does
                ledger_cubes.lock(connection, cube)
        doomed = adapter_rows.outdated(connection, cubes)
        for row in doomed:
            adapter_rows.remove(connection, row.id)
        for cube in sorted({row.cube for row in doomed if row.state is AdapterState.ACTIVE}):
            learn_again(connection, cube)
    return doomed


def _remove_files(ledger: Ledger, folder: Path) -> dict[str, tuple[int, int]]:
    # Before the rows: a folder that is listed here had its row already.
    names = sorted(path.name for path in folder.iterdir())
    with ledger.read() as connection:
        alive = adapter_rows.known(connection, names)
        trained = alive.intersection(row.id for row in adapter_rows.trained(connection))
    for name in trained:  # checkpoints of finished trainings, left when the program was killed
        for left in (KEPT, f"{KEPT}.new"):
            with suppress(FileNotFoundError, NotADirectoryError):
                (folder / name / left).unlink()
    found: dict[str, tuple[int, int]] = {}
    for name in names:
        if name not in alive:
            found[name] = _measured(folder / name)
            _delete(folder / name)
    if found:
        sync_folder(folder)
    return found


def _measured(path: Path) -> tuple[int, int]:
    inside = path.rglob("*") if path.is_dir() and not path.is_symlink() else (path,)
    sizes = []
    with suppress(FileNotFoundError):  # the folder, which another thread forgets too
        for file in inside:
            with suppress(FileNotFoundError):
                if file.is_symlink() or not file.is_dir():
                    sizes.append(file.lstat().st_size)
    return len(sizes), sum(sizes)


def _delete(path: Path) -> None:
    while os.path.lexists(path):
        with suppress(FileNotFoundError):  # another thread forgets too
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
