"""Types of columns that SQLAlchemy has not."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Dialect

from memos.core.clock import from_micros, to_micros

SEALER = "memos_sealer"
"""The attribute of the dialect of an encrypted ledger on PostgreSQL that opens what `Sealed` columns hold."""


CUBE = "memos_cube"
"""The execution option with the cube whose key seals the values of an update, or of rows that name no cube."""


class UtcMicros(sa.types.TypeDecorator[datetime]):
    """An aware datetime stored as epoch microseconds: exact, ordered and the same on both dialects."""

    impl = sa.BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        return None if value is None else to_micros(value)

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], datetime | None]:
        """Return the conversion; `process_result_value` would double its cost."""
        return _to_datetime


def _to_datetime(micros: int | None) -> datetime | None:
    return None if micros is None else from_micros(micros)


class Sealed(sa.types.TypeDecorator[Any]):
    """A column of memory text: in an encrypted ledger on PostgreSQL it holds what `memos.memcube.ledger.sealing` made.

    SQL cannot look into it there: compare in Python. With SQLite, whose file is encrypted, it is an ordinary column.
    """

    impl = sa.Text
    cache_ok = True

    def __init__(self, kind: Any = sa.Text) -> None:
        super().__init__()
        self.kind: sa.types.TypeEngine[Any] = sa.types.to_instance(kind)
        self.impl = self.kind  # type: ignore[assignment]
        self.about = ""
        """`table.column`, which is authenticated with the content."""

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any] | None:
        read = self.impl_instance.result_processor(dialect, coltype)
        if dialect.name == "sqlite":
            return read
        about = self.about

        def opened(value: Any) -> Any:
            if read is not None:
                value = read(value)
            sealer = getattr(dialect, SEALER, None)
            return value if sealer is None or not value else sealer.opened(about, value)

        return opened


def kind_of(column: sa.Column[Any]) -> sa.types.TypeEngine[Any]:
    """Return the type of what a column holds, sealed or not."""
    return column.type.kind if isinstance(column.type, Sealed) else column.type


def sealed_columns(table: sa.Table) -> list[sa.Column[Any]]:
    """Return the columns of a table that an encrypted ledger on PostgreSQL seals."""
    return [column for column in table.columns if isinstance(column.type, Sealed)]


def name_sealed(metadata: sa.MetaData) -> None:
    """Tell the types of sealed columns whose they are."""
    for table in metadata.tables.values():
        for column in table.columns:
            if isinstance(column.type, Sealed):
                column.type.about = f"{table.name}.{column.name}"


def is_sealed(connection: sa.Connection) -> bool:
    """Return True if SQL cannot look into the columns of text of this ledger."""
    return getattr(connection.dialect, SEALER, None) is not None
