"""Whole searches over a real installation: why a hit is there, why an item is not, dates, sessions, the graph."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from memos import MemOS
from memos.core.ports import ScoredPoint
from memos.core.text.times import time_expressions
from memos.core.types import STANDING_OF, SearchResult, Standing
from memos.errors import BackendUnavailable, InvalidInput, NotFound
from memos.memcube.indexing.projection import PARK_AFTER
from memos.memcube.ledger import items
from memos.memcube.ledger.graph import LedgerGraph
from memos.search import rank
from memos.search.searcher import best_of
from tests.fakes import FixedClock, WordEmbedder


@pytest.fixture
def memos(tmp_path: Path) -> Iterator[MemOS]:
    with MemOS.open(tmp_path, embedder=WordEmbedder(), clock=FixedClock()) as opened:
        yield opened


def say(memos: MemOS, text: str, at: str = "2024-12-30T10:00", who: str = "Ann", **options: Any) -> str:
    message = {"role": options.pop("role", "user"), "content": text, "name": who, "chat_time": at}
    return memos.add([message], **options).item_ids[0]


def ids(result: SearchResult) -> list[str]:
    return [hit.item.id for hit in result]


# Explaining


def test_arms_and_boosts_explain_every_score(memos: MemOS) -> None:
    for n in range(12):
        say(memos, f"Ann likes tea number {n}", conversation="k")
    for hit in memos.search("What tea does Ann like?", explain=True, top_k=12):
        assert hit.arms
        told = sum(vote.gave for vote in hit.arms) + sum(boost.gave for boost in hit.boosts)
        assert told == pytest.approx(hit.score)
        assert 0 <= hit.relevance <= 1
    plain = memos.search("What tea does Ann like?", top_k=12)
    assert not any(hit.arms or hit.boosts for hit in plain)
    assert {"embed", "recall", "fuse", "hydrate", "rank"} <= set(plain.timings_ms)


def test_hits_below_the_least_relevance_are_left_out(memos: MemOS) -> None:
    near, far = say(memos, "Ann likes tea"), say(memos, "The moon is full", who="Bob")
    relevance = {hit.item.id: hit.relevance for hit in memos.search("What tea does Ann like?", top_k=2)}
    least = relevance[near]
    assert relevance[far] < least
    assert ids(memos.search("What tea does Ann like?", top_k=2, min_relevance=least)) == [near]
    nothing = memos.search("What tea does Ann like?", min_relevance=1, token_budget=100)
    assert (nothing.hits, nothing.context, nothing.missing_arms) == ((), "", ())
    why = memos.search.explain_missing(far, "What tea does Ann like?", min_relevance=least)
    assert why.stage == "relevance"
    for wrong in (float("nan"), True, "0.5", None, -0.1, 1.5):
        with pytest.raises(InvalidInput, match="min_relevance: must be a number from 0 to 1"):
            memos.search("tea", min_relevance=wrong)  # type: ignore[arg-type]


def test_what_the_graph_alone_knows_is_found_beside_its_neighbour(memos: MemOS) -> None:
    asked = say(memos, "Which violin maker did grandfather visit?", conversation="k")
    answer = say(memos, "Stradivari.", who="Bob", conversation="k")
    for n in range(80):
        say(memos, f"violin maker grandfather visit {n}", conversation=f"other{n}")
    found = memos.search("violin maker grandfather visit which did", top_k=100, explain=True)
    assert asked in ids(found)
    [hit] = [hit for hit in found if hit.item.id == answer]
    assert {"graph", "window_bm25"} & {vote.arm for vote in hit.arms}


def test_of_what_is_as_good_the_graph_is_asked_about_the_oldest_in_whatever_order_an_index_gives_it() -> None:
    found = [ScoredPoint("b:1", 2.0), ScoredPoint("a:3", 1.999999), ScoredPoint("0:1", 1.9)]
    assert best_of(found) == "a"
    assert best_of([found[1]._replace(score=2.0), found[0], found[2]]) == "a"
    assert best_of(found[:1]) == "b"


def test_a_graph_that_is_down_is_named_and_the_rest_answers(memos: MemOS, monkeypatch: pytest.MonkeyPatch) -> None:
    item = say(memos, "Ann likes tea")

    def down(*_: object, **__: object) -> None:
        raise BackendUnavailable("the graph is down")

    monkeypatch.setattr(LedgerGraph, "adjacent", down)
    found = memos.search("tea")
    assert ids(found) == [item]
    assert found.missing_arms == ("graph",)


# Why not


def test_why_an_item_is_found(memos: MemOS) -> None:
    item = say(memos, "Ann likes tea")
    told = memos.search.why_not(item, "tea")
    assert (told.stage, told.place) == ("found", 1)
    assert told.score == pytest.approx(memos.search("tea").hits[0].score)


def test_why_not_names_the_failing_condition(memos: MemOS) -> None:
    item = say(memos, "Ann likes tea", tags=["drinks"])
    told = memos.search.why_not(item, "tea", filter={"and": [{"tags": "food"}, {"speaker": "Ann"}]})
    assert told.stage == "filter"
    assert "tags eq 'food'" in told.reason
    assert "drinks" in told.reason
    assert "speaker" not in told.reason
    memos.update(item, status="pending")
    assert "it is pending" in memos.search.why_not(item, "tea").reason
    either = memos.search.why_not(item, "tea", filter={"or": [{"tier": "long"}, {"tags": "x"}], "status": "pending"})
    assert "tier eq 'long'" in either.reason
    negated = memos.search.why_not(item, "tea", filter={"not": {"tags": "drinks"}, "status": "pending"})
    assert "not (tags eq 'drinks')" in negated.reason


def test_why_not_knows_deleted_duplicate_rank_and_budget(memos: MemOS) -> None:
    first = say(memos, "Ann likes tea")
    second = say(memos, "ann  likes TEA")
    other = say(memos, "Ann likes tea and coffee and water and juice")
    copies = {memos.search.why_not(item, "Ann likes tea").stage for item in (first, second)}
    assert copies == {"found", "duplicate"}
    last = memos.search("Ann likes tea", top_k=2).hits[1].item.id
    assert last == other
    ranked = memos.search.why_not(other, "Ann likes tea", top_k=1)
    assert (ranked.stage, ranked.place) == ("rank", 2)
    assert "place 2 of 2" in ranked.reason
    assert memos.search.why_not(other, "Ann likes tea", token_budget=17).stage == "budget"
    memos.delete(other)
    assert memos.search.why_not(other, "Ann likes tea").stage == "ledger"


def test_why_not_says_what_stands_in_its_place(memos: MemOS) -> None:
    item = say(memos, "I live in Oslo.")
    new = memos.feedback("No, I moved to Bergen.", speaker="Ann", item_ids=[item]).item_id
    told = memos.search.why_not(item, "Where does Ann live?")
    assert told.stage == "filter"
    assert f"it is superseded by {new}; to find it, filter by status" in told.reason


def test_every_vote_and_boost_of_a_search_is_explained_in_the_docs(memos: MemOS) -> None:
    explained = (Path(__file__).parents[2] / "docs/reference/search-explained.md").read_text(encoding="utf-8")
    source = inspect.getsource(rank)
    named = set(re.findall(r"""\.append\(\("(\w+)"|\[\("(\w+)", [A-Z]|boosts, \("(\w+)"|vote = \("(\w+)\"""", source))
    names = {name for found in named for name in found if name} | set(STANDING_OF)
    assert {"next", "answers", "speaker", "newest", "successor", "spread", "named", "standing", "cold"} <= names
    say(memos, "Where does Ann live?", who="Ben")
    say(memos, "In Oslo")
    hits = memos.search("Where does Ann live?", explain=True).hits
    names |= {vote.arm for hit in hits for vote in hit.arms} | {boost.name for hit in hits for boost in hit.boosts}
    assert {name for name in names if f"`{name}`" not in explained} == set()


def test_why_not_of_a_stranger(memos: MemOS) -> None:
    memos.cubes.create("b")
    item = say(memos, "Ann likes tea")
    elsewhere = memos.search.why_not(item, "tea", cubes=["b"])
    assert (elsewhere.stage, elsewhere.reason) == ("cube", "it is in the cube default, which was not searched")
    with pytest.raises(NotFound):
        memos.search.why_not("01890000-0000-7000-8000-000000000000", "tea")
    with pytest.raises(NotFound, match="not stored yet"):
        memos.search.why_not(item, "tea", as_of="2020-01-01")
    with pytest.raises(InvalidInput, match="query"):
        memos.search.why_not(item, "  ")


# Time


def test_an_event_is_dated_by_the_words_that_tell_of_it(memos: MemOS) -> None:
    item = memos.get(say(memos, "Last Friday I went to a concert", at="2024-06-05T10:00Z"))
    assert item.valid_from is not None
    assert item.valid_to is not None
    assert f"{item.valid_from:%Y-%m-%d} {item.valid_to:%Y-%m-%d}" == "2024-05-31 2024-06-01"
    assert f"{item.said_at:%Y-%m-%d}" == "2024-06-05"
    assert item.memory == "Last Friday I went to a concert"


def test_a_message_about_something_over_is_found_all_the_same(memos: MemOS) -> None:
    item = say(memos, "昨天我去了医院", at="2024-06-05T10:00Z")
    assert ids(memos.search("医院", reference_time="2030-01-01")) == [item]


def test_relative_dates_in_a_question_are_counted_from_its_reference_time(memos: MemOS) -> None:
    may = say(memos, "We had a barbecue", at="2024-05-15T12:00Z")
    june = say(memos, "We had a barbecue then", at="2024-06-12T12:00Z")
    asked = "What barbecue was there last month?"
    found = {when: memos.search(asked, reference_time=when, explain=True) for when in ("2024-06-20", "2024-07-20")}
    assert {when: ids(result)[0] for when, result in found.items()} == {"2024-06-20": may, "2024-07-20": june}
    for result, told in zip(found.values(), (may, june), strict=True):
        assert {hit.item.id for hit in result if "dated" in [arm.arm for arm in hit.arms]} == {told}


def test_a_time_is_enough_to_ask_by(memos: MemOS) -> None:
    words = ("The plumber came", "We ate soup", "Rain all day", "I read a book", "The cat slept", "Ann called")
    texts = [f"{text} {'so ' * (n // 6)}" for n, text in enumerate(words * 5)]
    said = [say(memos, text, at=f"2024-05-{n + 1:02}T12:00Z") for n, text in enumerate(texts)]
    for asked, days in (
        ("What did I say on 7 May 2024?", [7]), ("What was said the day after 7 May 2024?", [8]),
        ("What happened between 7 May 2024 and 9 May 2024?", [7, 8, 9]),
        ("What was said since 28 May 2024?", [28, 29, 30]),
    ):  # fmt: skip
        # No word in common, and the vectors may point away.
        found = memos.search(asked, reference_time="2024-06-20", top_k=10, explain=True)
        of_then = {hit.item.id for hit in found if "dated" in [arm.arm for arm in hit.arms]}
        assert of_then == {said[day - 1] for day in days}, asked


def test_the_zone_of_the_cube_decides_what_day_it_is(tmp_path: Path) -> None:
    with MemOS.open(tmp_path, embedder=WordEmbedder(), clock=FixedClock()) as memos:
        memos.cubes.create("tokyo", time_zone="Asia/Tokyo")
        item = memos.get(say(memos, "Today I rested", at="2024-06-05T20:00Z", cube="tokyo"))
        assert f"{item.valid_from:%Y-%m-%d %H:%M}" == "2024-06-05 15:00"


def test_a_long_silence_begins_a_session_and_windows_stay_inside(memos: MemOS) -> None:
    say(memos, "purple elephants", at="2024-06-05T10:00Z", conversation="k")
    near = memos.get(say(memos, "hello", at="2024-06-05T11:59Z", conversation="k"))
    far = memos.get(say(memos, "good evening", at="2024-06-05T20:00Z", conversation="k"))
    assert (near.session, far.session) == (0, 1)
    arms = {hit.item.id: {vote.arm for vote in hit.arms} for hit in memos.search("purple elephants", explain=True)}
    assert "window_bm25" in arms[near.id]
    assert "window_bm25" not in arms.get(far.id, set())


def test_keywords_and_times_can_be_filtered(memos: MemOS) -> None:
    item = say(memos, "I joined the local hiking club", at="2024-06-05T10:00Z")
    say(memos, "hiking is fine", at="2024-06-07T10:00Z")
    assert "local hiking club" in memos.get(item).keywords
    assert ids(memos.search("hiking", filter={"keywords": {"contains": "local hiking club"}})) == [item]
    assert ids(memos.search("hiking", filter={"said_at": {"lt": "2024-06-06"}})) == [item]
    assert [found.id for found in memos.memories.list(filter={"said_at": {"lt": "2024-06-06"}})] == [item]


def test_an_update_reads_the_new_text_at_the_time_it_was_said(memos: MemOS) -> None:
    item = say(memos, "I was ill yesterday", at="2024-06-05T10:00Z")
    after = memos.update(item, "I was ill last week")
    assert f"{after.valid_from:%m-%d} {after.valid_to:%m-%d}" == "05-27 06-03"


# What a tester broke


def test_a_message_from_the_ends_of_the_calendar_holds_up_nobody(memos: MemOS) -> None:
    memos.cubes.create("ny", time_zone="America/New_York")
    memos.cubes.create("kiritimati", time_zone="Pacific/Kiritimati")
    first = say(memos, "poison yesterday", at="0001-01-01T00:00:00Z", cube="ny")
    last = say(memos, "poison tomorrow", at="9999-12-31T23:59:59Z", cube="kiritimati")
    other = say(memos, "hello")
    assert ids(memos.search("poison", cubes=["ny", "kiritimati"])) in ([first, last], [last, first])
    assert ids(memos.search("hello")) == [other]
    assert memos.maintenance.verify().clean


def test_an_item_an_index_cannot_be_given_is_parked(memos: MemOS, monkeypatch: pytest.MonkeyPatch) -> None:
    follower = memos._installation.vector_follower
    project = type(follower).project

    def refuses(self: object, item_ids: list[str], following: list[str] = ()) -> None:  # type: ignore[assignment]
        with memos.ledger.read() as connection:
            states = items.current(connection, ["default"], item_ids)
        if any("poison" in state.memory for state in states.values()):
            raise ZeroDivisionError("odd")
        project(follower, item_ids)

    monkeypatch.setattr(type(follower), "project", refuses)
    say(memos, "poison")
    other = say(memos, "hello")
    assert other in ids(memos.search("hello"))
    for _ in range(PARK_AFTER):
        say(memos, "again")
    [parked] = [d for d in memos.maintenance.verify().differences if d.kind == "parked"]
    assert "ZeroDivisionError: odd" in parked.detail


def test_dates_that_are_none_cost_little() -> None:
    said = datetime(2024, 1, 1, tzinfo=UTC)
    assert time_expressions("2020-99-99 " * 1_800, said, ZoneInfo("UTC")) == ()
    assert len(time_expressions("2020-99-99 " * 20 + "yesterday", said, ZoneInfo("UTC"))) == 1


def test_long_texts_collapse_when_all_of_them_is_the_same_then_and_now(memos: MemOS) -> None:
    head = "cat dog " * 300
    alpha, bravo, copy = (say(memos, head + end) for end in ("ALPHA", "BRAVO", "BRAVO"))
    before = memos.clock.now()

    def kept(**options: Any) -> set[frozenset[str]]:
        return {frozenset({hit.item.id, *hit.duplicates}) for hit in memos.search("cat", **options)}

    apart = {frozenset({alpha}), frozenset({bravo, copy})}
    assert kept() == apart
    memos.update(bravo, head + "ALPHA")
    assert kept() == {frozenset({alpha, bravo}), frozenset({copy})}
    assert kept(as_of=before) == apart


def test_why_not_agrees_with_the_search_it_explains(memos: MemOS) -> None:
    words = ("cat", "dog", "blue", "river", "tea")
    every = [
        say(
            memos,
            " ".join(words[(n * step) % 5] for step in range(1, 4)) + f" {n}",
            conversation=f"k{n % 3}",
            who="Ann",
        )
        for n in range(40)
    ]
    memos.tasks.wait()  # pages that become topics meanwhile change places
    for question in ("cat dog", "when did Ann see the blue river?"):
        hits = ids(memos.search(question, top_k=5))
        for item in every:
            told = memos.search.why_not(item, question, top_k=5)
            if item in hits:
                assert (told.stage, told.place) == ("found", hits.index(item) + 1)
            else:
                assert told.stage in ("rank", "recall")
                assert told.place is None or told.place > 5


def test_among_many_people_what_was_said_to_the_one_who_is_named_comes_first(memos: MemOS) -> None:
    pairs = [("Ann", "Bob"), ("Cy", "Di"), ("Ed", "Flo"), ("Kim", "Lee"), ("Mo", "Nia"), ("Oz", "Pat")]
    for first, second in pairs:
        say(memos, "I have news.", who=first, conversation=f"{first} and {second}")
        say(memos, "So you have taken up the cello!", who=second, conversation=f"{first} and {second}")
    for question in ("Which instrument has Kim taken up?", "which instrument has kim taken up?"):
        told = [hit.item.speaker for hit in memos.search(question, top_k=12) if "cello" in hit.item.memory]
        assert told[0] == "Lee"


def test_she_in_another_conversation_is_somebody_else(memos: MemOS) -> None:
    for name, city in (("Olga", "Oslo"), ("Rita", "Bern")):
        say(memos, f"How is {name}?", who="Tara", conversation=name)
        say(memos, f"She lives in {city} now.", who="Sven", conversation=name)
    told = [hit for hit in memos.search("Where does Olga live?", top_k=4) if "Oslo" in hit.item.memory]
    assert [hit.standing for hit in told] == [Standing.CURRENT]


def test_people_who_are_spoken_about_in_a_conversation_are_found_in_it(memos: MemOS) -> None:
    for who in ("Ida", "Leo", "Nina", "Tim"):
        say(memos, "Good morning everybody, see you later.", who=who, conversation="chat")
    say(memos, "Nina told me about her plans.", who="Ralf", conversation="other")
    say(memos, "She is leaving in March and goes to Zalando.", who="Ralf", conversation="other")
    best = memos.search("Where does Nina go in March?", explain=True, top_k=3).hits
    assert "absent" not in {boost.name for hit in best for boost in hit.boosts if "Zalando" in hit.item.memory}


def test_a_word_that_is_a_speakers_name_elsewhere_lowers_nothing(memos: MemOS) -> None:
    for who in ("May", "Max", "Penny", "Will"):
        say(memos, "I'm so tired today.", who=who, conversation="chat")
    parking = say(memos, "You can park in the yard behind the house.", who="Peter", conversation="yard")
    say(memos, "Thank you.", who="Rita", conversation="yard")
    for question in ("May I park in the yard?", "what is the max time to park in the yard?", "Will the yard be free?"):
        boosts = [hit.boosts for hit in memos.search(question, explain=True) if hit.item.id == parking]
        assert [boost.name for found in boosts for boost in found if boost.name == "absent"] == []


def test_ann_lee_is_not_ann(memos: MemOS) -> None:
    say(memos, "I live in Ghent.", who="Ann", conversation="a")
    say(memos, "I live in Rome.", who="Ann Lee", conversation="b")
    assert memos.search("Where does Ann Lee live?")[0].item.speaker == "Ann Lee"
    assert memos.search("Where does Ann live?")[0].item.speaker == "Ann"


@pytest.mark.parametrize("greeting", ["Good morning everybody!", "Hello everyone.", "See you all later!"])
def test_a_greeting_tells_nothing_whomever_it_greets(memos: MemOS, greeting: str) -> None:
    say(memos, greeting, who="Nicole")
    say(memos, "A camera.", who="Nicole")
    hits = memos.search("What did Nicole say to everybody?", explain=True)
    assert [hit.item.memory for hit in hits if "tells_nothing" in {boost.name for boost in hit.boosts}] == [greeting]
