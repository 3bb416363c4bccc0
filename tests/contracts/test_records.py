"""Records behave as a store of texts by key does, on embedded engines and on servers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from memos import MemOS, Settings
from memos.core.settings import IndexSettings, LimitSettings, QdrantSettings
from memos.core.types import Item, ItemType, RecordPrefix, Trust
from memos.errors import Conflict, InvalidInput, NotFound, PermissionDenied
from memos.kernel.records import MOST_RECORDS
from memos.memcube.ledger import schema as t
from tests.fakes import HeldClock, WordEmbedder
from tests.support.ledgers import ODD
from tests.support.servers.qdrant_rest import server_settings

DAY = timedelta(days=1)


@pytest.fixture
def clock() -> HeldClock:
    return HeldClock(datetime(2026, 3, 1, 12, tzinfo=UTC))


@pytest.fixture(params=["embedded", pytest.param("servers", marks=pytest.mark.heavy)])
def open_(request: pytest.FixtureRequest, tmp_path: Path, clock: HeldClock) -> Iterator[Callable[[], MemOS]]:
    served = request.param == "servers"
    with server_settings() as qdrant:
        settings = Settings(
            home=tmp_path / "home",
            ledger_url=request.getfixturevalue("postgres_server").url() if served else None,
            qdrant=qdrant if served else QdrantSettings(),
            index=IndexSettings(wait_s=30),
            limits=LimitSettings(min_free_bytes=1_000_000),
        )
        yield lambda: MemOS.open(settings=settings, embedder=WordEmbedder(), clock=clock)


@pytest.fixture
def memos(open_: Callable[[], MemOS]) -> Iterator[MemOS]:
    with open_() as opened:
        opened._scheduler.periodic.stop()  # what has expired is erased when a test says so
        yield opened
        assert opened.maintenance.verify().clean


def ids(found: Any) -> list[str | None]:
    return [getattr(entry, "item", entry).record_id for entry in found]


def test_a_put_stores_replaces_and_writes_nothing_where_nothing_is_different(memos: MemOS, clock: HeldClock) -> None:
    info = {"owner": {"name": "Ana", "shelves": [1, {"x": None}]}, "a.b": True}
    first = memos.records.put("colours/door", "The door is blue.", info=info, tags=["paint"])
    assert (first.version, first.type, first.record_id) == (1, ItemType.RECORD, "colours/door")
    clock.advance(DAY)
    same = memos.records.put("colours/door", "The door is blue.", info=info, tags=["paint"])
    assert same == first == memos.records.get("colours/door")
    second = memos.records.put("colours/door", "The door is green.")
    assert (second.id, second.version, second.tags, second.info) == (first.id, 2, (), {})
    assert (second.created_at, second.updated_at) == (first.created_at, second.updated_at)
    assert [source.passage for source in second.sources] == ["The door is green."]
    assert [(each.version, each.reason) for each in memos.records.history("colours/door")] == [(1, "added"), (2, "put")]
    # True and 1 are equal in Python, and not the same value.
    memos.records.put("n", "a number", info={"n": 1})
    assert memos.records.put("n", "a number", info={"n": True}).version == 2
    # As it was said then, its source too.
    [then] = memos.search("door", as_of=clock.at - DAY / 2, filter={"record_id": "colours/door"})
    assert (then.item.memory, then.sources[0].passage) == ("The door is blue.", "The door is blue.")


NAMES = ["/", "a//b/", "..", "users/../ana", " x ", ODD, "%41_*?#&=+", "é" * 512, "A", "a"]


def test_an_id_may_be_any_text(memos: MemOS) -> None:
    memos.records.put_many([{"id": name, "memory": "what it says", "info": {"id": name}} for name in NAMES])
    for name in NAMES:
        assert memos.records.get(name).info == {"id": name}
        begin = sorted(other for other in NAMES if other.startswith(name))
        assert ids(memos.records.list(name)) == begin
        assert sorted(filter(None, ids(memos.records.search("what says", name)))) == begin
        assert ids(memos.memories.list(filter={"record_id": name})) == [name]


def test_ids_that_differ_in_case_or_form_are_different_and_in_the_order_of_their_code_points(memos: MemOS) -> None:
    names = ["a", "A", "é", "e\u0301", "ａ", "b/c", "b0", "b", "\U0001f600", "\ufffd"]
    memos.records.put_many([{"id": name, "memory": f"value {number}"} for number, name in enumerate(names)])
    assert ids(memos.records.list()) == sorted(names)
    pages, after = [], None
    while page := ids(memos.records.list(limit=3, after=after)):
        pages += page
        after = page[-1]
    assert pages == sorted(names)
    assert ids(memos.records.list("b")) == ["b", "b/c", "b0"]
    assert ids(memos.records.list("b", offset=1, limit=1)) == ["b/c"]
    assert ids(memos.records.list("\U0010ffff")) == []


def test_several_are_put_got_and_deleted_in_one_step(memos: MemOS) -> None:
    memos.records.put("b", "the first b")
    made = memos.records.put_many([{"id": "a", "memory": "an a", "tags": ["x"]}, {"id": "b", "memory": "a new b"}])
    assert [(item.record_id, item.version) for item in made] == [("a", 1), ("b", 2)]
    assert ids(memos.records.get_many(["b", "missing", "a", "b"])) == ["b", "a"]
    with pytest.raises(Conflict, match="'a' is at version 1"):
        memos.records.put_many([{"id": "c", "memory": "c"}, {"id": "a", "memory": "x", "expected_version": 7}])
    with pytest.raises(NotFound, match="c"):
        memos.records.get("c")
    assert len(memos.records.delete_many(["a", "missing", "b"])) == 2
    assert memos.records.list() == []
    assert memos.records.put_many([]) == ()
    assert memos.records.delete_many([]) == ()


def test_a_deleted_id_can_be_put_again_and_an_erased_one_begins_anew(memos: MemOS) -> None:
    first = memos.records.put("k", "The kettle is red.")
    assert memos.records.delete("k") == first.id
    for call in (memos.records.get, memos.records.delete):
        with pytest.raises(NotFound, match="record"):
            call("k")
    assert ids(memos.records.list(filter={"status": "deleted"})) == ["k"]
    assert len(memos.records.history("k")) == 2
    assert memos.records.search("kettle").hits == ()
    with pytest.raises(Conflict, match="does not exist"):
        memos.records.put("k", "x", expected_version=2)
    again = memos.records.put("k", "The kettle is red.", expected_version=0)
    assert (again.id, again.version) == (first.id, 3)
    assert ids(memos.records.search("kettle")) == ["k"]
    memos.records.delete("k")
    assert memos.memories.rollback(first.id).record_id == "k"
    assert memos.erase(first.id).state == "purged"
    with memos.ledger.read() as connection:
        assert connection.scalar(sa.select(sa.func.count()).select_from(t.messages)) == 0
    new = memos.records.put("k", "The kettle is black.")
    assert (new.version, new.id == first.id) == (1, False)


def test_two_at_once_make_one_record(memos: MemOS) -> None:
    done: list[Any] = []

    def put(number: int) -> None:
        try:
            done.append(memos.records.put("one", f"said by {number}", expected_version=0 if number % 2 else None))
        except Conflict as error:
            done.append(error)

    threads = [threading.Thread(target=put, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 8
    made = {item.id for item in done if not isinstance(item, Conflict)}
    [record] = memos.records.list()
    assert made == {record.id}
    assert record.version == len(memos.records.history("one")) == 8 - sum(isinstance(each, Conflict) for each in done)


def test_searches_find_them_by_prefix_and_filter(memos: MemOS) -> None:
    told = [
        {"id": f"users/{user}/notes/{n}", "memory": f"The garden needs water on day {n}.", "info": {"n": {"day": n}}}
        for user in ("ana", "ben")
        for n in range(3)
    ]
    memos.records.put_many(told)
    memos.add("The garden needs water.")
    assert set(ids(memos.records.search("garden water", "users/ana/"))) == {f"users/ana/notes/{n}" for n in range(3)}
    assert ids(memos.records.search("garden water", "users/b", filter={"n.day": {"gte": 2}})) == ["users/ben/notes/2"]
    assert len(memos.records.search("garden water")) == 6
    assert len(memos.records.search("garden water", top_k=2)) == 2
    assert len(memos.search("garden water")) == 7
    assert ids(memos.search("garden water", filter={"type": {"ne": "record"}})) == [None]
    assert ids(memos.records.list("users/", filter={"n.day": 1})) == ["users/ana/notes/1", "users/ben/notes/1"]


def test_one_that_is_not_indexed_is_got_and_listed_and_in_no_search(memos: MemOS) -> None:
    hidden = memos.records.put("h", "The hidden heron.", index=False)
    seen = memos.records.put("s", "The seen heron.")
    assert ids(memos.records.search("heron")) == ids(memos.search("heron")) == ["s"]
    assert memos.search.explain_missing(hidden.id, "heron").stage == "index"
    assert ids(memos.records.list()) == ["h", "s"]
    assert memos.records.put("h", "The hidden heron.").version == 1
    assert set(ids(memos.records.search("heron"))) == {"h", "s"}
    memos.records.put("s", "The seen heron.", index=False)
    assert ids(memos.search("heron")) == ["h"]
    assert ids(memos.search("heron", as_of=seen.updated_at)) == ["h"]


def test_records_do_not_replace_one_another_and_are_no_part_of_a_talk(memos: MemOS) -> None:
    home = memos.records.put("home", "I live in Paris.")
    memos.add("I live in Lyon.", conversation="c")
    work = memos.records.put("work", "I live in Rome now.")
    assert memos.memories.relations(home.id) == memos.memories.relations(work.id) == ()
    corrected = memos.feedback("No, I live in Oslo.")
    assert {home.id, work.id}.isdisjoint({*corrected.superseded, *corrected.edited})
    assert (memos.records.get("home").status, memos.records.get("work").status) == ("active", "active")
    assert {memos.records.get(name).key for name in ("home", "work")} == {None}
    with pytest.raises(InvalidInput, match="type"):
        memos.update(work.id, type="message")


def test_prefixes_are_told_with_their_number_of_records(memos: MemOS) -> None:
    names = ["x", "a/1", "a/2", "a/b/1", "a/b/c/1", "b/1", "/", "b//2"]
    memos.records.put_many([{"id": name, "memory": f"value of {name}"} for name in names])
    memos.records.put("gone/1", "deleted")
    memos.records.delete("gone/1")

    def told(*given: Any, **named: Any) -> dict[str, int]:
        return {each.prefix: each.records for each in memos.records.prefixes(*given, **named)}

    assert told() == {"/": 1, "a/": 2, "a/b/": 1, "a/b/c/": 1, "b/": 1, "b//": 1}
    assert told(depth=1) == {"/": 1, "a/": 4, "b/": 2}
    assert told("a/", depth=1) == {"a/": 2, "a/b/": 2}
    assert told("a/b") == {"a/b/": 1, "a/b/c/": 1}
    assert told("x") == {}
    assert memos.records.prefixes(limit=1, after="a/") == [RecordPrefix("a/b/", 1)]


def test_a_record_lives_as_long_as_it_is_told(memos: MemOS, clock: HeldClock) -> None:
    def left_s(item: Item) -> float:
        assert item.expires_at is not None
        return round((item.expires_at - clock.at).total_seconds(), 3)

    made = memos.records.put("session/1", "The basket has pears.", ttl_s=60)
    assert left_s(made) == 60
    clock.advance(timedelta(seconds=59))
    assert left_s(memos.records.get("session/1")) == 1
    # Put again, or read with a refresh, it lives as long again.
    assert left_s(memos.records.get("session/1", refresh_ttl=True)) == 60
    clock.advance(timedelta(seconds=50))
    [hit] = memos.records.search("pears", refresh_ttl=True)
    assert left_s(hit.item) == left_s(memos.records.get("session/1")) == 60
    again = memos.records.put("session/1", "The basket has pears.", ttl_s=100)
    assert (again.version, left_s(again)) == (1, 100)
    clock.advance(timedelta(seconds=1))
    assert list(map(left_s, memos.records.list())) == [99]
    assert list(map(left_s, memos.records.list(refresh_ttl=True))) == [100]
    clock.advance(timedelta(seconds=101))
    for call in (memos.records.get, memos.records.delete, memos.records.history):
        with pytest.raises(NotFound):
            call("session/1")
    assert (memos.records.list(), memos.records.prefixes(), memos.records.get_many(["session/1"])) == ([], [], ())
    assert memos.records.search("pears").hits == memos.search("pears").hits == ()
    # Its id is free: what is put now is another memory.
    new = memos.records.put("session/1", "The basket has plums.", expected_version=0)
    assert (new.version, new.id == made.id, new.expires_at) == (1, False, None)
    assert memos.records.put("session/1", "The basket has plums.", ttl_s=5).version == 1
    assert memos.records.put("session/1", "The basket has plums.").expires_at is None


def test_who_may_only_read_puts_deletes_and_refreshes_nothing(memos: MemOS) -> None:
    memos.users.create("ana")
    memos.users.create("ben")
    memos.records.put("k", "Ana's note", cube="ana", actor="ana", ttl_s=60)
    with pytest.raises(NotFound):
        memos.records.get("k", cube="ana", actor="ben")
    memos.sharing.grant("ana", "ben", "reader", actor="ana")
    assert memos.records.get("k", cube="ana", actor="ben").memory == "Ana's note"
    for call in (
        lambda: memos.records.put("k", "x", cube="ana", actor="ben"),
        lambda: memos.records.delete("k", cube="ana", actor="ben"),
        lambda: memos.records.get("k", cube="ana", actor="ben", refresh_ttl=True),
        lambda: memos.records.list(cube="ana", actor="ben", refresh_ttl=True),
        lambda: memos.records.search("note", cube="ana", actor="ben", refresh_ttl=True),
    ):
        with pytest.raises(PermissionDenied):
            call()


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"id": ""}, "id: is empty"),
    ({"id": "x" * 513}, "id: has 513 characters, more than the limit of 512"),
    ({"id": "a\0"}, "id: contains a NUL"),
    ({"id": "\ud800"}, "id: contains a lone surrogate"),
    ({"id": 5}, "id: must be text"),
    ({"id": "keys/sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH"}, "id: contains a secret"),
    ({"memory": " "}, "memory: must not be empty"),
    ({"memory": None}, "memory: must be text"),
    ({"info": {"a": {1, 2}}}, "info.a: must be JSON"),
    ({"info": {"a": [{"b": 2**60}]}}, "info.a: must be JSON"),
    ({"info": {"a": {1: 2}}}, "info.a: must be text"),
    ({"info": {"a": "x" * 70_000}}, "info.a: has 70,000 bytes"),
    ({"ttl_s": 0}, "ttl_s: must be a number of seconds above 0"),
    ({"ttl_s": True}, "ttl_s: must be"),
    ({"ttl_s": float("nan")}, "ttl_s: must be"),
    ({"ttl_s": 1e10}, "ttl_s: must be"),
    ({"index": 1}, "index: must be true or false"),
    ({"trust": "maybe"}, "trust: 'maybe' is unknown"),
    ({"expected_version": -1}, "expected_version: must be a whole number"),
]


def test_what_is_wrong_is_refused_naming_it(memos: MemOS) -> None:
    for changed, words in REFUSED:
        given = {"id": "k", "memory": "text", **changed}
        with pytest.raises(InvalidInput) as caught:
            memos.records.put(**given)
        assert str(caught.value).startswith(words), changed
        with pytest.raises(InvalidInput) as caught:
            memos.records.put_many([{"id": "first", "memory": "fine"}, given])
        assert str(caught.value).startswith(f"records[1].{words}"), changed
    deep: Any = 1
    for _ in range(33):
        deep = [deep]
    with pytest.raises(InvalidInput, match="nested deeper than 32 levels"):
        memos.records.put("k", "text", info={"deep": deep})
    twice = [{"id": "k", "memory": "a"}, {"id": "k", "memory": "b"}]
    for many, words in (
        (twice, r"records\[1\].id: 'k' is also that of records\[0\]"),
        ([{"id": "k", "memory": "a", "metadata": {}}], r"records\[0\]: has unknown fields \['metadata'\]"),
        ([5], r"records\[0\]: must be an object"),
        ({"id": "k"}, "records: must be a list"),
        ([{"id": str(n), "memory": "a"} for n in range(MOST_RECORDS + 1)], "more than the limit of 1,000"),
    ):
        with pytest.raises(InvalidInput, match=words):
            memos.records.put_many(many)  # type: ignore[arg-type]
    for call in (memos.records.get_many, memos.records.delete_many):
        with pytest.raises(InvalidInput, match="ids: must be a list"):
            call("k")
        with pytest.raises(InvalidInput, match="more than the limit of 1,000"):
            call([str(n) for n in range(1_001)])
    for wrong in ({"prefix": 5}, {"limit": 0}, {"after": ""}, {"filter": {"teir": 1}}, {"prefix": "x" * 513}):
        with pytest.raises(InvalidInput):
            memos.records.list(**wrong)
    with pytest.raises(InvalidInput, match="filter"):
        memos.records.search("x", filter=["type"])  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="depth"):
        memos.records.prefixes(depth=0)
    assert memos.records.list() == []


def test_secrets_are_masked_and_what_is_not_trusted_is_fenced(memos: MemOS) -> None:
    key = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH"
    made = memos.records.put("k", f"The key is {key}.", info={"deep": {"key": key}}, trust="untrusted")
    assert key not in repr(made)
    assert made.sources[0].trust is Trust.UNTRUSTED
    assert "<untrusted" in memos.search("what is the key", token_budget=200).context
    assert memos.records.put("k", made.memory, info=made.info).sources[0].trust is Trust.TRUSTED
