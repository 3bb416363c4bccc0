"""Counts what finding the segments that must move costs, by how many there are: SQLite's own steps, and the plan.

Steps are instructions of SQLite's virtual machine (https://sqlite.org/opcode.html): they do not depend on the machine.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from rich.table import Table

from benchmarks.report import Report
from memos.core.types import Cube, Fingerprint
from memos.memcube.ledger import cubes
from memos.memcube.ledger import tier_moves as moves
from memos.memcube.ledger.engine import Ledger, sqlite_url
from memos.memcube.ledger.schema import cubes as rows_of_cubes
from memos.memcube.ledger.schema import segments

_NOW = datetime(2026, 11, 1, tzinfo=UTC)
_MOVED = 100
_CUBE = "cube"
_BATCH = 10_000
_CAPACITY = 2_000
_COLD, _HOT = 100.0, 1_000.0

Ask = Callable[[sa.Connection], Sequence[object]]
ASKED: Mapping[str, Ask] = {
    "promote": lambda connection: moves.hot_unread(connection, _CUBE, _HOT, _MOVED),
    "archive": lambda connection: moves.cold(connection, _CUBE, _COLD, _NOW, _MOVED),
    "beyond capacity": lambda connection: [moves.border_of(connection, _CUBE, _CAPACITY)],
    "bring back": lambda connection: moves.revived(connection, _CUBE, _HOT, _MOVED),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what this part asks for."""
    parser.add_argument(
        "--segments", type=int, nargs="+", default=[10_000, 100_000, 1_000_000], help="segments of one cube"
    )


def measure(arguments: argparse.Namespace) -> Report:
    """Return rows, steps, milliseconds and the query plan of each question, by number of segments."""
    found = {str(count): _of(count) for count in arguments.segments}
    table = Table(title="finding what must move, one cube", title_justify="left")
    for name in ("segments", "question", "rows", "steps", "ms"):
        table.add_column(name, justify="right")
    for count, questions in found.items():
        for question, figures in questions.items():
            table.add_row(count, question, *(f"{figures[name]:,}" for name in ("rows", "steps", "ms")))
    return Report({"n": {"segments": list(arguments.segments)}, "sweep": found}, tables=[table])


def _of(count: int) -> dict[str, dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="hippocube-sweep-") as folder:
        ledger = Ledger.open(sqlite_url(Path(folder) / "ledger.db"))
        try:
            _fill(ledger, count)
            with ledger.read() as connection:
                return {question: _cost(connection, ask) for question, ask in ASKED.items()}
        finally:
            ledger.close()


def _fill(ledger: Ledger, count: int) -> None:
    """Make segments of which a hundred each are hot and unread, cold and read, archived and hot again."""
    fingerprint = Fingerprint("none", 1, "none", normalised=True)
    with ledger.write() as connection:
        cubes.create(connection, Cube(_CUBE, "owner", "", "UTC", fingerprint, _NOW))
    for start in range(0, count, _BATCH):
        with ledger.write() as connection:
            rows = [_row(number) for number in range(start, min(start + _BATCH, count))]
            connection.execute(sa.insert(segments), rows)
    with ledger.write() as connection:
        connection.execute(sa.update(rows_of_cubes).values(segments=count))
    with ledger.write() as connection:
        connection.exec_driver_sql("ANALYZE")


def _row(number: int) -> dict[str, Any]:
    unread, state, level = bool(number % 2), "open", _COLD + 1 + number % 800
    match number // _MOVED:
        case 0:
            unread, level = True, _HOT + number
        case 1:
            unread, level = False, float(number % _MOVED)
        case 2:
            state, level = "archived", _HOT + number
    return {
        "id": f"{number:012}", "cube_id": _CUBE, "state": state, "spans": [], "told": None, "words": [],
        "vector": None, "pages": 1, "unread": unread, "pinned": False, "level": level, "visits": 1, "interactions": 0,
        "last": _NOW, "created_at": _NOW - timedelta(days=30), "updated_at": _NOW,
    }  # fmt: skip


def _cost(connection: sa.Connection, ask: Ask) -> dict[str, Any]:
    ask(connection)
    raw: Any = connection.connection.dbapi_connection
    steps = 0

    def step() -> int:
        nonlocal steps
        steps += 1
        return 0

    statements: list[str] = []
    raw.set_trace_callback(statements.append)
    raw.set_progress_handler(step, 1)
    rows = len(ask(connection))
    raw.set_progress_handler(None, 0)
    raw.set_trace_callback(None)
    began = time.perf_counter()
    ask(connection)
    spent_ms = (time.perf_counter() - began) * 1000
    plans = [line[3] for statement in statements for line in raw.execute(f"EXPLAIN QUERY PLAN {statement}").fetchall()]
    return {"rows": rows, "steps": steps, "ms": round(spent_ms, 2), "plan": plans}
