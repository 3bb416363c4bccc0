"""Faults of the world around the store: another process, damaged files, a full or read-only disk, kills and interrupts.

Each one is refused with a sentence that says what to do, or recovered from; what was acknowledged is never lost.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from memos import MemOS, Settings
from memos.core.settings import IndexSettings, LimitSettings
from memos.errors import BackendUnavailable, IntegrityError, PermissionDenied
from memos.memcube.ledger.engine import HEAD
from memos.search import searcher
from tests.fakes import WordEmbedder
from tests.support import forks

ROOT = Path(__file__).resolve().parents[2]
TEXTS = [f"memory number{n} speaks of topic{n} and Person{n}" for n in range(40)]
HOLD = """
import sys
from memos import MemOS
from tests.fakes import WordEmbedder
memos = MemOS.open(sys.argv[1], embedder=WordEmbedder())
memos.add("said by the other process")
print("open", flush=True)
sys.stdin.read()
"""


def opened(home: Path, **limits: int) -> MemOS:
    settings = Settings(index=IndexSettings(wait_s=30), limits=LimitSettings(**{"min_free_bytes": 1_000_000, **limits}))
    return MemOS.open(home, settings=settings, embedder=WordEmbedder())


def cli(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return forks.command([*arguments, "--data-dir", str(home)])


def texts_in_ledger(home: Path) -> list[str]:
    """Read what the ledger holds past the program, without changing a byte."""
    path = home / "ledger.db"
    if not path.exists():
        return []
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'versions'").fetchall():
            return []
        rows = connection.execute("SELECT memory FROM versions").fetchall()
    connection.close()
    return [text for (text,) in rows]


def assert_everything_is_found(memos: MemOS) -> None:
    report = memos.maintenance.verify()
    assert report.clean, report.differences
    for number, text in enumerate(TEXTS):
        result = memos.search(f"topic{number}")
        assert text in [hit.item.memory for hit in result]
        assert result.missing_arms == ()


def assert_usable(memos: MemOS) -> None:
    receipt = memos.add("added after the fault heliotrope")
    assert receipt.indexed
    assert receipt.item_ids[0] in [hit.item.id for hit in memos.search("heliotrope")]
    assert memos.maintenance.verify().clean


def scribble(path: Path, start: int = 0, size: int = 1 << 20) -> None:
    """Overwrite bytes of a file with the same garbage every time; its length stays."""
    size = min(size, path.stat().st_size - start)
    with path.open("r+b") as file:
        file.seek(start)
        file.write((b"\xdb garbage \xff\x00" * (size // 11 + 1))[:size])


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A closed installation that holds `TEXTS`."""
    folder = tmp_path / "home"
    with opened(folder) as memos:
        memos.add(TEXTS, conversation="c")
    return folder


# Another process


def test_a_second_process_is_refused_with_the_pid_of_the_first(home: Path) -> None:
    with opened(home) as memos:
        second = cli(home, "list")
        assert second.returncode == BackendUnavailable.exit_code
        assert f"process {os.getpid()} " in second.stderr
        assert "--data-dir" in second.stderr
        assert "Traceback" not in second.stderr
        with pytest.raises(BackendUnavailable, match=f"process {os.getpid()} "):
            opened(home)
        assert_usable(memos)
    with opened(home) as memos:
        assert_everything_is_found(memos)


def test_the_folder_of_a_killed_process_opens_again_with_what_it_acknowledged(home: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(home)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"
        with pytest.raises(BackendUnavailable, match=f"process {other.pid} "):
            opened(home)
        other.kill()
    with opened(home) as memos:
        assert_everything_is_found(memos)
        assert "said by the other process" in [hit.item.memory for hit in memos.search("said by the other process")]


# Damaged or foreign files


def test_a_folder_from_a_newer_version_is_refused_unchanged(home: Path) -> None:
    with sqlite3.connect(home / "ledger.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    before = (home / "ledger.db").read_bytes()
    for _ in range(2):
        with pytest.raises(
            IntegrityError, match=r"newer hippocube \(schema 9999.*Upgrade hippocube.*Nothing was changed"
        ):
            opened(home)
    assert (home / "ledger.db").read_bytes() == before
    with sqlite3.connect(home / "ledger.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = ?", [HEAD])
    connection.close()
    with opened(home) as memos:
        assert_everything_is_found(memos)


def every_file(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and path.name != "lock" and path.stat().st_size]


def garbage_everywhere(folder: Path) -> None:
    for path in every_file(folder):
        scribble(path)


def garbage_in_segments(folder: Path) -> None:
    for path in every_file(folder):
        if "segments" in path.parts:
            scribble(path)


def garbage_in(name: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        [path] = folder.rglob(name)
        scribble(path)

    return damage


def cut_off(folder: Path) -> None:
    for path in every_file(folder):
        os.truncate(path, path.stat().st_size // 2)


def emptied(folder: Path) -> None:
    for path in every_file(folder):
        os.truncate(path, 0)


@pytest.mark.parametrize(
    "damage",
    [garbage_everywhere, garbage_in_segments, garbage_in("CURRENT"), garbage_in("mark"), garbage_in("segment.json"),
     cut_off, emptied, shutil.rmtree],
    ids=["garbage everywhere", "segments", "CURRENT", "mark", "segment.json", "cut off", "emptied", "deleted"],
)  # fmt: skip
def test_a_damaged_vector_index_is_rebuilt_from_the_ledger_at_open(home: Path, damage: Callable[[Path], None]) -> None:
    damage(home / "vector")
    with opened(home) as memos:
        assert_everything_is_found(memos)
        assert_usable(memos)


def test_points_damaged_under_an_index_that_still_opens_are_reported_and_reindexed(home: Path) -> None:
    [path] = (home / "vector").rglob("payload_storage/page_0.dat")
    scribble(path)
    with opened(home) as memos:
        assert TEXTS[7] in [hit.item.memory for hit in memos.search("topic7")]
        report = memos.maintenance.verify()
        assert not report.clean
        assert {difference.store for difference in report.differences} == {"vector"}
        memos.maintenance.reindex()
        assert_everything_is_found(memos)


def test_a_damaged_ledger_is_refused_unchanged_with_what_to_do(home: Path) -> None:
    whole = (home / "ledger.db").read_bytes()
    middle = len(whole) // 2 // 4096 * 4096
    scribble(home / "ledger.db", middle, 3 * 4096)
    before = {path: path.read_bytes() for path in [home / "ledger.db"]}
    for _ in range(2):
        with pytest.raises(
            IntegrityError, match=r"damaged.*Nothing was changed.*from a copy.*\.recover.*memos data reindex"
        ):
            opened(home)
    told = cli(home, "list")
    assert told.returncode == IntegrityError.exit_code
    assert "Nothing was changed" in told.stderr
    assert "Traceback" not in told.stderr
    assert {path: path.read_bytes() for path in before} == before
    (home / "ledger.db").write_bytes(whole)
    with opened(home) as memos:
        assert_everything_is_found(memos)


@pytest.mark.parametrize(
    "content", [b"this is no database, " * 5000, b"SQLite format 3\0" + b"\xab" * 40_000, b"\xff" * 512],
    ids=["text", "header only", "short"],
)  # fmt: skip
def test_a_ledger_that_is_no_database_is_refused_unchanged(home: Path, content: bytes) -> None:
    whole = (home / "ledger.db").read_bytes()
    (home / "ledger.db").write_bytes(content)
    with pytest.raises(IntegrityError, match=r"ledger\.db is damaged.*Nothing was changed"):
        opened(home)
    assert (home / "ledger.db").read_bytes() == content
    (home / "ledger.db").write_bytes(whole)
    with opened(home) as memos:
        assert_everything_is_found(memos)


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(PermissionDenied, match="--data-dir"):
            opened(path)


# Disks


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 MiB of its own."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = os.geteuid() == 0 and shutil.which("mount") is not None
    if mounted:
        mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "hippocube-test", str(disk)]
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    if not mounted:
        pytest.skip(
            "cannot mount a tmpfs here; run it with: unshare -rm python -m pytest tests/processes/test_faults.py"
        )
    try:
        yield disk
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def fill(disk: Path, leave: int) -> Path:
    """Use up a disk until `leave` bytes are free."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        free = shutil.disk_usage(disk).free - leave
        try:
            while free > 0:
                free -= file.write(b"\xaa" * min(free, 65_536))
        except OSError:
            assert leave == 0
    return filler


def make_room(disk: Path, filler: Path) -> None:
    """Free what was used up, and more: on a tmpfs an index that was not closed takes up all of its sparse files."""
    filler.unlink()
    subprocess.run(["mount", "-o", "remount,size=256m", str(disk)], check=True)


def test_a_nearly_full_disk_refuses_writes_before_it_is_full(small_disk: Path) -> None:
    home = small_disk / "home"
    with opened(home, min_free_bytes=8_388_608) as memos:
        item = memos.add(TEXTS, conversation="c").item_ids[0]
        filler = fill(small_disk, leave=4_194_304)
        before = texts_in_ledger(home)
        for call in (
            lambda: memos.add("one more"),
            lambda: memos.update(item, "changed"),
            lambda: memos.delete(item),
            lambda: memos.feedback("no, I moved to Lyon"),
            lambda: memos.cubes.create("new"),
            memos.maintenance.reindex,
        ):
            with pytest.raises(
                BackendUnavailable, match=r"4 MiB free.*reserve of 8 MiB.*free some space.*Nothing was written"
            ):
                call()
        assert texts_in_ledger(home) == before
        assert TEXTS[3] in [hit.item.memory for hit in memos.search("topic3")]
        filler.unlink()
        assert_usable(memos)
        assert_everything_is_found(memos)


def test_a_full_disk_loses_nothing_that_was_acknowledged(small_disk: Path) -> None:
    home = small_disk / "home"
    with opened(home, min_free_bytes=0) as memos:
        memos.add(TEXTS, conversation="c")
        filler = fill(small_disk, leave=0)
        before = texts_in_ledger(home)
        with pytest.raises(BackendUnavailable, match=r"disk.*full: free some space.*nothing was written"):
            memos.add("much to say " * 80_000)
        assert texts_in_ledger(home) == before
        assert TEXTS[3] in [hit.item.memory for hit in memos.search("topic3")]
        filler.unlink()
        assert_usable(memos)
        assert_everything_is_found(memos)


def test_a_disk_that_fills_up_while_indexes_follow_loses_nothing(small_disk: Path) -> None:
    home = small_disk / "home"
    acknowledged = list(TEXTS)
    with opened(home, min_free_bytes=0) as memos:
        memos.add(TEXTS, conversation="c")
        filler = fill(small_disk, leave=300_000)
        for number in range(200):
            text = f"written while space ran out, line{number} " + "x" * 8000
            try:
                memos.add(text)
            except BackendUnavailable:
                break
            acknowledged.append(text)
        else:
            pytest.fail("the disk never filled up")
        assert Counter(texts_in_ledger(home)) == Counter(acknowledged)
        assert memos.search("topic3").hits
    make_room(small_disk, filler)
    with opened(home, min_free_bytes=0) as memos:
        assert Counter(texts_in_ledger(home)) == Counter(acknowledged)
        assert_everything_is_found(memos)
        assert_usable(memos)


def test_a_search_goes_on_without_its_vector_process_on_a_full_disk(small_disk: Path) -> None:
    with opened(small_disk / "home", min_free_bytes=0) as memos:
        memos.add(TEXTS, conversation="c")
        filler = fill(small_disk, leave=0)
        kill_vector_process()
        assert memos.search("topic3").hits
        make_room(small_disk, filler)
        assert_everything_is_found(memos)


def test_an_erasure_without_room_for_new_files_says_so_and_takes_up_none(small_disk: Path) -> None:
    """A part of a copy that stayed would keep everybody from writing until the next start."""
    with opened(small_disk / "home", min_free_bytes=0) as memos:
        item = memos.add([*TEXTS, "to be erased, sphinx"], conversation="c").item_ids[-1]
        filler = fill(small_disk, leave=2_000_000)
        with pytest.raises(
            BackendUnavailable, match=r"memories are erased.*No space left.*old one is kept.*tries again"
        ):
            memos.erase(item)
        assert len(list((small_disk / "home").glob("vector/*/gen-*"))) == 1
        memos.add("there is room for a short one")
        make_room(small_disk, filler)
        memos.maintenance.finish_erasures()
        assert b"sphinx" not in b"".join(path.read_bytes() for path in every_file(small_disk / "home"))
        assert_everything_is_found(memos)


def test_a_full_disk_is_refused_at_open_and_opens_when_there_is_room_again(small_disk: Path) -> None:
    filler = fill(small_disk, leave=0)
    with pytest.raises(BackendUnavailable, match=r"disk.*full: free some space|MiB free"):
        opened(small_disk / "home")
    filler.unlink()
    with opened(small_disk / "home") as memos:
        assert_usable(memos)


def test_a_read_only_folder_is_refused_unchanged(small_disk: Path) -> None:
    home = small_disk / "home"
    with opened(home) as memos:
        memos.add(TEXTS, conversation="c")
    before = (home / "ledger.db").read_bytes()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(PermissionDenied, match=r"Cannot write .*--data-dir"):
        opened(home)
    with pytest.raises(PermissionDenied, match=r"Cannot create .*--data-dir"):
        opened(small_disk / "new")
    told = cli(home, "list")
    assert told.returncode == PermissionDenied.exit_code
    assert "Traceback" not in told.stderr
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    assert (home / "ledger.db").read_bytes() == before
    with opened(home) as memos:
        assert_everything_is_found(memos)


def test_a_folder_without_write_permission_is_refused_unchanged(home: Path) -> None:
    home.chmod(0o500)
    try:
        if os.access(home, os.W_OK):
            pytest.skip(
                "this user may write anywhere; run it with: setpriv --bounding-set -dac_override python -m pytest"
            )
        with pytest.raises(PermissionDenied, match=r"Cannot write .*--data-dir"):
            opened(home)
    finally:
        home.chmod(0o700)
    with opened(home) as memos:
        assert_everything_is_found(memos)


# Interrupts and kills


def test_an_interrupted_import_goes_on_where_it_stopped(tmp_path: Path) -> None:
    home, export = tmp_path / "home", tmp_path / "long.jsonl"
    told = [f"line {number}" for number in range(1000)]
    export.write_text("".join(json.dumps({"role": "user", "content": text}) + "\n" for text in told))
    with subprocess.Popen(
        [sys.executable, "-m", "memos.cli.app", "import", str(export), "--data-dir", str(home)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        while len(texts_in_ledger(home)) < 200:
            try:
                process.wait(0.02)
                pytest.fail("it ended before it could be interrupted")
            except subprocess.TimeoutExpired:
                pass
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, (out, err)
    assert "run the command again" in err
    assert "Traceback" not in err
    kept = texts_in_ledger(home)
    assert 200 <= len(kept) < 1000
    assert kept == told[: len(kept)]
    again = cli(home, "import", str(export), "--json")
    assert again.returncode == 0, again.stderr
    summary = json.loads(again.stdout)
    assert (summary["added"], summary["known"]) == (1000 - len(kept), len(kept))
    assert Counter(texts_in_ledger(home)) == Counter(told)
    checked = cli(home, "data", "verify", "--json")
    assert checked.returncode == 0, checked.stdout
    assert json.loads(checked.stdout)["items"] == 1000


def kill_vector_process() -> None:
    [child] = forks.running("memos.backends.qdrant.embedded_process")
    child.kill()
    child.wait(10)


def test_a_killed_vector_process_is_started_again_and_nothing_is_lost(home: Path) -> None:
    with opened(home) as memos:
        kill_vector_process()
        assert TEXTS[5] in [hit.item.memory for hit in memos.search("topic5")]
        assert_everything_is_found(memos)
        memos.add("written and not flushed, quagga")
        kill_vector_process()
        receipt = memos.add("written right after the kill, marzipan")
        for word in ("quagga", "marzipan"):
            assert word in memos.search(word).hits[0].item.memory
        assert_everything_is_found(memos)
        assert memos.search("marzipan").hits[0].item.id == receipt.item_ids[0]
        kill_vector_process()
        memos.erase(receipt.item_ids[0])
        assert_everything_is_found(memos)
        kill_vector_process()
    with opened(home) as memos:
        assert_everything_is_found(memos)
        assert memos.search("quagga").hits[0].item.memory == "written and not flushed, quagga"


def test_a_search_misses_nothing_although_the_vector_process_dies_under_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recall = searcher.recall

    def killed(*given: Any) -> Any:
        monkeypatch.setattr(searcher, "recall", recall)
        kill_vector_process()
        with pytest.raises(BackendUnavailable):  # another call starts it again
            memos._installation.vector.mark()
        return recall(*given)

    with opened(home) as memos:
        memos.add("written and not flushed, quagga")
        monkeypatch.setattr(searcher, "recall", killed)
        found = memos.search("quagga")
        assert found.missing_arms == ()
        assert "written and not flushed, quagga" in {hit.item.memory for hit in found.hits}


def test_a_vector_process_killed_under_load_loses_nothing(home: Path) -> None:
    with opened(home) as memos:
        added: list[str] = []

        def write() -> None:
            for number in range(60):
                memos.add(f"under load line{number}")
                added.append(f"under load line{number}")

        thread = threading.Thread(target=write)
        thread.start()
        for reached in (10, 30, 50):
            while len(added) < reached and thread.is_alive():
                memos.search(f"line{reached}")
            kill_vector_process()
        thread.join()
        assert len(added) == 60
        assert_everything_is_found(memos)
        assert Counter(texts_in_ledger(home)) == Counter([*TEXTS, *added])


def test_a_closed_store_says_so(home: Path) -> None:
    memos = opened(home)
    memos.close()
    memos.close()
    for call in (
        lambda: memos.add("x"),
        lambda: memos.search("x"),
        lambda: memos.get("x"),
        memos.maintenance.verify,
        memos.cubes.list,
    ):
        with pytest.raises(BackendUnavailable, match=r"closed.*open it again"):
            call()
