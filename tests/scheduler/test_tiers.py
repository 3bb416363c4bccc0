"""Pages leave the short tier for segments, each for one, whatever is added, changed, erased or killed meanwhile."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from memos import MemOS, Settings
from memos.core.ports import Vector
from memos.core.types import Item, Tier
from memos.memcube.ledger import schema as t
from memos.memcube.ledger import segments as tiers
from memos.memcube.ledger import tasks
from memos.memcube.ledger.tasks import NewTask
from memos.scheduler.accesses import Triggers
from memos.scheduler.jobs.segments import OverflowJob
from memos.scheduler.rules import TierSettings
from memos.scheduler.runner import Runner
from memos.scheduler.scheduler import PeriodicJob
from memos.scheduler.task import Job
from tests.fakes import FixedClock, WordEmbedder
from tests.support import forks
from tests.support.ledgers import end_leases

ROOT = Path(__file__).resolve().parents[2]
GARDEN = "The tomato plants in the garden need water and compost."
ENGINE = "The motorcycle engine lost oil near the gasket again."


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is gathered for two seconds before it is done."""
    monkeypatch.setattr(tiers, "_GATHERING", timedelta(0))


def pages_of(count: int, said: str = "Exchange number {} about the garden.") -> list[dict[str, str]]:
    return [
        {"role": role, "content": said.format(number) if role == "user" else f"Understood, exchange {number}."}
        for number in range(count)
        for role in ("user", "assistant")
    ]


def settled(memos: MemOS) -> None:
    memos.tasks.wait(timeout_s=120)
    assert not {"failed", "dead"} & set(memos.tasks.counts())  # a periodic task may just have begun


def tier_of(memos: MemOS, ids: Sequence[str]) -> list[str]:
    return [memos.get(id_).tier for id_ in ids]


def test_the_oldest_pages_leave_when_there_are_too_many(memos: MemOS) -> None:
    ids = memos.add(pages_of(10), conversation="c").item_ids
    settled(memos)
    assert set(tier_of(memos, ids)) == {Tier.SHORT}
    assert memos.tiers.segments() == ()
    more = memos.add(pages_of(5, "Later exchange {} about the garden."), conversation="c").item_ids
    settled(memos)
    assert tier_of(memos, [*ids, *more]) == [Tier.MID] * 10 + [Tier.SHORT] * 20
    assert sum(segment.pages for segment in memos.tiers.segments()) == 5
    assert len(memos.memories.list(filter={"tier": "mid"})) == 10
    found = memos.search("exchange number garden", filter={"tier": "mid"}, top_k=50)
    assert {hit.item.id for hit in found} <= set(ids[:10])
    assert len(found) > 0
    assert memos.maintenance.verify().clean
    assert all(version.version == 1 for version in memos.memories.history(ids[0]))  # a move is no version


def test_pages_of_a_topic_come_together(memos: MemOS) -> None:
    texts = [GARDEN, ENGINE, GARDEN + " Soon.", ENGINE + " Today.", GARDEN + " Always."]
    messages = [{"role": "user", "content": text} for text in texts]
    memos.add([*messages, *pages_of(10)], conversation="c")
    settled(memos)
    by_words = {segment.pages: segment for segment in memos.tiers.segments()}
    assert sorted(by_words) == [2, 3]
    assert "tomato" in by_words[3].summary
    assert "gasket" in by_words[2].summary
    assert "tomato" not in by_words[2].summary
    assert any("tomato" in word for word in by_words[3].keywords)


def test_messages_without_a_conversation_are_pages_too(memos: MemOS) -> None:
    ids = [memos.add(f"{GARDEN} Note {number}.").item_ids[0] for number in range(4)]
    settled(memos)
    assert set(tier_of(memos, ids)) == {Tier.MID}
    assert [segment.pages for segment in memos.tiers.segments()] == [4]
    later = memos.add(ENGINE).item_ids[0]
    settled(memos)
    assert memos.get(later).tier == Tier.MID
    assert len(memos.tiers.segments()) == 2
    assert memos.maintenance.verify().clean


def test_an_erased_message_is_in_no_segment_and_its_words_nowhere(memos: MemOS) -> None:
    secret = "The wombat password of the greenhouse is zanzibar."
    item = memos.add(secret).item_ids[0]
    other = memos.add("The wombat password of the greenhouse was changed.").item_ids[0]
    settled(memos)
    assert "zanzibar" in memos.tiers.segments()[0].summary
    memos.erase(item)
    assert "zanzibar" not in str(memos.tiers.segments())
    settled(memos)
    [segment] = memos.tiers.segments()
    assert segment.pages == 1
    assert "changed" in segment.summary
    with memos.ledger.read() as connection:
        row = connection.execute(sa.select(t.segments)).one()
    assert "zanzibar" not in str(row)
    assert row.vector is not None
    assert memos.maintenance.verify().clean
    memos.erase(other)
    assert memos.tiers.segments() == ()
    memos.close()  # files come and go while it is open
    assert b"zanzibar" not in b"".join(path.read_bytes() for path in memos.home.rglob("*") if path.is_file())


def test_a_message_erased_while_its_page_is_on_its_way_leaves_no_word_in_a_segment(memos: MemOS) -> None:
    memos._scheduler.stop()
    doomed = memos.add("The wombat password of the greenhouse is zanzibar.").item_ids[0]
    kept = memos.add("The kettle on the balcony is purple.").item_ids[0]
    follower = memos._installation.vector_follower

    def turns_of(states: Sequence[Item]) -> Vector:
        vectors = follower.turns_of(states)
        if doomed in {state.id for state in states}:
            memos.erase(doomed)
        return vectors

    job = OverflowJob(memos._scheduler.cube_rules, turns_of, Triggers(lambda: False, lambda: False))
    runner = Runner(memos.ledger, memos.clock, memos.settings.tasks)
    runner.register([Job(tiers.OVERFLOW, job.run)])
    runner.start()
    while any(not task.ended for task in memos.tasks.list(kinds=[tiers.OVERFLOW])):
        time.sleep(0.02)
    runner.stop()
    [segment] = memos.tiers.segments()
    assert (segment.pages, "kettle" in segment.summary) == (1, True)
    assert memos.get(kept).tier == Tier.MID
    with memos.ledger.read() as connection:
        assert "zanzibar" not in str(connection.execute(sa.select(t.segments)).all())
    assert memos.maintenance.verify().clean


def test_what_a_message_says_now_is_what_its_segment_says(memos: MemOS) -> None:
    item = memos.add("The kettle on the balcony is purple.").item_ids[0]
    settled(memos)
    memos.update(item, "The kettle on the balcony is orange.")
    settled(memos)
    [segment] = memos.tiers.segments()
    assert "orange" in segment.summary
    assert "purple" not in segment.summary
    memos.delete(item)
    settled(memos)
    [segment] = memos.tiers.segments()
    assert (segment.summary, segment.keywords, segment.pages) == ("", (), 1)
    memos.memories.rollback(item, 1)
    settled(memos)
    assert "purple" in memos.tiers.segments()[0].summary


def test_what_is_found_warms_its_segment_and_a_search_writes_nothing(memos: MemOS) -> None:
    memos.add(GARDEN)
    memos.add(ENGINE)
    settled(memos)
    before = {segment.summary: segment.heat for segment in memos.tiers.segments()}
    memos._worker.stop()
    memos._scheduler.stop()  # both write now and then
    changes = memos.ledger.changes
    for _ in range(5):
        memos.search("tomato garden", top_k=1)
    assert memos.ledger.changes == changes
    memos._scheduler.accesses.flush()
    hottest, other = memos.tiers.segments()
    assert "tomato" in hottest.summary
    assert hottest.heat == pytest.approx(before[hottest.summary] + 5, rel=0.01)
    assert other.heat == pytest.approx(before[other.summary], rel=0.01)
    assert hottest.visits == 5


def test_accesses_of_what_is_gone_are_dropped(memos: MemOS) -> None:
    memos.cubes.create("other")
    memos.add(GARDEN, cube="other")
    item = memos.add(GARDEN).item_ids[0]
    memos.search("garden", cubes=["default", "other"])
    memos.erase(item)
    memos.cubes.drop("other")
    memos._scheduler.accesses.flush()
    with memos.ledger.read() as connection:
        assert connection.execute(sa.select(t.warmth)).all() == []


def test_a_smaller_short_tier_is_reached_after_the_next_look(tmp_path: Path, settings: Settings) -> None:
    with MemOS.open(tmp_path, settings=settings, embedder=WordEmbedder()) as memos:
        memos.add(pages_of(8), conversation="c")
        settled(memos)
        assert memos.tiers.segments() == ()
    smaller = settings.model_copy(update={"heat": TierSettings(short_capacity=3)})
    with MemOS.open(tmp_path, settings=smaller, embedder=WordEmbedder()) as memos:
        with memos.ledger.write() as connection:
            connection.execute(sa.delete(t.leases))
        assert memos._scheduler.periodic.fire(PeriodicJob("settle", timedelta(hours=1)))
        settled(memos)
        assert sum(segment.pages for segment in memos.tiers.segments()) == 5
        assert memos.maintenance.verify().clean


def test_another_embedder_makes_the_vectors_again(tmp_path: Path, settings: Settings) -> None:
    with MemOS.open(tmp_path, settings=settings, embedder=WordEmbedder()) as memos:
        memos.add(GARDEN)
        settled(memos)
    with MemOS.open(tmp_path, settings=settings, embedder=WordEmbedder(32, "fewer words")) as memos:
        memos.maintenance.reembed()
        settled(memos)
        with memos.ledger.read() as connection:
            [segment] = tiers.hottest(connection, "default", 10)
        assert segment.vector is not None
        assert segment.vector.shape == (32,)
        memos.add(GARDEN + " Again.")
        settled(memos)
        assert [segment.pages for segment in memos.tiers.segments()] == [2]


def test_a_very_long_conversation_is_moved_in_parts(memos: MemOS) -> None:
    memos.add(pages_of(150), conversation="c")
    settled(memos)
    assert sum(segment.pages for segment in memos.tiers.segments(limit=1000)) == 140
    assert memos.maintenance.verify().clean


def test_moves_are_told_with_the_heat_they_left(memos: MemOS) -> None:
    item = memos.add(GARDEN).item_ids[0]
    settled(memos)
    [segment] = memos.tiers.segments()
    with memos.ledger.read() as connection:
        bodies = [
            json.loads(body) for body in connection.scalars(sa.select(t.events.c.body).where(t.events.c.kind == "move"))
        ]
    assert bodies == [{"tier": "mid", "pages": {item: segment.id}, "heat": {segment.id: pytest.approx(1, rel=0.01)}}]


@pytest.mark.parametrize(
    "text", ["👋🏽 مرحبا 你好，我们在花园里种番茄。", "\u202eabc\u202c", "a" * 50_000, "1", "....", "ﬁ İ ẞ"]
)
def test_odd_texts_make_segments(memos: MemOS, text: str) -> None:
    memos.add(text)
    settled(memos)
    [segment] = memos.tiers.segments()
    assert segment.pages == 1
    assert len(segment.summary) < 1000
    assert memos.maintenance.verify().clean


WORKER = """
import sys
from memos import MemOS, Settings
from memos.scheduler.rules import TierSettings
from tests.fakes import FixedClock, WordEmbedder
settings = Settings(heat=TierSettings(short_capacity=2))
with MemOS.open(sys.argv[1], settings=settings, embedder=WordEmbedder()) as memos:
    print("open", flush=True)
    for number in range(10_000):
        memos.add([{"role": "user", "content": f"Turn {number} of the garden talk."}], conversation=f"c{number % 3}")
        memos.add(f"Note {number} about the motorcycle.")
        if number % 7 == 6:
            memos.erase(memos.memories.list(limit=3)[-1].id, wait=False)
        print(number, flush=True)
"""


@pytest.mark.heavy
def test_kills_lose_and_double_no_page(tmp_path: Path, settings: Settings) -> None:
    chance, kills = random.Random(11), 12
    for _ in range(kills):
        with forks.Script(WORKER, str(tmp_path)) as process:
            assert process.stdout.readline() == "open\n"
            time.sleep(chance.uniform(0.05, 0.5))  # when the kill comes is the test
            process.kill()
    smaller = settings.model_copy(update={"heat": TierSettings(short_capacity=2)})
    end_leases(tmp_path)
    with MemOS.open(tmp_path, settings=smaller, embedder=WordEmbedder()) as memos:
        memos._scheduler.runner.keep_leases()
        settled(memos)
        with memos.ledger.read() as connection:
            assert tiers.misplaced(connection, "default", 100) == []
            assert tiers.crowded(connection, 2, 10) == []
            held = connection.scalar(sa.select(sa.func.count()).select_from(t.pages)) or 0
        mid = memos.memories.list(filter={"tier": "mid"}, limit=10_000)
        assert held == len(mid) > 0  # each page here is one message
        assert memos.maintenance.verify().clean


def test_a_conversation_that_ended_moves_on_whole_and_goes_on_in_new_pages(tmp_path: Path, settings: Settings) -> None:
    clock = FixedClock()
    with MemOS.open(tmp_path / "home", settings=settings, embedder=WordEmbedder(), clock=clock) as memos:
        ids = memos.add(pages_of(3), conversation="old").item_ids
        clock.advance(timedelta(hours=13))
        fresh = memos.add("Said just now.", conversation="new").item_ids
        fire(memos, "settle")
        settled(memos)
        assert set(tier_of(memos, ids)) == {Tier.MID}
        assert tier_of(memos, fresh) == [Tier.SHORT]
        more = memos.add([{"role": "assistant", "content": "One more thing."}], conversation="old").item_ids
        item = memos.get(more[0])
        assert (item.tier, item.page) == (Tier.SHORT, 3)
        assert memos.maintenance.verify().clean
        clock.advance(timedelta(hours=13))
        fire(memos, "settle")
        settled(memos)
        assert tier_of(memos, more) == [Tier.MID]
        assert memos.maintenance.verify().clean


def fire(memos: MemOS, kind: str) -> None:
    with memos.ledger.write() as connection:
        tasks.enqueue(connection, "", [NewTask(kind, key="by hand")], memos.clock.now())
    memos._scheduler.runner.wake()


def test_reading_everything_reads_what_was_just_said(memos: MemOS) -> None:
    memos.add(
        [{"role": "user", "content": "I live in Paris."}, {"role": "assistant", "content": "Nice."}], conversation="c"
    )
    memos.tiers.analyse(everything=True)
    settled(memos)
    assert [item.value for item in memos.memories.list(filter={"type": "user"})] == ["Paris"]
    assert memos.maintenance.verify().clean
