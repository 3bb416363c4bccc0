"""Programs in processes of their own: `memos serve` with a cheap embedder and a clock that jumps, a look, a restore.

The arguments are one JSON object: `env` (variables of the settings), `home`, `log` (file for standard error) and
`clock` (file with the seconds by which the clock is off).
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

from memos import MemOS
from memos.api import app, serving
from memos.api.v1 import routes
from memos.core.settings import Settings
from memos.errors import MemosError
from memos.kernel.relocation import restore
from memos.memcube.indexing import projection
from memos.memcube.ledger import reading
from tests.fakes import WordEmbedder

SERVE = "from benchmarks.chaos.server import serve; serve()"
INSPECT = "from benchmarks.chaos.server import inspect; inspect()"
RESTORE = "from benchmarks.chaos.server import restore_backup; restore_backup()"
_PAGE = 10_000


class JumpingClock:
    """The machine's clock, off by the seconds that a file says at the moment."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=float(self._path.read_text() or 0))


def _opened(told: dict[str, Any]) -> MemOS:
    return MemOS.open(
        told["home"], settings=Settings(), embedder=WordEmbedder(), clock=JumpingClock(Path(told["clock"]))
    )


@contextmanager
def _prepared() -> Iterator[dict[str, Any]]:
    """Take the settings from the arguments, and end with the exit code of the error, as a command does."""
    told: dict[str, Any] = json.loads(sys.argv[1])
    os.environ.update(told["env"])
    log = os.open(told["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 2)
    # Often, so that kills meet every step of a flush; and what waits for others waits less long.
    projection.FLUSH_EVERY_ROWS, projection.FLUSH_EVERY_S = 40, 0.3
    reading._GATHERING = timedelta(0)
    try:
        yield told
    except MemosError as error:
        traceback.print_exc()
        print(json.dumps({"error": error.code, "message": str(error)}), flush=True)
        sys.exit(error.exit_code)


def serve() -> None:
    """Serve an installation as `memos serve` does; print its address and first key as JSON."""

    def announce(started: serving.Started) -> None:
        print(json.dumps({"url": started.url, "key": started.key}), flush=True)

    with _prepared() as told:

        class Opens:
            @staticmethod
            def open(_home: Path, *, settings: Settings) -> MemOS:
                return _opened(told)

        # Other routes are not asked for, and would be built at every start.
        used = {path: module for path, module in app._GROUPS.items() if module == routes.__name__}
        with patch.object(serving, "MemOS", Opens), patch.multiple(app, _GROUPS=used, _PROXIES={}):
            serving.serve(Path(told["home"]), Settings(), announce)


def restore_backup() -> None:
    """Restore the backup in the folder `backup` as `memos data restore` does; print the differences it leaves."""
    with _prepared() as told:
        settings = Settings(home=Path(told["home"]))
        done = restore(Path(told["backup"]), settings, embedder=WordEmbedder())
        print(json.dumps({"items": done.items, "differences": [str(each) for each in done.differences]}), flush=True)


def inspect() -> None:
    """Open an installation, print what its cubes hold and what `verify` says as JSON."""
    with _prepared() as told, _opened(told) as memos:
        held = []
        for cube in memos.cubes.list():
            for wanted in (None, {"status": "deleted"}):
                held += [
                    {"id": item.id, "cube": cube.id, "memory": item.memory, "status": item.status, "type": item.type}
                    for item in memos.memories.list(cube=cube.id, filter=wanted, limit=_PAGE)
                ]
        if told.get("repair"):
            memos.maintenance.verify(repair=True)
        report = memos.maintenance.verify()
        differences = [f"{each.store} {each.kind} {each.subject}: {each.detail}" for each in report.differences]
        print(json.dumps({"items": held, "differences": differences}), flush=True)
