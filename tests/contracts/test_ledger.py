"""The contract of a `Ledger`, run over both databases."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from memos.core.clock import new_id
from memos.core.types import FileKind, FileState, Status, StoredFile
from memos.errors import Conflict, IntegrityError
from memos.memcube.encryption.ledger_keys import unlock_ledger
from memos.memcube.ledger import cubes, files, items, migrate, relations
from memos.memcube.ledger import queries as speakers
from memos.memcube.ledger import schema as t
from memos.memcube.ledger.cubes import EventQuery
from memos.memcube.ledger.engine import HEAD, Ledger, sqlite_url
from tests.support.ledgers import BIG, ODD, Store

Open = Callable[[], Ledger]


@pytest.fixture(params=["sqlite", "postgresql", "encrypted postgresql"])
def open_(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    if request.param == "sqlite":
        return lambda: Ledger.open(sqlite_url(tmp_path / "ledger.db"))
    url = request.getfixturevalue("postgres_server").url()
    if request.param == "postgresql":
        return lambda: Ledger.open(url)
    (tmp_path / "master").write_bytes(os.urandom(32))

    def encrypted() -> Ledger:
        ledger = Ledger.open(url)
        unlock_ledger(ledger, f"file:{tmp_path / 'master'}")
        return ledger

    return encrypted


@pytest.fixture
def ledger(open_: Open) -> Iterator[Ledger]:
    opened = open_()
    Store(opened).make("default")
    yield opened
    opened.close()


def texts(ledger: Ledger) -> list[str]:
    with ledger.read() as connection:
        return [item.memory for item in items.matching(connection, ["default"], None, limit=10_000)]


def test_a_new_database_has_the_declared_tables_and_opening_it_again_changes_nothing(open_: Open) -> None:
    for _ in range(2):
        ledger = open_()
        with ledger.read() as connection:
            assert set(sa.inspect(connection).get_table_names()) == {*t.metadata.tables, "alembic_version"}
            assert connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalars().all() == [HEAD]
        ledger.close()


_DEFINITIONS = {
    "sqlite": ("SELECT type, name, sql FROM sqlite_master",),
    "postgresql": (
        "SELECT table_name, column_name, udt_name, character_maximum_length, is_nullable, column_default, is_identity"
        " FROM information_schema.columns WHERE table_schema = 'public'",
        "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'",
        "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint"
        " WHERE connamespace = 'public'::regnamespace",
        "SELECT proname, prosrc, provolatile::text FROM pg_proc WHERE pronamespace = 'public'::regnamespace",
    ),
}


def definitions(connection: sa.Connection) -> set[tuple[str, ...]]:
    """Return what a database says of its tables; columns in any order, since migrations add them at the end."""
    rows = [row for query in _DEFINITIONS[connection.dialect.name] for row in connection.exec_driver_sql(query)]
    found = set()
    for row in rows:
        words = re.sub(r'[\s"]+', " ", " | ".join(map(str, row)))
        found.add(tuple(sorted(part.strip(" )") for part in re.split(r",|\(", words))))
    assert len(found) == len(rows) > 100
    return found


def test_a_new_database_is_as_one_that_ran_all_migrations(open_: Open) -> None:
    ledger = open_()
    rows = sa.select(t.meta.c.key).where(~t.meta.c.key.startswith("mark:keys"))
    with ledger.write() as connection:
        made, kept = definitions(connection), connection.scalars(rows).all()
        t.metadata.drop_all(connection)
        connection.exec_driver_sql("DROP TABLE alembic_version")
    with ledger.write() as connection:
        migrate.upgrade(connection, None, "the emptied database")
        assert definitions(connection) == made
        assert set(connection.scalars(rows)) == set(kept) == {"audit:head", "ledger_id"}
    ledger.close()


def test_several_open_a_new_database_at_once(open_: Open) -> None:
    opened: list[Ledger] = []
    threads = [threading.Thread(target=lambda: opened.append(open_())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(opened) == 4
    for ledger in opened:
        ledger.close()


def test_a_write_that_raises_leaves_nothing(ledger: Ledger) -> None:
    with pytest.raises(RuntimeError), ledger.write() as connection:
        connection.execute(sa.insert(t.meta).values(key="half", value="done"))
        raise RuntimeError("in the middle")
    with ledger.read() as connection:
        assert connection.scalar(sa.select(t.meta.c.value).where(t.meta.c.key == "half")) is None


def test_what_is_written_is_there_for_whoever_opens_it_next(open_: Open, ledger: Ledger) -> None:
    Store(ledger).add([{"role": "user", "content": text} for text in (ODD, BIG, "plain")], conversation=ODD[:200])
    other = open_()
    assert texts(other) == [ODD, BIG, "plain"]
    other.close()


def test_a_reader_sees_one_moment_and_no_writer_waits_for_it(ledger: Ledger) -> None:
    store = Store(ledger)
    store.add("before")
    with ledger.read() as connection:
        query = sa.select(sa.func.count()).select_from(t.items)
        assert connection.scalar(query) == 1
        store.add("meanwhile")
        assert connection.scalar(query) == 1
        assert len(items.matching(connection, ["default"], None, limit=10)) == 1
    assert texts(ledger) == ["before", "meanwhile"]


@pytest.mark.parametrize(
    "broken",
    [
        lambda item: sa.update(t.items).where(t.items.c.id == item).values(version=0),
        lambda item: sa.update(t.versions).where(t.versions.c.item_id == item).values(confidence=1.5),
        lambda item: sa.update(t.versions).where(t.versions.c.item_id == item).values(recorded_to=sa.null(), version=2),
        lambda item: sa.update(t.items).values(position=0),
        lambda item: sa.delete(t.items).where(t.items.c.id == item),
    ],
    ids=["a version is at least 1", "confidence is a share", "one current version", "one item a place", "no orphans"],
)  # fmt: skip
def test_constraints_carry_the_invariants(ledger: Ledger, broken: Callable[[str], sa.Executable]) -> None:
    store = Store(ledger)
    first = store.add(
        [{"role": "user", "content": "one"}, {"role": "user", "content": "two"}], conversation="c"
    ).item_ids[0]
    with ledger.write() as connection:
        state = items.require(connection, ["default"], first)
        after = items.next_version(state, new_id(), store.clock.now(), status=Status.ARCHIVED)
        items.append(connection, state, after, "me", "archived")
    with pytest.raises(Conflict), ledger.write() as connection:
        connection.execute(broken(first))
    assert texts(ledger) == ["one", "two"]


def test_two_writers_of_one_version_conflict(ledger: Ledger) -> None:
    store = Store(ledger)
    [item] = store.add("contested").item_ids
    with ledger.read() as connection:
        state = items.require(connection, ["default"], item)
    outcomes: list[str] = []

    def change(text: str) -> None:
        after = items.next_version(state, new_id(), store.clock.now(), memory=text)
        try:
            with ledger.write() as connection:
                items.append(connection, state, after, text, "raced")
            outcomes.append("done")
        except Conflict:
            outcomes.append("refused")

    threads = [threading.Thread(target=change, args=(f"writer {n}",)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["done", *["refused"] * 5]
    with ledger.read() as connection:
        assert len(items.history(connection, ["default"], item)) == 2


def test_many_threads_keep_the_order_of_a_conversation_and_the_chain_of_a_cube(ledger: Ledger) -> None:
    store = Store(ledger)

    def talk(name: int) -> None:
        for n in range(10):
            store.add([{"role": "user", "content": f"{name} asks {n}"}, {"role": "assistant", "content": "so"}],
                      conversation="c")  # fmt: skip

    threads = [threading.Thread(target=talk, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with ledger.read() as connection:
        said = items.matching(connection, ["default"], None, limit=1_000)
        assert sorted(item.position or 0 for item in said) == list(range(120))
        assert max(item.page or 0 for item in said) == 59
        assert cubes.broken_event(connection, "default") is None


def test_a_newer_schema_and_missing_tables_are_refused(open_: Open, ledger: Ledger) -> None:
    with ledger.write() as connection:
        connection.exec_driver_sql("DROP TABLE links")
    with pytest.raises(IntegrityError, match=r"lacks links.*Restore it from a backup"):
        open_()
    with ledger.write() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(IntegrityError, match="written by a newer hippocube"):
        open_()


def test_all_speakers_are_told_while_they_are_few_and_then_those_asked_for(ledger: Ledger) -> None:
    store = Store(ledger)
    store.make("other")

    def speaking(*cubes_: str, asked: Sequence[str] = ()) -> tuple[list[str], bool]:
        with ledger.read() as connection:
            names, many = speakers.speakers(connection, cubes_, asked)
            return sorted(names), many

    assert speaking("default") == ([], False)
    for name in (None, "Ann", "Bob", "Ann", ODD[:40]):
        store.add([{"role": "user", "content": "hello", **({"name": name} if name else {})}])
    store.add([{"role": "assistant", "content": "hi", "name": "Iris"}, {"role": "tool", "content": "1", "name": "sum"}])
    here = sorted(["Ann", "Bob", "Iris", ODD[:40].strip()])
    assert speaking("default") == (here, False)
    assert speaking("other") == ([], False)
    assert speaking("other", "default") == (here, False)
    for number in range(speakers.MOST):
        store.add([{"role": "user", "content": "hello", "name": f"N{number}"}], cube="other")
    names, many = speaking("other")
    assert (len(names), many) == (speakers.MOST, False)
    assert speaking("other", "default") == ([], True)
    assert speaking("other", "default", asked=["N1", "Bob", "Eve", "sum", "user"]) == (["Bob", "N1"], True)
    assert speaking("other", asked=["Bob"])[0] == names
    store.add([{"role": "assistant", "content": "hello", "name": "one more"}], cube="other")
    assert speaking("other", asked=["one more", "Bob"]) == (["one more"], True)
    assert speaking(*["default"] * (speakers.MOST + 1), asked=["Ann"]) == (["Ann"], True)


def test_conversations_without_a_person_are_told(ledger: Ledger) -> None:
    store = Store(ledger)
    for conversation, names in {"k": ("Ann", "Bob"), "l": ("Bob", "Cy")}.items():
        store.add([{"role": "user", "content": "hello", "name": name} for name in names], conversation=conversation)
    store.add([{"role": "user", "content": "Have you seen Eve? She left.", "name": "Cy"}], conversation="l")
    with ledger.read() as connection:
        stored = [item.id for item in items.matching(connection, ["default"], None, limit=9)]
        told = items.briefs(connection, ["default"], stored, None)
        ids = sorted({each.conversation for each in told if each.conversation is not None})
        by_name = {
            name: speakers.conversations_without(connection, ids, [name]) for name in ("Ann", "Bob", "Cy", "Eve", "Di")
        }
        [of_ann] = set(ids) - by_name["Ann"]
        assert by_name["Cy"] == {of_ann}
        assert by_name["Bob"] == set()
        assert by_name["Eve"] == {of_ann}
        assert by_name["Di"] == set(ids)
        assert speakers.conversations_without(connection, [], ["Ann"]) == set()


def test_events_are_told_backwards_and_of_one_item(ledger: Ledger) -> None:
    store = Store(ledger)
    one, other = store.add(["I live in Oslo.", "I live in Rome."]).item_ids
    store.update(one, "I live in Bergen.")
    store.delete(other)

    def told(**wanted: Any) -> list[tuple[int, str]]:
        with ledger.read() as connection:
            found = cubes.events_after(connection, "default", EventQuery(**wanted))
        return [(event.seq, event.kind) for event in found]

    assert told(newest=True, limit=2) == [(4, "delete"), (3, "update")]
    assert told(newest=True, before=4, after=1) == [(3, "update"), (2, "add")]
    assert told(item=one) == [(2, "add"), (3, "update")]
    assert told(item="%") == []


def test_what_awaits_review_is_counted_up_to_a_limit(ledger: Ledger) -> None:
    store = Store(ledger)
    items_ = store.add(["one", "two", "three"]).item_ids
    with ledger.write() as connection:
        connection.execute(
            sa.update(t.versions).where(t.versions.c.item_id.in_(items_[:2])).values(status=Status.PENDING)
        )
        relations.suppose(connection, "default", items_[1], items_[0], 0.5, datetime.now(UTC))
    with ledger.read() as connection:
        assert [speakers.count_pending(connection, "default", most, datetime.now(UTC)) for most in (1, 10)] == [1, 2]
        assert [relations.count_supposed(connection, cube, 10) for cube in ("default", "other")] == [1, 0]


def test_files_are_listed_in_pages_by_their_effective_state(ledger: Ledger) -> None:
    now = datetime.now(UTC)
    made = [_file(number, now) for number in range(5)]  # several of one moment
    with ledger.write() as connection:
        for file in made:
            files.add(connection, file, b"x")
    states = [FileState.AVAILABLE, FileState.FAILED]
    with ledger.read() as connection:
        whole = [file.id for file in files.page(connection, "default", states, 10, None)]
        assert whole == sorted((file.id for file in made), reverse=True)
        first = files.page(connection, "default", states, 2, None)
        rest = files.page(connection, "default", states, 10, first[-1].id)
        assert [file.id for file in [*first, *rest]] == whole
        failed = files.page(connection, "default", [FileState.FAILED], 2, None)  # their task was lost
        assert [file.id for file in failed] == [made[3].id, made[1].id]
        assert files.page(connection, "default", [FileState.PROCESSING], 2, None) == []


def _file(number: int, now: datetime) -> StoredFile:
    state = FileState.PROCESSING if number % 2 else FileState.AVAILABLE
    return StoredFile(f"f{number}", "default", FileKind.DOCUMENT, "a.md", "text/markdown", 1, "", state, "local", now)
