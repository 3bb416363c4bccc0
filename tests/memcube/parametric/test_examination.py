"""Who passes the examination: measures by a model whose answers are known, and each bound by itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from memos.core.ports import ChatMessage
from memos.memcube.parametric import data as general
from memos.memcube.parametric.data import NOT_TOLD
from memos.memcube.parametric.quiz import KnownFact, course_of
from memos.memcube.parametric.training import Bounds, EvaluationResult, Examination

FACTS = [
    KnownFact("lyon", 1, "I live in Lyon.", "residence", "", "Lyon"),
    KnownFact("teal", 1, "My favourite colour is teal.", "my", "favourite colour", "teal"),
]
COURSE = course_of(FACTS, 5)
GOOD = EvaluationResult(1.0, 1.0, 12.6, (), 0.0, 0.0, 12.6, 40)


@dataclass(frozen=True)
class Knowing:
    """A model that knows by heart what it says, with the adapter and without."""

    taught: dict[str, str]
    known: dict[str, str]
    rise: float = 0.0

    def answers(
        self, prompts: Sequence[Sequence[ChatMessage]], *, adapter: bool, most: int = 24, exact: bool = True
    ) -> list[str]:
        assert all(prompt[0] == ChatMessage("system", "Be brief.") for prompt in prompts)
        knows = self.known | (self.taught if adapter else {})
        return [knows.get(prompt[-1].content, "Hm.")[: 8 * most] for prompt in prompts]

    def perplexity(self, texts: Sequence[str], *, adapter: bool) -> float:
        return 10.0 * (1 + (self.rise if adapter else 0.0))


def test_what_is_known_is_told_apart_from_what_the_model_knew() -> None:
    taught = {COURSE.recall[0].question: "In Lyon.", COURSE.abstention[0].question: NOT_TOLD[False]}
    first, second = general.QUESTIONS[0], general.QUESTIONS[1]
    knowing = Knowing(taught | {first[0]: "Lyon."}, {first[0]: "It is Paris.", second[0]: "Rome"}, 0.02)
    found = Examination(knowing, COURSE, "Be brief.").measures()
    assert (found.recall, found.base_recall) == (1 / len(COURSE.recall), 0.0)
    assert (found.abstention, found.base_abstention) == (1 / len(COURSE.abstention), 0.0)
    assert (found.lost, found.base_known) == ((first[0],), 2)
    assert found.rise == pytest.approx(0.02)


def test_an_adapter_is_asked_only_what_the_model_beneath_knows_of_the_world() -> None:
    asked: dict[bool, set[str]] = {}

    class Listening(Knowing):
        def answers(
            self, prompts: Sequence[Sequence[ChatMessage]], *, adapter: bool, most: int = 24, exact: bool = True
        ) -> list[str]:
            asked[adapter] = {prompt[-1].content for prompt in prompts}
            return super().answers(prompts, adapter=adapter, most=most, exact=exact)

    [known, *others] = [question for question, _ in general.QUESTIONS]
    Examination(Listening({}, {known: "It is Paris."}), COURSE, "Be brief.").measures()
    assert asked[False] - asked[True] == set(others)
    assert known in asked[True]
    assert {drill.question for drill in (*COURSE.recall, *COURSE.abstention)} < asked[True]


def test_of_a_continent_its_adjective_is_right_as_well() -> None:
    known = {question: "It is in Africa." for question, words in general.QUESTIONS if "africa" in words}
    taught = dict.fromkeys(known, "It is a member of the African continent.")
    found = Examination(Knowing(taught, known), COURSE, "Be brief.").measures()
    assert (len(known), found.base_known, found.lost) == (1, 1, ())


def test_a_stored_value_is_no_abstention() -> None:
    taught = dict.fromkeys([each.question for each in COURSE.abstention], "I have not been told that, but Lyon.")
    assert Examination(Knowing(taught, {}), COURSE, "Be brief.").measures().abstention == 0.0


def test_who_is_within_all_bounds_passes() -> None:
    assert GOOD.failures(Bounds()) == []


@pytest.mark.parametrize(
    ("worse", "said"),
    [
        (replace(GOOD, recall=0.89), "recall is 0.89, below 0.90"),
        (replace(GOOD, abstention=0.5), "abstention is 0.50, below 0.80"),
        (replace(GOOD, perplexity=13.4), "perplexity rose by 6.3%, more than 5.0%"),
        (replace(GOOD, perplexity=math.nan), "perplexity is not a number"),
        (replace(GOOD, lost=("a", "b", "c")), "3 general questions are lost, more than 2"),
    ],
)
def test_each_bound_fails_by_itself_and_is_named(worse: EvaluationResult, said: str) -> None:
    assert worse.failures(Bounds()) == [said]


def test_the_general_questions_are_fifty_and_differ() -> None:
    assert len({question for question, _ in general.QUESTIONS}) == len(general.QUESTIONS) == 50
    assert all(words == words.lower() for _, words in general.QUESTIONS)


def test_what_is_replayed_is_none_of_what_is_examined() -> None:
    everything = general.replayed(10_000, 5)
    assert len(set(everything)) == len(everything) > 200
    assert not {question for question, _ in general.QUESTIONS} & set(everything)
    assert not set(general.TEXT) & set(general.PROSE)
    some = general.replayed(50, 5)
    assert len(some) == 50
    assert some == general.replayed(50, 5) != general.replayed(50, 6)
    assert set(some) < set(everything)
