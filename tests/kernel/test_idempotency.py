"""A call that makes something, sent again with its idempotency key, makes it once, also at once and after a fall."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from memos import MemOS, Settings
from memos.core.types import Cube
from memos.errors import BackendUnavailable, Conflict, InvalidInput, NotFound
from memos.kernel.access.guard import acting_as
from memos.kernel.idempotency import Creation
from memos.memcube.ledger import idempotency as rows
from memos.memcube.ledger import schema as t
from tests.fakes import FixedClock, WordEmbedder


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[MemOS, FixedClock]]:
    clock = FixedClock()
    home: Path = tmp_path_factory.mktemp("idempotency")
    with MemOS.open(home, settings=Settings(), embedder=WordEmbedder(), clock=clock) as memos:
        for user in ("ana", "ben"):
            memos.users.create(user)
        yield memos, clock


def make(memos: MemOS, key: str | None, cube: str, actor: str = "ana", description: str = "") -> Cube:
    creation = None if key is None else Creation(key, "cubes.create", [cube, description], actor, cube)
    return memos.idempotency.once(
        creation,
        lambda: memos.cubes.create(cube, actor=actor, description=description),
        ids=lambda made: [made.id],
        again=lambda ids: memos.cubes.get(ids[0], actor=actor),
    )


def remembered(memos: MemOS) -> int:
    with memos.ledger.read() as connection:
        return connection.scalar(sa.select(sa.func.count()).select_from(t.repeats)) or 0


def test_a_repeated_call_answers_what_was_made(opened: tuple[MemOS, FixedClock]) -> None:
    memos, _ = opened
    first = make(memos, "k1", "one")
    assert make(memos, "k1", "one") == first
    with pytest.raises(Conflict, match="another call"):
        make(memos, "k1", "two")
    with pytest.raises(Conflict, match="already"):
        make(memos, None, "one")
    with pytest.raises(NotFound):
        memos.cubes.get("two")


def test_each_identity_has_keys_of_its_own(opened: tuple[MemOS, FixedClock]) -> None:
    memos, _ = opened
    assert make(memos, "shared", "anas", "ana").owner == "ana"
    assert make(memos, "shared", "bens", "ben").owner == "ben"
    caller = memos.keys.authenticate(memos.keys.create("ben", "k").secret)
    with acting_as(caller):
        assert make(memos, "shared", "bens", "ben").owner == "ben"


def test_what_failed_is_not_remembered(opened: tuple[MemOS, FixedClock]) -> None:
    memos, _ = opened
    before = remembered(memos)
    with pytest.raises(Conflict):
        make(memos, "k2", "default")
    with pytest.raises(InvalidInput):
        make(memos, "k2", "three", description="\0")
    assert remembered(memos) == before
    assert make(memos, "k2", "three").id == "three"


def test_many_at_once_make_one(opened: tuple[MemOS, FixedClock]) -> None:
    memos, _ = opened
    barrier = threading.Barrier(6)
    made: list[Any] = []

    def ask() -> None:
        barrier.wait()
        try:
            made.append(make(memos, "k3", "raced").id)
        except Conflict as error:
            assert "still running" in str(error)

    with ThreadPoolExecutor(6) as pool:
        for done in [pool.submit(ask) for _ in range(6)]:
            done.result()
    assert made
    assert set(made) == {"raced"}
    assert make(memos, "k3", "raced").id == "raced"


def test_a_fall_after_the_making_makes_it_no_second_time(
    opened: tuple[MemOS, FixedClock], monkeypatch: pytest.MonkeyPatch
) -> None:
    memos, _ = opened

    def fall(*_: object) -> None:
        raise BackendUnavailable("the disk is full")

    with monkeypatch.context() as context:
        context.setattr(rows, "answer_call", fall)
        assert make(memos, "k4", "fallen").id == "fallen"
    with pytest.raises(Conflict, match="was interrupted"):
        make(memos, "k4", "fallen")


def test_a_key_is_free_again_after_a_day_and_rows_go(opened: tuple[MemOS, FixedClock]) -> None:
    memos, clock = opened
    make(memos, "k5", "five")
    clock.advance(timedelta(hours=23, minutes=59))
    with pytest.raises(Conflict, match="another call"):
        make(memos, "k5", "six")
    clock.advance(timedelta(minutes=1))
    assert make(memos, "k5", "six").id == "six"
    rows.forget_old(memos.ledger, clock.now())  # unless the worker, who does so as well, has been quicker
    assert remembered(memos) == 1


def test_a_call_is_forgotten_with_what_it_made(opened: tuple[MemOS, FixedClock]) -> None:
    memos, _ = opened
    given = Creation("k6", "feedback", ["I moved to Lyon"], "ana", "ana")

    def correct() -> str:
        return memos.idempotency.once(
            given,
            lambda: memos.feedback("I moved to Lyon", cube="ana", actor="ana").item_id,
            ids=lambda item: [item],
            again=lambda ids: ids[0],
        )

    item = correct()
    assert correct() == item
    before = remembered(memos)
    memos.erase(item, actor="ana", wait=False)
    assert remembered(memos) == before - 1
    make(memos, "k7", "seven")
    memos.cubes.drop("seven", actor="ana")
    assert remembered(memos) == before - 1


@pytest.mark.parametrize("key", ["", " ", "x" * 257, "a\0b", "\ud800"])
def test_a_key_no_store_can_keep_is_refused(opened: tuple[MemOS, FixedClock], key: str) -> None:
    memos, _ = opened
    with pytest.raises(InvalidInput, match="idempotency_key"):
        make(memos, key, "never")
