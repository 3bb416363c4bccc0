"""Copying a ledger into another: every row or none, refused when it would mix two histories."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa

from memos.errors import Conflict
from memos.memcube.backup import rows
from memos.memcube.backup.restore import copy_ledger, unfinished_copy
from memos.memcube.ledger import schema as t
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


def begin(ledger: Ledger, source: str) -> None:
    """Leave what a copy of version 0.1 that was cut off left."""
    with ledger.write() as connection:
        told = {"ledger": source, "source": "sqlite:source", "stamp": "", "tables": {}}
        connection.execute(sa.insert(t.meta).values(key=rows.COPYING, value=json.dumps(told)))


@pytest.mark.parametrize("row", [500, 9000])
def test_a_copy_that_is_cut_off_leaves_nothing_and_is_made_anew(row: int, source: Ledger, target: Ledger) -> None:
    before = contents(target)
    with pytest.raises(Stopped):
        copy_ledger(source, target, stop_at(row))
    assert contents(target) == before
    assert copy_ledger(source, target).known == 0
    assert contents(target) == contents(source)


def test_a_copy_that_version_01_began_is_served_by_nobody_and_finished(source: Ledger, target: Ledger) -> None:
    with source.read() as connection:
        begin(target, rows.ledger_id(connection))
    problem = unfinished(target)
    assert problem is not None
    assert "memos data migrate" in problem
    with target.read() as connection:
        assert not rows.is_blank(connection)
    copy_ledger(source, target)
    assert contents(target) == contents(source)
    assert unfinished(target) is None


def test_a_copy_that_version_01_had_all_rows_of_is_finished(source: Ledger, target: Ledger) -> None:
    copy_ledger(source, target)
    with source.read() as connection:
        begin(target, rows.ledger_id(connection))
    copy_ledger(source, target)
    assert contents(target) == contents(source)
    assert unfinished(target) is None


def test_a_copy_that_went_on_is_left_alone_until_the_source_changes(source: Ledger, target: Ledger) -> None:
    copy_ledger(source, target)
    Store(target).add("said after the copy")
    after = contents(target)
    done = copy_ledger(source, target)
    assert done.known == done.rows
    assert contents(target) == after
    Store(source).add("said in the source since")
    with pytest.raises(Conflict, match="contains memories already"):
        copy_ledger(source, target)


def test_a_copy_without_a_new_user_of_the_source_is_no_copy(source: Ledger, target: Ledger) -> None:
    copy_ledger(source, target)
    with source.write() as connection:
        user = {"id": "ana", "kind": "user", "name": "", "admin": False, "disabled": False, "created_by": "local"}
        connection.execute(sa.insert(t.identities).values(**user, created_at=datetime.now(UTC)))
    with pytest.raises(Conflict, match="contains memories already"):
        copy_ledger(source, target)


def test_a_copy_of_another_ledger_is_not_finished_with_this_one(source: Ledger, target: Ledger) -> None:
    begin(target, "another")
    with pytest.raises(Conflict, match=r"unfinished copy of .*source"):
        copy_ledger(source, target)


def test_a_source_that_is_changed_meanwhile_is_noticed(source: Ledger, target: Ledger) -> None:
    changed: list[str] = []

    def change(_done: int, _total: int) -> None:
        if not changed:
            changed.extend(Store(source).add("said while it was copied").item_ids)

    before = contents(target)
    with pytest.raises(Conflict, match=r"was changed while it was copied \(.*items.* differ\)"):
        copy_ledger(source, target, change)
    assert contents(target) == before
    assert copy_ledger(source, target).known == 0
    assert contents(target) == contents(source)


def test_a_target_with_memories_is_refused(source: Ledger, target: Ledger) -> None:
    fill(Store(target))
    before = contents(target)
    with pytest.raises(Conflict, match="contains memories already"):
        copy_ledger(source, target)
    assert contents(target) == before


CHILD = """
import sys, time
from memos.memcube.ledger import schema as t
from memos.memcube.ledger.engine import Ledger
from memos.memcube.backup.restore import copy_ledger
def tell(done, total):
    print(done, total, flush=True)
    time.sleep(0.02)  # else a reader that has to wait for a core would kill what is finished
source, target = map(Ledger.open, sys.argv[1:3])
copy_ledger(source, target, tell)
print("done", flush=True)
"""


@pytest.mark.heavy
def test_a_copy_that_is_killed_leaves_nothing(large: Path, target: Ledger, tmp_path: Path) -> None:
    shutil.copytree(large, tmp_path / "source")
    urls = [sqlite_url(tmp_path / "source" / "ledger.db"), _url(target)]
    before = contents(target)
    target.close()
    process = forks.Script(CHILD, *urls)
    lines = [process.stdout.readline() for _ in range(4)]
    process.send_signal(signal.SIGKILL)
    process.stdout.close()
    process.wait()
    assert "done\n" not in lines
    finished, source = Ledger.open(urls[1]), Ledger.open(urls[0])
    assert contents(finished) == before
    copy_ledger(source, finished)
    assert contents(finished) == contents(source)
    finished.close()
    source.close()


def _url(ledger: Ledger) -> str:
    return ledger._engine.url.render_as_string(hide_password=False)
