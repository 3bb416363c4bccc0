"""What tells something lasting of its speaker without a key, and what only sounds like it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memos.core.text.statements import Kind, self_disclosures

TOLD = [
    ("I'm a paediatric nurse, night shifts mostly.", Kind.SELF),
    ("I speak Portuguese and a bit of Arabic", Kind.SELF),
    ("I was born in Nairobi", Kind.SELF),
    ("im lactose intolerant btw", Kind.SELF),
    ("I have type 1 diabetes, so no sugary stuff.", Kind.SELF),
    ("We have two rescue greyhounds.", Kind.SELF),
    ("I've been playing the cello since I was nine", Kind.SELF),
    ("I go to yoga every Wednesday.", Kind.SELF),
    ("My sister Mei lives in Osaka with her two kids", Kind.RELATION),
    ("my daughter Zoe is 7", Kind.RELATION),
    ("My wife's birthday is March 14th", Kind.RELATION),
    ("Bruno is my dog.", Kind.RELATION),
    ("My grandmother passed away last week.", Kind.RELATION),
    ("Got married last June ❤️", Kind.EVENT),
    ("I quit smoking on New Year's", Kind.EVENT),
    ("Last Friday we went to a pride parade.", Kind.EVENT),
    ("I'm going to run the Valencia marathon in December", Kind.PLAN),
    ("We're planning to visit my parents in Chennai over Diwali", Kind.PLAN),
    ("我是一名小学语文老师", Kind.SELF),
    ("我会说粤语和一点法语", Kind.SELF),
    ("我有糖尿病", Kind.SELF),
    ("我从小学五年级开始弹古筝", Kind.SELF),
    ("家里养了两只柴犬", Kind.SELF),
    ("我姐姐在大阪开了一家咖啡馆", Kind.RELATION),
    ("我女儿叫朵朵", Kind.RELATION),
    ("我老婆的生日是3月14号", Kind.RELATION),
    ("我们去年十月结婚了", Kind.EVENT),
    ("我上个月拿到了驾照", Kind.EVENT),
    ("我打算明年春天去冰岛看极光", Kind.PLAN),
]
NOT_TOLD = [
    "I'm a mess today",
    "I'm dead, I literally live on coffee",
    "I'm married to my job",
    "I run a tight ship",
    "I'm 5 minutes away",
    "I'm learning a ton from this",
    "I found a trail in my hometown yesterday",
    "I'm trying to manage my repository",
    "My brother in Christ, go to sleep",
    "My boss is a clown",
    "I'm going to grab lunch now",
    "I'm thinking about maybe getting a dog",
    "If I was a nurse I'd be rich",
    "I plan to use Docker for this",
    "I went to bed late last night",
    "I'm no writer like you",
    "The train leaves at nine.",
    "我真是醉了",
    "我叫了外卖",
    "我养不起狗啦",
    "我爱豆今天官宣结婚了",
    "我妈又让我去相亲",
    "我今晚来不了了",
    "我在想要不要养只狗",
    "今晚轮到我做饭，我打算煮面",
    "",
]


@pytest.mark.parametrize(("text", "kind"), TOLD)
def test_what_lasts_is_told(text: str, kind: Kind) -> None:
    assert [each.kind for each in self_disclosures(text)] == [kind]


@pytest.mark.parametrize("text", NOT_TOLD)
def test_what_passes_is_not(text: str) -> None:
    assert self_disclosures(text) == []


def test_each_thing_told_has_its_place() -> None:
    text = "My sister lives in Osaka, and I have two dogs."
    assert [text[each.start : each.end] for each in self_disclosures(text)] == ["My sister lives", "I have two dogs"]


@given(
    st.text(max_size=300) | st.lists(st.sampled_from(["I ", "我", "my sister ", "在", "a ", "1", "为"]), max_size=300)
)
def test_any_text_has_an_answer(text: str | list[str]) -> None:
    said = "".join(text)
    for each in self_disclosures(said):
        assert 0 <= each.start < each.end <= len(said)


@pytest.mark.parametrize(
    "piece", ["I ", "my sister ", "I'm a ", "I have two ", "我", "我在", "一", "从", "every day ", "I've been "]
)
def test_repetition_ends(piece: str) -> None:
    assert isinstance(self_disclosures(piece * 100_000), list)
