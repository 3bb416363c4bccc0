"""What the embedded ledger needs of SQLite where its promises end."""

from __future__ import annotations

import threading
from pathlib import Path

import sqlalchemy as sa

from memos.memcube.ledger import engine as sqlite


def test_connections_that_begin_the_log_at_once_wait_for_each_other(tmp_path: Path) -> None:
    """SQLite answers "locked" at once here, whatever its busy timeout: one in sixty did before it was asked again."""
    refused: list[Exception] = []

    def connect(at: Path, go: threading.Barrier) -> None:
        engine = sa.create_engine(f"sqlite:///{at}")
        sqlite.prepare_sqlite(engine)
        go.wait()
        try:
            engine.connect().close()
        except sa.exc.DBAPIError as error:
            refused.append(error)
        engine.dispose()

    for n in range(40):
        go = threading.Barrier(8)
        threads = [threading.Thread(target=connect, args=(tmp_path / f"{n}.db", go)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert refused == []
