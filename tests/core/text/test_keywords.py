"""Keywords: phrases worth naming, whatever the language, and never an error."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memos.core.text.matching import keywords


def test_phrases_without_stop_words_longest_first() -> None:
    found = keywords("I joined the local hiking club, and the hiking club meets near Lake Tahoe every Sunday.")
    assert found[0] == "local hiking club"
    assert {"lake tahoe", "sunday"} <= set(found)
    assert not {"the", "and", "i"} & set(found)


def test_small_talk_has_none() -> None:
    assert keywords("Hey! How have you been? Thanks so much, I really like it.") == ()
    assert keywords("") == ()


def test_chinese_is_split_at_words_that_join() -> None:
    found = keywords("我上周搬到了成都，租的房子在地铁站附近")
    assert {"成都", "地铁站附近"} <= set(found)


def test_mixed_text_and_emoji() -> None:
    found = keywords("Booked 温泉酒店 near Hakone station 🎉🎉 for 3 nights")
    assert {"温泉酒店", "hakone station", "nights"} <= set(found)


@given(st.text(max_size=300))
def test_at_most_eight_distinct_phrases_of_the_text_itself(text: str) -> None:
    found = keywords(text)
    assert len(found) == len(set(found)) <= 8
    assert all(phrase.strip() for phrase in found)
