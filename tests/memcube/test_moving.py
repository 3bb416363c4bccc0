"""Copying a ledger into another: every row, resumed after a kill, refused when it would mix two histories."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from memos.errors import Conflict
from memos.memcube.backup import rows
from memos.memcube.backup.restore import copy_ledger, unfinished_copy
from memos.memcube.ledger.engine import Ledger, sqlite_url
from tests.support import forks
from tests.support.ledgers import Store, chains, contents, fill, sqlite_ledger, waiting


class Stopped(Exception):
    """What a test stops a copy with."""


def stop_at(row: int) -> Callable[[int, int], None]:
    def tell(done: int, _total: int) -> None:
        if done >= row:
            raise Stopped

    return tell


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("large")
    with sqlite_ledger(home) as ledger:
        store = Store(ledger)
        fill(store)
        for part in range(10):
            store.add([f"number {part} {n}" for n in range(300)], conversation=f"c{part}")
    return home


@pytest.fixture
def source(large: Path, tmp_path: Path) -> Iterator[Ledger]:
    shutil.copytree(large, tmp_path / "source")
    with sqlite_ledger(tmp_path / "source") as ledger:
        yield ledger


@pytest.fixture(params=["sqlite", "postgresql"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    with ExitStack() as stack:
        if request.param == "sqlite":
            yield stack.enter_context(sqlite_ledger(tmp_path / "target"))
            return
        ledger = Ledger.open(request.getfixturevalue("postgres_server").url())
        stack.callback(ledger.close)
        yield ledger


def unfinished(ledger: Ledger) -> str | None:
    with ledger.read() as connection:
        return unfinished_copy(connection)


def test_a_copy_is_equal_row_for_row_there_and_back(source: Ledger, target: Ledger, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    before = contents(source)
    done = copy_ledger(source, target, lambda *at: seen.append(at))
    assert contents(target) == before == contents(source)
    assert (done.rows, done.known) == (sum(map(len, before.values())), 0)
    assert seen[-1] == (done.rows, done.rows)
    assert chains(target) == []
    assert unfinished(target) is None
    with target.read() as connection:
        items = rows.count(connection, rows.t.items)
    assert len(waiting(target)) == items
    with sqlite_ledger(tmp_path / "back") as back:
        copy_ledger(target, back)
        assert contents(back) == before
    again = copy_ledger(source, target)
    assert again.known == again.rows


@pytest.mark.parametrize("row", [500, 3500, 9000])
def test_a_copy_that_was_cut_off_is_served_by_nobody_and_goes_on(row: int, source: Ledger, target: Ledger) -> None:
    with pytest.raises(Stopped):
        copy_ledger(source, target, stop_at(row))
    problem = unfinished(target)
    assert problem is not None
    assert "memos data migrate" in problem
    with target.read() as connection:
        assert not rows.is_blank(connection)
    first: list[int] = []
    done = copy_ledger(source, target, lambda at, _total: first.append(at))
    assert row <= done.known + 500 < done.rows
    assert first[0] > done.known
    assert contents(target) == contents(source)


def test_a_source_that_was_changed_in_between_is_copied_anew(source: Ledger, target: Ledger) -> None:
    with pytest.raises(Stopped):
        copy_ledger(source, target, stop_at(6000))
    store = Store(source)
    store.erase(store.add("said between the two runs").item_ids[0])
    store.add("said between the two runs, and kept")
    assert copy_ledger(source, target).known == 0
    assert contents(target) == contents(source)


def test_a_source_that_is_changed_meanwhile_is_noticed(source: Ledger, target: Ledger) -> None:
    changed: list[str] = []

    def change(_done: int, _total: int) -> None:
        if not changed:
            changed.extend(Store(source).add("said while it was copied").item_ids)

    with pytest.raises(Conflict, match=r"was changed while it was copied \(.*items.* differ\)"):
        copy_ledger(source, target, change)
    assert unfinished(target) is not None
    assert copy_ledger(source, target).known == 0
    assert contents(target) == contents(source)


def test_a_target_that_was_tampered_with_is_noticed(source: Ledger, target: Ledger) -> None:
    def tamper(done: int, total: int) -> None:
        if done == total:
            with target.write() as connection:
                connection.exec_driver_sql("UPDATE versions SET memory = 'something else' WHERE version = 3")

    with pytest.raises(Conflict, match=r"\(versions differ\)"):
        copy_ledger(source, target, tamper)


def test_a_copy_of_another_ledger_is_not_finished_with_this_one(source: Ledger, target: Ledger, tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        copy_ledger(source, target, stop_at(500))
    with sqlite_ledger(tmp_path / "other") as other:
        fill(Store(other))
        with pytest.raises(Conflict, match=r"unfinished copy of .*source"):
            copy_ledger(other, target)


def test_a_target_with_memories_is_refused(source: Ledger, target: Ledger) -> None:
    fill(Store(target))
    before = contents(target)
    with pytest.raises(Conflict, match="holds memories already"):
        copy_ledger(source, target)
    assert contents(target) == before


CHILD = """
import sys, time
from memos.memcube.ledger.engine import Ledger
from memos.memcube.backup.restore import copy_ledger
def tell(done, total):
    print(done, total, flush=True)
    time.sleep(0.02)  # else a reader that has to wait for a core would kill what is finished
source, target = map(Ledger.open, sys.argv[1:3])
copy_ledger(source, target, tell)
print("done", flush=True)
"""


def test_a_copy_that_is_killed_again_and_again_comes_to_an_end(
    large: Path, target: Ledger, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    shutil.copytree(large, tmp_path / "source")
    urls = [sqlite_url(tmp_path / "source" / "ledger.db"), _url(target)]
    target.close()
    known = [0]
    for kill in range(20):
        process = forks.Script(CHILD, *urls)
        lines = [process.stdout.readline() for _ in range(4 + kill % 3)]
        process.send_signal(signal.SIGKILL)
        process.stdout.close()
        process.wait()
        if "done\n" in lines or "" in lines:
            break
        known.append(int(lines[-1].split()[0]))
    assert known == sorted(known)
    assert len(known) > 3, "it was never cut off"
    finished, source = Ledger.open(urls[1]), Ledger.open(urls[0])
    copy_ledger(source, finished)
    assert contents(finished) == contents(source)
    assert unfinished(finished) is None
    finished.close()
    source.close()


def _url(ledger: Ledger) -> str:
    return ledger._engine.url.render_as_string(hide_password=False)
