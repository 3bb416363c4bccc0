"""Which sentences state a preference of their speaker."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memos.core.text.preferences import firm_preference, liking, likings, states_preference, thing_of


@pytest.mark.parametrize(
    "text",
    [
        "I prefer trains to planes.",
        "I have a strong aversion to paid subscriptions.",
        "I'm allergic to peanuts.",
        "I can't stand horror films.",
        "Honestly I find turn-based combat too slow and boring.",
        "I'm not interested in sci-fi games.",
        "My favourite season is autumn.",
        "我不吃辣",
        "我对花生过敏",
        "我特别喜欢爬山",
    ],
)
def test_a_preference(text: str) -> None:
    assert states_preference(text)


@pytest.mark.parametrize(
    "text", ["The train leaves at nine.", "You prefer tea, right?", "I moved to Lyon in May.", "我搬到了成都", ""]
)
def test_no_preference(text: str) -> None:
    assert not states_preference(text)


@given(st.text(max_size=2_000))
def test_any_text_has_an_answer(text: str) -> None:
    assert states_preference(text) in (True, False)


LIKED = [
    ("I like coffee less than tea these days", None, True, False),
    ("I much prefer window seats over aisle", "window seat", True, False),
    ("I love stories that tackle important issues", None, True, False),
    ("I prefer simple, minimal dependencies", None, True, False),
    ("Also can't stand the open plan office.", "open plan office", False, False),
    ("not a big fan of surprises tbh", "surprise", False, False),
    ("比起咖啡我更喜欢喝茶", "茶", True, False),
    ("就是实在受不了开放式办公室", "开放式办公室", False, False),
    ("咖啡我现在不喜欢了", "咖啡", False, False),
    ("I like coffee.", "coffee", True, False),
    ("I don't like coffee any more.", "coffee", False, False),
    ("I no longer love the movies", "movie", False, False),
    ("I really love hiking in the mountains", "hiking", True, False),
    ("I prefer trains to planes.", "train", True, False),
    ("I'm not a fan of horror films", "horror film", False, False),
    ("I can't stand Mondays 😡", "monday", False, False),
    ("I used to love pizza", "pizza", True, True),
    ("I love tea and coffee", None, True, False),
    ("我喜欢咖啡", "咖啡", True, False),
    ("我不再喜欢咖啡了", "咖啡", False, False),
    ("我以前喜欢爬山", "爬山", True, True),
    ("我讨厌香菜。", "香菜", False, False),
]


@pytest.mark.parametrize(("text", "thing", "likes", "ended"), LIKED)
def test_what_is_liked(text: str, thing: str | None, likes: bool, ended: bool) -> None:
    found = liking(text)
    assert found is not None
    assert (found.thing, found.likes, found.ended) == (thing, likes, ended)
    assert 0 <= found.start < found.end <= len(text)


@pytest.mark.parametrize(
    ("text", "things"),
    [
        ("I like tea and I love jazz.", ["tea", "jazz"]),
        ("I don't like coffee any more, I prefer tea.", ["coffee", "tea"]),
        ("我喜欢喝咖啡，也喜欢打篮球。", ["咖啡", "打篮球"]),
        ("我喜欢喝茶，我不喜欢香菜", ["茶", "香菜"]),
        ("我喜欢爬山，但是讨厌露营", ["爬山", "露营"]),
        ("I love tea. I don't like tea any more.", ["tea", "tea"]),
        ("她喜欢茶，也喜欢咖啡", []),
        ("我最喜欢的电影是《流浪地球》。", []),
    ],
)
def test_everything_that_is_liked_is_found(text: str, things: list[str]) -> None:
    assert [each.thing for each in likings(text)] == things


@pytest.mark.parametrize(
    "text",
    [
        "I'd love to see that",
        "That's what I like to hear!",
        "Doing something I love is awesome.",
        "I have a job I enjoy every day.",
        "I love to.",
        "I like holding them.",
        "I love the thought!",
        "I like your idea",
        "I love escaping to that world.",
        "I hate to say it but it was better",
        "我喜欢你这个想法",
        "I love it!",
        "I hate how it looks",
        "You like coffee",
        "It looks like rain",
        "她喜欢咖啡",
        "",
    ],
)
def test_wishes_and_others_like_nothing(text: str) -> None:
    assert liking(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "I'm allergic to nuts",
        "I've been a vegan for years",
        "I don't eat meat",
        "im allergic to shellfish",
        "I don't really drink coffee any more",
        "I'd rather take the train than fly, always.",
        "I'm not a morning person",
        "最近晚上不吃主食了",
        "我不太能吃辣",
        "My favourite cities are Oslo and Rome",
        "我不吃辣",
    ],
)
def test_a_firm_preference(text: str) -> None:
    assert firm_preference(text) is not None


@pytest.mark.parametrize(
    "text",
    [
        "I'm sure she can't eat that",
        "I wish I wasn't allergic",
        "I made vegan cake",
        "From a distance, since I'm allergic.",
        "I don't eat it",
        "我吃不下饭了",
        "It is my favorite",
        "My job is fine",
        "",
    ],
)
def test_no_firm_preference(text: str) -> None:
    assert firm_preference(text) is None


def test_one_thing_has_one_name() -> None:
    assert thing_of("The Berries") == thing_of("berry") == thing_of(" some  berries ") == "berry"
    assert thing_of("shoes") == thing_of("a shoe")
    assert thing_of("glass") == "glass"
    assert thing_of("喝咖啡") == thing_of("咖啡") == "咖啡"
    assert thing_of("玩具") == "玩具"
    assert thing_of("it") is thing_of("") is thing_of("what you said about a very long day") is None


@given(st.text(max_size=2_000))
def test_any_text_can_be_asked_for_likings(text: str) -> None:
    found = liking(text)
    assert found is None or 0 <= found.start < found.end <= len(text)
