"""What a sentence states about its speaker: found, and not found where it must not be."""

from __future__ import annotations

import pytest

from memos.text.entities import entities
from memos.text.statements import key_of, statements

STATED = [
    ("I live in Paris.", "residence", "Paris"),
    ("no, I moved to Lyon in May", "residence", "Lyon"),
    ("We've just moved to New York with the cat", "residence", "New York"),
    ("I'm now living in Rio de Janeiro!", "residence", "Rio de Janeiro"),
    ("I work at Solenne Assurances as a clerk", "employer", "Solenne Assurances"),
    ("I've joined Acme", "employer", "Acme"),
    ("My name is Maya Okafor.", "name", "Maya Okafor"),
    ("my phone is a Fairphone 5", "my:phone", "a Fairphone 5"),
    ("My favourite colour is green, mostly", "my:favorite colour", "green"),
    ("我现在住在里昂。", "residence", "里昂"),
    ("我在医院工作", "employer", "医院"),
    ("我叫陈伟", "name", "陈伟"),
    ("我的手机是华为。", "my:手机", "华为"),
]
NOT_STATED = [
    "I don't live in Paris any more.",
    "I used to live in Paris",
    "Do you live in Paris?",
    "She lives in Paris.",
    "I never worked for Acme",
    "我不住在巴黎",
    "I live in hope that",
    "",
]


@pytest.mark.parametrize(("text", "attribute", "value"), STATED)
def test_a_statement_is_found_with_its_value_and_span(text: str, attribute: str, value: str) -> None:
    first = statements(text)[0]
    assert (first.attribute, first.value) == (attribute, value)
    assert value in text[first.start : first.end]


@pytest.mark.parametrize("text", NOT_STATED)
def test_denials_questions_and_others_state_nothing(text: str) -> None:
    assert statements(text) == []


def test_keys_do_not_depend_on_how_a_name_is_written() -> None:
    assert key_of("  Maya  OKAFOR", "residence") == key_of("maya okafor", "residence")


def test_names_are_found_and_sentence_starts_are_not() -> None:
    assert entities("Yesterday Maya flew to Rio de Janeiro with Wei. The cat stayed.") == (
        "Maya",
        "Rio de Janeiro",
        "Wei",
    )
    assert entities('《三体》 is good, says "Juno"') == ("Juno", "三体")
    assert entities("") == ()
