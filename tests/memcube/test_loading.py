"""Dumps loaded into ledgers of both kinds: equal in every row, merged, remapped, erased, refused when hostile."""

from __future__ import annotations

import base64
import io
import json
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from memos.core.types import Fingerprint
from memos.errors import Conflict, InvalidInput, MemosError
from memos.memcube import installation as holders
from memos.memcube.backup.files import ProgressReporter
from memos.memcube.backup.rows import Bounds
from memos.memcube.dump import container as dump_zip
from memos.memcube.dump import parts as dump_parts
from memos.memcube.dump.container import STAYING, TABLES, DumpReader
from memos.memcube.dump.ids import Ids
from memos.memcube.ledger import items as rows
from memos.memcube.ledger.engine import Ledger
from tests.fakes import HeldClock
from tests.support.dumps import TakenApart, dumped, loaded, signed, zipped
from tests.support.ledgers import ODD, Store, chains, contents, fill, sqlite_ledger, waiting

# What belongs to an installation and not to a cube, or is about other cubes.
ELSEWHERE = (
    "alembic_version", "meta", "requests", "request_items", "tombstones", "tombstone_items", "tasks", "queues",
    "backups", "tombstone_backups", "usage", "identities", "memberships", "grants", "api_keys", "leases", "cubes",
    "access_log",
)  # fmt: skip


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    with sqlite_ledger(tmp_path_factory.mktemp("filled")) as ledger:
        fill(Store(ledger))
        yield ledger


@pytest.fixture(scope="module")
def raw(filled: Ledger) -> bytes:
    return dumped(filled, "default").getvalue()


@pytest.fixture(params=["sqlite", "postgresql"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    with ExitStack() as stack:
        if request.param == "sqlite":
            yield stack.enter_context(sqlite_ledger(tmp_path / "target"))
            return
        ledger = Ledger.open(request.getfixturevalue("postgres_server").url())
        stack.callback(ledger.close)
        yield ledger


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Ledger]:
    with sqlite_ledger(tmp_path / "small") as ledger:
        yield ledger


def of_cube(ledger: Ledger, cube: str) -> dict[str, list[Any]]:
    """The rows of one cube, without what belongs to the installation: revisions, and the load's own events."""
    found = {}
    for table, lines in contents(ledger, *ELSEWHERE).items():
        rows = [json.loads(line) for line in lines]
        if table == "items":
            rows = [row[:9] + row[10:] for row in rows]
        if table == "events":
            rows = [row for row in rows if row[4] != "load"]
        found[table] = rows
    return found


def test_a_dump_loaded_elsewhere_is_equal_in_every_row(filled: Ledger, target: Ledger) -> None:
    with ExitStack() as stack:
        stack.enter_context(filled.read())
        for cube in ("default", "work"):
            done = loaded(target, dumped(filled, cube), cube, trust=True)
            assert done.skipped == 0
    ours, theirs = of_cube(filled, "default"), of_cube(target, "default")
    for table, lines in ours.items():
        assert lines == theirs[table], table
    assert ours["versions"]
    assert chains(target) == []
    items = {row[0] for row in ours["items"]}
    assert {item for _, item in waiting(target)} == items


def test_a_dump_of_postgresql_is_the_same_as_one_of_sqlite(filled: Ledger, target: Ledger) -> None:
    loaded(target, dumped(filled, "default"), trust=True)
    ours, theirs = TakenApart(dumped(filled, "default").getvalue()), TakenApart(dumped(target, "default").getvalue())
    for name in ours.parts.keys() - {"events.jsonl"}:
        assert ours.parts[name] == theirs.parts[name], name


def test_a_copy_beside_the_first_gets_ids_of_its_own_and_the_order_stays(filled: Ledger, target: Ledger) -> None:
    file = dumped(filled, "default")
    loaded(target, file, trust=True)
    before = contents(target)
    done = loaded(target, file, "copy", trust=True)
    after = contents(target)
    for table in ("items", "versions", "messages", "events", "conversations"):
        assert set(before[table]) <= set(after[table]), "nothing of the first cube changed"
    assert len(after["items"]) == 2 * len(before["items"]) == 2 * done.items
    assert chains(target) == []
    store = Store(target)
    with target.read() as connection:
        first, second = (rows.matching(connection, [cube], None, limit=1000) for cube in ("default", "copy"))
    assert [item.memory for item in first] == [item.memory for item in second]
    assert not {item.id for item in first} & {item.id for item in second}
    superseded = [item for item in second if item.superseded_by is not None]
    assert {item.superseded_by for item in superseded} <= {item.id for item in second}
    store.erase(second[0].id, "copy")
    assert contents(target, "tombstones")["items"] != after["items"]


def test_a_repeated_merge_changes_nothing_and_counts_all_as_known(filled: Ledger, target: Ledger) -> None:
    file = dumped(filled, "default")
    first = loaded(target, file, trust=True)
    before = contents(target, "events", "cubes", "tasks", "queues")
    again = loaded(target, file, merge=True)
    assert (again.items, again.versions, again.skipped, again.differing) == (0, 0, first.items, ())
    assert contents(target, "events", "cubes", "tasks", "queues") == before
    copied = loaded(target, file, "copy")
    assert loaded(target, file, "copy", merge=True).skipped == copied.items == first.items


def test_a_merge_adds_what_is_new_behind_what_is_here_and_leaves_what_differs(tmp_path: Path, target: Ledger) -> None:
    with sqlite_ledger(tmp_path / "there") as there:
        store = Store(there)
        store.make("default")
        store.add(
            [{"role": "user", "content": f"number {n}", "message_id": f"m{n}"} for n in range(3)], conversation="t"
        )
        changed = store.add("stays").item_ids[0]
        loaded(target, dumped(there, "default"), trust=True)
        here = Store(target)
        mine = here.add([{"role": "user", "content": "mine", "message_id": "m9"}], conversation="t").item_ids[0]
        here.update(changed, "changed here")
        twin = here.add([{"role": "user", "content": "twin", "message_id": "m4"}], conversation="t").item_ids[0]
        store.add(
            [
                {"role": "user", "content": "number 3", "message_id": "m3"},
                {"role": "user", "content": "twin", "message_id": "m4"},
                {"role": "assistant", "content": "number 5"},
            ],
            conversation="t",
        )
        store.add([{"role": "user", "content": "elsewhere"}], conversation="other")
        store.update(changed, "changed there")
        alone = store.add("alone").item_ids[0]
        done = loaded(target, dumped(there, "default"), merge=True)
    assert done.items == 4
    assert done.differing == (changed,)
    assert done.skipped == 4  # three, and the twin by its message's id
    with target.read() as connection:
        found = rows.matching(connection, ["default"], None, limit=1000)
    talk = sorted((item for item in found if item.conversation == "t"), key=lambda item: item.position or 0)
    assert [item.memory for item in talk] == [
        "number 0",
        "number 1",
        "number 2",
        "mine",
        "twin",
        "number 3",
        "number 5",
    ]
    assert [item.position for item in talk] == list(range(7))
    assert [item.id for item in talk][3:5] == [mine, twin]
    assert {item.memory for item in found if item.id in (changed, alone)} == {"changed here", "alone"}
    after = Store(target).add([{"role": "user", "content": "goes on"}], conversation="t").item_ids[0]
    with target.read() as connection:
        assert rows.require(connection, ["default"], after).position == 7
    assert chains(target) == []


def test_a_merge_keeps_the_record_that_is_here_under_the_same_id(tmp_path: Path, target: Ledger) -> None:
    clock = HeldClock(datetime(2026, 3, 1, tzinfo=UTC))
    with sqlite_ledger(tmp_path / "there") as there:
        store = Store(there, clock)
        store.make("default")
        for name in ("both", "gone", "new"):
            store.put(name, f"{name} there")
        here = Store(target, clock)
        here.make("default")
        both, gone = here.put("both", "both here"), here.put("gone", "gone here", ttl_s=60)
        clock.advance(timedelta(minutes=2))
        file = dumped(there, "default", clock)
        done = loaded(target, file, merge=True, clock=clock)
        assert (done.items, done.differing) == (2, (both,))
        again = loaded(target, file, merge=True, clock=clock)
        assert (again.items, again.skipped, again.differing) == (0, 2, (both,))
    with target.read() as connection:
        found = {
            item.id: (item.record_id, item.memory) for item in rows.matching(connection, ["default"], None, limit=9)
        }
    assert found.pop(gone) == (None, "gone here")
    assert sorted(map(str, found.values())) == [
        "('both', 'both here')", "('gone', 'gone there')", "('new', 'new there')"
    ]  # fmt: skip


def test_a_dump_without_records_has_no_column_that_older_programs_do_not_know(tmp_path: Path) -> None:
    with sqlite_ledger(tmp_path / "plain") as plain:
        store = Store(plain)
        store.make("default")
        store.add("plain text")
        [row] = TakenApart(dumped(plain, "default").getvalue()).rows("items")
        assert row.keys().isdisjoint({"record_id", "ttl_s", "expires_at", "searchable"})
        store.put("k", "a record", ttl_s=60, searchable=False)
        told = TakenApart(dumped(plain, "default").getvalue()).rows("items")[1]
        assert {"record_id", "ttl_s", "expires_at", "searchable"} < told.keys()


def test_another_embedder_takes_no_vectors_of_segments_and_another_fingerprint(raw: bytes, small: Ledger) -> None:
    loaded(small, io.BytesIO(raw), fingerprint=Fingerprint("other", 8, "none", normalised=True), trust=True)
    with small.read() as connection:
        assert connection.exec_driver_sql("SELECT embedder, dimension FROM cubes").one() == ("other", 8)
        assert connection.exec_driver_sql("SELECT count(*) FROM segments WHERE vector IS NOT NULL").scalar() == 0


def test_without_trust_messages_are_untrusted_and_rules_and_templates_stay_out(raw: bytes, small: Ledger) -> None:
    loaded(small, io.BytesIO(raw))
    loaded(small, io.BytesIO(raw), "trusted", trust=True)
    with small.read() as connection:
        of = lambda table, cube: connection.exec_driver_sql(  # noqa: E731
            f"SELECT count(*) FROM {table} WHERE cube_id = '{cube}'"
        ).scalar()
        trusts = set(connection.exec_driver_sql("SELECT cube_id, trust FROM messages").all())
        assert trusts == {("default", "untrusted"), ("trusted", "trusted")}
        assert (of("retention_rules", "default"), of("retention_rules", "trusted")) == (0, 1)


def test_what_was_erased_is_not_in_a_dump_and_does_not_come_back_with_an_older_one(target: Ledger) -> None:
    store = Store(target)
    store.make("default")
    kept = store.add("the otter stays").item_ids[0]
    gone = store.add("the walrus goes", conversation="walrus talk").item_ids[0]
    older = dumped(target, "default")
    store.erase(gone)
    newer = dumped(target, "default")
    with zipfile.ZipFile(newer) as archive:
        text = b"".join(archive.read(name) for name in archive.namelist())
    assert b"walrus" not in text
    assert b"otter" in text
    done = loaded(target, older, "copy")
    assert (done.items, done.erased) == (1, 1)
    assert store.memories() == {"the otter stays"}
    again = loaded(target, older, merge=True)
    assert (again.items, again.erased, again.skipped) == (0, 1, 1)
    assert store.memories() == {"the otter stays"}
    wanted = loaded(target, older, "all of it", restore_erased=True)
    assert (wanted.items, wanted.erased) == (2, 0)
    assert kept in {row[0] for row in map(json.loads, contents(target)["items"])}


def test_a_dropped_cube_comes_back_only_when_asked_for(target: Ledger) -> None:
    store = Store(target)
    store.make("default")
    store.make("work")
    store.add("one", cube="work")
    file = dumped(target, "work")
    store.drop("work")
    with pytest.raises(Conflict, match="restore_erased"):
        loaded(target, file, "work")
    assert loaded(target, file, "work", restore_erased=True).items == 1
    assert store.memories() == {"one"}


def test_who_may_not_see_all_cubes_learns_nothing_from_ids(filled: Ledger, small: Ledger) -> None:
    """Ids of others are neither kept nor refused: all ids become others, whether they were taken or not."""
    file = dumped(filled, "default")
    loaded(small, file)
    done = loaded(small, file, "mine", actor="eve", keeps_ids=False, sees=frozenset({"mine"}))
    assert done.skipped == 0
    taken = {json.loads(line)[0] for line in contents(small)["items"]}
    assert len(taken) == 2 * done.items
    with sqlite_ledger(Path(str(small.description)).parent / "empty") as empty:
        same = loaded(empty, file, "mine", actor="eve", keeps_ids=False, sees=frozenset({"mine"}))
        assert same == done
        theirs = {json.loads(line)[0] for line in contents(empty)["items"]}
    assert not theirs & {json.loads(line)[0] for line in contents(filled)["items"]}


def test_what_somebody_else_erased_is_loaded_without_a_word(target: Ledger) -> None:
    store = Store(target)
    store.make("hers")
    gone = store.add("secret of hers", cube="hers").item_ids[0]
    store.add("another", cube="hers")
    file = dumped(target, "hers")
    store.erase(gone, "hers")
    done = loaded(target, file, "mine", actor="eve", keeps_ids=False, sees=frozenset({"mine"}))
    assert (done.items, done.erased) == (2, 0)


# Hostile files

ITEM = "01a20000-0000-7000-8000-000000000000"
Spoil = Callable[[TakenApart], object]


def _row(table: str, name: str, value: Any, place: int = 0) -> Spoil:
    return lambda parts: parts.edit(table, lambda row: row.__setitem__(name, value), place)


def _drop_row(table: str, place: int = -1) -> Spoil:
    return lambda parts: parts.put(
        table, [row for n, row in enumerate(parts.rows(table)) if n != place % len(parts.rows(table))]
    )


def _twice(table: str) -> Spoil:
    return lambda parts: parts.put(table, [*parts.rows(table), parts.rows(table)[0]])


def _raw(name: str, value: bytes) -> Spoil:
    return lambda parts: parts.parts.__setitem__(name, value)


def _head(name: str, value: Any) -> Spoil:
    return lambda parts: parts.manifest["cube"].__setitem__(name, value)


def _manifest(name: str, value: Any) -> Spoil:
    return lambda parts: parts.manifest.__setitem__(name, value)


FUTURE = 253_402_300_799_999_999
HOSTILE: dict[str, Spoil] = {
    "a path that climbs": _raw("../../etc/passwd", b"x"),
    "an absolute path": _raw("/etc/passwd", b"x"),
    "an unknown part": _raw("notes.txt", b"x"),
    "a file nobody names": _raw(f"files/{ITEM}", b"x"),
    "a newer format": _manifest("version", 2),
    "another format": _manifest("format", "backup"),
    "no version": _manifest("version", None),
    "an impossible fingerprint": _manifest("embedder", {"name": "x"}),
    "parts that are no object": _manifest("created_at", "yesterday"),
    "a missing table": lambda parts: parts.parts.pop("links.jsonl"),
    "a missing list of files": lambda parts: parts.parts.pop("contents.jsonl"),
    "no id of the cube": _head("id", " "),
    "a long id of the cube": _head("id", "x" * 129),
    "a NUL in the cube's id": _head("id", "a\0b"),
    "no such zone": _head("time_zone", "Mars/Olympus"),
    "a cube of the future": _head("created_at", FUTURE),
    "an unknown kind": _head("kind", "weapon"),
    "a template that is none": _head("template", "{"),
    "a chain that ends elsewhere": _head("event_chain", "00" * 32),
    "fewer events than told": _drop_row("events"),
    "an event left out": _drop_row("events", 1),
    "an event's body changed": _row("events", "body", '{"items": []}'),
    "an event's digest changed": _row("events", "digest", base64.b64encode(bytes(32)).decode()),
    "an event's body that is no object": _row("events", "body", "[1]"),
    "an item twice": _twice("items"),
    "a version twice": _twice("versions"),
    "a message twice": _twice("messages"),
    "an item without a version": _drop_row("versions"),
    "the id of a record on a message": _row("items", "record_id", "users/ana"),
    "an empty id of a record": _row("items", "record_id", " ", -1),
    "a long id of a record": _row("items", "record_id", "x" * 513, -1),
    "a time to live before now": _row("items", "ttl_s", -1.0, -1),
    "a version of nothing": _row("versions", "item_id", ITEM),
    "an item at another version": _row("items", "version", 7),
    "a version replaced by nothing here": _row("versions", "superseded_by", ITEM),
    "a source of a message elsewhere": _row("sources", "message_id", ITEM),
    "a source of an item elsewhere": _row("sources", "item_id", ITEM),
    "a link to an item elsewhere": _row("links", "to_id", ITEM),
    "an item without a source": _drop_row("sources"),
    "a conversation elsewhere": _row("messages", "conversation_id", ITEM),
    "an id that is none": _row("items", "id", "x' OR 1=1"),
    "an id in capitals": lambda parts: parts.edit("items", lambda row: row.__setitem__("id", row["id"].upper())),
    "an unknown field": _row("items", "cube_id", "default"),
    "a revision": _row("items", "revision", 3),
    "a lone surrogate": _row("versions", "memory", "\ud800"),
    "a NUL": _row("messages", "text", "a\0b"),
    "a NUL in info": _row("versions", "info", {"a": "\0"}),
    "text that is too long": _row("messages", "text", "x" * 1_048_577),
    "a name that is too long": _row("messages", "name", "x" * 257),
    "an unknown role": _row("messages", "role", "god"),
    "a number for a text": _row("messages", "text", 7),
    "a text for a number": _row("items", "version", "1"),
    "a truth for a number": _row("items", "version", True),
    "nothing where something must be": _row("versions", "memory", None),
    "a confidence of two": _row("versions", "confidence", 2),
    "content that is no list": _row("messages", "content", {"a": 1}),
    "content of texts": _row("messages", "content", ["a"]),
    "calls that are none": _row("messages", "tool_calls", [{"id": 1}]),
    "tags that are no texts": _row("versions", "tags", [1]),
    "info that is a list": _row("versions", "info", []),
    "a version of the future": _row("versions", "recorded_at", FUTURE),
    "an item of the future": _row("items", "created_at", FUTURE),
    "an event of the future": _row("events", "at", FUTURE),
    "a time out of every calendar": _row("messages", "chat_time", 1 << 62),
    "a place behind the end": _row("conversations", "next_position", 0),
    "a page count from nowhere": _row("conversations", "first_short", 3),
    "a negative place": _row("items", "position", -1),
    "an infinite number": _raw("warmth.jsonl", b'{"item_id": "x", "level": 1e999}\n'),
    "no number": _raw("links.jsonl", b'{"a": NaN}\n'),
    "a number of 5,000 digits": _raw("links.jsonl", b'{"a": ' + b"9" * 5000 + b"}\n"),
    "a list in a list in a list": _raw("links.jsonl", b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n"),
    "deep but parsed": _row("versions", "info", {"a": json.loads("[" * 200 + "]" * 200)}),
    "a name twice in an object": _raw("links.jsonl", b'{"a": 1, "a": 2}\n'),
    "a line that is no object": _raw("links.jsonl", b"[]\n"),
    "no end of the last line": _raw("links.jsonl", b"{}"),
    "no UTF-8": _raw("links.jsonl", b'{"a": "\xff"}\n'),
    "an empty line": _raw("links.jsonl", b"\n"),
    "points without vectors": _raw("points.jsonl", b""),
    "a template of rules that cannot be": _row("retention_rules", "age_days", -1),
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    with sqlite_ledger(tmp_path_factory.mktemp("shared")) as ledger:
        yield ledger


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_in_one_sentence_and_leaves_nothing(name: str, raw: bytes, shared: Ledger) -> None:
    parts, small = TakenApart(raw), shared
    HOSTILE[name](parts)
    before = contents(small)
    with pytest.raises(InvalidInput) as told:
        loaded(small, io.BytesIO(parts.whole()), trust=True)
    assert contents(small) == before
    assert "I live in Paris" not in str(told.value)
    assert ODD[:20] not in str(told.value)
    assert len(str(told.value)) < 400


def damaged(raw: bytes) -> Iterator[tuple[str, bytes]]:
    parts = TakenApart(raw)
    whole = {**parts.parts, "manifest.json": signed(parts.manifest)}
    yield "empty", b""
    yield "no zip", b"PK" + b"x" * 1000
    yield "cut off", raw[:-1]
    yield "cut in the middle", raw[: len(raw) // 2]
    yield "something appended", raw + b"x"
    yield "something before", b"x" * 100 + raw
    yield "no manifest", zipped(parts.parts)
    yield (
        "a manifest that was edited",
        zipped({**whole, "manifest.json": whole["manifest.json"].replace(b"default", b"defaulT")}),
    )
    yield "a manifest that is too large", zipped({**whole, "manifest.json": b" " * (5 << 20)})
    changed = bytearray(parts.parts["messages.jsonl"])
    changed[len(changed) // 2] ^= 1
    yield "a part that was edited", zipped({**whole, "messages.jsonl": bytes(changed)})
    yield "a part that is longer than told", zipped({**whole, "messages.jsonl": parts.parts["messages.jsonl"] * 2})
    yield "a directory", zipped({**whole, "files/": b""})
    out = io.BytesIO()
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(out, "w") as archive:
        for name, part in [*whole.items(), ("links.jsonl", b"")]:
            archive.writestr(name, part)
    yield "a part twice", out.getvalue()
    yield "packed otherwise", zipped(whole, zipfile.ZIP_LZMA)
    line = {**whole, "links.jsonl": b'{"a": "' + b"x" * (40 << 20) + b'"}\n'}
    parts.parts = {name: part for name, part in line.items() if name != "manifest.json"}
    yield "a line that is too long", parts.whole()


def test_a_damaged_file_is_refused(raw: bytes, small: Ledger) -> None:
    for name, bad in damaged(raw):
        with pytest.raises(InvalidInput):
            loaded(small, io.BytesIO(bad), trust=True)
            pytest.fail(name)
    with small.read() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM cubes").scalar() == 0


def test_what_unpacks_to_too_much_is_refused_and_a_dump_never_does(
    raw: bytes, small: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dump_zip, "_UNSUSPECTED", 1 << 20)
    parts = TakenApart(raw)
    parts.parts["links.jsonl"] = b" " * (20 << 20)
    with pytest.raises(InvalidInput, match="it unpacks from"):
        loaded(small, io.BytesIO(parts.whole()))
    with pytest.raises(InvalidInput, match="more than the limit"):
        DumpReader(io.BytesIO(raw), 1000)


def test_sizes_that_are_told_smaller_than_they_are_are_noticed(raw: bytes, small: Ledger) -> None:
    """The directory says a part is short: what is beyond is neither read nor believed."""
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        size = archive.getinfo("messages.jsonl").file_size
    lying = raw.replace(size.to_bytes(4, "little"), (size - 10).to_bytes(4, "little"))
    assert lying != raw
    with pytest.raises(InvalidInput):
        loaded(small, io.BytesIO(lying))


def test_every_flipped_byte_is_noticed_or_changes_nothing(raw: bytes, small: Ledger) -> None:
    """A byte of a time in the zip's own headers may change nothing; what is read is then what was written."""
    good = TakenApart(raw)
    for at in range(0, len(raw), max(1, len(raw) // 400)):
        bad = raw[:at] + bytes([raw[at] ^ 0x10]) + raw[at + 1 :]
        try:
            reader = DumpReader(io.BytesIO(bad), 1 << 30)
            with Ids() as ids:
                dump_parts.check(reader, Bounds(FUTURE, 1 << 20, 64), ids, ProgressReporter(None, 0))
        except InvalidInput:
            continue
        assert {name: b"".join(reader.blocks(name)) for name in reader.manifest.parts} == good.parts


def test_reserved_parts_are_checked_and_left_out(raw: bytes, small: Ledger) -> None:
    parts = TakenApart(raw)
    parts.parts["adapters/style.safetensors"] = b"weights"
    parts.parts["kv/blocks.safetensors"] = b"keys and values"
    done = loaded(small, io.BytesIO(parts.whole()))
    assert done.left_out == ("adapters/style.safetensors", "kv/blocks.safetensors")
    parts.manifest["parts"]["adapters/style.safetensors"]["sha256"] = "0" * 64
    whole = zipped({**parts.parts, "manifest.json": signed(parts.manifest)})
    with pytest.raises(InvalidInput, match="adapters/style"):
        loaded(small, io.BytesIO(whole), "again")


def test_a_file_of_an_older_schema_gets_defaults_for_columns_it_lacks(raw: bytes, small: Ledger) -> None:
    parts = TakenApart(raw)
    rows = parts.rows("items")
    for row in rows:
        del row["outdated"], row["pinned"], row["reading"]
    parts.put("items", rows)
    assert loaded(small, io.BytesIO(parts.whole())).items == len(rows)


def test_a_cube_that_masks_personal_data_takes_none_that_was_not_masked(raw: bytes, small: Ledger) -> None:
    loaded(small, io.BytesIO(raw))
    with small.write() as connection:
        connection.exec_driver_sql("UPDATE cubes SET redact_pii = 1")
    with pytest.raises(Conflict, match="masks personal data"):
        loaded(small, io.BytesIO(raw), merge=True)
    masking = dumped(small, "default")
    assert loaded(small, masking, "other").cube == "other"
    with small.read() as connection:
        assert set(connection.exec_driver_sql("SELECT redact_pii FROM cubes").scalars()) == {1}


def test_every_table_travels_or_is_known_to_stay() -> None:
    apart = {"cubes", "file_parts", "entity_aliases"}  # in the manifest, and as parts of their own
    travelling = {table.name for table in TABLES}
    assert travelling | STAYING | apart == {holder.name for holder in holders.TABLES}
    assert not travelling & STAYING


def test_who_is_not_trusted_puts_no_words_into_the_mouth_of_a_message(tmp_path: Path, small: Ledger) -> None:
    here = Store(small)
    here.make("default")
    here.add([{"role": "user", "content": "I live in Paris.", "message_id": "m1"}], conversation="talk")
    with sqlite_ledger(tmp_path / "there") as there:
        store = Store(there)
        store.make("default")
        store.add([{"role": "user", "content": "I live in Paris.", "message_id": "m1"}], conversation="talk")
        said = store.add([{"role": "user", "content": "I hate Paris.", "message_id": "m2"}], conversation="talk")
        parts = TakenApart(dumped(there, "default").getvalue())
    first = parts.rows("messages")[0]["id"]

    def claim(source: dict[str, Any]) -> None:
        if source["item_id"] == said.item_ids[0]:
            source["message_id"] = first

    for place in range(2):
        parts.edit("sources", claim, place)
    file = io.BytesIO(parts.whole())
    done = loaded(small, file, merge=True)
    assert (done.items, done.skipped, done.unsourced) == (0, 1, 1)
    assert here.memories() == {"I live in Paris."}
    assert loaded(small, file, merge=True, trust=True).items == 1
    assert here.memories() == {"I live in Paris.", "I hate Paris."}


def test_the_id_of_a_cube_that_is_there_is_refused(raw: bytes, small: Ledger) -> None:
    loaded(small, io.BytesIO(raw))
    with pytest.raises(Conflict, match="exists already"):
        loaded(small, io.BytesIO(raw))
    with pytest.raises(MemosError):
        loaded(small, io.BytesIO(raw), "nowhere", merge=True)


def test_a_history_of_heat_travels(raw: bytes, small: Ledger) -> None:
    history = [[1_767_225_600, 0.0, 1.5], [1_767_312_000, 0.9, 2]]
    loaded(small, io.BytesIO(_with_history(raw, history)), trust=True)
    with small.read() as connection:
        assert connection.exec_driver_sql("SELECT history FROM warmth").scalars().all() == [json.dumps(history)]


@pytest.mark.parametrize(
    "history",
    [
        {"a": 1},
        [[1, 0]],
        [[-1, 0, 1]],
        [["1", 0, 1]],
        [[1, -1, 0]],
        [[1, 0, 1e306]],
        [[1, 0, True]],
        [[1, 0, 1]] * 31,
    ],
)
def test_a_strange_history_of_heat_is_refused(history: Any, raw: bytes, small: Ledger) -> None:
    with pytest.raises(InvalidInput, match="history"):
        loaded(small, io.BytesIO(_with_history(raw, history)), trust=True)


def _with_history(raw: bytes, history: Any) -> bytes:
    parts = TakenApart(raw)
    heat = {"level": 1.0, "visits": 1, "interactions": 0, "last": 1_767_312_000_000_000, "history": history}
    parts.put("warmth", [{"item_id": parts.rows("items")[0]["id"], **heat}])
    return parts.whole()
