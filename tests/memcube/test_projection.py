"""How indexes follow the ledger when they are slow, down, poisoned or restarted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from memos import MemOS, Settings
from memos.core.ports import Vector
from memos.core.settings import IndexSettings, LimitSettings
from memos.errors import ModelError
from memos.memcube.ledger import outbox
from tests.fakes import WordEmbedder

POISON = "poisonous"


class FussyEmbedder(WordEmbedder):
    """Refuses one word for as long as it is fussy."""

    fussy = True

    def embed_documents(self, texts: Sequence[str]) -> Vector:
        if self.fussy and any(POISON in text for text in texts):
            raise ModelError("this text makes no vector")
        return super().embed_documents(texts)


@pytest.fixture
def fussy() -> FussyEmbedder:
    return FussyEmbedder()


@pytest.fixture
def idle(tmp_path: Path, fussy: FussyEmbedder) -> Iterator[MemOS]:
    """An installation whose background thread is stopped, so that each step is the test's own."""
    settings = Settings(index=IndexSettings(wait_s=30), limits=LimitSettings(min_free_bytes=0))
    with MemOS.open(tmp_path / "home", settings=settings, embedder=fussy) as memos:
        memos._worker.stop()
        yield memos


def waiting(memos: MemOS, target: outbox.Target = "vector") -> int:
    with memos.ledger.read() as connection:
        return outbox.count(connection, target)


def test_rows_leave_the_outbox_only_after_a_flush(idle: MemOS) -> None:
    idle.add("flushed later")
    assert waiting(idle) == 1
    assert [hit.item.memory for hit in idle.search("flushed")] == ["flushed later"]
    idle._context.indexes.vector.flush()
    assert waiting(idle) == 0
    assert not idle._context.indexes.vector.lost_writes()


def test_what_no_index_has_seen_is_found_too(tmp_path: Path) -> None:
    settings = Settings(index=IndexSettings(wait_s=0), limits=LimitSettings(min_free_bytes=0))
    with MemOS.open(tmp_path, settings=settings, embedder=WordEmbedder()) as memos:
        memos._worker.stop()
        with memos._context.indexes.vector._lock:  # the writer is busy: nothing can be applied
            receipt = memos.add(["fresh news", "other things"], conversation="c")
            assert not receipt.indexed
            result = memos.search("fresh news", explain=True)
            assert result[0].item.memory == "fresh news"
            assert "unindexed_terms" in {vote.arm for vote in result[0].arms}
            assert "dated" in {vote.arm for vote in memos.search("fresh news today", explain=True)[0].arms}
            memos.update(receipt.item_ids[0], "stale news")
            assert memos.search("stale news")[0].item.memory == "stale news"
            memos.delete(receipt.item_ids[0])
            assert "stale news" not in [hit.item.memory for hit in memos.search("stale news")]
        assert memos.maintenance.verify().clean


def test_a_poisoned_item_is_parked_reported_and_holds_up_no_other(idle: MemOS, fussy: FussyEmbedder) -> None:
    good = idle.add("harmless before").item_ids[0]
    receipt = idle.add(f"{POISON} words")
    assert not receipt.indexed
    after = idle.add("harmless after").item_ids[0]
    for _ in range(4):
        idle._context.indexes.vector.drain(5)
    idle._context.indexes.vector.flush()
    assert waiting(idle) == 1
    with idle.ledger.read() as connection:
        [parked] = outbox.parked_rows(connection)
    assert (parked.item, parked.error) == (receipt.item_ids[0], "this text makes no vector")
    found = {hit.item.id for hit in idle.search("harmless")}
    assert {good, after} <= found
    report = idle.maintenance.verify()
    assert [(d.store, d.kind, d.subject) for d in report.differences] == [("vector", "parked", receipt.item_ids[0])]
    fussy.fussy = False
    assert idle.maintenance.verify(repair=True).clean
    assert receipt.item_ids[0] in [hit.item.id for hit in idle.search(POISON)]


def test_an_engine_that_died_gets_its_unflushed_changes_again(idle: MemOS) -> None:
    idle.add("before the flush")
    idle._context.indexes.vector.flush()
    idle.add("after the flush")
    child = psutil.Process(idle._installation.vector._child.pid)
    child.kill()
    psutil.wait_procs([child], timeout=10)
    result = idle.search("flush")
    assert {hit.item.memory for hit in result} == {"before the flush", "after the flush"}
    assert result.missing_arms  # this search noticed, and said what it could not ask
    receipt = idle.add("after the crash")
    if not receipt.indexed:
        assert idle._context.indexes.vector.drain(5)
    assert not idle.search("flush").missing_arms
    assert idle.maintenance.verify().clean


def test_a_projection_that_repeats_itself_changes_nothing(idle: MemOS) -> None:
    ids = idle.add(["alpha", "beta", "gamma"], conversation="c").item_ids
    idle.update(ids[1], "beta two")
    before = sorted((s.id, s.revision) for s in idle._installation.vector.scan("default"))
    for _ in range(2):
        idle._installation.vector_follower.project(list(ids))
    assert sorted((s.id, s.revision) for s in idle._installation.vector.scan("default")) == before
    assert len(before) == 4  # three items, one of them with two versions


def test_a_long_message_has_a_point_for_each_chunk_and_loses_them_when_it_gets_short(idle: MemOS) -> None:
    item = idle.add("start " + "filler " * 900 + "needle").item_ids[0]
    assert sum(1 for _ in idle._installation.vector.scan("default")) > 3
    assert idle.search("needle")[0].item.id == item
    idle.erase(idle.add("unrelated").item_ids[0])
    idle.update(item, "short now")
    stamps = list(idle._installation.vector.scan("default"))
    assert {stamp.item for stamp in stamps} == {item}
    assert idle.maintenance.verify().clean


def test_a_search_that_cannot_look_at_all_that_waits_says_so(tmp_path: Path) -> None:
    settings = Settings(index=IndexSettings(wait_s=0), limits=LimitSettings(min_free_bytes=0))
    with MemOS.open(tmp_path, settings=settings, embedder=WordEmbedder()) as memos:
        memos._worker.stop()
        memos.cubes.create("small")
        with memos._context.indexes.vector._lock:
            [oldest] = memos.add("a lighthouse").item_ids
            memos.add([f"wave {number}" for number in range(255)])
            memos.add("a lighthouse", cube="small")
            assert memos.search("lighthouse").missing_arms == ()
            [last] = memos.add("one more wave").item_ids
            assert memos.search("lighthouse").missing_arms == ("unindexed",)
            assert memos.search("lighthouse", cubes=["small"]).missing_arms == ()
            memos.delete(oldest)
            for number in range(300):
                memos.update(last, f"one more wave, {number}")
            assert memos.search("wave 0").missing_arms == ("unindexed",)
        memos._context.indexes.vector.drain(60)
        assert memos.search("lighthouse").missing_arms == ()


def test_one_item_with_many_changes_does_not_hide_others_that_wait(tmp_path: Path) -> None:
    settings = Settings(index=IndexSettings(wait_s=0), limits=LimitSettings(min_free_bytes=0))
    with MemOS.open(tmp_path, settings=settings, embedder=WordEmbedder()) as memos:
        memos._worker.stop()
        with memos._context.indexes.vector._lock:
            memos.add("a lighthouse")
            [busy] = memos.add("a wave").item_ids
            for number in range(300):
                memos.update(busy, f"wave {number}")
            found = memos.search("lighthouse")
            assert found[0].item.memory == "a lighthouse"
            assert found.missing_arms == ()
