"""A server goes away in the middle of a load: adds go on, searches say what is missing, and after it all catches up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from memos import MemOS, Settings
from memos.core.identities import Right
from memos.core.settings import IndexSettings
from memos.errors import BackendUnavailable, Conflict
from memos.memcube.ledger import items
from tests.support.servers.installation import on_servers, opened
from tests.support.servers.neo4j_server import Neo4jServer
from tests.support.servers.postgres_server import PASSWORD, PostgresServer
from tests.support.servers.proxy import Proxy

QUICK = IndexSettings(wait_s=1)


def until(holds: Callable[[], bool], within_s: float = 60) -> None:
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, "did not come about in time"
        time.sleep(0.05)


def load(memos: MemOS, first: int, count: int) -> list[bool]:
    """Add exchanges; return what each receipt says of the indexes."""
    return [
        memos.add([{"role": "user", "content": f"the parcel number{n} arrived"}], conversation=f"c{n % 3}").indexed
        for n in range(first, first + count)
    ]


def check_whole(memos: MemOS, count: int) -> None:
    report = memos.maintenance.verify()
    assert report.differences == ()
    assert report.items == count
    assert report.checked["graph"] == count
    for number in (0, count // 2, count - 1):
        found = memos.search(f"parcel number{number}", top_k=1)
        assert found.missing_arms == ()
        assert found.hits[0].item.memory == f"the parcel number{number} arrived"


def test_neo4j_is_stopped_in_the_middle_of_a_load(
    tmp_path: Path, postgres_server: PostgresServer, neo4j_server: Neo4jServer
) -> None:
    with on_servers(tmp_path, postgres_server, neo4j_server, index=QUICK) as settings, opened(settings) as memos:
        load(memos, 0, 10)
        until(lambda: not _waiting(memos))
        neo4j_server.stop()
        try:
            assert not any(load(memos, 10, 6))
            found = memos.search("parcel number12", top_k=1)
            assert found.hits[0].item.memory == "the parcel number12 arrived"
            assert found.missing_arms == ("graph",)
            assert {(d.store, d.kind) for d in memos.maintenance.verify().differences} == {("graph", "unavailable")}
        finally:
            neo4j_server.start()
        until(lambda: memos.search("parcel").missing_arms == () and not _waiting(memos))
        check_whole(memos, 16)


@pytest.fixture
def cut_off(
    tmp_path: Path, postgres_server: PostgresServer, neo4j_server: Neo4jServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Settings, Proxy]]:
    """An installation that reaches its Qdrant server through a proxy."""
    with on_servers(tmp_path, postgres_server, neo4j_server, index=QUICK) as settings:
        assert settings.qdrant.address is not None
        with Proxy(int(settings.qdrant.address.rsplit(":", 1)[1])) as proxy:
            monkeypatch.setattr("memos.backends.qdrant.server.TIMEOUT_S", 2)
            qdrant = settings.qdrant.model_copy(
                update={"url": f"http://127.0.0.1:{proxy.port}?collection={settings.qdrant.collection}"}
            )
            yield settings.model_copy(update={"qdrant": qdrant}), proxy


def test_the_vector_index_cannot_be_reached_in_the_middle_of_a_load(cut_off: tuple[Settings, Proxy]) -> None:
    settings, proxy = cut_off
    with opened(settings) as memos:
        load(memos, 0, 10)
        until(lambda: not _waiting(memos))
        proxy.cut()
        assert not any(load(memos, 10, 4))
        found = memos.search("parcel number12", top_k=1)
        # The newest items are scored without the index.
        assert found.hits[0].item.memory == "the parcel number12 arrived"
        assert set(found.missing_arms) == {"turn", "window", "turn_bm25", "window_bm25"}
        proxy.mend()
        until(lambda: memos.search("parcel").missing_arms == ())
        until(lambda: not _waiting(memos))
        check_whole(memos, 14)


def test_connections_that_drop_again_and_again_lose_nothing(cut_off: tuple[Settings, Proxy]) -> None:
    settings, proxy = cut_off
    with opened(settings) as memos:
        for number in range(12):
            if number % 2:
                proxy.drop()
            load(memos, number, 1)
        until(lambda: not _waiting(memos))
        check_whole(memos, 12)


def _waiting(memos: MemOS) -> list[str]:
    return [
        item for projection in memos._context.indexes.projections for item in projection.pending(["default"], 1_000)
    ]


def test_postgresql_restarts_under_load(
    tmp_path: Path, postgres_server: PostgresServer, neo4j_server: Neo4jServer
) -> None:
    """What is not acknowledged is told so; repeated with its key it is there once."""
    with on_servers(tmp_path, postgres_server, neo4j_server, index=QUICK) as settings, opened(settings) as memos:
        stored = [_keyed(memos, number) for number in range(5)]
        for fast in (True, False):
            postgres_server.stop(fast=fast)
            try:
                with pytest.raises(BackendUnavailable, match="cannot be reached"):
                    _keyed(memos, 5)
                with pytest.raises(BackendUnavailable):
                    memos.search("parcel")
            finally:
                postgres_server.start()
        # The connections from before the restart are found out before they are used.
        stored += [_keyed(memos, number) for number in range(4, 8)]
        assert stored[4] == stored[5]
        with pytest.raises(Conflict, match="was used for another add"):
            memos.add("something else", idempotency_key="key 4")
        until(lambda: not _waiting(memos))
        check_whole(memos, 8)


def _keyed(memos: MemOS, number: int) -> tuple[str, ...]:
    return memos.add(f"the parcel number{number} arrived", idempotency_key=f"key {number}").item_ids


def test_reads_go_on_while_connections_to_the_ledger_drop(
    tmp_path: Path, postgres_server: PostgresServer, neo4j_server: Neo4jServer
) -> None:
    with on_servers(tmp_path, postgres_server, neo4j_server, index=QUICK) as settings:
        assert settings.ledger_url is not None
        url = settings.ledger_url.get_secret_value()
        with Proxy(postgres_server.port) as proxy:
            through = url.replace(f":{postgres_server.port}/", f":{proxy.port}/")
            with opened(settings.model_copy(update={"ledger_url": SecretStr(through)})) as memos:
                [item] = _keyed(memos, 0)
                read = items.current

                def interrupted(*given: Any) -> Any:
                    """Break the connection under the first of two reads, as a restart of a proxy does."""
                    monkeypatched.setattr(items, "current", read)
                    proxy.drop()
                    return read(*given)

                for call in (
                    lambda: memos.get(item).id,
                    lambda: memos.memories.history(item)[0].after.id,
                    lambda: memos.search("parcel").hits[0].item.id,
                    lambda: memos.memories.list()[0].id,
                ):
                    proxy.drop()
                    assert call() == item
                with pytest.MonkeyPatch.context() as monkeypatched:
                    monkeypatched.setattr(items, "current", interrupted)
                    assert memos.get(item).id == item


def test_a_connection_lost_inside_a_transaction_keeps_nothing_of_it(
    tmp_path: Path, postgres_server: PostgresServer, neo4j_server: Neo4jServer
) -> None:
    with on_servers(tmp_path, postgres_server, neo4j_server, index=QUICK) as settings:
        assert settings.ledger_url is not None
        url = settings.ledger_url.get_secret_value()
        with Proxy(postgres_server.port) as proxy:
            through = url.replace(f":{postgres_server.port}/", f":{proxy.port}/")
            with opened(settings.model_copy(update={"ledger_url": SecretStr(through)})) as memos:
                kept = _keyed(memos, 0)
                with (
                    pytest.raises(BackendUnavailable) as told,
                    memos._context.change(memos._context.scopes.check(["default"], "me", right=Right.WRITE)) as change,
                ):
                    change.connection.exec_driver_sql("DELETE FROM outbox")
                    proxy.drop()
                    change.connection.exec_driver_sql("SELECT 1")
                assert PASSWORD not in str(told.value)
                assert "A running change may or may not have been saved" in str(told.value)
                assert _keyed(memos, 0) == kept
                until(lambda: not _waiting(memos))
                check_whole(memos, 1)
