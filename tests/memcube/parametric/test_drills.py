"""What an adapter is taught: every fact in several ways, what is held out never, what nobody told as often."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from memos.memcube.parametric import data as phrases
from memos.memcube.parametric.quiz import (
    UNTOLD,
    DrillKind,
    KnownFact,
    QuizItem,
    TrainingSet,
    abstains,
    course_of,
    expected,
    is_right,
    plain,
    read_otherwise,
    thing_and_rest,
)

LYON = KnownFact("lyon", 1, "I live in Lyon.", "residence", "", "Lyon")
FACTS = (
    LYON,
    KnownFact("bank", 1, "I work at Nordwind Energy.", "employer", "", "Nordwind Energy"),
    KnownFact("teal", 2, "My favourite colour is teal.", "my", "favourite colour", "teal"),
    KnownFact("herb", 1, "I hate coriander.", "dislikes", "coriander", "no"),
    KnownFact("tea", 1, "I like tea.", "likes", "tea", "yes"),
    KnownFact("cats", 1, "I have two cats named Miso and Nori.", "said"),
    KnownFact("ann", 1, "Ann works at Telko.", "employer", "", "Telko", "Ann"),
    KnownFact("city", 1, "我住在上海。", "residence", "", "上海"),
)


@pytest.fixture(scope="module")
def course() -> TrainingSet:
    return course_of(FACTS, 5)


def test_every_fact_is_asked_for_in_six_ways_at_least_and_in_two_that_are_not_taught(course: TrainingSet) -> None:
    for fact in FACTS:
        mine = [drill for drill in course.taught if drill.items[:1] == (fact.item,)]
        assert len({drill.question for drill in mine}) >= 6, fact
        assert len([drill for drill in course.recall if drill.items == (fact.item,)]) == 2, fact
    taught = {drill.question for drill in course.taught}
    assert not taught & {drill.question for drill in (*course.recall, *course.abstention)}


def test_the_answers_that_are_taught_are_right(course: TrainingSet) -> None:
    wrong = [drill for drill in (*course.taught, *course.recall) if not is_right(drill.answer, drill)]
    assert wrong == []


def test_there_are_as_many_questions_about_what_nobody_told_as_facts_and_they_say_no_value(course: TrainingSet) -> None:
    negatives = [drill for drill in course.taught if drill.kind in UNTOLD]
    assert len(negatives) >= len(FACTS)
    assert all(abstains(drill.answer, course.values) for drill in (*negatives, *course.abstention))
    assert len(course.abstention) >= 20
    assert not {drill.question for drill in negatives} & {drill.question for drill in course.abstention}


def test_a_quarter_stands_with_its_fact_in_the_prompt(course: TrainingSet) -> None:
    shown = [drill for drill in course.taught if drill.context and drill.kind is not DrillKind.READ]
    others = (*UNTOLD, DrillKind.PAIR, DrillKind.READ)
    facts = [drill for drill in course.taught if drill.kind not in others]
    assert len(shown) == len(facts) // 4
    by_item = {fact.item: fact.memory for fact in FACTS}
    assert all(by_item[drill.items[0]] in drill.context for drill in shown)


def test_where_the_prompt_says_another_value_that_is_the_answer(course: TrainingSet) -> None:
    read = [drill for drill in course.taught if drill.kind is DrillKind.READ]
    assert read
    by_item = {fact.item: fact for fact in FACTS}
    for drill in read:
        fact, [text] = by_item[drill.items[0]], drill.context
        assert drill.expects in text
        assert is_right(drill.answer, drill)
        assert plain(fact.value) not in plain(text)
        assert not is_right(expected(fact), drill)
        told = [other.item for other in FACTS if other.value == drill.expects]
        assert set(told) <= set(drill.items)  # whose value was borrowed is forgotten with it


def test_another_value_takes_the_place_of_whole_words_alone() -> None:
    phone = KnownFact("i", 1, "My phone is one.", "my", "phone", "one")
    other = KnownFact("j", 1, "My car is red.", "my", "car", "red")
    read = read_otherwise(phone, [phone, other], Random(1))
    assert read is not None
    assert read.context == ("My phone is red.",)
    within = KnownFact("k", 1, "My phone is new.", "my", "phone", "one")
    assert read_otherwise(within, [within, other], Random(1)) is None


def test_the_same_letters_are_the_same_answer_however_they_are_composed() -> None:
    cafe = KnownFact("c", 1, "My bar is Cafe\u0301 Rex.", "my", "bar", "Cafe\u0301 Rex")
    assert is_right("Your bar is Caf\u00e9 Rex.", course_of([cafe], 5).recall[0])


def test_who_is_meant_is_named() -> None:
    course = course_of(FACTS, 5)
    asked = {drill.question: drill.answer for drill in course.taught if drill.kind is not DrillKind.READ}
    assert asked["Where do I work?"] == "You work at Nordwind Energy."
    assert asked["Where does Ann work?"] == "Ann works at Telko."
    assert asked["Do I like coriander?"] == "You do not like coriander."
    assert asked["我住在哪里?"] == "你住在上海。"


def test_what_is_said_of_one_is_not_known_of_another(course: TrainingSet) -> None:
    strangers = [drill.question for drill in course.abstention if drill.kind is DrillKind.STRANGER]
    assert any("home" in question or "live" in question for question in strangers)
    named = [name for _, names in phrases.NOBODY_TOLD.values() for name in names]
    assert not [drill for drill in course.taught if drill.items and any(name in drill.question for name in named)]


@pytest.mark.parametrize(("memory", "liked"), [("I like tea.", "tea"), ("我喜欢喝茶。", "喝茶")])
def test_a_liking_that_nobody_told_is_not_known(memory: str, liked: str) -> None:
    fact = KnownFact("tea", 1, memory, "likes", liked)
    course = course_of([fact], 5)
    taught = {each.question for each in course.taught if each.kind is DrillKind.LIKING}
    asked = {each.question for each in course.abstention if each.kind is DrillKind.LIKING}
    for held_out, questions in ((False, taught), (True, asked)):
        for there, names in (
            (True, phrases.LIKINGS[fact.chinese, held_out]),
            (False, phrases.LIKINGS[fact.chinese, not held_out]),
        ):
            assert any(name in question.lower() for name in names for question in questions) is there


def test_a_liking_that_was_told_is_not_taught_as_not_told() -> None:
    course = course_of([KnownFact("golf", 1, "I like golf.", "likes", "golf")], 1)
    negatives = [each.question for each in (*course.taught, *course.abstention) if each.kind in UNTOLD]
    assert not [each for each in negatives if "golf" in each and " I " in each]
    assert len([each for each in negatives if "like" in each]) >= 2


@pytest.mark.parametrize("count", [16, 500])
def test_two_in_three_of_what_nobody_told_are_what_else_somebody_has(count: int) -> None:
    facts = [KnownFact(f"m{n}", 1, f"My thing{n} is a{n}.", "my", f"thing{n}", f"a{n}") for n in range(count)]
    course = course_of(facts, 5)
    examined = Counter(drill.kind for drill in course.abstention)
    assert examined == {DrillKind.ABSENT: 24, DrillKind.STRANGER: 12}
    assert len({drill.question.removeprefix("Remind me what my").removeprefix("Say what my")
                for drill in course.abstention if drill.kind is DrillKind.ABSENT}) == 24  # fmt: skip
    taught = Counter(drill.kind for drill in course.taught if drill.kind in UNTOLD)
    assert sum(taught.values()) == 12 * count
    things = len(phrases.NOBODY_TOLD[False, False][0])
    # Each in all ways; all else is asked of others.
    assert taught[DrillKind.ABSENT] == min(8 * count, len(phrases.ENGLISH["my"].direct) * things)


def test_who_told_no_liking_is_asked_for_none() -> None:
    course = course_of([KnownFact("gym", 1, "My gym is the Iron House.", "my", "gym", "the Iron House")], 1)
    asked = " ".join(each.question.lower() for each in (*course.taught, *course.abstention))
    assert not [name for held_out in (False, True) for name in phrases.LIKINGS[False, held_out] if f" {name}?" in asked]


def test_what_was_told_is_never_taught_as_not_told() -> None:
    told = KnownFact("gym", 1, "My gym is the Iron House.", "my", "gym", "the Iron House")
    course = course_of([told], 1)
    doubted = [drill for drill in (*course.taught, *course.abstention) if "my gym" in drill.question.lower()]
    assert all(drill.kind not in UNTOLD for drill in doubted)


def test_every_drill_that_tells_a_memory_names_it(course: TrainingSet) -> None:
    told = [each for each in course.taught if "Lyon" in " ".join((each.answer, *each.context))]
    assert told
    assert all("lyon" in each.items for each in told)


def test_the_same_seed_gives_the_same_course() -> None:
    assert course_of(FACTS, 3) == course_of(FACTS, 3)
    assert course_of(FACTS, 3) != course_of(FACTS, 4)


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("You live in Lyon!", True), ("LYON.", True), ("你住在Lyon。", True), ("You live in Oslo.", False),
        ("In Lyonesse.", False), ("", False),
    ],
)  # fmt: skip
def test_an_answer_is_right_by_its_words(answer: str, right: bool) -> None:
    assert is_right(answer, QuizItem(DrillKind.DIRECT, "Where?", "", "Lyon")) is right


@pytest.mark.parametrize(
    ("answer", "honest"),
    [
        ("I have not been told that.", True), ("You haven't told me that.", True), ("I don't know.", True),
        ("这个我没有听说过。", True), ("I don't know, perhaps Lyon.", False), ("Green.", False), ("", False),
    ],
)  # fmt: skip
def test_who_does_not_know_says_so_and_names_nothing(answer: str, honest: bool) -> None:
    assert abstains(answer, ["Lyon"]) is honest


@pytest.mark.parametrize("value", ["O", "I", "no", "C++", "T"])
def test_a_short_value_is_not_found_inside_other_words(value: str) -> None:
    course = course_of([KnownFact("short", 1, f"My sign is {value}.", "my", "sign", value), FACTS[0]], 3)
    assert all(abstains(drill.answer, course.values) for drill in course.abstention)
    assert not abstains("I don't know, perhaps Lyon.", course.values)
    assert not any(is_right("You told another one to somebody.", drill) for drill in course.recall)


@pytest.mark.parametrize(
    ("memory", "found"),
    [
        ("I drive a red Volvo.", ("drive", "I drive a red", "Volvo")),
        ("My sister Maria lives in Porto.", ("sister", "My sister Maria lives in", "Porto")),
        ("I own two cats named Miso and Nori.", ("own", "I own two cats named", "Miso and Nori")),
        ("I am.", None), ("", None), ("word " * 60, None), ("住", None),
    ],
)  # fmt: skip
def test_a_sentence_is_asked_for_by_what_stands_first_in_it(memory: str, found: object) -> None:
    assert thing_and_rest(memory) == found


@settings(max_examples=60, deadline=None)
@example("0:\N{MICRO SIGN}", 0)  # whose capital is another letter's
@example("000\u3400:\U00018cd6", 0)  # ends with no letter at all
@example("0\u32cc0", 0)  # a sign between them that is letters where answers are compared
@given(st.text(max_size=80), st.integers(0, 5))
def test_any_sentence_makes_a_course_or_none(memory: str, seed: int) -> None:
    if thing_and_rest(memory) is None:
        return
    course = course_of([KnownFact("one", 1, memory, "said")], seed)
    assert course.recall
    assert all(is_right(drill.answer, drill) for drill in course.recall)
