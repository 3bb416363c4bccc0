"""What is read out of a question without a model."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memos.search.question import Intent, Question, read_question, without_speaker_names


def read(text: str) -> Question:
    return read_question(text, datetime(2023, 6, 7, 12, tzinfo=UTC), ZoneInfo("UTC"))


@pytest.mark.parametrize(
    ("text", "intent"),
    [
        ("How many dogs does Ann have?", Intent.COUNT),
        ("我有几个孩子？", Intent.COUNT),
        ("List the books Bob read", Intent.LIST),
        ("What kinds of tea does she like?", Intent.LIST),
        ("她喜欢哪些菜？", Intent.LIST),
        ("What books has he read?", Intent.LIST),
        ("Which two mystery novels does Tim like?", Intent.LIST),
        ("What do Ann and Bob have in common?", Intent.LIST),
        ("Where does he currently live?", Intent.LATEST),
        ("她现在住在哪里？", Intent.LATEST),
        ("When was the last time she swam?", Intent.LATEST),
        ("When did she first swim?", Intent.FIRST),
        ("她第一次游泳是什么时候？", Intent.FIRST),
        ("Where did Ann use to live?", Intent.FORMER),
        ("What was her previous job?", Intent.FORMER),
        ("她以前住在哪里？", Intent.FORMER),
        ("他过去住在哪里？", Intent.FORMER),
        ("Did I use to smoke?", Intent.FORMER),
        ("What did I eat in the past?", Intent.FORMER),
        ("In what order did I visit the cities?", Intent.ORDER),
        ("Can you list the order in which I brought up my plans?", Intent.ORDER),
        ("我按什么顺序去了这些城市？", Intent.ORDER),
        ("Can you recommend a restaurant?", Intent.ADVICE),
        ("有什么推荐的餐厅？", Intent.ADVICE),
        ("When did they meet?", Intent.WHEN),
        ("他什么时候出发？", Intent.WHEN),
        ("いつ引っ越しましたか？", Intent.WHEN),
        ("Where did I put the keys?", Intent.OWN),
        ("Quel est mon numéro ?", Intent.OWN),
        ("¿Dónde vivo? Dime mi dirección", Intent.OWN),
        ("Which hotel did you recommend to me?", Intent.ANSWERED),
        ("What was your advice on my essay?", Intent.ANSWERED),
        ("你推荐了哪家酒店？", Intent.ANSWERED),
    ],
)
def test_a_question_says_what_kind_of_answer_it_wants(text: str, intent: Intent) -> None:
    assert intent in read(text).intents


def test_what_was_before_now_is_not_what_is_now() -> None:
    asked = read("Where did I live before now?").intents
    assert Intent.FORMER in asked
    assert Intent.LATEST not in asked


@pytest.mark.parametrize(
    "text",
    [
        "Does Ann like tea?",
        "whenever I go",
        "the list is long",
        "know-how matters",
        "What is Ann's job?",
        "What does she plan?",
        "Which was his favourite?",
        "Who won first place?",
        "Who is used to it?",
        "Which tool was used to cut it?",
        "What did she use to clean the oven?",
        "What did he eat in the past week?",
        "Where did we go in the past few days?",
        "怎么走过去",
        "原来如此",
        "What did he use for the cake?",
        "What came last week's storm from?",
        "阿浩申请了贷款",
        "她邀请过谁",
        "小雯请假了吗",
        "谁请客",
        "阿浩请哪位客人先讲",
        "小雯和室友处得怎么样",
    ],
)
def test_other_words_are_no_intent(text: str) -> None:
    assert read(text).intents <= {Intent.OWN}
    assert not read(text).is_request


def test_quoted_phrases_names_and_times() -> None:
    found = read("Did Ann Lee read “The Old Man” and 'Moby Dick' last week? It's fine, isn't it?")
    assert found.phrases == ("the old man", "moby dick")
    assert "Ann Lee" in found.names
    [span] = found.spans
    assert f"{span.since:%Y-%m-%d} {span.until:%Y-%m-%d}" == "2023-05-29 2023-06-05"


def test_a_speaker_is_named_as_a_whole_word() -> None:
    assert read("What does Ann's cat eat?").names_speaker("ann")
    assert not read("What does Anna eat?").names_speaker("Ann")
    assert read("What does ÉVA eat?").names_speaker("Éva")
    assert not read("What does Évan eat?").names_speaker("Éva")
    assert read("小明喜欢什么？").names_speaker("小明")
    assert read("你知道Ann的猫吃什么吗？").names_speaker("Ann")
    assert not read("Anna的猫吃什么？").names_speaker("Ann")
    assert not read("I like A").names_speaker("A")
    assert read("What will Will do?").names_speaker("Will")
    assert not read("What will Ann do in May?").names_speaker("Will")
    assert not read("What will Ann do in May?").names_speaker("May")


@pytest.mark.parametrize(
    ("text", "left", "names"),
    [
        ("What does Ann paint?", "What does you paint?", ("Ann",)),
        ("What are ann’s hobbies?", "What are your hobbies?", ("Ann",)),
        ("Which books do Ann and Bob Lee both like?", "Which books do you and you both like?", ("Ann", "Bob Lee")),
        ("Who is Ann?", "Who is Ann?", ()), ("Ann", "Ann", ()), ("", "", ()),
        ("Does Anna paint  often?", "Does Anna paint  often?", ()), ("A is for apple", "A is for apple", ()),
        ("小明喜欢吃什么?", "喜欢吃什么?", ("小明",)), ("Ann和Bob Lee去过哪里？", "和 去过哪里？", ("Ann", "Bob Lee")),
    ],
)  # fmt: skip
def test_who_speaks_is_asked_and_not_named(text: str, left: str, names: tuple[str, ...]) -> None:
    assert without_speaker_names(text, ["Ann", "Bob Lee", "A", "小明"]) == (left, names)


@pytest.mark.parametrize(
    ("text", "speakers", "put"),
    [
        ("What does Ann Lee paint?", ["Ann", "Ann Lee"], "What does you paint?"),
        ("What will Will do next?", ["Will"], "What will you do next?"),
        ("Where may May go in May?", ["May"], "Where may you go in May?"),
        ("Which user interface did he build?", ["User"], "Which user interface did he build?"),
        ("What are James' hobbies?", ["James"], "What are your hobbies?"),
        ("What are JAMES’S hobbies?", ["James"], "What are your hobbies?"),
        ("What does ann paint?", ["Ann"], "What does you paint?"),
        ("What is the plan for it?", ["what", "is", "It"], "What is the plan for it?"),
        ("What did a.b say of it?", ["a.b", "(x"], "What did you say of it?"),
    ],
)
def test_a_name_that_is_a_word_is_meant_as_it_is_written(text: str, speakers: list[str], put: str) -> None:
    assert without_speaker_names(text, speakers)[0] == put


@pytest.mark.parametrize(
    "text",
    ["What address does he have?", "Which bus did she take?", "What happens on Monday?", "What helps him sleep?",
     "What campus was it?"],
)  # fmt: skip
def test_a_word_that_only_ends_like_a_plural_asks_for_no_list(text: str) -> None:
    assert Intent.LIST not in read(text).intents


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Where did I live before Ghent?", {"ghent"}),
        ("How much was it before it was 915 euros?", {"915", "euro"}),
        ("Wo habe ich vor Erfurt gewohnt?", {"erfurt", "gewohnt"}),
        ("Where did I live?", set()),
        ("Where did I live before" + " " * 19_900 + ".x", set()),  # hours, if that were cubic
        ("before " * 2_800 + ".x", {"befor"}),
    ],
)
def test_the_value_after_before_is_read(text: str, value: set[str]) -> None:
    assert read(text).terms_before == value


@pytest.mark.heavy
@pytest.mark.parametrize("text", ["have we ", "以前", "what ", "did it happen ", "which books "])
def test_the_longest_questions_are_read(text: str) -> None:
    long = text * (400_000 // len(text))  # minutes, if that were quadratic
    assert read(long).text == long


@given(st.text(max_size=200))
def test_any_text_is_read(text: str) -> None:
    assert read(text).text == text
