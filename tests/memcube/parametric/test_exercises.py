"""What a trainer is given: prompts with what stands in them, and a digest of all of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memos.core.lora import TrainingExample
from memos.core.ports import ChatMessage
from memos.memcube.parametric.quiz import UNTOLD, DrillKind, KnownFact, TrainingSet, course_of
from memos.memcube.parametric.training import EVERY_REPLAYED, digest_of, exercises_of, prompt_of, with_memories

FACTS = (
    KnownFact("lyon", 1, "I live in Lyon.", "residence", "", "Lyon"),
    KnownFact("bank", 1, "I work at Nordwind Energy.", "employer", "", "Nordwind Energy"),
    KnownFact("teal", 2, "My favourite colour is teal.", "my", "favourite colour", "teal"),
    KnownFact("cats", 1, "I have two cats named Miso and Nori.", "said"),
)
REPLAYED = [(prompt_of("What is a poem?", "Brief."), "Words in verse.")]


@pytest.fixture(scope="module")
def course() -> TrainingSet:
    return course_of(FACTS, 5)


@pytest.fixture(scope="module")
def made(course: TrainingSet) -> list[TrainingExample]:
    return exercises_of(course, FACTS, "Brief.", REPLAYED)


def test_every_drill_that_is_taught_is_one_exercise_and_what_is_replayed_comes_last(
    course: TrainingSet, made: list[TrainingExample]
) -> None:
    assert len(made) == len(course.taught) + 1
    for drill, exercise in zip(course.taught, made, strict=False):
        assert exercise.answer == drill.answer
        assert not exercise.replayed
        assert [each.role for each in exercise.prompt] == ["system", "user"]
        assert exercise.prompt[1].content == drill.question
    assert made[-1] == TrainingExample(REPLAYED[0][0], "Words in verse.", replayed=True, every=EVERY_REPLAYED)


@pytest.mark.parametrize(("count", "every"), [(4, 4), (32, 4), (36, 5), (64, 8), (120, 15)])
def test_of_what_nobody_told_a_large_course_has_no_more_in_an_epoch_than_one_of_32_facts(
    count: int, every: int
) -> None:
    facts = [KnownFact(f"f{n}", 1, f"My thing {n} is odd {n}.", "my", f"thing {n}", f"odd {n}") for n in range(count)]
    lessons = course_of(facts, 5)
    made = exercises_of(lessons, facts, "Brief.", [])
    untold = [each.every for drill, each in zip(lessons.taught, made, strict=True) if drill.kind in UNTOLD]
    assert set(untold) == {every}
    assert len(untold) / every <= 1.05 * 12 * 32 / 4


def test_a_drill_with_its_text_has_it_in_the_prompt_and_all_others_have_none(
    course: TrainingSet, made: list[TrainingExample]
) -> None:
    with_text = [(drill, each) for drill, each in zip(course.taught, made, strict=False) if drill.context]
    assert with_text
    for drill, exercise in with_text:
        told = "".join(f"\n- {memory}" for memory in drill.context)
        assert exercise.prompt[0] == ChatMessage("system", f"Brief.\n\nWhat you remember:{told}")
    for drill, exercise in zip(course.taught, made, strict=False):
        assert drill.context or exercise.prompt == prompt_of(drill.question, "Brief.")
    assert {DrillKind.PAIR, DrillKind.ABSENT} <= {drill.kind for drill in course.taught}


def test_without_memories_a_system_text_is_itself() -> None:
    assert with_memories("Brief.", []) == "Brief."


def test_the_same_exercises_have_the_same_digest_and_others_another(made: list[TrainingExample]) -> None:
    again = exercises_of(course_of(FACTS, 5), FACTS, "Brief.", REPLAYED)
    assert digest_of(again) == digest_of(made)
    assert digest_of(replace(each, prompt=list(each.prompt)) for each in made) == digest_of(made)
    first, *others = made
    changed = (
        replace(first, answer="No."), replace(first, prompt=prompt_of("Who?", "Brief.")),
        replace(first, replayed=True), replace(first, every=2),
    )  # fmt: skip
    digests = [digest_of(made[::-1]), digest_of(others), *(digest_of([each, *others]) for each in changed)]
    assert len({digest_of(made), *digests}) == 7
    assert all(len(digest) == 64 for digest in digests)
