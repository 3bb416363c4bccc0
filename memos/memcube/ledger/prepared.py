"""Prepared selects for searches: compiled once and executed by the driver directly.

SQLAlchemy takes half the time of a short query (docs/development/log.md), so its row processing is done here instead.
"""

from __future__ import annotations

import threading
from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Dialect

# Lists are padded to one of these lengths by repeating the last value, so that there are few distinct statements.
_LENGTHS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 128, 256, 512)
_FLOAT8 = 701  # PostgreSQL's type OID of `double precision`

Make = Callable[[Iterable[Any]], Any]


class PreparedSelect:
    """A select whose parameters are all expanding lists; rows are named tuples, or the results of `make`."""

    def __init__(self, statement: sa.Select[Any], make: Make | None = None) -> None:
        self.make = make
        self._statement = statement
        self._on_sqlite: dict[PreparedSelect, _Compiled] = {}
        self._lock = threading.Lock()

    def rows(self, connection: sa.Connection, **lists: Sequence[Any]) -> list[Any]:
        """Return all rows for these lists. An empty list matches nothing."""
        if not all(lists.values()):
            return []
        if any(len(values) > _LENGTHS[-1] for values in lists.values()):
            found = connection.execute(self._statement, lists)
            return list(found if self.make is None else map(self.make, found))
        dialect = connection.dialect
        known = self._on_sqlite if dialect.name == "sqlite" else _known_to(dialect)
        compiled = known.get(self)
        if compiled is None:
            with self._lock:
                compiled = known.setdefault(self, _Compiled(self._statement, dialect, self.make))
        return compiled.rows(connection, lists)


def _known_to(dialect: Dialect) -> dict[PreparedSelect, _Compiled]:
    """Return what was compiled for one ledger on a server: it opens sealed columns with that ledger's keys."""
    known: dict[PreparedSelect, _Compiled] = vars(dialect).setdefault("memos_prepared", {})
    return known


class _Compiled:
    def __init__(self, statement: sa.Select[Any], dialect: Dialect, make: Make | None) -> None:
        # Named parameters: ":name" in SQLite, "%(name)s" in PostgreSQL.
        paramstyle = "named" if dialect.name == "sqlite" else dialect.paramstyle
        self._mark = ":{}" if paramstyle == "named" else "%({})s"
        named: Any = type(dialect)
        compiled = statement.compile(dialect=named(paramstyle=paramstyle))
        self._text = str(compiled)
        self._constants = {name: value for name, value in compiled.params.items() if f"[{name}]" not in self._text}
        names = [str(column.key) for column in statement.selected_columns]
        row: Any = namedtuple("row", names, rename=True)  # type: ignore[misc]
        self._make: Make = make or row._make
        self._readers: list[tuple[int, Callable[[Any], Any]]] = []
        for place, column in enumerate(statement.selected_columns):
            kind = _FLOAT8 if isinstance(column.type, sa.Float) else None
            reader = column.type.dialect_impl(dialect).result_processor(dialect, kind)
            if reader is not None:
                self._readers.append((place, reader))
        self._expanded: dict[tuple[int, ...], _Expanded] = {}

    def rows(self, connection: sa.Connection, lists: Mapping[str, Sequence[Any]]) -> list[Any]:
        lengths = tuple(map(_padded_length, map(len, lists.values())))
        expanded = self._expanded.get(lengths) or self._expand(lists, lengths)
        padded: list[Any] = []
        for values, length in zip(lists.values(), lengths, strict=True):
            padded += values
            padded += [values[-1]] * (length - len(values))
        parameters = self._constants | dict(zip(expanded.names, padded, strict=True))
        found = self._fetched(connection, expanded.text, parameters)
        make = self._make
        if not self._readers:
            return [make(row) for row in found]
        rows = []
        for row in found:
            values = list(row)
            for place, read in self._readers:
                values[place] = read(values[place])
            rows.append(make(values))
        return rows

    def _fetched(self, connection: sa.Connection, text: str, parameters: dict[str, Any]) -> Sequence[Any]:
        if connection.dialect.name != "sqlite":
            # A round trip takes longer than SQLAlchemy's processing, and SQLAlchemy classifies the errors.
            return connection.exec_driver_sql(text, parameters).all()
        cursor = connection.connection.cursor()
        try:
            cursor.execute(text, parameters)
            return cursor.fetchall()
        finally:
            cursor.close()

    def _expand(self, lists: Mapping[str, Sequence[Any]], lengths: tuple[int, ...]) -> _Expanded:
        text, names = self._text, list[str]()
        for name, length in zip(lists, lengths, strict=True):
            numbered = [f"{name}_{place}" for place in range(length)]
            text = text.replace(f"__[POSTCOMPILE_{name}]", ", ".join(map(self._mark.format, numbered)))
            names += numbered
        return self._expanded.setdefault(lengths, _Expanded(text, names))


class _Expanded(NamedTuple):
    """A statement with a parameter for each value of the lists, and their names in the order of the values."""

    text: str
    names: list[str]


@cache
def _padded_length(length: int) -> int:
    return next(padded for padded in _LENGTHS if padded >= length)
