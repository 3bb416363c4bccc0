"""What PostgreSQL is asked before it is used, and one clear sentence for each thing that can be wrong with it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from memos import MemOS, Settings
from memos.core.telemetry import Work
from memos.core.types import LinkKind, Relation, StoredFile
from memos.errors import BackendTimeout, BackendUnavailable, Conflict, InvalidInput
from memos.kernel.idempotency import Creation
from memos.kernel.memories import Addition
from memos.memcube.ledger import cubes, items, postgres, queues, relations
from memos.memcube.ledger import schema as t
from memos.memcube.ledger.engine import Ledger
from tests.fakes import WordEmbedder
from tests.support.ledgers import Store
from tests.support.servers.postgres_server import PASSWORD, PostgresServer


@pytest.fixture
def ledger(postgres_server: PostgresServer) -> Iterator[Ledger]:
    opened = Ledger.open(postgres_server.url())
    yield opened
    opened.close()


def test_wrong_urls_are_refused_in_one_sentence_without_the_password(postgres_server: PostgresServer) -> None:
    good = postgres_server.url()
    place = f"127.0.0.1:{postgres_server.port}"
    for url, error, sentence in (
        ("nonsense", InvalidInput, "must be a URL"),
        ("mysql://user@host/base", InvalidInput, "expected sqlite or postgresql"),
        (f"postgresql://memos:wr0ng@{place}/postgres", BackendUnavailable, "the user or the password is wrong"),
        (f"postgresql://memos@{place}/postgres", BackendUnavailable, "the user or the password is wrong"),
        (f"postgresql://nobody:wr0ng@{place}/postgres", BackendUnavailable, "the user or the password is wrong"),
        (good.rsplit("/", 1)[0] + "/nowhere", BackendUnavailable, "does not exist: create it with `createdb"),
        ("postgresql://memos:wr0ng@127.0.0.1:1/memos", BackendUnavailable, "check that the server runs"),
        ("postgresql://memos:wr0ng@no.such.host.invalid/memos", BackendUnavailable, "check that the server runs"),
    ):
        with pytest.raises(error, match=sentence) as told:
            Ledger.open(url)
        assert "wr0ng" not in str(told.value)
        assert PASSWORD not in str(told.value)
        assert "\n" not in str(told.value)


def test_a_user_without_rights_is_told_so(postgres_server: PostgresServer) -> None:
    database = postgres_server.url().rsplit("/", 1)[1]
    postgres_server.sql(database, "CREATE ROLE guest LOGIN PASSWORD 'guest'")
    postgres_server.sql(database, "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    with pytest.raises(BackendUnavailable, match="a privilege is missing"):
        Ledger.open(f"postgresql://guest:guest@127.0.0.1:{postgres_server.port}/{database}")


def test_another_encoding_is_refused(postgres_server: PostgresServer) -> None:
    postgres_server.sql(
        "postgres", "CREATE DATABASE ascii ENCODING 'SQL_ASCII' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
    )
    with pytest.raises(BackendUnavailable, match="encoding is SQL_ASCII: create another"):
        Ledger.open(postgres_server.url("ascii"))


def test_a_server_without_icu_is_refused(postgres_server: PostgresServer) -> None:
    url = postgres_server.url()
    postgres_server.sql(url.rsplit("/", 1)[1], "DELETE FROM pg_collation WHERE collname = 'und-x-icu'")
    with pytest.raises(BackendUnavailable, match="lacks the collation `und-x-icu`"):
        Ledger.open(url)


def test_an_old_server_is_refused(postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "OLDEST", 990_000)
    with pytest.raises(BackendUnavailable, match="is too old for the ledger: use version 99 or newer"):
        Ledger.open(postgres_server.url())


def test_clocks_too_far_apart_are_refused(ledger: Ledger) -> None:
    now = datetime.now(UTC)
    with ledger.read() as connection:
        postgres.check_server(connection, now + timedelta(seconds=20))
        for off in (timedelta(minutes=5), -timedelta(minutes=5)):
            with pytest.raises(BackendUnavailable, match=r"clocks of this machine and the database are \d+ s apart"):
                postgres.check_server(connection, now + off)


def test_a_migration_that_fails_half_way_leaves_nothing(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres_server.url()
    monkeypatch.setattr("memos.memcube.ledger.postgres.fold_function", lambda: "SELECT 1 / 0")
    with pytest.raises(BackendUnavailable, match="division by zero"):
        Ledger.open(url)
    assert (
        postgres_server.sql(url.rsplit("/", 1)[1], "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == "0"
    )
    monkeypatch.undo()
    Ledger.open(url).close()


def test_commits_are_durable_and_readers_see_one_moment(postgres_server: PostgresServer) -> None:
    url = postgres_server.url()
    postgres_server.sql("postgres", f"ALTER DATABASE {url.rsplit('/', 1)[1]} SET synchronous_commit = off")
    ledger = Ledger.open(url)
    with ledger.write() as connection:
        assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "on"
        assert connection.exec_driver_sql("SHOW transaction_isolation").scalar() == "read committed"
    with ledger.read() as connection:
        assert connection.exec_driver_sql("SHOW transaction_isolation").scalar() == "repeatable read"
        assert connection.exec_driver_sql("SHOW transaction_read_only").scalar() == "on"
    with pytest.raises(BackendUnavailable, match="read-only"), ledger.read() as connection:
        connection.execute(sa.insert(t.meta).values(key="no", value="no"))
    ledger.close()


def test_two_changes_in_each_others_way_end_in_one_conflict(ledger: Ledger) -> None:
    with ledger.write() as connection:
        connection.execute(sa.insert(t.meta), [{"key": "a", "value": "0"}, {"key": "b", "value": "0"}])
    first, second = ledger._engine.connect(), ledger._engine.connect()
    for connection in (first, second):
        connection.exec_driver_sql("SET deadlock_timeout = '50ms'")
        connection.exec_driver_sql("SET lock_timeout = '5s'")
    first.execute(sa.update(t.meta).where(t.meta.c.key == "a").values(value="1"))
    first.exec_driver_sql("SET lock_timeout = '200ms'")
    second.execute(sa.update(t.meta).where(t.meta.c.key == "b").values(value="2"))
    with pytest.raises(BackendTimeout, match="did not answer in time"), ledger._translated():
        first.execute(sa.update(t.meta).where(t.meta.c.key == "b").values(value="1"))
    for connection in (first, second):
        connection.close()


@pytest.fixture
def deadlocked(
    tmp_path: Path, postgres_server: PostgresServer
) -> Iterator[tuple[MemOS, Callable[[Callable[[], Any]], Any]]]:
    """Return a MemOS, and what calls something so that a deadlock ends its first transaction; it returns the answer."""
    url = postgres_server.url()
    settings = Settings(ledger_url=url, limits={"min_free_bytes": 0})  # type: ignore[arg-type]
    with closing(Ledger.open(url)) as other, MemOS.open(tmp_path, settings=settings, embedder=WordEmbedder()) as memos:
        memos.add("I live in Paris.")
        memos.tasks.wait()

        def call(change: Callable[[], Any]) -> Any:
            with ThreadPoolExecutor(1) as pool, other.write() as connection:
                # The change locks its cube and then waits for the queue; this one has the queue and wants the cube.
                connection.exec_driver_sql("SET LOCAL deadlock_timeout = '20s'")
                queues.lock(connection, "default")
                answer = pool.submit(change)
                _await(postgres_server, url, "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted")
                cubes.lock(connection, "default")
            done = answer.result()
            _await(
                postgres_server, url, "SELECT deadlocks = 1 FROM pg_stat_database WHERE datname = current_database()"
            )
            return done

        yield memos, call


def test_an_add_that_a_deadlock_ends_is_saved_and_told_once(
    deadlocked: tuple[MemOS, Callable[[Callable[[], Any]], Any]],
) -> None:
    memos, call = deadlocked
    told: list[Work] = []
    memos.listeners.add(told.append)
    receipts = call(lambda: memos.memories.add_all(Addition(text) for text in ("I keep bees.", "I sing.")))
    assert [len(receipt.item_ids) for receipt in receipts] == [1, 1]
    assert len(memos.memories.list(filter={"type": "message"})) == 3
    assert [(work.operation, work.failed) for work in told] == [("add", False)]


def test_a_call_with_a_key_that_a_deadlock_ends_is_known_by_its_key(
    deadlocked: tuple[MemOS, Callable[[Callable[[], Any]], Any]],
) -> None:
    memos, call = deadlocked
    texts = iter((b"Honey is sweet.", b"Wax is not."))

    def add() -> StoredFile:
        return memos.idempotency.once(
            Creation("a-key", "documents.add", "notes"),
            lambda: memos.documents.add(("notes.txt", next(texts))),
            ids=lambda file: [file.id],
            again=lambda ids: memos.documents.get(ids[0]),
        )

    first = call(add)
    assert add().id == first.id
    assert len(memos.documents.list()) == 1


def test_a_change_whose_read_is_recorded_is_repeated_after_a_deadlock(
    deadlocked: tuple[MemOS, Callable[[Callable[[], Any]], Any]],
) -> None:
    memos, call = deadlocked
    memos.users.create("ana")
    memos.sharing.grant("default", "ana", "editor")
    file = memos.documents.add(("notes.txt", b"Honey is sweet."))
    memos.documents.wait(file.id)
    memos.tasks.wait()
    memos.audit.record_reads(enabled=True)
    assert call(lambda: memos.documents.read_again(file.id, actor="ana")).id != file.id
    assert {entry.actor for entry in memos.audit.list(kinds=["read"])} == {"ana"}


def test_relations_and_an_erase_wait_for_one_another_in_one_order(ledger: Ledger) -> None:
    older, newer = _two_related_items(ledger)
    again = Relation(newer, older, LinkKind.UPDATES, 0.9, relations.RULES, None)
    with ThreadPoolExecutor(1) as pool:
        with ledger.write() as connection:
            items.lock(connection, [older])  # as an erase does first
            stored = pool.submit(_store, ledger, again)
            time.sleep(0.3)
            assert not stored.done()
            connection.exec_driver_sql("SET LOCAL lock_timeout = '5s'")
            connection.execute(sa.delete(t.links).where(t.links.c.to_id == older))
        stored.result()


def _store(ledger: Ledger, relation: Relation) -> None:
    with ledger.write() as connection:
        relations.store(connection, [("default", relation)], datetime.now(UTC), again=[relation.newer])


def _two_related_items(ledger: Ledger) -> tuple[str, str]:
    store = Store(ledger)
    store.make("default")
    older, newer = (store.add(text).item_ids[0] for text in ("I live in Paris.", "I live in Lyon."))
    _store(ledger, Relation(newer, older, LinkKind.UPDATES, 0.8, relations.RULES, None))
    return older, newer


def _await(server: PostgresServer, url: str, query: str) -> None:
    deadline = time.monotonic() + 30
    while server.sql(url.rsplit("/", 1)[1], query) != "t":
        assert time.monotonic() < deadline, query
        time.sleep(0.02)


def test_words_are_folded_as_python_folds_them(ledger: Ledger) -> None:
    everything = [chr(code) for code in range(1, 0x11_0000) if not 0xD800 <= code < 0xE000]
    with ledger.read() as connection:
        for start in range(0, len(everything), 50_000):
            asked = everything[start : start + 50_000]
            rows = connection.exec_driver_sql(
                "SELECT c, memos_casefold(c) FROM unnest(%(asked)s::text[]) AS c", {"asked": asked}
            )
            assert [(c, folded) for c, folded in rows if folded != c.casefold()] == []
        for text in ("ΣΑΣ ΌΔΟΣ straße", "İstanbul ﬁn ŉ ᾳ", "Ꭰꭰ ẞ ǅ", "日本語 Ａｂｃ"):
            assert connection.exec_driver_sql("SELECT memos_casefold(%(t)s)", {"t": text}).scalar() == text.casefold()


def test_a_text_the_ledger_refuses_is_told_without_showing_it(ledger: Ledger) -> None:
    store = Store(ledger)
    store.make("default")
    secret = "the-secret-" + "x" * 300
    with pytest.raises(InvalidInput, match="cannot be stored in the ledger") as told, ledger.write() as connection:
        connection.execute(sa.update(t.cubes).values(time_zone=secret))
    assert "secret" not in str(told.value)
    with pytest.raises(Conflict) as refused:
        store.make("default")
        with ledger.write() as connection:
            connection.execute(sa.insert(t.meta).values(key="ledger_id", value=secret))
    assert "secret" not in str(refused.value)


def test_an_embedded_installation_may_keep_its_ledger_on_a_server(
    tmp_path: Path, postgres_server: PostgresServer
) -> None:
    settings = Settings(ledger_url=postgres_server.url(), limits={"min_free_bytes": 0})  # type: ignore[arg-type]
    with MemOS.open(tmp_path / "home", settings=settings, embedder=WordEmbedder()) as memos:
        memos.add("kept on a server")
    # Another folder has no index of it, and gets one.
    with MemOS.open(tmp_path / "other", settings=settings, embedder=WordEmbedder()) as memos:
        assert memos.search("kept").hits[0].item.memory == "kept on a server"
        assert memos.maintenance.verify().differences == ()
    assert not (tmp_path / "home" / "ledger.db").exists()


def test_all_tables_give_back_what_deleted_rows_took(ledger: Ledger) -> None:
    ledger.vacuum()
    with ledger.read() as connection:
        seen = sa.text("SELECT relname FROM pg_stat_user_tables WHERE vacuum_count > 0")
        vacuumed = set(connection.scalars(seen))
    assert vacuumed == set(t.metadata.tables)
