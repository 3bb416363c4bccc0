"""One dialect and one cache of compiled statements a database for all ledgers of a test process.

Each engine of SQLAlchemy compiles what it runs anew, and thousands of tests begin with one.
"""

from __future__ import annotations

from copy import copy
from typing import Any

import sqlalchemy as sa
from sqlalchemy.util import LRUCache

from memos.memcube.ledger import engine as sqlite
from memos.memcube.ledger import postgres
from memos.memcube.ledger.columns import SEALER
from memos.memcube.ledger.engine import Ledger
from memos.memcube.ledger.sealing import ColumnSealer

_STATEMENTS = 5_000
_prepare, _make_engine, _seal = sqlite.prepare_sqlite, postgres.make_engine, Ledger.seal
_known: dict[str, tuple[sa.Dialect, LRUCache[Any, Any]]] = {}


def prepare(engine: sa.Engine, key: bytes | None = None) -> None:
    """Stand in for `sqlite.prepare`: do the same, and let the engine use what others have compiled."""
    _prepare(engine, key)
    _share(engine)


def make_engine(url: sa.URL, **pool: Any) -> sa.Engine:
    """Stand in for `postgres.make_engine`, likewise."""
    engine = _make_engine(url, **pool)
    _share(engine)
    return engine


def seal(ledger: Ledger, sealer: ColumnSealer) -> None:
    """Stand in for `Ledger.seal`: give a ledger a dialect of its own before it has keys."""
    if not hasattr(ledger._engine.dialect, SEALER):
        dialect = copy(ledger._engine.dialect)
        for learnt in ("_type_memos", "memos_prepared"):
            vars(dialect).pop(learnt, None)
        ledger._engine.dialect = ledger._reader.dialect = dialect
    _seal(ledger, sealer)


def _share(engine: sa.Engine) -> None:
    """Give an engine the dialect of the first one that was connected, since a dialect learns from its first server."""
    name = f"{engine.dialect.name} {engine.dialect.dbapi}"  # SQLCipher has a driver of its own
    if name in _known:
        engine.dialect, engine._compiled_cache = _known[name]
        return

    @sa.event.listens_for(engine, "connect", once=True)
    def _learnt(*_: object) -> None:
        _known.setdefault(name, (engine.dialect, LRUCache(_STATEMENTS)))
