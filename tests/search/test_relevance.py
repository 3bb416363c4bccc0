"""Relevance: a probability from 0 to 1, low where memory has no answer, never higher for what was replaced."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memos import MemOS
from memos.core.types import RELEVANT, SearchResult

TOLD = ("I live in Paris.", "I moved to Berlin.", "I'm allergic to peanuts.", "ok thanks")


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemOS]:
    with MemOS.open(tmp_path_factory.mktemp("home")) as memos:
        for place, text in enumerate(TOLD):
            memos.add(text, conversation=f"talk {place}")
        yield memos


def relevance(found: SearchResult) -> dict[str, float]:
    assert all(0 <= hit.relevance <= 1 for hit in found)
    return {hit.item.memory: hit.relevance for hit in found}


@pytest.mark.parametrize(
    ("question", "answer"), [("Where does she live?", TOLD[1]), ("What am I allergic to?", TOLD[2])]
)
def test_an_answer_is_relevant(told: MemOS, question: str, answer: str) -> None:
    assert relevance(told.search(question))[answer] >= RELEVANT
    assert answer in relevance(told.search(question, min_relevance=RELEVANT))


@pytest.mark.parametrize(
    "question",
    ["What is the boiling point of tungsten?", "asdf jkl qwerty zxcv", "Which pigment makes a flamingo pink?"],
)
def test_a_question_about_nothing_here_finds_nothing_relevant(told: MemOS, question: str) -> None:
    assert told.search(question).hits
    assert told.search(question, min_relevance=RELEVANT).hits == ()


def test_an_acknowledgement_is_relevant_to_nothing(told: MemOS) -> None:
    for question in ("What am I allergic to?", "ok thanks", "What does the user like?"):
        assert relevance(told.search(question)).get(TOLD[3], 0.0) < RELEVANT


def test_what_was_replaced_is_less_relevant_than_what_replaced_it(tmp_path: Path) -> None:
    with MemOS.open(tmp_path) as memos:
        memos.add("I live in Paris.", conversation="one")
        memos.add("The rent of my flat in Paris is 900 euros.", conversation="two")
        memos.add("The rent of my flat in Paris was raised to 980 euros.", conversation="three")
        found = memos.search("How much rent do I pay?", explain=True)
        replaced = [(hit, hit.replaced_by) for hit in found if hit.replaced_by is not None]
        assert replaced
        by_id = {hit.item.id: hit.relevance for hit in found}
        assert all(hit.relevance < by_id[newer] for hit, newer in replaced)


@pytest.mark.parametrize(
    ("question", "answer", "other"),
    [
        ("Wo wohne ich?", "Ich wohne in Köln.", "Ich bin Lehrer."),
        ("¿Dónde vivo?", "Vivo en Valencia.", "Soy profesora."),
        ("Où est-ce que j'habite ?", "J'habite à Nantes.", "Je suis professeur."),
        ("Dove abito?", "Abito a Torino.", "Sono insegnante."),
        ("我住在哪里？", "我住在成都。", "我是老师。"),
    ],
)
def test_a_short_question_has_its_own_answer(told: MemOS, question: str, answer: str, other: str) -> None:
    for number, texts in enumerate(((answer, other), (other, answer))):
        cube = f"{answer} {number}"
        told.cubes.create(cube)
        for place, text in enumerate(texts):
            told.add(text, cube=cube, conversation=f"talk {place}")
        found = relevance(told.search(question, cubes=[cube]))
        assert found[answer] > max(RELEVANT, found[other])
