"""What moves a candidate besides its arms: session, neighbours, names, dates, phrases; each by a bounded amount."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from zoneinfo import ZoneInfo

import pytest

from memos.core.clock import to_micros
from memos.core.ports import ScoredPoint
from memos.core.types import ItemType, Role, Status
from memos.memcube.ledger.items import Brief
from memos.search import rank as weights
from memos.search.question import Question, read_question
from memos.search.rank import (
    NO_PREFERENCES,
    Fused,
    PreferenceCandidates,
    Ranked,
    Recalled,
    asking_share,
    reorder,
    score_candidates,
)

NOON = datetime(2023, 6, 7, 12, tzinfo=UTC)


def item(name: str, memory: str = "We talked.", **fields: object) -> Brief:
    made = Brief(
        id=name, version=1, cube="c", memory=memory, length=len(memory), type=ItemType.MESSAGE, status=Status.ACTIVE,
        speaker="Ann", role=Role.USER, conversation=None, session=None, position=None, said_at=to_micros(NOON),
        valid_from=to_micros(NOON), valid_to=None, cold=False, outdated=False, key=None,
    )  # fmt: skip
    stored = {key: to_micros(value) if isinstance(value, datetime) else value for key, value in fields.items()}
    return made._replace(**stored)  # type: ignore[arg-type]


def recalled(made: Brief, gave: float, arm: str = "turn_bm25") -> Recalled:
    return Recalled(made, Fused(f"{made.id}:1", gave, ((arm, 1, gave, gave),)))


def question(text: str) -> Question:
    return read_question(text, NOON, ZoneInfo("UTC"))


def rank(
    pool: Sequence[Recalled], asked: Question, near: Sequence[str] = (),
    newer: Mapping[str, str] = MappingProxyType({}),
    *, standing: PreferenceCandidates = NO_PREFERENCES, dated: Sequence[Fused] = (), whole: Sequence[ScoredPoint] = (),
) -> list[Ranked]:  # fmt: skip
    """Return candidates in the order of a search without a reranker."""
    return reorder(score_candidates(pool, asked, near, newer, dated, whole), asked, newer, standing)


def boosts(entry: Ranked) -> dict[str, float]:
    return dict(entry.boosts)


def test_without_anything_to_say_the_fused_order_stays() -> None:
    pool = [recalled(item("a"), 0.5), recalled(item("b"), 0.9), recalled(item("c"), 0.1)]
    assert [(entry.item.id, entry.score) for entry in rank(pool, question("cats"))] == [
        ("b", 0.9),
        ("a", 0.5),
        ("c", 0.1),
    ]


def test_who_asks_what_holds_now_gets_first_what_was_said_of_it_last() -> None:
    old = item("old", "I work at Renault.", key="ann|employer", valid_from=NOON - timedelta(days=90))
    new = item("new", "I work at the clinic.", key="ann|employer")
    pool = [recalled(old, 0.9), recalled(item("else"), 0.8), recalled(new, 0.2)]
    assert [entry.item.id for entry in rank(pool, question("Who do I work for now?"))] == ["new", "old", "else"]
    assert [entry.item.id for entry in rank(pool, question("Who did I work for?"))] == ["old", "else", "new"]
    elsewhere = [pool[0], pool[1], recalled(new._replace(cube="other"), 0.2)]
    assert rank(elsewhere, question("Who do I work for now?"))[0].item.id == "old"


def test_arms_and_boosts_add_up_to_the_score() -> None:
    pool = [
        recalled(
            item(str(n), f"Yes. {'Why?' * (n % 2)}", conversation="k", session=0, position=n, valid_to=NOON), 0.1 * n
        )
        for n in range(1, 9)
    ]
    for entry in rank(pool, question('When did Ann say "yes" last week?'), ["3"]):
        told = sum(vote[3] for vote in entry.votes) + sum(boosts(entry).values())
        assert entry.score == pytest.approx(told)


def test_a_session_that_answers_often_lifts_its_messages() -> None:
    alone = recalled(item("alone", conversation="k", session=0, position=0), 0.5)
    crowd = [recalled(item(f"m{n}", conversation="k", session=1, position=10 + 2 * n), 0.45) for n in range(4)]
    first = rank([alone, *crowd], question("cats"))[0]
    assert first.item.session == 1
    assert boosts(first)["session"] == pytest.approx(weights.SESSION)


def test_neighbours_of_a_strong_message_in_its_session_rise() -> None:
    strong = recalled(item("strong", conversation="k", session=0, position=5), 1.0)
    before = recalled(item("before", conversation="k", session=0, position=4), 0.2)
    after = recalled(item("after", conversation="k", session=0, position=6), 0.2)
    apart = recalled(item("apart", conversation="k", session=1, position=7), 0.2)
    found = {entry.item.id: boosts(entry) for entry in rank([strong, before, after, apart], question("cats"))}
    assert found["before"]["next"] > found["after"]["previous"] > 0
    assert "next" not in found["apart"]
    assert "previous" not in found["apart"]


def test_who_asks_for_several_things_gets_them_of_several_sessions() -> None:
    pool = [recalled(item(f"m{n}", conversation="k", session=0, position=2 * n), 1.0 - 0.01 * n) for n in range(4)]
    pool += [
        recalled(item(f"o{n}", conversation="k", session=1, position=50 + 2 * n), 0.985 - 0.01 * n) for n in range(4)
    ]
    pool.append(recalled(item("nowhere"), 0.5))
    several = rank(pool, question("Which books has Ann read?"))
    one = rank(pool, question("Has Ann read a book?"))
    assert {entry.item.session for entry in several[:2]} == {0, 1}
    assert {entry.item.session for entry in one[:2]} == {0}
    for session in (0, 1):
        assert [e.item.id for e in several if e.item.session == session] == [
            e.item.id for e in one if e.item.session == session
        ]
    took = [boosts(entry).get("spread", 0.0) for entry in several if entry.item.session == 0]
    best = max(entry.score for entry in one)
    assert took == [0.0] + [pytest.approx(weights.SPREAD * best * times) for times in (1, 2, 2)]
    assert "spread" not in boosts(next(entry for entry in several if entry.item.id == "nowhere"))


def test_what_answers_somebodys_question_has_some_of_its_standing() -> None:
    asked = recalled(item("asked", "How long have you had turtles?", conversation="k", session=0, position=4), 1.0)
    told = recalled(item("told", "I love turtles.", conversation="k", session=1, position=4), 1.0)
    answer = item("answer", "Three years now!", speaker="Bob", conversation="k", session=0, position=5)
    others = [
        recalled(answer, 0.2), recalled(answer._replace(id="same", speaker="Ann"), 0.2),
        recalled(answer._replace(id="to_told", session=1), 0.2),
    ]  # fmt: skip
    found = {entry.item.id: boosts(entry) for entry in rank([asked, told, *others], question("turtles"))}
    assert found["answer"]["answers"] == pytest.approx(4 * found["answer"]["previous"])
    assert "answers" not in found["same"]
    assert "answers" not in found["to_told"]
    assert found["to_told"]["previous"] > 0


def test_a_named_speaker_is_a_boost_and_never_a_filter() -> None:
    pool = [recalled(item("ann"), 0.50), recalled(item("bob", speaker="Bob"), 0.48), recalled(item("far"), 0.9)]
    found = rank(pool, question("What did Bob cook?"))
    assert [entry.item.id for entry in found] == ["far", "bob", "ann"]
    assert boosts(found[1])["speaker"] <= 0.15 * 0.48 + 1e-9


def test_a_question_for_a_time_prefers_what_names_one() -> None:
    told = item("told", valid_to=NOON + timedelta(days=1))
    found = rank([recalled(item("plain"), 0.5), recalled(told, 0.49)], question("When did they meet?"))
    assert [entry.item.id for entry in found] == ["told", "plain"]


def test_what_is_of_the_time_asked_for_comes_before_what_shares_the_words() -> None:
    pool = [recalled(item("a"), 0.6), recalled(item("b"), 0.5), recalled(item("c"), 0.4)]
    dated = [Fused("b:1", 1.0, ()), Fused("c:1", 0.3, ()), Fused("a:2", 0.2, ())]
    found = rank(pool, question("What happened last week?"), dated=dated)
    assert [entry.item.id for entry in found] == ["b", "c", "a"]
    votes = {entry.item.id: entry.votes[1:] for entry in found}
    assert votes == {"b": (("dated", 1, 1.0, 1.0),), "c": (("dated", 2, 0.3, 0.65),), "a": ()}


def test_what_is_nearest_to_the_question_with_its_names_gets_a_second_look() -> None:
    pool = [recalled(item(name), score) for name, score in (("a", 0.6), ("b", 0.56), ("c", 0.52))]
    whole = [ScoredPoint("c:1", 0.8), ScoredPoint("x:1", 0.7), ScoredPoint("b:1", 0.6), ScoredPoint("c:1", 0.5)]
    found = rank(pool, question("What is painted?"), whole=whole)
    assert [entry.item.id for entry in found] == ["b", "c", "a"]
    votes = {entry.item.id: entry.votes[1:] for entry in found}
    assert votes["c"] == (("named", 1, 0.8, pytest.approx(0.15 * 0.6)),)
    assert votes["b"] == (("named", 2, 0.6, pytest.approx(0.15 * 0.6 / (1 + 1 / 20))),)
    assert votes["a"] == ()
    assert [entry.item.id for entry in rank(pool, question("What is painted?"))] == ["a", "b", "c"]
    assert rank([], question("What is painted?"), whole=whole) == []


def test_what_is_as_near_the_whole_question_gets_as_much_in_whatever_order_an_index_gives_it() -> None:
    pool = [recalled(item(name), 0.5) for name in "abcd"]
    near = [ScoredPoint("a:1", 0.8), ScoredPoint("b:1", 0.7), ScoredPoint("c:1", 0.7 - 1e-8), ScoredPoint("d:1", 0.6)]
    asked = question("What is painted?")
    found = rank(pool, asked, whole=near)
    votes = {entry.item.id: entry.votes[-1] for entry in found}
    assert votes["b"][1] == votes["c"][1] == 2
    assert votes["b"][3] == votes["c"][3] < votes["a"][3]
    assert votes["d"][1] == 4
    turned = rank(pool, asked, whole=[near[0], near[2], near[1], near[3]])
    assert [(each.item.id, each.score) for each in turned] == [(each.item.id, each.score) for each in found]


def test_a_quoted_phrase_counts_where_it_stands() -> None:
    pool = [recalled(item("a", "blue whale"), 0.5), recalled(item("b", "The Blue  Whale sings"), 0.5)]
    found = rank(pool, question('who said "the blue whale"?'))
    assert [entry.item.id for entry in found] == ["b", "a"]


def test_the_latest_wins_when_asked_for_and_only_then() -> None:
    old, new = item("a", valid_from=NOON - timedelta(days=900)), item("b")
    assert rank([recalled(old, 0.5), recalled(new, 0.5)], question("Where does she currently live?"))[0].item.id == "b"
    assert not any(boosts(entry) for entry in rank([recalled(old, 0.5), recalled(new, 0.5)], question("cats")))


def test_what_came_first_wins_when_asked_for() -> None:
    old, new = item("b", valid_from=NOON - timedelta(days=900)), item("a")
    found = rank([recalled(old, 0.5), recalled(new, 0.5)], question("When did she first swim?"))
    assert [entry.item.id for entry in found] == ["b", "a"]
    assert [name for name, _ in found[0].boosts] == ["oldest"]


def test_who_asks_how_it_was_gets_what_was_replaced_as_it_stands() -> None:
    pool = [recalled(item("a")._replace(outdated=True), 0.5), recalled(item("b"), 0.45)]
    assert rank(pool, question("Where does she live?"))[0].item.id == "b"
    assert rank(pool, question("Where did she use to live?"))[0].item.id == "a"


def test_who_only_asks_tells_little() -> None:
    assert asking_share("How are you? What is new?") == 1.0
    assert asking_share("I moved to Lyon. And you?") == pytest.approx(8 / 24)
    assert asking_share("你好吗？我很好。") == 0.5
    assert asking_share("") == 0.0
    asks, tells = recalled(item("a", "Do you like cats?"), 0.5), recalled(item("b", "I like cats."), 0.5)
    assert rank([asks, tells], question("cats"))[0].item.id == "b"


def test_asked_for_advice_the_speakers_preferences_come_first() -> None:
    pool = [recalled(item("a", "Restaurants open at six."), 0.5), recalled(item("b", "I avoid spicy food."), 0.45)]
    assert rank(pool, question("Can you recommend a restaurant?"))[0].item.id == "b"
    assert rank(pool, question("When do restaurants open?"))[0].item.id == "a"


def test_no_boost_raises_by_more_than_a_fifth_and_none_takes_all() -> None:
    every = [getattr(weights, name) for name in dir(weights) if name.isupper() and not name.startswith("_")]
    numbers = [value for value in every if isinstance(value, float)]
    arms = (weights.SESSION, weights.DATED)
    assert max(number for number in numbers if number not in arms) <= 0.2
    assert min(numbers) > -1


def test_who_asks_about_themselves_gets_their_own_words_before_the_assistant_at_length() -> None:
    own = item("own", "My flight leaves at nine.")
    at_length = item("at length", "Your flight leaves at nine, so let us plan. " * 20, role=Role.ASSISTANT)
    short = item("short", "Your seat is 14C.", role=Role.ASSISTANT)
    pool = [recalled(at_length, 0.9), recalled(short, 0.8), recalled(own, 0.6)]

    def order(text: str) -> list[str]:
        return [entry.item.id for entry in rank(pool, question(text))]

    for text in ("When does my flight leave?", "Can you tell me when I fly?", "Wann geht mein Flug?", "我的航班几点？"):
        assert order(text) == ["short", "own", "at length"]
    for text in ("What did you tell me about my flight?", "When does the flight leave?", "Has the US lounge a bar?"):
        assert order(text) == ["at length", "short", "own"]


@pytest.mark.parametrize(
    "text",
    [
        "Which hotel was recommended to me?", "What name did you come up with?", "Which one did the assistant suggest?",
        "Welches Hotel hattest du mir empfohlen?", "¿Qué hotel me habías recomendado?", "¿Qué bar recomendaste?",
        "Quel vin as-tu conseillé ?", "你给我推荐的酒店叫什么？", "勧めてくれたホテルは？",
    ],
)  # fmt: skip
def test_what_the_assistant_said_comes_first_where_that_is_asked(text: str) -> None:
    asked = item("asked", "I am looking for a hotel in Rome.")
    answer = item("answer", "Take the Hotel Locarno.", role=Role.ASSISTANT)
    best, _ = rank([recalled(asked, 0.9), recalled(answer, 0.8)], question(text))
    assert best.item.id == "answer"


def test_what_was_said_without_whom_the_question_names_comes_last() -> None:
    here = item("here", "You play the cello now!", speaker="Bob", conversation="with Kim")
    away = item("away", "You play the cello now!", speaker="Bob", conversation="without Kim")
    of_her = item("of her", "Kim plays the cello now!", speaker="Bob", conversation="without Kim")
    hers = item("hers", "Nice.", speaker="Kim", conversation="with Kim")
    pool = [recalled(away, 0.9), recalled(of_her, 0.8), recalled(here, 0.7), recalled(hers, 0.1)]
    found = score_candidates(pool, question("What does Kim play?"), absent={"without Kim"})
    assert [entry.item.id for entry in found] == ["of her", "here", "away", "hers"]
    assert "absent" in boosts(found[2])
    assert "absent" not in boosts(found[0])
