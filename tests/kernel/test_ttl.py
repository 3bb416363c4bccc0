"""Times to live: what has expired is in no answer from that moment on, and erased by the hourly job."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from memos import MemOS, Settings
from memos.core.identities import Right
from memos.core.types import Fact, ItemType, Scope, Span, Status, TaskState
from memos.errors import Conflict, InvalidInput, NotFound
from memos.kernel.relocation import restore
from memos.memcube import facts
from memos.memcube.ledger import schema as t
from memos.scheduler.jobs import retention as job
from memos.scheduler.scheduler import PeriodicJob
from tests.fakes import FixedClock, WordEmbedder
from tests.support.ledgers import contents
from tests.support.pictures import data_url, picture

SECRET = "The door code is 47B19-xylophone."
HOUR = timedelta(hours=1)


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock(datetime.now(UTC))  # a restore has the machine's clock


@pytest.fixture
def memos(tmp_path: Path, settings: Settings, clock: FixedClock) -> Iterator[MemOS]:
    with MemOS.open(tmp_path / "home", settings=settings, embedder=WordEmbedder(), clock=clock) as opened:
        opened._scheduler.periodic.stop()  # the job runs when a test says so
        yield opened


def say(memos: MemOS, text: Any, **named: Any) -> str:
    return memos.add(text, **named).item_ids[0]


def hourly(memos: MemOS, clock: FixedClock) -> None:
    """Do what the hourly job does."""
    clock.advance(timedelta(seconds=5))
    memos.tasks.wait(timeout_s=60)
    assert memos._scheduler.periodic.fire(PeriodicJob("retention", timedelta(seconds=1)))
    memos.tasks.wait(timeout_s=60)
    assert {task.state for task in memos.tasks.list(kinds=["retention"])} == {TaskState.DONE}


def store_fact(memos: MemOS, memory: str, *origins: str) -> str:
    """Store what a reader found in messages."""
    spans = tuple(Span(origin, 0, 5) for origin in origins)
    fact = Fact(ItemType.USER, memory, spans, "user", "test", memos.clock.now(), key="user|door code", value="47B19")
    with memos._context.change(Scope("reader", ("default",), right=Right.WRITE)) as change:
        return facts.store(change, fact).id


def test_what_has_expired_is_in_no_answer(memos: MemOS, clock: FixedClock) -> None:
    talk = [{"role": "user", "name": "Maya", "content": text} for text in (SECRET, "Robert knows it.")]
    gone = memos.add(talk, conversation="c", ttl_s=7_200, tags=["codes"]).item_ids
    kept = say(memos, "Maya has a door in Lyon.", conversation="c")
    pending = say(memos, "The code may change.", ttl_s=7_200)
    memos.update(pending, status="pending")
    memos.tiers.pin(gone[0])
    fact = store_fact(memos, SECRET, gone[0])
    before = clock.now()
    assert memos.get(gone[0]).expires_at is not None
    assert memos.get(fact).expires_at == memos.get(gone[0]).expires_at
    assert gone[0] in {hit.item.id for hit in memos.search("door code").hits}

    def answers() -> list[str]:
        found: list[Any] = [
            memos.memories.list(),
            memos.memories.list(filter={"status": {"in": [str(status) for status in Status]}}),
            memos.memories.page(),
            memos.search("door code 47B19 xylophone", top_k=50, token_budget=1_000),
            memos.search("door code 47B19", as_of=before, filter={"tags": "codes"}),
            memos.search("door", reference_time=before.isoformat()),
            memos.context("c"),
            memos.review.list(),
            memos.conversations.newest("c"),
            memos.conversations.around([*gone]),
            memos.browse.facets(),
            memos.browse.passages(kept),
            memos.timeline.day(),
            memos.timeline.day(before.isoformat(), stored=True),
            memos.timeline.difference((before - HOUR).isoformat()),
            memos.timeline.life("Maya"),
            memos.timeline.life("door code"),
            memos.graph.entities(),
            memos.graph.neighbours("Maya"),
            memos.graph.view(),
            memos.profiles.get("default", subject="Maya"),
            memos.memories.derived(kept),
        ]
        return list(map(repr, found))

    assert all(word in "".join(answers()) for word in ("47B19", "Robert", pending))
    clock.advance(2 * HOUR)
    told = answers()
    # A question stands in its answer.
    assert [each for each in told if any(word in each for word in ("xylophone.", "Robert", pending, *gone, fact))] == []
    assert kept in "".join(told)
    assert (memos.memories.page().total, memos.review.counts().pending) == (1, 0)
    calls: tuple[Callable[[str], object], ...] = (
        memos.get, memos.memories.history, memos.memories.relations, memos.memories.derived, memos.memories.rollback,
        memos.delete, memos.erase, memos.browse.places, memos.browse.passages,
        lambda item: memos.update(item, ttl_s=60), lambda item: memos.search.explain_missing(item, "door"),
    )  # fmt: skip
    for item in (gone[0], fact):
        for call in calls:
            with pytest.raises(NotFound):
                call(item)


def test_the_hourly_job_erases_what_has_expired_with_what_was_made_of_it_and_says_why(
    memos: MemOS, clock: FixedClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "_BATCH", 2)
    gone = [say(memos, f"{SECRET} {number}", ttl_s=3_600) for number in range(5)]
    fact = store_fact(memos, SECRET, gone[0])
    kept, later = say(memos, "It stays."), say(memos, "It stays for longer.", ttl_s=100 * 3_600)
    memos.cubes.create("other")
    say(memos, SECRET, cube="other", ttl_s=3_600)
    record = memos.records.put("code", SECRET, ttl_s=3_600)
    deleted = say(memos, SECRET, ttl_s=3_600)
    memos.delete(deleted)
    clock.advance(2 * HOUR)
    memos.records.put("code", "There is another code.")  # the id of the old one, which is still there
    hourly(memos, clock)
    with memos.ledger.read() as connection:
        left = set(connection.scalars(sa.select(t.items.c.id)))
        assert left.isdisjoint({*gone, fact, record.id, deleted})
        assert {kept, later} < left
        bodies = connection.scalars(sa.select(t.events.c.body).where(t.events.c.kind == "expire")).all()
    assert len(bodies) == 5
    assert all('"why": "time to live"' in body and '"receipt"' in body for body in bodies)
    assert memos.records.get("code").memory == "There is another code."
    memos.maintenance.finish_erasures()
    assert memos.maintenance.verify().clean
    assert "xylophone" not in json.dumps(contents(memos.ledger))


def test_a_change_keeps_the_end_unless_it_is_given_and_writes_no_version_of_its_own(
    memos: MemOS, clock: FixedClock
) -> None:
    item = say(memos, "I am in Rome.", ttl_s=3_600)
    end = memos.get(item).expires_at
    assert memos.update(item, "I am in Turin.").expires_at == end
    assert memos.memories.rollback(item, 1).expires_at == end
    fact = store_fact(memos, "is in Rome", item)
    assert memos.get(fact).expires_at == end
    longer = memos.update(item, ttl_s=10 * 3_600)
    assert (longer.version, longer.expires_at) == (3, memos.get(fact).expires_at)
    assert longer.expires_at is not None
    assert longer.expires_at > clock.now() + 9 * HOUR
    assert [event.kind for event in memos.events.list(item=item)][-1] == "ttl"
    clock.advance(2 * HOUR)
    both = memos.update(item, tags=["x"], ttl_s=None)
    assert (both.version, both.expires_at, memos.get(fact).expires_at) == (4, None, None)
    with pytest.raises(InvalidInput, match="nothing to change"):
        memos.update(item)
    for wrong in (0, -1, "60", True, float("inf"), 10**10):
        with pytest.raises(InvalidInput, match="ttl_s"):
            memos.update(item, ttl_s=wrong)
        with pytest.raises(InvalidInput, match="ttl_s"):
            memos.add("x", ttl_s=wrong)  # type: ignore[arg-type]
    # What two messages say ends with the first of them.
    short, long = say(memos, "I am in Pisa.", ttl_s=3_600), say(memos, "I am in Pisa now.")
    assert memos.get(store_fact(memos, "is in Pisa", short, long)).expires_at == memos.get(short).expires_at


def test_a_picture_ends_with_its_message(memos: MemOS, clock: FixedClock) -> None:
    part = {"type": "image_url", "image_url": {"url": data_url(picture())}}
    item = say(memos, {"role": "user", "content": [part]}, ttl_s=3_600)
    [image] = memos.images.of(item)
    assert memos.images.content(image.id)
    clock.advance(2 * HOUR)
    for call in (memos.images.get, memos.images.content, memos.images.description):
        with pytest.raises(NotFound, match="image"):
            call(image.id)


def test_a_repeated_add_with_another_time_to_live_is_another_call(memos: MemOS) -> None:
    first = memos.add("Soon gone.", ttl_s=60, idempotency_key="k")
    assert memos.add("Soon gone.", ttl_s=60, idempotency_key="k").item_ids == first.item_ids
    with pytest.raises(Conflict):
        memos.add("Soon gone.", idempotency_key="k")


def test_many_expired_ones_leave_room_for_the_others_in_a_search(memos: MemOS, clock: FixedClock) -> None:
    for batch in range(3):
        told = [{"id": f"{batch}/{n}", "memory": f"blue blue heron {batch} {n}", "ttl_s": 3_600} for n in range(100)]
        memos.records.put_many(told)
    kept = say(memos, "A heron was seen by the weir in the morning, and it was blue.")
    clock.advance(2 * HOUR)
    assert [hit.item.id for hit in memos.search("blue heron", top_k=5).hits] == [kept]


def test_it_travels_in_dumps_and_backups(memos: MemOS, clock: FixedClock, tmp_path: Path, settings: Settings) -> None:
    item = say(memos, "For a week.", ttl_s=7 * 86_400)
    soon = say(memos, SECRET, ttl_s=3_600)
    end = memos.get(item).expires_at
    memos.transfer.dump("default", tmp_path / "a.memcube")
    memos.maintenance.backup(tmp_path / "backup")
    clock.advance(2 * HOUR)
    memos.transfer.load(tmp_path / "a.memcube", cube="loaded", trust=True)
    [loaded] = memos.memories.list(cube="loaded")
    assert (loaded.memory, loaded.expires_at) == ("For a week.", end)
    hourly(memos, clock)
    memos.close()
    restored = settings.model_copy(update={"home": tmp_path / "restored"})
    restore(tmp_path / "backup", restored, embedder=WordEmbedder())
    with MemOS.open(tmp_path / "restored", settings=settings, embedder=WordEmbedder(), clock=clock) as there:
        assert [(each.id, each.expires_at) for each in there.memories.list()] == [(item, end)]
        with pytest.raises(NotFound):
            there.get(soon)
