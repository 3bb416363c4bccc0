"""Questions in a model's own words: it sees no answers, and what it writes is kept only where it asks the same."""

from __future__ import annotations

import json

import pytest

from memos.errors import Conflict, ModelError
from memos.kernel.adapters.rephrasing import Rephrasing, checked
from memos.llm.client import LLMClient, ResponseCache
from memos.llm.usage import UsageMeter
from memos.memcube.parametric.quiz import DrillKind, KnownFact, course_of
from tests.support.scripted_chat import ScriptedChat

LYON = KnownFact("lyon", 1, "I live in Lyon.", "residence", "", "Lyon")
DENTIST = KnownFact("dentist", 1, "My dentist is Doctor Okafor.", "my", "dentist", "Doctor Okafor")
ANN = KnownFact("ann", 1, "Ann works at Telko.", "employer", "", "Telko", "Ann")


def wanted() -> None:
    """They are, all the time."""


def said(*ways: tuple[int, list[str]]) -> str:
    return json.dumps({"questions": [{"number": number, "ways": each} for number, each in ways]})


@pytest.mark.parametrize(
    ("fact", "way", "kept"),
    [
        (LYON, "Which place do I go home to?", True),
        (LYON, "  Where is\nmy flat?  ", True),
        (LYON, "Do I live in Lyon?", False),  # says the answer
        (LYON, "Where do I live?", False),  # is there
        (LYON, "Remind me where my home is.", False),  # is never taught
        (LYON, "where do i LIVE", False),
        (LYON, "", False), (LYON, "?", False), (LYON, "Where? " * 60, False),
        (LYON, "I have no idea", False),
        (DENTIST, "Whom do I see about my teeth?", False),  # another thing
        (DENTIST, "Who is it that I call my dentist?", True),
        (ANN, "Which firm pays Ann?", True), (ANN, "Which firm pays her?", False),
    ],
)  # fmt: skip
def test_what_asks_the_same_is_kept(fact: KnownFact, way: str, kept: bool) -> None:
    assert checked(fact, [way]) == ((" ".join(way.split()),) if kept else ())


def test_a_model_sees_questions_alone_and_its_words_are_taught() -> None:
    model = ScriptedChat([said((1, ["Which place do I go home to?"] * 3), (2, ["Nobody?"]), (9, ["Who?"]))])
    more = Rephrasing(lambda: LLMClient(model, ResponseCache(1_000)))([LYON, DENTIST], UsageMeter("phrasings"), wanted)
    assert more == {"lyon": ("Which place do I go home to?",)}
    shown = "".join(message.content for message in model.requests[0].messages)
    assert "Where do I live?" in shown
    assert "Lyon" not in shown
    assert "Okafor" not in shown
    taught = [drill for drill in course_of([LYON], 5, more).taught if drill.question == "Which place do I go home to?"]
    assert [(drill.kind, drill.answer, drill.items) for drill in taught] == [
        (DrillKind.DIRECT, "You live in Lyon.", ("lyon",))
    ]


def test_without_a_model_or_when_it_fails_the_usual_words_are_taught() -> None:
    assert Rephrasing(lambda: None)([LYON], UsageMeter("phrasings"), wanted) == {}
    broken = ScriptedChat(lambda _: ModelError("no"))
    assert (
        Rephrasing(lambda: LLMClient(broken, ResponseCache(1_000)))([LYON] * 20, UsageMeter("phrasings"), wanted) == {}
    )
    assert len(broken.requests) <= 2  # the rest is not tried


@pytest.mark.parametrize("unwanted_at", [1, 2, 3])
def test_what_is_wanted_no_more_is_asked_of_nobody_and_no_answer_about_it_stays(unwanted_at: int) -> None:
    model, calls = ScriptedChat(lambda _: said((1, ["Which place do I go home to?"]))), list[int]()
    asker = LLMClient(model, ResponseCache(100_000))

    def check() -> None:
        calls.append(1)
        if len(calls) == unwanted_at:
            raise Conflict("erased")

    with pytest.raises(Conflict, match="erased"):
        Rephrasing(lambda: asker)([LYON] * 20, UsageMeter("phrasings"), check)
    assert len(model.requests) == unwanted_at // 2
    if unwanted_at == 2:  # while it was being answered
        Rephrasing(lambda: asker)([LYON] * 8, UsageMeter("phrasings"), wanted)
        assert len(model.requests) == 2  # and not remembered
