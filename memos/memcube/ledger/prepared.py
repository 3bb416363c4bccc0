"""Prepared selects for searches: compiled once and executed by the driver directly.

SQLAlchemy takes half the time of a short query (docs/log.md), so its row processing is done here instead.
"""

from __future__ import annotations

import threading
from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Dialect

# Lists are padded to one of these lengths by repeating the last value, so that there are few distinct statements.
_LENGTHS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 128, 256, 512)
_FLOAT8 = 701  # PostgreSQL's type OID of `double precision`
MOST = _LENGTHS[-1]
"""Maximum length of a list."""


Make = Callable[[Iterable[Any]], Any]


class PreparedSelect:
    """A select whose parameters are all expanding lists; rows are named tuples, or the results of `make`."""

    def __init__(self, statement: sa.Select[Any], make: Make | None = None) -> None:
        self.make = make
        self._statement = statement
        self._dialects: dict[str, _Compiled] = {}
        self._lock = threading.Lock()

    def rows(self, connection: sa.Connection, **lists: Sequence[Any]) -> list[Any]:
        """Return all rows for these lists, each of at most `MOST` values. An empty list matches nothing."""
        if not all(lists.values()):
            return []
        dialect = connection.dialect
        compiled = self._dialects.get(dialect.name)
        if compiled is None:
            with self._lock:
                compiled = self._dialects.setdefault(dialect.name, _Compiled(self._statement, dialect, self.make))
        return compiled.rows(connection, lists)


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
        self._texts: dict[tuple[int, ...], str] = {}

    def rows(self, connection: sa.Connection, lists: Mapping[str, Sequence[Any]]) -> list[Any]:
        lengths = tuple(next(length for length in _LENGTHS if length >= len(values)) for values in lists.values())
        text = self._texts.get(lengths) or self._expanded(lists, lengths)
        parameters = dict(self._constants)
        for (name, values), length in zip(lists.items(), lengths, strict=True):
            last = values[-1]
            for place in range(length):
                parameters[f"{name}_{place}"] = values[place] if place < len(values) else last
        found = self._fetched(connection, text, parameters)
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

    def _expanded(self, lists: Mapping[str, Sequence[Any]], lengths: tuple[int, ...]) -> str:
        text = self._text
        for name, length in zip(lists, lengths, strict=True):
            marks = ", ".join(self._mark.format(f"{name}_{place}") for place in range(length))
            text = text.replace(f"__[POSTCOMPILE_{name}]", marks)
        return self._texts.setdefault(lengths, text)
