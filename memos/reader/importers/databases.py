"""SQLite files of other programs, read without trusting them: tables alone, nothing written, nothing unpickled."""

from __future__ import annotations

import io
import pickle
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from memos.errors import InvalidInput
from memos.reader.importers.sources import SourceFile

_SUFFIXES = (".db", ".db3", ".sqlite", ".sqlite3", "")
MAGIC = b"SQLite format 3\x00"


def is_sqlite(file: SourceFile) -> bool:
    return file.suffix in _SUFFIXES and file.head(len(MAGIC)) == MAGIC


@contextmanager
def opened(file: SourceFile) -> Iterator[sqlite3.Connection]:
    """Open a database for reading. Raises: InvalidInput (it is damaged or locked)."""
    with file.on_disk() as path:
        try:
            with closing(_connected(path)) as connection:
                yield connection
        except sqlite3.Error as error:
            raise InvalidInput(file.label, f"cannot be read as a database ({error})") from error


def tables(file: SourceFile) -> set[str]:
    """Return the names of the tables of a file; none if it is no database."""
    if not is_sqlite(file):
        return set()
    try:
        with opened(file) as connection:
            return _tables(connection)
    except InvalidInput:
        return set()


def rows(connection: sqlite3.Connection, table: str, columns: Sequence[str], order: str = "rowid") -> Iterator[Any]:
    """Yield the rows of a table, with None for columns that it does not have. A view is no table."""
    if table not in _tables(connection):
        return
    there = {row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')}
    wanted = ", ".join(f'"{name}"' if name in there else "NULL" for name in columns)
    query = f'SELECT {wanted} FROM "{table}" ORDER BY {order}'  # noqa: S608 - names of ours
    connection.row_factory = None
    yield from connection.execute(query)


def _tables(connection: sqlite3.Connection) -> set[str]:
    return {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def _connected(path: Path) -> sqlite3.Connection:
    address = f"file:{quote(str(path.absolute()))}?mode=ro"
    try:
        connection = sqlite3.connect(address, uri=True)
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:  # a log beside it cannot be opened: a copy, or a folder that is read-only
        connection = sqlite3.connect(f"{address}&immutable=1", uri=True)
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA query_only = ON")
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    return connection


class _Stub:
    """Stands for an object of a pickle: keeps its state and does nothing."""

    def __init__(self, *given: Any) -> None:
        self.state: Any = given

    def __setstate__(self, state: Any) -> None:
        self.state = state


_PLAIN = {("builtins", name) for name in ("set", "frozenset", "complex", "bytearray")}
_MODEL = re.compile(r"qdrant_client\.http\.models\.\w+|qdrant_client\.(?:conversions|models)\.?\w*|uuid|datetime")


class _Plain(pickle.Unpickler):
    """Reads a pickle of plain values and models; every class but builtins becomes a stub, so that no code runs."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _PLAIN:
            return super().find_class(module, name)
        if _MODEL.fullmatch(module):
            return _Stub
        raise pickle.UnpicklingError(f"{module}.{name} is not expected here")


def fields_of_pickle(raw: bytes) -> Mapping[str, Any]:
    """Return the fields of a pickled model of qdrant-client. Raises: InvalidInput."""
    try:
        found = _Plain(io.BytesIO(raw)).load()
    except Exception as error:  # whatever a damaged pickle raises
        raise InvalidInput("point", f"cannot be read ({type(error).__name__})") from error
    state = found.state if isinstance(found, _Stub) else None
    if isinstance(state, tuple) and len(state) == 2 and isinstance(state[0], Mapping | None):
        state = state[0] if state[0] else state[1]
    inner = state.get("__dict__", state) if isinstance(state, Mapping) else None
    if not isinstance(inner, Mapping):
        raise InvalidInput("point", "is not a point of qdrant-client")
    return inner
