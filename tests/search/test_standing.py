"""What states what holds on is found by requests that share no word with it, in its own cube and while it holds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memos import MemOS
from memos.core.settings import IndexSettings, LimitSettings, Settings
from memos.core.types import SearchResult

CALM = "I avoid bustling nightlife and crowds."
ORDER = "Always include version numbers when I ask about software libraries."
REQUEST = "Can you suggest some hotels in Las Vegas for my trip?"


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemOS]:
    with MemOS.open(tmp_path_factory.mktemp("home")) as memos:
        talk = [f"The hotel in Las Vegas number {n} was on the list for that trip." for n in range(30)]
        memos.add([{"role": "user", "content": text} for text in talk], conversation="trip")
        memos.add(CALM, conversation="tastes")
        memos.add(ORDER, conversation="orders")
        memos.add([{"role": "assistant", "content": "I avoid beige hotels in Las Vegas, always."}], conversation="it")
        yield memos


def places(result: SearchResult) -> dict[str, int]:
    return {hit.item.memory: place for place, hit in enumerate(result, start=1)}


def test_a_request_gets_what_its_asker_avoids_among_the_first(opened: MemOS) -> None:
    found = opened.search(REQUEST, top_k=10, explain=True)
    assert places(found)[CALM] <= 4
    [hit] = [hit for hit in found if hit.item.memory == CALM]
    [vote] = [vote for vote in hit.arms if vote.arm == "standing"]
    assert vote.rank >= 1
    assert sum(each.gave for each in hit.arms) + sum(each.gave for each in hit.boosts) == pytest.approx(hit.score)
    assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)


def test_a_question_that_asks_for_nothing_gets_only_an_order_that_is_about_it(opened: MemOS) -> None:
    told = opened.search("Which software libraries are used in this project?", top_k=5)
    assert places(told)[ORDER] <= 2
    plain = opened.search("Which hotel in Las Vegas was on the list?", top_k=10, explain=True)
    assert not [hit for hit in plain if "standing" in {vote.arm for vote in hit.arms}]


def test_what_an_assistant_says_of_itself_does_not_stand(opened: MemOS) -> None:
    found = opened.search(REQUEST, top_k=40, explain=True)
    standing = {hit.item.memory for hit in found if "standing" in {vote.arm for vote in hit.arms}}
    assert standing <= {CALM, ORDER}


def test_it_is_explained_why_it_is_there(opened: MemOS) -> None:
    [item] = [item for item in opened.memories.list(limit=100) if item.memory == CALM]
    told = opened.search.why_not(item.id, REQUEST, top_k=10)
    assert told.stage == "found"


def test_it_stands_in_its_own_cube_and_under_the_filter(opened: MemOS) -> None:
    opened.cubes.create("other")
    opened.add("A hotel in Las Vegas.", cube="other")
    assert CALM not in places(opened.search(REQUEST, cubes=["other"], top_k=10))
    limited = opened.search(REQUEST, top_k=10, filter={"conversation": "trip"})
    assert CALM not in places(limited)


def test_what_is_taken_back_stands_no_more(tmp_path: Path) -> None:
    with MemOS.open(tmp_path) as memos:
        [first] = memos.add(CALM).item_ids
        assert places(memos.search(REQUEST, top_k=3)) == {CALM: 1}
        memos.update(first, "I enjoy quiet places.")
        assert CALM not in places(memos.search(REQUEST, top_k=3))
        memos.delete([first])
        assert not places(memos.search(REQUEST, top_k=3))


def test_a_request_gets_what_its_asker_told_of_themselves_in_whatever_words(tmp_path: Path) -> None:
    told = "Anything with a beat past midnight and I'm a wreck for days."
    with MemOS.open(tmp_path) as memos:
        memos.add([{"role": "user", "content": f"The hotel in Las Vegas number {n} has a pool."} for n in range(30)])
        memos.add(told)
        memos.add([{"role": "assistant", "content": "I am at my best in a hotel in Las Vegas myself."}])
        found = memos.search(REQUEST, top_k=10, explain=True)
        assert places(found)[told] <= 2
        [hit] = [hit for hit in found if "of_self" in {vote.arm for vote in hit.arms}]
        assert hit.item.memory == told
        plain = memos.search("Which hotel in Las Vegas has a pool?", top_k=10, explain=True)
        assert not [hit for hit in plain if "of_self" in {vote.arm for vote in hit.arms}]


def test_what_is_told_of_oneself_counts_before_it_is_indexed_too(tmp_path: Path) -> None:
    told = "Anything with a beat past midnight and I'm a wreck for days."
    settings = Settings(index=IndexSettings(wait_s=0), limits=LimitSettings(min_free_bytes=0))
    with MemOS.open(tmp_path, settings=settings) as memos:
        memos._worker.stop()
        with memos._context.indexes.vector._lock:  # the writer is busy: nothing can be applied
            memos.add([{"role": "user", "content": f"The hotel in Las Vegas number {n} is fine."} for n in range(30)])
            memos.add(told)
            [hit] = [hit for hit in memos.search(REQUEST, top_k=4, explain=True) if hit.item.memory == told]
            assert "of_self" in {vote.arm for vote in hit.arms}


def test_what_is_told_on_the_subject_takes_no_place_from_tastes_and_orders(tmp_path: Path) -> None:
    order = "Always include prices when I ask about hotels."
    with MemOS.open(tmp_path) as memos:
        for place in ("Bellagio", "Luxor", "Mirage", "Venetian", "Aria", "Cosmopolitan"):
            memos.add(f"I stayed at the {place} in Las Vegas last spring.")
        memos.add([CALM, order])
        found = places(memos.search(REQUEST, top_k=10))
        assert found[order] <= 4
        assert found[CALM] <= 4


def test_the_same_words_take_one_place_and_what_is_far_off_none(tmp_path: Path) -> None:
    with MemOS.open(tmp_path) as memos:
        memos.add([{"role": "user", "content": f"The hotel in Las Vegas number {n} is fine."} for n in range(30)])
        for number in range(4):
            memos.add("Anything with a beat past midnight and I'm a wreck for days.", conversation=str(number))
        memos.add("I get a bad back from soft beds.")
        memos.add("My compiler prints one warning.")
        found = memos.search(REQUEST, top_k=12, explain=True)
        lifted = [hit.item.memory for hit in found if "of_self" in {vote.arm for vote in hit.arms}]
        assert len(lifted) == len(set(lifted)) >= 2
        assert "My compiler prints one warning." not in lifted


@pytest.mark.heavy
def test_a_long_message_takes_no_place_from_others_but_with_what_it_says_itself(tmp_path: Path) -> None:
    guide = " ".join(
        f"The hotel in Las Vegas number {n} is a trip of its own, with a pool and a bar." for n in range(260)
    )
    with MemOS.open(tmp_path) as memos:
        memos.add([{"role": "user", "content": f"The hotel in Las Vegas number {n} has a pool."} for n in range(30)])
        memos.add(f"I prefer rooms that look at a garden. {guide}")
        memos.add(CALM)
        found = memos.search(REQUEST, top_k=10, explain=True)
        [hit] = [hit for hit in found if hit.item.memory == CALM]
        assert "standing" in {vote.arm for vote in hit.arms}


def test_what_stands_in_the_last_lines_of_a_long_message_is_found(tmp_path: Path) -> None:
    with MemOS.open(tmp_path) as memos:
        memos.add([{"role": "user", "content": f"The hotel in Las Vegas number {n} has a pool."} for n in range(30)])
        memos.add(f"{'The suitcase stood in the hall of the hotel again, said the man. ' * 60} {CALM}")
        found = memos.search(REQUEST, top_k=10, explain=True)
        [hit] = [hit for hit in found if hit.item.memory.endswith(CALM)]
        assert "standing" in {vote.arm for vote in hit.arms}
