"""Erasure: after it no byte of the data folder holds what was said, and nothing brings it back."""

from __future__ import annotations

import random
from datetime import timedelta
from pathlib import Path

import pytest

from memos import MemOS, Settings
from memos.core.text.acknowledgements import acknowledges
from memos.core.text.claims import read_claim
from memos.core.text.languages import language_of
from memos.errors import NotFound
from memos.scheduler.scheduler import PeriodicJob
from tests.fakes import FixedClock, WordEmbedder

SECRET = "The door code is 47B19-xylophone."


def bytes_of(folder: Path) -> bytes:
    return b"\n".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def test_no_byte_of_an_erased_sentence_or_of_its_entities_is_left(tmp_path: Path, settings: Settings) -> None:
    with MemOS.open(tmp_path, settings=settings, embedder=WordEmbedder()) as memos:
        ids = memos.add(
            [
                {"role": "user", "content": "Before it I said hello."},
                {"role": "user", "name": "Quillfeather", "content": SECRET, "message_id": "door-77"},
                {"role": "assistant", "content": "Noted, I will not repeat it."},
            ],
            conversation="c",
            idempotency_key="request-1",
        ).item_ids
        memos.update(ids[1], SECRET + " Zanzibar Krakatoa", reason="because of Popocatepetl")
        memos.search("door code")
        memos._context.indexes.vector.flush()
        assert b"xylophone" in bytes_of(tmp_path)
        receipt = memos.erase(ids[1])
        assert receipt.state == "purged"
        assert set(receipt.stores.values()) == {"purged"}
        assert receipt.rebuilt == (ids[2],)
        for needle in (b"xylophone", b"Zanzibar", b"Krakatoa", b"Popocatepetl", b"Quillfeather", b"door-77"):
            assert needle not in bytes_of(tmp_path), needle
        with pytest.raises(NotFound, match=receipt.id):
            memos.get(ids[1])
        assert all("xylophone" not in hit.item.memory for hit in memos.search("door code"))
        assert memos.maintenance.verify().clean
    assert b"xylophone" not in bytes_of(tmp_path)


def test_no_byte_of_an_erased_passage_of_a_document_is_left(tmp_path: Path, settings: Settings) -> None:
    manual = b"# Doors\n\nThe door code is 47B19-xylophone.\n\n# Windows Quillfeather\n\nThey stay shut."
    with MemOS.open(tmp_path, settings=settings, embedder=WordEmbedder()) as memos:
        file = memos.documents.wait(memos.documents.add(("house.md", manual)).id, 60)
        memos.search("door code")
        memos._context.indexes.vector.flush()
        assert b"xylophone" in bytes_of(tmp_path)
        code, windows = memos.memories.list()
        assert memos.erase(code.id).state == "purged"
        assert b"xylophone" not in bytes_of(tmp_path)
        assert file.sha256.encode() not in bytes_of(tmp_path)
        assert memos.documents.markdown(file.id) == windows.memory
        assert memos.documents.erase(file.id).state == "purged"
        for needle in (b"Quillfeather", b"stay shut", b"house.md"):
            assert needle not in bytes_of(tmp_path), needle
        assert memos.maintenance.verify().clean
    assert b"xylophone" not in bytes_of(tmp_path)


def test_the_neighbours_windows_no_longer_answer_for_the_erased_words(memos: MemOS) -> None:
    ids = memos.add(["a plain start", "the pangolin story", "a plain end", "and the last"], conversation="c").item_ids
    assert any("window_bm25" in {v.arm for v in hit.arms} for hit in memos.search("pangolin", explain=True))
    memos.erase(ids[1])
    for hit in memos.search("pangolin", explain=True):
        assert not any("bm25" in vote.arm for vote in hit.arms)


@pytest.mark.heavy
def test_many_sizes_of_text_leave_no_remains_in_the_ledgers_pages(tmp_path: Path, settings: Settings) -> None:
    seed = random.Random(7)
    with MemOS.open(tmp_path, settings=settings, embedder=WordEmbedder()) as memos:
        ids = []
        for number in range(120):
            filler = "".join(seed.choice("abcdefgh ") for _ in range(seed.choice([5, 60, 900, 5000, 20_000])))
            ids += memos.add(f"keyword{number:04d} {filler}", conversation=f"c{number % 5}").item_ids
        for number in range(0, 120, 3):
            memos.update(ids[number], f"keyword{number:04d} " + "z" * seed.randrange(3000))
        doomed = seed.sample(range(120), 40)
        receipt = memos.erase([ids[number] for number in doomed])
        assert receipt.state == "purged"
        left = bytes_of(tmp_path)
        assert [number for number in doomed if b"keyword%04d" % number in left] == []
        assert all(b"keyword%04d" % number in left for number in range(120) if number not in doomed)
        assert memos.maintenance.verify().clean


def test_an_erasure_cut_off_before_the_files_were_cleaned_is_finished_later(tmp_path: Path, settings: Settings) -> None:
    with MemOS.open(tmp_path, settings=settings, embedder=WordEmbedder()) as memos:
        item = memos.add(SECRET).item_ids[0]
        memos._worker.stop()
        receipt = memos.erase(item, wait=False)
        assert receipt.state == "purging"
    with MemOS.open(tmp_path, settings=settings, embedder=WordEmbedder()) as memos:
        memos.maintenance.purge()
        assert memos.memories.erase_receipt(receipt.id).state == "purged"
    assert b"xylophone" not in bytes_of(tmp_path)


def test_what_an_erased_correction_had_replaced_is_current_again_and_names_no_successor(memos: MemOS) -> None:
    old = memos.add([{"role": "user", "name": "Maya", "content": "I live in Paris."}]).item_ids[0]
    new = memos.feedback("I live in Lyon.", speaker="Maya").item_id
    memos.erase(new)
    assert (memos.get(old).status, memos.get(old).superseded_by, memos.get(old).valid_to) == ("active", None, None)
    assert memos.search("Where do I live?").hits[0].item.id == old
    assert new not in str(memos.memories.history(old))
    assert memos.maintenance.verify().clean


@pytest.mark.parametrize("way", ["delete", "erase"])
def test_without_a_correction_in_the_middle_the_first_statement_is_replaced_by_the_last(memos: MemOS, way: str) -> None:
    first = memos.add([{"role": "user", "name": "Maya", "content": "I live in Paris."}]).item_ids[0]
    middle, last = (memos.feedback(f"I live in {town}.", speaker="Maya").item_id for town in ("Lyon", "Nice"))
    getattr(memos.memories, way)(middle)
    assert (memos.get(first).status, memos.get(first).superseded_by) == ("superseded", last)
    getattr(memos.memories, way)(last)
    assert memos.get(first).status == "active"
    assert memos.maintenance.verify().clean


def test_what_was_read_from_texts_leaves_the_process_with_an_erasure(memos: MemOS) -> None:
    [item] = memos.add("The safe opens with 7731 and a turn to the left.").item_ids
    memos.search("How does the safe open?")
    caches = (acknowledges, language_of, read_claim)
    assert all(cached.cache_info().currsize > 0 for cached in caches)
    memos.erase(item)
    assert all(cached.cache_info().currsize == 0 for cached in caches)


def test_a_repeated_request_after_an_erasure_is_a_new_one(memos: MemOS) -> None:
    first = memos.add(SECRET, idempotency_key="k").item_ids[0]
    memos.erase(first)
    again = memos.add(SECRET, idempotency_key="k")
    assert not again.replayed
    assert again.item_ids != (first,)


def test_the_event_chain_holds_after_bodies_were_erased(memos: MemOS) -> None:
    ids = memos.add(["one", "two", "three"], conversation="c").item_ids
    memos.update(ids[0], "uno")
    memos.erase(ids[0])
    memos.update(ids[1], "dos")
    assert memos.maintenance.verify().clean


def expire(memos: MemOS) -> None:
    """Do what the hourly job does."""
    assert memos._scheduler.periodic.fire(PeriodicJob("retention", timedelta(hours=1)))
    memos.tasks.wait(timeout_s=60)
    assert [task.state for task in memos.tasks.list(kinds=["retention"], limit=1)] == ["done"]


def test_a_deleted_item_is_erased_when_its_retention_period_is_over(tmp_path: Path, settings: Settings) -> None:
    clock = FixedClock()
    with MemOS.open(tmp_path, settings=settings, embedder=WordEmbedder(), clock=clock) as memos:
        memos._worker.stop()
        old, kept = memos.add(SECRET).item_ids[0], memos.add("still here").item_ids[0]
        memos.delete(old)
        clock.advance(timedelta(days=29))
        expire(memos)
        assert memos.memories.history(old)
        clock.advance(timedelta(days=2))
        expire(memos)
        memos.maintenance.purge()
        with pytest.raises(NotFound, match="erased"):
            memos.memories.history(old)
        assert memos.get(kept).memory == "still here"
    assert b"xylophone" not in bytes_of(tmp_path)


def test_an_erasure_reaches_the_vectors_of_a_former_embedder(tmp_path: Path, settings: Settings) -> None:
    with MemOS.open(tmp_path, settings=settings, embedder=WordEmbedder()) as memos:
        item = memos.add(SECRET, tags=["xylophone-tag"], conversation="xylophone-talk").item_ids[0]
    with MemOS.open(tmp_path, settings=settings, embedder=WordEmbedder(32, "smaller")) as memos:
        assert memos.get(item).memory == SECRET  # what needs no vectors is served
        assert memos.erase(item).state == "purged"
        assert b"xylophone" not in bytes_of(tmp_path)
    with MemOS.open(tmp_path, settings=settings, embedder=WordEmbedder()) as memos:
        assert memos.add("a new start").indexed
        assert memos.maintenance.verify().clean
    assert b"xylophone" not in bytes_of(tmp_path)


def test_the_description_of_an_empty_cube_goes_with_it(tmp_path: Path, settings: Settings) -> None:
    with MemOS.open(tmp_path, settings=settings, embedder=WordEmbedder()) as memos:
        memos.cubes.create("temp", description="the xylophone affair")
        assert b"xylophone" in bytes_of(tmp_path)
        assert memos.cubes.drop("temp").state == "purged"
        assert b"xylophone" not in bytes_of(tmp_path)


def test_windows_follow_the_order_of_what_is_left_and_not_the_distance(memos: MemOS) -> None:
    words = ["zebrafish sonata", "apple", "banana", "cherry", "durian"]
    ids = memos.add(words, conversation="c").item_ids
    memos.erase(ids[2])
    memos.erase(ids[3])
    assert set(memos.erase(ids[0]).rebuilt) == {ids[1], ids[4]}
    for hit in memos.search("zebrafish sonata", explain=True):
        assert not any("bm25" in vote.arm for vote in hit.arms)


@pytest.mark.heavy
def test_pages_that_were_rebalanced_keep_nothing(tmp_path: Path, settings: Settings) -> None:
    """This seed left text in `ledger.db` with `secure_delete` alone."""
    seed = random.Random(2)

    def token() -> str:
        return "Zq" + "".join(seed.choices("abcdefghijklmnopqrstuvwxyz", k=12))

    with MemOS.open(tmp_path, settings=settings, embedder=WordEmbedder()) as memos:
        told: dict[str, list[str]] = {}
        for _ in range(250):
            name, conversation, message, key, text = (token() for _ in range(5))
            receipt = memos.add(
                [{"role": "user", "name": name, "content": text + " " + "x" * seed.choice([1, 10, 200, 3000]),
                  "message_id": message}],
                conversation=conversation,
                idempotency_key=key,
            )  # fmt: skip
            told[receipt.item_ids[0]] = [name, conversation, message, key, text]
        doomed = seed.sample(sorted(told), 60)
        memos.erase(doomed)
        left = bytes_of(tmp_path)
        assert [word for item in doomed for word in told[item] if word.encode() in left] == []


def test_an_item_that_was_brought_back_does_not_expire(tmp_path: Path, settings: Settings) -> None:
    clock = FixedClock()
    with MemOS.open(tmp_path, settings=settings, embedder=WordEmbedder(), clock=clock) as memos:
        memos._worker.stop()
        item = memos.add("precious").item_ids[0]
        memos.delete(item)
        memos.memories.rollback(item, 1)
        clock.advance(timedelta(days=60))
        expire(memos)
        assert memos.get(item).memory == "precious"
