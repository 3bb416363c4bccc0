"""Types of columns that SQLAlchemy has not."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Dialect

from memos.core.clock import from_micros, to_micros


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
