"""What a model says of people is believed only with a known dimension, a real value and quotes that are there."""

from __future__ import annotations

import json
from typing import Any

import pytest

from memos.core.types import Role, Trust
from memos.memcube.profiles.extraction import TraitsAnswer, instructions, traits_of
from memos.memcube.profiles.template import cleaned, standard
from tests.memcube.profiles.facts import message

MESSAGES = [
    message("I teach maths in Lyon, and I really hate long answers.", "Anna", number=1),
    message("You teach maths, how nice!", "assistant", number=2, role=Role.ASSISTANT),
    message("I drive a bus.\nEvery  day.", "Bob", number=3),
]
GOOD: dict[str, Any] = {
    "subject": "Anna", "dimension": "life.occupation", "value": "maths teacher", "confidence": 0.8,
    "evidence": [{"message": 1, "quote": "I teach maths"}],
}  # fmt: skip


def read(*traits: Any) -> Any:
    answer = TraitsAnswer.model_validate_json(json.dumps({"traits": list(traits)}))
    return traits_of(answer, MESSAGES, standard())


def test_a_good_trait_is_believed_with_its_passage() -> None:
    [fact], refused = read(GOOD)
    assert refused == []
    assert (fact.key, fact.value, fact.confidence) == ("anna|profile:life.occupation", "maths teacher", 0.8)
    assert fact.memory == "Anna - Occupation: maths teacher"
    assert [MESSAGES[0].memory[span.start : span.end] for span in fact.spans] == ["I teach maths"]
    assert fact.said_at == MESSAGES[0].said_at


def test_levels_and_choices_are_written_as_the_template_does() -> None:
    quote = [{"message": 1, "quote": "hate long answers"}]
    [fact], _ = read(GOOD | {"dimension": "assistant.length", "value": "Short.", "evidence": quote})
    assert fact.value == "short"


def test_no_model_is_surer_than_nine_in_ten() -> None:
    [fact], _ = read(GOOD | {"confidence": 1})
    assert fact.confidence == 0.9


def test_case_and_white_space_of_a_quote_may_differ() -> None:
    quote = {"message": 3, "quote": '"i drive a BUS. every day…"'}
    [fact], _ = read(GOOD | {"subject": "bob", "value": "bus driver", "evidence": [quote]})
    assert fact.subject == "Bob"
    assert MESSAGES[2].memory[fact.spans[0].start : fact.spans[0].end] == "I drive a bus.\nEvery  day"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"dimension": "life.shoe_size"}, "no such dimension"),
        ({"dimension": ""}, "no such dimension"),
        *(({"value": value}, "the value") for value in (
            "", " ", "N/A", "unknown", "Unknown.", "error", "Error: 429 Too Many Requests", "I cannot determine this",
            "I'm sorry, but I can't help with that.", "None", "null", "{}", "[]", "{\"a\": 1}", "...", "Not mentioned",
            "As an AI language model, I do not know", "不详", "对不起，我无法回答", "x" * 201, "a\x1b[2Jb", "a\u202eb",
            "No information available", "Traceback (most recent call last):", "The user does not mention it",
        )),
        ({"dimension": "assistant.length", "value": "enormous"}, "the value"),
        ({"subject": "Carol"}, "does not speak"),
        ({"subject": "assistant"}, "does not speak"),
        ({"subject": ""}, "does not speak"),
        ({"evidence": []}, "no evidence"),
        ({"evidence": [{"message": 0, "quote": "I teach maths"}]}, "not shown"),
        ({"evidence": [{"message": -1, "quote": "I drive a bus"}]}, "not shown"),
        ({"evidence": [{"message": 9, "quote": "I teach maths"}]}, "not shown"),
        ({"evidence": [{"message": 1, "quote": "I teach physics"}]}, "is not in the message"),
        ({"evidence": [{"message": 1, "quote": ""}]}, "is not in the message"),
        ({"evidence": [{"message": 1, "quote": ", "}]}, "is not in the message"),
        ({"evidence": [{"message": 1, "quote": ".*"}]}, "is not in the message"),
        ({"evidence": [{"message": 3, "quote": "I teach maths"}]}, "is not in the message"),
        ({"evidence": [GOOD["evidence"][0], {"message": 1, "quote": "invented"}]}, "is not in the message"),
        ({"evidence": [{"message": 2, "quote": "You teach maths"}]}, "own words"),
        ({"evidence": [{"message": 3, "quote": "I drive a bus"}]}, "own words"),
    ],
)  # fmt: skip
def test_a_bad_trait_is_refused_alone_and_the_good_ones_stay(changes: dict[str, Any], why: str) -> None:
    believed, refused = read(GOOD | changes, GOOD)
    assert [fact.value for fact in believed] == ["maths teacher"]
    assert len(refused) == 1
    assert why in refused[0]
    assert "maths" not in refused[0]


@pytest.mark.parametrize(
    "broken",
    [None, 7, "trait", [], {}, {"dimension": "life.name"}, GOOD | {"confidence": 2}, GOOD | {"value": None},
     GOOD | {"evidence": "I teach maths"}, GOOD | {"evidence": [{"message": "one", "quote": "x"}]}],
)  # fmt: skip
def test_what_is_no_trait_at_all_does_not_cost_the_others(broken: Any) -> None:
    believed, _ = read(broken, GOOD)
    assert [fact.value for fact in believed] == ["maths teacher"]


@pytest.mark.parametrize("text", ['{"traits": []}', '{"traits": null}', "{}"])
def test_an_empty_answer_has_no_traits(text: str) -> None:
    assert traits_of(TraitsAnswer.model_validate_json(text), MESSAGES, standard()) == ([], [])


def test_a_trait_with_untrusted_evidence_is_untrusted() -> None:
    shown = [message("I teach maths", trust=Trust.UNTRUSTED)]
    answer = TraitsAnswer.model_validate({"traits": [GOOD | {"subject": ""}]})
    assert [fact.trust for fact in traits_of(answer, shown, standard()).traits] == [Trust.UNTRUSTED]


def test_a_model_is_told_every_dimension_and_the_shape_of_a_trait() -> None:
    told = instructions(standard())
    assert all(f"- {name}: " in told for name in standard().by_id)
    assert "One of: short, medium, long." in told
    shape = json.dumps(TraitsAnswer.model_json_schema())
    assert all(name in shape for name in ("dimension", "evidence", "quote", "message", "confidence"))


@pytest.mark.parametrize(
    "value",
    ["Lyon", "no children", "nurse", "as an airline pilot", "Nina", "Unna", "C++", "不吃辣", "Nothing but tea", "7"],
)
def test_values_that_only_resemble_a_blank_are_kept(value: str) -> None:
    assert cleaned(value) == value
