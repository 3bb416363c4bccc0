"""Backups: of one moment, private, checked to the last byte before a restore, silent about what was erased since."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from memos.core.clock import SystemClock
from memos.errors import Conflict, IntegrityError, InvalidInput, MemosError, NotFound
from memos.memcube.backup import archive, backups, rows
from memos.memcube.backup.archive import MANIFEST, Manifest, Part
from memos.memcube.backup.files import signed, unsigned
from memos.memcube.backup.restore import restore_archive
from memos.memcube.installation import BACKUP_PATHS
from memos.memcube.ledger import schema as t
from memos.memcube.ledger.engine import HEAD, Ledger
from tests.fakes import FixedClock
from tests.support import forks
from tests.support.ledgers import BIG, ODD, Store, chains, contents, fill, sqlite_ledger, waiting

NOW = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture(params=["sqlite", "postgresql"])
def fresh(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[str], Ledger]]:
    """Yield what opens a new ledger, on every database that one may be kept in."""
    with ExitStack() as stack:
        if request.param == "sqlite":
            yield lambda name: stack.enter_context(sqlite_ledger(tmp_path / name))
            return
        server = request.getfixturevalue("postgres_server")

        def opened(_name: str) -> Ledger:
            ledger = Ledger.open(server.url())
            stack.callback(ledger.close)
            return ledger

        yield opened


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A ledger with a bit of everything in a folder, and the ids of its items."""
    home = tmp_path_factory.mktemp("filled")
    with sqlite_ledger(home) as ledger:
        ids = fill(Store(ledger, FixedClock()))
    return home, ids


@pytest.fixture
def store(filled: tuple[Path, dict[str, str]], tmp_path: Path) -> Iterator[Store]:
    shutil.copytree(filled[0], tmp_path / "home")
    with sqlite_ledger(tmp_path / "home") as ledger:
        yield Store(ledger, FixedClock(datetime(2026, 1, 1, tzinfo=UTC)))


@pytest.fixture(scope="module")
def saved(filled: tuple[Path, dict[str, str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backup, to be copied before it is damaged."""
    place = tmp_path_factory.mktemp("saved")
    shutil.copytree(filled[0], place / "home")
    with sqlite_ledger(place / "home") as ledger:
        backups.back_up(ledger, place / "backup", FixedClock())
    return place / "backup"


@pytest.fixture
def copy(saved: Path, tmp_path: Path) -> Path:
    return shutil.copytree(saved, tmp_path / "copy")


def restored(folder: Path, home: Path, **options: Any) -> dict[str, list[str]]:
    with sqlite_ledger(home) as ledger:
        restore_archive(folder, ledger, NOW, **options)
        assert chains(ledger) == []
        return contents(ledger)


# Round trips


def test_a_restored_ledger_is_equal_row_for_row(fresh: Callable[[str], Ledger], tmp_path: Path) -> None:
    source, target = fresh("source"), fresh("target")
    store = Store(source, FixedClock())
    ids = fill(store)
    before = contents(source)
    seen: list[tuple[int, int]] = []
    manifest = backups.back_up(source, tmp_path / "backup", store.clock, lambda *at: seen.append(at))
    done = restore_archive(tmp_path / "backup", target, NOW)
    after = contents(target)
    assert {name: found for name, found in after.items() if name != "backups"} == {
        name: found for name, found in before.items() if name != "backups"
    }
    assert seen[-1] == (manifest.rows, manifest.rows)
    assert {name: part.rows for name, part in manifest.tables.items()} == {k: len(v) for k, v in after.items()}
    assert (done.items, done.erased_again) == (7, 0)
    assert chains(target) == []
    assert {BIG, "changed twice", "I live in Lyon."} <= Store(target).memories()
    assert waiting(target) >= {(target_, ids[name]) for target_ in ("vector",) for name in ("odd", "big")}
    assert any(ODD in json.loads(line)[2] for line in after["cubes"])


def test_a_key_is_as_long_as_its_speaker_and_attribute(fresh: Callable[[str], Ledger]) -> None:
    store = Store(fresh("home"))
    store.make("default")
    speaker = "N" * 256
    store.add([{"role": "user", "name": speaker, "content": "I live in Paris."}])
    with store.ledger.read() as connection:
        [key] = connection.exec_driver_sql("SELECT key FROM versions").scalars()
    assert key.startswith((speaker.casefold(), speaker))
    assert len(key) > 256


def test_an_empty_ledger_makes_a_backup_too(tmp_path: Path) -> None:
    with sqlite_ledger(tmp_path / "home") as ledger:
        backups.back_up(ledger, tmp_path / "backup", SystemClock())
    assert restored(tmp_path / "backup", tmp_path / "new")["items"] == []


def test_the_files_are_their_owners_alone_and_registered(saved: Path) -> None:
    assert stat.S_IMODE(saved.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in saved.iterdir()} == {0o600}
    assert {path.name for path in saved.iterdir()} == {holder.name for holder in BACKUP_PATHS}


def test_a_folder_that_was_open_to_others_no_longer_is(store: Store, tmp_path: Path) -> None:
    (tmp_path / "backup").mkdir(mode=0o755)
    backups.back_up(store.ledger, tmp_path / "backup", store.clock)
    assert stat.S_IMODE((tmp_path / "backup").stat().st_mode) == 0o700


def test_the_counts_and_digests_are_those_of_the_files(saved: Path) -> None:
    for name, part in archive.read_manifest(saved).tables.items():
        raw = (saved / f"{name}.jsonl.gz").read_bytes()
        text = gzip.decompress(raw)
        assert (len(raw), hashlib.sha256(raw).hexdigest()) == (part.file_bytes, part.file_sha256)
        assert (len(text), hashlib.sha256(text).hexdigest()) == (part.bytes, part.sha256)
        assert text.count(b"\n") == part.rows


# What is refused


def cut_off(folder: Path) -> None:
    path = folder / "versions.jsonl.gz"
    path.write_bytes(path.read_bytes()[:-40])


def lose_manifest(folder: Path) -> None:
    (folder / MANIFEST).unlink()


def lose_table(folder: Path) -> None:
    (folder / "links.jsonl.gz").unlink()


def lose_erased(folder: Path) -> None:
    (folder / "erased.jsonl").unlink()


def other_erased(folder: Path) -> None:
    (folder / "erased.jsonl").write_bytes(signed({"backup": "another"}))


def cut_erased(folder: Path) -> None:
    with (folder / "erased.jsonl").open("ab") as file:
        file.write(b'{"receipt": "r", "items": ["')


def change_manifest(folder: Path) -> None:
    text = (folder / MANIFEST).read_text(encoding="utf-8")
    (folder / MANIFEST).write_text(text.replace('"rows": 2', '"rows": 3', 1), encoding="utf-8")


def told(folder: Path) -> dict[str, Any]:
    found = unsigned((folder / MANIFEST).read_bytes())
    assert found is not None
    return found


def newer(folder: Path) -> None:
    (folder / MANIFEST).write_bytes(signed(told(folder) | {"schema": "9999", "program": "9.9"}))


def foreign(folder: Path) -> None:
    (folder / MANIFEST).write_bytes(signed(told(folder) | {"format": "tar"}))


def traversal(folder: Path) -> None:
    manifest = told(folder)
    manifest["tables"]["../../etc/passwd"] = manifest["tables"]["items"]
    (folder / MANIFEST).write_bytes(signed(manifest))


def without_table(folder: Path) -> None:
    manifest = told(folder)
    del manifest["tables"]["events"]
    (folder / MANIFEST).write_bytes(signed(manifest))


def wrong_numbers(folder: Path) -> None:
    manifest = told(folder)
    manifest["tables"]["events"]["rows"] = "many"
    (folder / MANIFEST).write_bytes(signed(manifest))


def bomb(folder: Path) -> None:
    with gzip.open(folder / "links.jsonl.gz", "wb") as file:
        for _ in range(100):
            file.write(b" " * (1 << 20))


REFUSED: list[tuple[Callable[[Path], None], type[MemosError], str]] = [
    (lose_manifest, NotFound, "no manifest.json"),
    (change_manifest, IntegrityError, "manifest.json was changed"),
    (newer, IntegrityError, "newer hippocube .9.9, schema 9999"),
    (foreign, IntegrityError, "another program"),
    (traversal, IntegrityError, "unknown table"),
    (without_table, IntegrityError, "does not name the table events"),
    (wrong_numbers, IntegrityError, "missing or invalid fields"),
    (cut_off, IntegrityError, "versions.jsonl.gz cannot be unpacked"),
    (lose_table, IntegrityError, "links.jsonl.gz is missing"),
    (bomb, IntegrityError, "links.jsonl.gz is larger than"),
    (lose_erased, IntegrityError, "erased.jsonl is missing"),
    (other_erased, IntegrityError, "belongs to another backup"),
    (cut_erased, IntegrityError, "erased.jsonl, line 2 was changed or cut off"),
]


@pytest.mark.parametrize(("harm", "error", "message"), REFUSED, ids=[harm.__name__ for harm, _, _ in REFUSED])
def test_a_damaged_backup_is_refused_and_nothing_is_written(
    harm: Callable[[Path], None], error: type[MemosError], message: str, copy: Path, tmp_path: Path
) -> None:
    harm(copy)
    with sqlite_ledger(tmp_path / "new") as ledger:
        before = contents(ledger)
        with pytest.raises(error, match=message) as refused:
            restore_archive(copy, ledger, NOW)
        assert "\n" not in str(refused.value)
        assert contents(ledger) == before


def test_every_changed_byte_is_noticed(saved: Path, tmp_path: Path) -> None:
    with sqlite_ledger(tmp_path / "new") as ledger:
        for path in sorted(saved.iterdir()):
            size = path.stat().st_size
            for place in sorted({0, 3, 4, 8, 9, size // 3, size // 2, size - 5, size - 1}):
                copy = shutil.copytree(saved, tmp_path / "copy")
                with (copy / path.name).open("r+b") as file:
                    file.seek(place)
                    byte = file.read(1)[0]
                    file.seek(place)
                    file.write(bytes([byte ^ 0x01]))
                with pytest.raises((IntegrityError, NotFound)):
                    restore_archive(copy, ledger, NOW)
                shutil.rmtree(copy)


def forge(folder: Path, table: str, change: Callable[[list[list[Any]], list[str]], object]) -> None:
    """Change a table's rows and make the manifest agree."""
    path = folder / f"{table}.jsonl.gz"
    entries = [json.loads(line) for line in gzip.decompress(path.read_bytes()).split(b"\n")[:-1]]
    manifest = told(folder)
    columns = manifest["tables"][table]["columns"]
    change(entries, columns)
    text = b"".join(json.dumps(entry).encode() + b"\n" for entry in entries)
    raw = gzip.compress(text)
    path.write_bytes(raw)
    manifest["tables"][table] = {
        "columns": columns, "rows": len(entries), "bytes": len(text), "sha256": hashlib.sha256(text).hexdigest(),
        "file_bytes": len(raw), "file_sha256": hashlib.sha256(raw).hexdigest(),
    }  # fmt: skip
    (folder / MANIFEST).write_bytes(signed(manifest))


def set_to(column: str, value: Any) -> Callable[[list[list[Any]], list[str]], object]:
    def change(entries: list[list[Any]], columns: list[str]) -> None:
        entries[0][columns.index(column)] = value

    return change


FORGED = [
    ("versions", set_to("memory", 5), "memory is not text"),
    ("versions", set_to("memory", "\ud800"), "lone surrogate"),
    ("versions", set_to("memory", "a\0b"), "NUL"),
    ("versions", set_to("memory", None), "memory is empty"),
    ("versions", set_to("type", "spell"), "type is not one of the allowed values"),
    ("versions", set_to("tags", "abc"), "tags is not a list"),
    ("versions", set_to("tags", ["\ud800"]), "lone surrogate"),
    ("versions", set_to("info", []), "info is not an object"),
    ("versions", set_to("confidence", "high"), "confidence is not a number"),
    ("versions", set_to("recorded_at", 10**18), "recorded_at is a number out of range"),
    ("items", set_to("position", 2**40), "position is a number out of range"),
    ("items", set_to("position", True), "position is not a whole number"),
    ("items", set_to("created_at", 1.5), "created_at is not a whole number"),
    ("cubes", set_to("entity_salt", "%%%"), "entity_salt is not base64"),
    ("cubes", set_to("normalised", 1), "normalised is not true or false"),
    ("cubes", set_to("time_zone", "Mars/Olympus"), "time_zone is not a time zone"),
    ("cubes", lambda entries, _: entries[0].pop(), "is no row of 17 values"),
    ("cubes", lambda entries, _: entries.__setitem__(0, {"id": 1}), "is no row of 17 values"),
    ("items", set_to("cube_id", "nowhere"), "contradict each other"),
    ("items", lambda entries, _: entries.append(entries[0]), "contradict each other"),
    ("versions", set_to("confidence", 7), "contradict each other"),
    ("retention_rules", set_to("action", "shred"), "action is not one of the allowed values"),
    ("retention_rules", set_to("types", ["message", "spell"]), "types is not one of the allowed values"),
    ("retention_rules", set_to("types", "message"), "types is not a list"),
    ("retention_rules", set_to("statuses", [["active"]]), "statuses is not a list"),
    ("retention_rules", set_to("age_days", -1.0), "contradict each other"),
    ("retention_rules", set_to("cube_id", "nowhere"), "contradict each other"),
]


@pytest.mark.parametrize(("table", "change", "message"), FORGED)
def test_rows_that_no_ledger_could_hold_are_refused(
    table: str, change: Callable[[list[list[Any]], list[str]], object], message: str, copy: Path, tmp_path: Path
) -> None:
    forge(copy, table, change)
    with sqlite_ledger(tmp_path / "new") as ledger:
        before = contents(ledger)
        with pytest.raises(IntegrityError, match=message):
            restore_archive(copy, ledger, NOW)
        assert contents(ledger) == before


def test_a_backup_of_an_older_schema_gets_defaults(copy: Path, tmp_path: Path) -> None:
    def without(column: str) -> Callable[[list[list[Any]], list[str]], object]:
        def change(entries: list[list[Any]], columns: list[str]) -> None:
            place = columns.index(column)
            columns.remove(column)
            for entry in entries:
                del entry[place]

        return change

    for table, column in (("versions", "keywords"), ("items", "session"), ("conversations", "session")):
        forge(copy, table, without(column))
    manifest = told(copy)
    for table in ("backups", "tombstone_backups"):
        del manifest["tables"][table]
    (copy / MANIFEST).write_bytes(signed(manifest | {"schema": "0001"}))
    after = restored(copy, tmp_path / "new")
    columns = [column.name for column in t.conversations.columns]
    assert {json.loads(line)[columns.index("session")] for line in after["conversations"]} == {0}
    forge(copy, "versions", without("memory"))
    with pytest.raises(IntegrityError, match="versions lacks the column memory"):
        restored(copy, tmp_path / "newer")


def test_a_place_with_memories_is_refused_unless_they_are_to_be_replaced(
    saved: Path, store: Store, tmp_path: Path
) -> None:
    extra = store.add("only in the place that is restored to").item_ids[0]
    before = contents(store.ledger)
    with pytest.raises(Conflict, match="--replace"):
        restore_archive(saved, store.ledger, NOW)
    assert contents(store.ledger) == before
    restore_archive(saved, store.ledger, NOW, replace=True)
    assert "only in the place that is restored to" not in store.memories()
    # The indexes are told to forget it, and see revisions they have not seen yet.
    assert ("vector", extra) in waiting(store.ledger)
    with store.ledger.read() as connection:
        revisions = connection.exec_driver_sql("SELECT min(revision) FROM items").scalar_one()
    assert revisions > 3


@pytest.mark.parametrize("name", ["file", "full", "again"])
def test_a_folder_that_holds_something_is_refused(name: str, store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "backup"
    if name == "file":
        folder.write_text("I am a file")
    elif name == "full":
        folder.mkdir()
        (folder / "holiday.jpg").write_bytes(b"beach")
    else:
        backups.back_up(store.ledger, folder, store.clock)
    with pytest.raises((Conflict, InvalidInput), match=r"another|choose|its own folder"):
        backups.back_up(store.ledger, folder, store.clock)
    if name == "full":
        assert (folder / "holiday.jpg").read_bytes() == b"beach"
    assert [made.folder for made in backups.known(store.ledger)] == ([str(folder)] if name == "again" else [])


def test_a_backup_inside_the_installation_is_refused(store: Store, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="own folder"):
        backups.back_up(store.ledger, tmp_path / "home" / "backup", store.clock, apart_from=tmp_path / "home")


def test_a_backup_that_fails_leaves_no_text_behind(store: Store, tmp_path: Path) -> None:
    def fail(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    for _ in range(600):
        store.add("one more")
    with pytest.raises(KeyboardInterrupt):
        backups.back_up(store.ledger, tmp_path / "backup", store.clock, fail)
    assert list((tmp_path / "backup").iterdir()) == []
    assert backups.known(store.ledger) == []
    backups.back_up(store.ledger, tmp_path / "backup", store.clock)


# Erasures


def test_a_receipt_names_the_backups_that_hold_what_was_erased(fresh: Callable[[str], Ledger], tmp_path: Path) -> None:
    store = Store(fresh("home"), FixedClock())
    store.make("default")
    first = store.add("before both").item_ids[0]
    backups.back_up(store.ledger, tmp_path / "one", store.clock)
    second = store.add("between them").item_ids[0]
    backups.back_up(store.ledger, tmp_path / "two", store.clock)
    third = store.add("after both").item_ids[0]
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    found = {item: store.erase(item) for item in (first, second, third)}
    assert [found[item].backups for item in (first, second, third)] == [(one, two), (two,), ()]
    backups.tell(store.ledger)
    assert [store.receipt(found[item].id).untold_backups for item in (first, second, third)] == [(), (), ()]
    for name, left in (("one", {"before both"}), ("two", {"before both", "between them"})):
        again = Store(fresh(name + " again"))
        done = restore_archive(tmp_path / name, again.ledger, NOW)
        assert (done.items, done.erased_again) == (0, len(left))
        assert again.memories() == set()
        assert again.receipt(found[first].id).state == "purging"
        assert chains(again.ledger) == []
        for item in (first, second):
            assert not any(item in line for name in ("items", "versions") for line in contents(again.ledger)[name])


@pytest.mark.heavy
def test_an_erasure_while_a_backup_is_written_is_told_to_it(fresh: Callable[[str], Ledger], tmp_path: Path) -> None:
    store = Store(fresh("home"))
    store.make("default")
    ids = [store.add(f"memory {number}").item_ids[0] for number in range(700)]
    receipts = []

    def erase_one(done: int, total: int) -> None:
        if done < total and not receipts:
            receipts.append(store.erase(ids[0]))

    manifest = backups.back_up(store.ledger, tmp_path / "backup", store.clock, erase_one)
    assert receipts[0].backups == (str(tmp_path / "backup"),)
    assert manifest.tables["items"].rows == 700
    assert store.receipt(receipts[0].id).untold_backups == ()
    new = Store(fresh("new"))
    assert restore_archive(tmp_path / "backup", new.ledger, NOW).erased_again == 1
    assert "memory 0" not in new.memories()
    assert len(new.memories()) == 699


def test_what_is_derived_replaced_or_requested_goes_again_too(
    store: Store, filled: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    ids = filled[1]
    backups.back_up(store.ledger, tmp_path / "backup", store.clock)
    store.erase(ids["lyon"])
    store.erase(ids["odd"])
    backups.tell(store.ledger)
    after = restored(tmp_path / "backup", tmp_path / "new")
    text = "\n".join(
        line for name, lines in after.items() if name not in ("tombstone_items", "events") for line in lines
    )
    for needle in (ids["lyon"], ids["odd"], "Lyon", "changed once", "request-1"):
        assert needle not in text, needle
    assert "Paris" in text


def test_a_dropped_cube_does_not_come_back_and_one_made_anew_stays(store: Store, tmp_path: Path) -> None:
    backups.back_up(store.ledger, tmp_path / "before", store.clock)
    receipt = store.drop("work")
    assert receipt.backups == (str(tmp_path / "before"),)
    store.make("work", "another cube")
    backups.back_up(store.ledger, tmp_path / "after", store.clock)
    backups.tell(store.ledger)
    assert not any(line.startswith('["work"') for line in restored(tmp_path / "before", tmp_path / "b")["cubes"])
    assert any(line.startswith('["work"') for line in restored(tmp_path / "after", tmp_path / "a")["cubes"])


def test_a_backup_that_cannot_be_reached_is_named_and_told_later(
    store: Store, filled: tuple[Path, dict[str, str]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, away = tmp_path / "backup", tmp_path / "elsewhere"
    backups.back_up(store.ledger, folder, store.clock)
    folder.rename(away)
    receipt = store.erase(filled[1]["paris"])
    backups.tell(store.ledger)
    assert store.receipt(receipt.id).untold_backups == (str(folder),)
    assert str(folder) in caplog.text
    [known] = backups.known(store.ledger)
    assert known.untold == 1
    # The copy was not told, so it would bring the memory back, unless it replaces the ledger that knows.
    assert any("Paris" in line for line in restored(away, tmp_path / "unaware")["versions"])
    away.rename(folder)
    backups.tell(store.ledger)
    assert store.receipt(receipt.id).untold_backups == ()
    assert not any("Paris" in line for line in restored(folder, tmp_path / "aware")["versions"])


def test_the_ledger_that_is_replaced_remembers_what_was_erased(
    store: Store, filled: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    backups.back_up(store.ledger, tmp_path / "backup", store.clock)
    unaware = shutil.copytree(tmp_path / "backup", tmp_path / "copy")
    receipt = store.erase(filled[1]["paris"])
    later = store.add("made and erased after the backup").item_ids[0]
    last = store.erase(later)
    backups.back_up(store.ledger, tmp_path / "second", store.clock)
    done = restore_archive(unaware, store.ledger, NOW, replace=True)
    assert done.erased_again == 1
    assert "I live in Paris." not in store.memories()
    assert store.receipt(receipt.id).item_ids == (filled[1]["paris"],)
    assert store.receipt(last.id).item_ids == (later,)
    assert [made.folder for made in backups.known(store.ledger)] == [str(tmp_path / "backup"), str(tmp_path / "second")]
    assert all(made.finished_at for made in backups.known(store.ledger))


def test_a_line_that_a_crash_cut_off_is_written_anew(
    store: Store, filled: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    manifest = backups.back_up(store.ledger, tmp_path / "backup", store.clock)
    cut_erased(tmp_path / "backup")
    receipt = store.erase(filled[1]["paris"])
    backups.tell(store.ledger)
    [grave] = backups.read_erased(tmp_path / "backup", manifest)
    assert (grave.receipt, grave.items) == (receipt.id, (filled[1]["paris"],))


def test_a_backup_is_forgotten_only_when_its_folder_is_gone(
    store: Store, filled: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    folder = tmp_path / "backup"
    backups.back_up(store.ledger, folder, store.clock)
    with pytest.raises(Conflict, match="still exists"):
        backups.forget(store.ledger, folder)
    first = store.erase(filled[1]["paris"])
    shutil.rmtree(folder)
    backups.forget(store.ledger, folder)
    assert store.receipt(first.id).backups == ()
    assert store.erase(filled[1]["lyon"]).backups == ()
    with pytest.raises(NotFound):
        backups.forget(store.ledger, folder)


# Kills

CHILD = """
import sys
from pathlib import Path
from memos.core.clock import SystemClock
from memos.memcube.backup import backups
from memos.memcube.ledger.engine import Ledger, sqlite_url
from memos.memcube.backup.restore import restore_archive
what, home, folder = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
ledger = Ledger.open(sqlite_url(home / "ledger.db"))
tell = lambda done, total: print(done, total, flush=True)
if what == "backup":
    backups.back_up(ledger, folder, SystemClock(), tell)
else:
    restore_archive(folder, ledger, SystemClock().now(), on_progress=tell)
print("done", flush=True)
"""


def kill_after(lines: int, *arguments: object) -> bool:
    """Run the child and kill it after some lines; say whether it was cut off."""
    process = forks.Script(CHILD, *map(str, arguments))
    seen = [process.stdout.readline() for _ in range(lines)]
    process.send_signal(signal.SIGKILL)
    process.stdout.close()
    process.wait()
    return "done\n" not in seen and all(seen)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("large")
    with sqlite_ledger(home) as ledger:
        store = Store(ledger)
        fill(store)
        for part in range(10):
            store.add([f"number {part} {n}" for n in range(300)], conversation=f"c{part}")
    return home


@pytest.mark.heavy
@pytest.mark.parametrize("lines", [1, 5, 20])
def test_a_killed_backup_is_none_and_is_made_again_in_the_same_folder(lines: int, large: Path, tmp_path: Path) -> None:
    home, folder = shutil.copytree(large, tmp_path / "home"), tmp_path / "backup"
    assert kill_after(lines, "backup", home, folder)
    with sqlite_ledger(tmp_path / "new") as ledger, pytest.raises(NotFound, match="incomplete"):
        restore_archive(folder, ledger, NOW)
    with sqlite_ledger(home) as ledger:
        store = Store(ledger)
        [known] = backups.known(ledger)
        assert known.finished_at is None
        # Its files hold text, so an erasure names it.
        item = store.add("said after the kill").item_ids[0]
        assert store.erase(item).backups == (str(folder),)
        backups.back_up(ledger, folder, store.clock)
        before = contents(ledger, "backups", "tombstone_backups")
        [known] = backups.known(ledger)
        assert known.finished_at is not None
    with sqlite_ledger(tmp_path / "new") as ledger:
        restore_archive(folder, ledger, NOW)
        assert contents(ledger, "backups", "tombstone_backups") == before


@pytest.mark.heavy
@pytest.mark.parametrize("lines", [1, 8, 22])
def test_a_killed_restore_leaves_the_place_blank_and_is_run_again(lines: int, large: Path, tmp_path: Path) -> None:
    with sqlite_ledger(shutil.copytree(large, tmp_path / "home")) as ledger:
        backups.back_up(ledger, tmp_path / "backup", SystemClock())
        before = contents(ledger, "backups")
    (tmp_path / "new").mkdir()
    assert kill_after(lines, "restore", tmp_path / "new", tmp_path / "backup")
    with sqlite_ledger(tmp_path / "new") as ledger:
        with ledger.read() as connection:
            assert rows.is_blank(connection)
        restore_archive(tmp_path / "backup", ledger, NOW)
        assert contents(ledger, "backups") == before


def test_a_disk_that_is_full_leaves_no_half_of_a_backup(large: Path, tmp_path: Path) -> None:
    home, folder = shutil.copytree(large, tmp_path / "home"), tmp_path / "backup"
    small = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))\n"
    opened = 'ledger = Ledger.open(sqlite_url(home / "ledger.db"))\n'
    code = CHILD.replace(opened, opened + small)
    done = subprocess.run(
        [sys.executable, "-c", code, "backup", str(home), str(folder)], capture_output=True, text=True, check=False
    )
    assert f"BackendUnavailable: The folder {folder} cannot be used" in done.stderr.splitlines()[-1]
    assert list(folder.iterdir()) == []


def test_the_manifest_survives_being_read(saved: Path) -> None:
    manifest = archive.read_manifest(saved)
    assert isinstance(manifest, Manifest)
    assert manifest.schema == HEAD
    assert isinstance(manifest.tables["items"], Part)
    assert replace(manifest, id="x") != manifest
