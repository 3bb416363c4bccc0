"""Tasks under PostgreSQL's row locks: dropping a cube, cancelling, taking wait for each other in one order."""

from __future__ import annotations

import re
import threading
from datetime import UTC, datetime, timedelta

from memos.core.clock import SystemClock
from memos.errors import Conflict, NotFound
from memos.memcube import changes
from memos.memcube import erasure as erase
from memos.memcube.ledger import tasks
from memos.memcube.ledger.engine import Ledger
from memos.memcube.ledger.tasks import Lease, NewTask
from tests.support.ledgers import Store
from tests.support.servers.postgres_server import PostgresServer

ROUNDS = 12


def test_a_cube_is_dropped_while_its_tasks_are_cancelled_and_taken(postgres_server: PostgresServer) -> None:
    url = postgres_server.url()
    ours, theirs = Ledger.open(url), Ledger.open(url)
    refused: list[str] = []

    def cancel(ids: list[str]) -> None:
        for id_ in ids:
            try:
                with theirs.write() as connection:
                    tasks.cancel(connection, tasks.get(connection, id_), datetime.now(UTC))
            except (Conflict, NotFound) as error:
                refused.append(str(error))

    def take() -> None:
        for _ in range(10):
            now = datetime.now(UTC)
            with theirs.write() as connection:
                tasks.take(connection, Lease("them", now + timedelta(minutes=1)), now, {"work": 1.0})

    try:
        for _ in range(ROUNDS):
            Store(ours).make("doomed")
            with ours.write() as connection:
                ids = tasks.enqueue(connection, "doomed", [NewTask("work")] * 30, datetime.now(UTC))
            threads = [threading.Thread(target=cancel, args=(ids,)), threading.Thread(target=take)]
            for thread in threads:
                thread.start()
            with ours.write() as connection:
                erase.drop(changes.begin(connection, "doomed", "us", SystemClock()))
            for thread in threads:
                thread.join(timeout=60)
                assert not thread.is_alive()
            with ours.read() as connection:
                assert tasks.find(connection, ["doomed"], tasks.TaskQuery()) == []
    finally:
        ours.close()
        theirs.close()
    assert [told for told in refused if re.search("conflicted with another", told)] == []
