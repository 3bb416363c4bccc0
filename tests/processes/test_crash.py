"""SIGKILL at random moments: what was acknowledged is there once, and the indexes come back to the ledger."""

from __future__ import annotations

import random
import shutil
import signal
import statistics
import time
from pathlib import Path

from memos import MemOS, Settings
from tests.fakes import WordEmbedder
from tests.support import forks

EXCHANGES = 800
KILLS = 12
REOPEN_S = 5.0
# How long an add waits for the indexes, kill by kill.
WAITS_S = (30, 0, 0)

# Adds exchanges from where the folder left off and prints each number only after `add` returned.
CHILD = """
import sys
from memos import MemOS, Settings
from memos.memcube.indexing import projection
from tests.fakes import WordEmbedder
folder, start, end, wait_s = sys.argv[1], *map(int, sys.argv[2:])
projection.FLUSH_EVERY_ROWS, projection.FLUSH_EVERY_S = 100, 0.5
settings = Settings(index={"wait_s": wait_s}, limits={"min_free_bytes": 0})
with MemOS.open(folder, settings=settings, embedder=WordEmbedder()) as memos:
    for number in range(start, end):
        memos.add(
            [
                {"role": "user", "content": f"question number{number}", "message_id": f"q{number}"},
                {"role": "assistant", "content": f"answer number{number}", "message_id": f"a{number}"},
            ],
            conversation=f"c{number % 7}",
        )
        print(number, flush=True)
"""


def run_and_kill(folder: Path, start: int, end: int, lines: int | None, wait_s: int) -> int:
    """Let a child add; kill it after `lines` acknowledgements (None: let it finish). Return the next number.

    With a `wait_s` of 0 what is acknowledged is in the ledger and mostly not yet in the indexes.
    """
    process = forks.Script(CHILD, str(folder), str(start), str(end), str(wait_s))
    acknowledged = start
    if lines is not None:
        for _ in range(lines):
            line = process.stdout.readline()
            if not line:
                break
            acknowledged = int(line) + 1
        process.send_signal(signal.SIGKILL)
    for line in process.stdout:
        acknowledged = int(line) + 1
    process.stdout.close()
    status = process.wait()
    assert status in (0, -signal.SIGKILL)
    return acknowledged


def test_nothing_acknowledged_is_lost_or_doubled_in_twelve_kills(tmp_path: Path) -> None:
    seed = random.Random(11)
    folder, done, reopened = tmp_path / "home", 0, list[float]()
    settings = Settings(limits={"min_free_bytes": 0}, index={"wait_s": 30})  # type: ignore[arg-type]
    for kill in range(KILLS):
        lines = seed.randint(0, max(1, min(EXCHANGES - done, 2 * EXCHANGES // KILLS)))
        acknowledged = run_and_kill(folder, done, EXCHANGES, lines, WAITS_S[kill % len(WAITS_S)])
        started = time.monotonic()
        with MemOS.open(folder, settings=settings, embedder=WordEmbedder()) as memos:
            reopened.append(time.monotonic() - started)
            kept = [item.memory for conversation in range(7) for item in _conversation(memos, conversation)]
            assert len(kept) == len(set(kept)), "an exchange is there twice"
            stored = {int(text.rsplit("number", 1)[1]) for text in kept}
            assert len(kept) == 2 * len(stored), "half an exchange was stored"
            assert set(range(acknowledged)) <= stored, "an acknowledged exchange is missing"
            assert stored <= set(range(acknowledged + 1)), "an exchange nobody added is there"
            probe = seed.choice(sorted(stored)) if stored else None
            if probe is not None:
                found = {hit.item.memory for hit in memos.search(f"number{probe}", top_k=5)}
                assert {f"question number{probe}", f"answer number{probe}"} & found
            report = memos.maintenance.verify()
            assert report.clean, report.differences[:3]
        done = len(stored)
        if done >= EXCHANGES:
            break
    run_and_kill(folder, done, EXCHANGES, None, 0)
    with MemOS.open(folder, settings=settings, embedder=WordEmbedder()) as memos:
        assert memos.maintenance.verify().clean
        assert sum(cube.items for cube in memos.cubes.list()) == 2 * EXCHANGES
    assert statistics.median(reopened) < REOPEN_S  # one of them may meet a busy machine


def _conversation(memos: MemOS, number: int) -> list:  # type: ignore[type-arg]
    return memos.memories.list(filter={"conversation": f"c{number}"}, limit=10_000)


def test_an_older_copy_of_the_index_folder_is_found_and_repaired(tmp_path: Path, settings: Settings) -> None:
    home, copies = tmp_path / "home", tmp_path / "copies"
    with MemOS.open(home, settings=settings, embedder=WordEmbedder()) as memos:
        memos.add(["old alpha", "old beta"], conversation="c")
    shutil.copytree(home / "vector", copies / "vector")
    with MemOS.open(home, settings=settings, embedder=WordEmbedder()) as memos:
        new = memos.add(["new gamma", "new delta"], conversation="c").item_ids
        memos.update(memos.memories.list()[0].id, "old alpha changed")
    shutil.rmtree(home / "vector")
    shutil.copytree(copies / "vector", home / "vector")
    with MemOS.open(home, settings=settings, embedder=WordEmbedder()) as memos:
        assert new[0] in [hit.item.id for hit in memos.search("gamma")]
        assert "old alpha changed" in [hit.item.memory for hit in memos.search("alpha")]
        report = memos.maintenance.verify()
        assert report.clean, report.differences


def test_an_older_copy_of_the_ledger_is_found_and_the_index_repaired(tmp_path: Path, settings: Settings) -> None:
    home, copy = tmp_path / "home", tmp_path / "ledger.db"
    with MemOS.open(home, settings=settings, embedder=WordEmbedder()) as memos:
        [item] = memos.add(["The parcel is grey."], conversation="c").item_ids
    shutil.copy(home / "ledger.db", copy)
    with MemOS.open(home, settings=settings, embedder=WordEmbedder()) as memos:
        memos.update(item, "The parcel is crimson.")
    shutil.copy(copy, home / "ledger.db")
    with MemOS.open(home, settings=settings, embedder=WordEmbedder()) as memos:
        assert {(d.store, d.kind, d.subject) for d in memos.maintenance.verify().differences} == {
            ("vector", "outdated", item)
        }
        report = memos.maintenance.verify(repair=True)
        assert report.clean, report.differences
        memos.update(item, "The parcel is violet.")
        memos.maintenance.catch_up()
        assert len(list(memos._installation.vector.scan(memos.memories.get(item).cube))) == 2  # a point a version


def test_verify_tells_what_is_missing_and_repairs_it(memos: MemOS) -> None:
    kept, lost = memos.add(["kept thing", "lost thing"], conversation="c").item_ids
    memos._context.indexes.vector.flush()
    memos._installation.vector.prune({lost: None})
    report = memos.maintenance.verify()
    assert {(d.store, d.kind, d.subject) for d in report.differences} == {("vector", "missing", lost)}
    repaired = memos.maintenance.verify(repair=True)
    assert repaired.clean
    assert repaired.repaired == 1
    assert lost in [hit.item.id for hit in memos.search("lost")]
    assert kept in [hit.item.id for hit in memos.search("kept")]


def test_verify_finds_a_changed_event_and_does_not_hide_it(memos: MemOS) -> None:
    memos.add("something")
    with memos.ledger.write() as connection:
        connection.exec_driver_sql("UPDATE events SET body = '{}' WHERE kind = 'add'")
    [difference] = memos.maintenance.verify(repair=True).differences
    assert (difference.store, difference.kind) == ("events", "broken")


def test_reindex_builds_the_index_from_nothing(memos: MemOS) -> None:
    ids = memos.add(["alpha one", "beta two"], conversation="c").item_ids
    memos._context.indexes.vector.flush()
    memos._installation.vector.prune(dict.fromkeys(ids))
    seen: list[tuple[int, int]] = []
    assert memos.maintenance.reindex(on_progress=lambda done, total: seen.append((done, total))) == 2
    assert seen[-1] == (2, 2)
    assert memos.maintenance.verify().clean
    assert [hit.item.id for hit in memos.search("beta")][:1] == [ids[1]]
