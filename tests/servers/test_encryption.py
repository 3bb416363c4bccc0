"""Encryption of a ledger on PostgreSQL: what its files tell without the key, conversions, keys, and erased cubes."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from memos import MemOS, Settings
from memos.core.settings import IndexSettings, LimitSettings
from memos.errors import Conflict, IntegrityError, InvalidInput, MemosError, PermissionDenied
from memos.kernel import doctor, encryption
from memos.kernel.relocation import migrate, restore
from memos.memcube.ledger import schema as t
from memos.memcube.ledger import sealing
from memos.memcube.ledger.columns import sealed_columns
from memos.memcube.ledger.engine import Ledger
from tests.fakes import WordEmbedder
from tests.kernel.test_encryption import SECRET, fill_everywhere, found, texts
from tests.support.servers.postgres_server import PostgresServer

pytestmark = pytest.mark.usefixtures("private_memory")

# By what they are called in `fill_everywhere`: names and identifiers, which the database compares and sorts.
CLEAR = {"cube", "Speaker", "tool", "talk", "idempotency", "Person", "Subject", "id", "title"}


@pytest.fixture
def sealed(tmp_path: Path, postgres_server: PostgresServer) -> Settings:
    (tmp_path / "master").write_bytes(os.urandom(32))
    return Settings(
        home=tmp_path / "home",
        ledger_url=postgres_server.url(),
        encryption_key=f"file:{tmp_path / 'master'}",
        index=IndexSettings(wait_s=30),
        limits=LimitSettings(min_free_bytes=1_000_000),
    )


def elsewhere(settings: Settings, server: PostgresServer, home: Path) -> Settings:
    return settings.model_copy(update={"home": home, "ledger_url": SecretStr(server.url())})


def plain(settings: Settings) -> Settings:
    return settings.model_copy(update={"encryption_key": None})


def opened(settings: Settings) -> MemOS:
    return MemOS.open(settings=settings, embedder=WordEmbedder())


def told_at_rest(server: PostgresServer, settings: Settings, needles: list[str], *, with_log: bool = True) -> set[str]:
    """Return which needles stand in the files of the database, in the log of its changes, or in the folder."""
    database = str(settings.ledger_url.get_secret_value()).rsplit("/", 1)[1]  # type: ignore[union-attr]
    server.sql(database, "CHECKPOINT")
    oid = server.sql("postgres", f"SELECT oid FROM pg_database WHERE datname = '{database}'").strip()
    there = found(server._data / "base" / oid, needles) | found(settings.home, needles)
    return {needle for needle, _ in there | (found(server._data / "pg_wal", needles) if with_log else set())}


def test_of_200_strings_put_in_by_every_route_only_names_are_found_at_rest(
    sealed: Settings, postgres_server: PostgresServer
) -> None:
    with opened(sealed) as memos:
        told = fill_everywhere(memos)
        memos._context.indexes.vector.flush()
        assert memos.maintenance.verify().clean
        left = told_at_rest(postgres_server, sealed, told)
        assert left == {needle for needle in told if needle[5:-3] in CLEAR}
        assert len({text for text in texts(memos) for needle in told if needle in text}) >= 70


def test_filters_and_edits_find_what_sql_cannot_read(sealed: Settings) -> None:
    with opened(sealed) as memos:
        memos.add(
            ["I keep bees in Lyon.", "The ÉCLAIR is from Mirecourt."], tags=["home"], info={"n": 3, "a": {"b": [1]}}
        )
        other = memos.add("a thing about work", tags=["work"], info={"n": 7}).item_ids[0]
        memos.update(other, "a thing about leisure", reason="because")
        wanted: tuple[tuple[Any, set[str]], ...] = (
            ({"memory": {"like": "éclair"}}, {"The ÉCLAIR is from Mirecourt."}),
            ({"tags": "work"}, {"a thing about leisure"}),
            ({"not": {"tags": "home"}}, {"a thing about leisure"}),
            ({"info.n": {"gt": 3}}, {"a thing about leisure"}),
            ({"info.a.b": 1, "memory": {"startswith": "I "}}, {"I keep bees in Lyon."}),
            (
                {"or": [{"tags": "work"}, {"memory": {"like": "LYON"}}]},
                {"I keep bees in Lyon.", "a thing about leisure"},
            ),
            ({"info.n": {"exists": True}, "type": "message"}, {*texts(memos)}),
        )
        for node, expected in wanted:
            assert {item.memory for item in memos.memories.list(filter=node)} == expected, node
        assert memos.search("bees", filter={"tags": "home"}).hits[0].item.memory == "I keep bees in Lyon."
        assert len(memos.memories.history(other)) == 2
        first = memos.documents.add(("a.md", b"# One\n\nThe first text."))
        memos.documents.wait(first.id, 60)
        memos.documents.wait(memos.documents.add(("a.md", b"# One\n\nThe second text.")).id, 60)
        assert memos.documents.get(first.id).state == "superseded"  # found by its name, which is sealed
        [tags] = memos.browse.facets(by=["tag"], filter={"type": "message"}).facets
        assert [(each.value, each.count) for each in tags.values] == [("home", 2), ("work", 1)]


def test_without_the_right_key_nothing_is_opened_or_changed(sealed: Settings, tmp_path: Path) -> None:
    with opened(sealed) as memos:
        memos.add(SECRET)
    (tmp_path / "other").write_bytes(b"7" * 32)
    for place in (None, f"file:{tmp_path / 'other'}"):
        with pytest.raises(PermissionDenied, match="MEMOS_ENCRYPTION_KEY"):
            opened(sealed.model_copy(update={"encryption_key": place}))
    with pytest.raises(InvalidInput, match="pgvector"):
        opened(sealed.model_copy(update={"index": IndexSettings(vectors="pgvector")}))
    (tmp_path / "new").write_bytes(os.urandom(32))
    turned = sealed.model_copy(update={"encryption_key": f"file:{tmp_path / 'new'}"})
    with opened(sealed) as memos:
        assert encryption.rotate(sealed, turned.encryption_key or "").not_renewed == ()
        memos.cubes.create("later")
        memos.add("said afterwards", cube="later")  # with a new key
    with pytest.raises(PermissionDenied, match="rotate-key"):
        opened(sealed)
    with opened(turned) as memos:
        assert texts(memos) == {SECRET, "said afterwards"}
        with memos.ledger.write() as connection:
            connection.exec_driver_sql("UPDATE versions SET memory = 'put in by hand' WHERE cube_id = 'later'")
        with pytest.raises(IntegrityError, match=r"versions\.memory"):
            texts(memos)


def columns_of(settings: Settings) -> dict[str, list[Any]]:
    """Return what the columns of text hold in the database."""
    ledger = Ledger.look(settings.ledger_url.get_secret_value())  # type: ignore[union-attr]
    try:
        with ledger.read() as connection:
            return {
                f"{table.name}.{column.name}": sorted(
                    connection.exec_driver_sql(f'SELECT "{column.name}" FROM {table.name}').scalars(), key=repr
                )
                for table in (t.cubes, t.versions, t.messages, t.files, t.file_parts)
                for column in sealed_columns(table)
            }
    finally:
        ledger.close()


def fill(memos: MemOS) -> None:
    memos.add([SECRET, "hc1:not a sealed value: xylophone"], conversation="c", tags=["home"], info={"n": 1})
    memos.cubes.create("work", description="a cube for xylophones")
    memos.add("a thing about work", cube="work")
    memos.documents.wait(memos.documents.add(("a.md", b"# Work\n\nA xylophone."), cube="work").id, 60)


@pytest.mark.heavy
def test_a_ledger_is_converted_both_ways_also_after_kills(
    sealed: Settings, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(plain(sealed)) as memos:
        fill(memos)
        before = texts(memos)
    there = columns_of(sealed)
    assert told_at_rest(postgres_server, plain(sealed), ["xylophone"]) == {"xylophone"}
    with pytest.raises(InvalidInput, match="memos data encrypt"):
        opened(sealed)
    for step, way, target in ((4, encryption.encrypt, sealed), (7, encryption.decrypt, plain(sealed))):
        assert killed_at(step, way, sealed)
        with pytest.raises(MemosError, match=r"run `memos data \w+` again|hold|use this ledger"):
            opened(sealed)
        done = way(sealed)
        assert done.encrypted is (target is sealed)
        held = [value for values in columns_of(sealed).values() for value in values if value]
        if done.encrypted:
            assert all(
                (value.encode() if isinstance(value, str) else bytes(value)).startswith(b"hc1:") for value in held
            )
            # The log of changes has what was written before, until the server uses its files again.
            assert told_at_rest(postgres_server, sealed, ["xylophone"], with_log=False) == set()
            with pytest.raises(Conflict, match="already"):
                way(sealed)
        with opened(target) as memos:
            assert texts(memos) == before
            assert memos.maintenance.verify().clean
    assert columns_of(sealed) == there


def killed_at(step: int, way: Callable[[Settings], Any], settings: Settings) -> bool:
    """Convert in a child process that is killed before it rewrites a table."""
    child = os.fork()
    if child == 0:
        left = [step]
        real = sealing._rewrite_rows

        def counted(*arguments: Any) -> None:
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1
            real(*arguments)

        sealing._rewrite_rows = counted
        try:
            with suppress(MemosError):
                way(settings)
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def test_an_erased_cube_takes_its_key_with_it_and_backups_move_between_folder_and_server(
    sealed: Settings, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    with opened(sealed) as memos:
        fill(memos)
        before = texts(memos)
        with memos.ledger.read() as connection:
            query = "SELECT memory FROM versions WHERE cube_id = 'work'"
            held = connection.exec_driver_sql(query).scalars().all()
        memos.maintenance.backup(tmp_path / "backups" / "one")
        receipt = memos.cubes.drop("work")
        assert (receipt.removed["data_keys"], receipt.key_destroyed) == (1, True)
        sealer = memos.ledger._engine.dialect.memos_sealer  # type: ignore[attr-defined]
        fresh = sealing.ColumnSealer(sealer.keys)
        for value in held:  # in a copy of the database from before: nobody can open it
            with pytest.raises(IntegrityError):
                fresh.opened("versions.memory", value)
        memos.cubes.create("work")
        memos.add("a new start", cube="work")
        memos.erase(memos.memories.list(cube="default", limit=1)[0].id)
        assert "a new start" in texts(memos)
        assert memos.maintenance.verify().clean
    folder = sealed.model_copy(update={"ledger_url": None, "home": tmp_path / "folder"})
    assert restore(tmp_path / "backups" / "one", folder, embedder=WordEmbedder()).unreadable == 1
    with opened(folder) as memos:
        left = texts(memos)
        assert left < before
        memos.documents.wait(memos.documents.add(("b.md", b"# More\n\nAnother document.")).id, 60)
        left = texts(memos)
        memos.maintenance.backup(tmp_path / "backups" / "two")
    server = elsewhere(sealed, postgres_server, tmp_path / "again")
    assert restore(tmp_path / "backups" / "two", server, embedder=WordEmbedder()).differences == ()
    moved = plain(sealed).model_copy(update={"ledger_url": None, "home": tmp_path / "moved"})
    migrate(server, moved, embedder=WordEmbedder())
    back = elsewhere(sealed, postgres_server, tmp_path / "back")
    migrate(moved, back, embedder=WordEmbedder())
    for place in (server, moved, back):
        with opened(place) as memos:
            assert texts(memos) == left
            assert memos.maintenance.verify().clean
    assert all(value.startswith("hc1:") for value in columns_of(back)["versions.memory"])


def test_the_doctor_says_whether_a_ledger_on_a_server_is_encrypted(sealed: Settings) -> None:
    def said(settings: Settings) -> str:
        [finding] = [each for each in doctor.examine(settings, server=lambda _: iter(())) if each.what == "encryption"]
        return str(finding.state)

    assert [said(plain(sealed)), said(sealed)] == ["missing", "good"]
    with opened(plain(sealed)):
        pass
    assert said(sealed) == "bad"
    encryption.encrypt(sealed)
    assert said(sealed) == "good"
