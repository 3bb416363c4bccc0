"""Eight writers and eight readers at once: no error, no lost update, and the indexes end up right."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from memos import MemOS
from memos.errors import Conflict

WRITERS = READERS = 8
SECONDS = 10.0


@pytest.mark.heavy
def test_writers_and_readers_do_not_disturb_each_other(memos: MemOS) -> None:
    shared = memos.add("counter 0").item_ids[0]
    ends = time.monotonic() + SECONDS
    failures: list[BaseException] = []
    won = [0] * WRITERS
    added = [0] * WRITERS
    searched = [0] * READERS

    def guarded(work: Callable[[int], None], number: int) -> None:
        try:
            while time.monotonic() < ends and not failures:
                work(number)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the test shows it
            failures.append(error)

    def write(number: int) -> None:
        memos.add(f"note {added[number]} of writer{number}", conversation=f"w{number}")
        added[number] += 1
        current = memos.get(shared)
        try:
            value = int(current.memory.split()[1])
            memos.update(shared, f"counter {value + 1}", expected_version=current.version)
            won[number] += 1
        except Conflict:
            pass

    def read(number: int) -> None:
        result = memos.search(f"writer{number} counter", top_k=5)
        assert all(hit.sources for hit in result)
        searched[number] += 1

    threads = [threading.Thread(target=guarded, args=(write, n)) for n in range(WRITERS)]
    threads += [threading.Thread(target=guarded, args=(read, n)) for n in range(READERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert min(added) > 0
    assert min(searched) > 0
    final = memos.get(shared)
    assert final.memory == f"counter {sum(won)}"
    assert final.version == sum(won) + 1
    for number in range(WRITERS):
        notes = memos.memories.list(filter={"conversation": f"w{number}"}, limit=10_000)
        assert [item.position for item in notes] == list(range(added[number]))
    assert memos.maintenance.verify().clean


def test_more_searches_at_once_than_the_ledger_has_connections_take_turns(memos: MemOS) -> None:
    memos.add([{"role": "user", "content": f"fact number{n} about cats"} for n in range(50)], conversation="c")
    together, missed = threading.Barrier(64), []

    def ask(number: int) -> None:
        together.wait()
        found = memos.search(f"number{number % 50}", filter={"memory": {"like": "CATS"}})
        if f"fact number{number % 50} about cats" not in [hit.item.memory for hit in found.hits]:
            missed.append(number)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=25)  # a connection is waited for 30 s
        assert not thread.is_alive()
    assert missed == []
