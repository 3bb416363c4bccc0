"""A new statement replaces what it gives another value, and leaves alone what it does not touch."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from memos import MemOS
from memos.core.types import Standing
from tests.support.telling import BEGAN, tell


@pytest.fixture
def memos(tmp_path: Path) -> Iterator[MemOS]:
    """An installation with the default embedder: what replaces what is judged by its vectors, too."""
    with MemOS.open(tmp_path) as opened:
        yield opened


def standings(memos: MemOS, *questions: str) -> dict[str, Standing]:
    found = {}
    for question in questions:
        hits = memos.search(question, top_k=12, reference_time=BEGAN + timedelta(days=90)).hits
        found |= {hit.item.memory: hit.standing for hit in hits}
    return found


def first(memos: MemOS, question: str) -> str:
    return memos.search(question, reference_time=BEGAN + timedelta(days=90)).hits[0].item.memory


TEN = (
    "I live in Lyon.",
    "I work in Lyon.",
    "I love Lyon.",
    "My sister lives in Lyon.",
    "My car is red.",
    "My bike is red.",
    "I have a dog called Rex.",
    "I have a cat called Rex.",
    "I play tennis on Mondays.",
    "I play piano on Mondays.",
)
ANSWERS = {
    "Where do I live?": "I live in Lyon.",
    "Where do I work?": "I work in Lyon.",
    "What colour is my car?": "My car is red.",
    "What is my dog called?": "I have a dog called Rex.",
    "When do I play tennis?": "I play tennis on Mondays.",
}


@pytest.mark.parametrize("order", [1, -1])
def test_ten_statements_in_like_words_all_hold(memos: MemOS, order: int) -> None:
    tell(memos, *TEN[::order])
    found = standings(memos, *ANSWERS, "Which city do I love?", "When do I play piano?", "What colour is my bike?")
    assert {text for text, standing in found.items() if standing is not Standing.CURRENT} == set()
    assert {question: first(memos, question) for question in ANSWERS} == ANSWERS


UNTOUCHED = [
    ("My landlord is Mr Keller.", "My dentist is Mr Keller.", "Who is my landlord?"),
    ("My rent is 900 euros a month.", "My phone bill is 45 euros a month.", "How much is my rent?"),
    ("I spend 45 euros on food.", "I spend 45 euros on books.", "How much do I spend on food?"),
    ("The password of the router is falcon-88.", "The password of the printer is otter-40.", "The router's password?"),
    ("The web server listens on port 8080.", "The database listens on port 5433.", "Which port has the web server?"),
    ("The report is due on 5 May.", "The tax return is due on 9 June.", "When is the report due?"),
    ("I live in Lyon.", "I was born in Lyon.", "Where do I live?"),
    ("My sister's rent is 700 euros.", "My rent is 900 euros.", "How much is my sister's rent?"),
    ("My neighbour has a dog called Mochi.", "I have a dog called Mochi.", "What is my neighbour's dog called?"),
    ("I work as a nurse.", "I work in Lyon.", "What do I work as?"),
    ("My flight to Oslo leaves at 9:10.", "My flight to Rome leaves at 11:20.", "When does my flight to Oslo leave?"),
    ("Ich wohne in Köln.", "Ich arbeite in Köln.", "Wo wohne ich?"),
    ("J'habite à Nantes.", "J'aime Nantes.", "Où est-ce que j'habite ?"),
    ("Vivo en Sevilla.", "Trabajo en Sevilla.", "¿Dónde vivo?"),
    ("I live in Bergen now.", "I now work for Equinor in Bergen.", "Where do I live?"),
    ("I work for Equinor in Bergen now.", "I live in Bergen now.", "Which company do I work for?"),
    ("I live in Bergen now.", "I started working for Equinor in Bergen.", "Where do I live?"),
    ("I live in Bergen now.", "I changed jobs, I work for Equinor in Bergen now.", "Where do I live?"),
    ("I live in Bergen now.", "I'm a teacher in Bergen now.", "Where do I live?"),
    ("Ana lives in Bergen now.", "Ana works for Equinor in Oslo these days.", "Where does Ana live?"),
]


@pytest.mark.parametrize(("old", "new", "question"), UNTOUCHED)
def test_another_attribute_or_another_holder_changes_nothing(memos: MemOS, old: str, new: str, question: str) -> None:
    tell(memos, old, "The printer is out of toner.", new)
    assert standings(memos, question)[old] is Standing.CURRENT
    assert first(memos, question) == old


def test_words_of_change_replace_the_thing_that_they_mention(memos: MemOS) -> None:
    new = "We repainted the front door, it's black now."
    tell(memos, "My car is yellow.", "The printer is out of toner.", "My front door is green.", new)
    found = standings(memos, "What colour is my car?", "What colour is my front door?")
    assert found["My car is yellow."] is Standing.CURRENT
    assert found["My front door is green."] is not Standing.CURRENT
    assert first(memos, "What colour is my car?") == "My car is yellow."
    assert first(memos, "What colour is my front door?") == new


TOGETHER = [
    ("I speak Polish.", "I speak Finnish.", "Which languages do I speak?"),
    ("I'm allergic to peanuts.", "I'm allergic to olives.", "What am I allergic to?"),
    ("I have a dog called Rex.", "I have a dog called Bello.", "What are my dogs called?"),
    ("I play tennis with Tom.", "I play squash with Lea.", "What do I play?"),
    (
        "I have a meeting with Farid about hiring.",
        "I have a meeting with Farid about rent.",
        "Which meetings are there?",
    ),
    ("I drink coffee in the morning.", "I drink tea in the evening.", "What do I drink?"),
]


@pytest.mark.parametrize(("old", "new", "question"), TOGETHER)
def test_two_values_of_what_has_many_hold_together(memos: MemOS, old: str, new: str, question: str) -> None:
    tell(memos, old, "The printer is out of toner.", new)
    found = standings(memos, question)
    assert (found[old], found[new]) == (Standing.CURRENT, Standing.CURRENT)


CHANGED = [
    ("I live in Lyon.", "I live in Nice.", "Where do I live?"),
    ("I live in Bergen now.", "I now live in Oslo.", "Where do I live?"),
    ("I work for Equinor in Bergen now.", "I now work for Statkraft in Bergen.", "Who do I work for?"),
    ("I work for Bosch.", "I work for Siemens.", "Where do I work?"),
    ("My rent is 900 euros.", "My rent is 980 euros.", "How much is my rent?"),
    ("My tortoise is called Pepper.", "My tortoise is called Luna.", "What is my tortoise called?"),
    ("The report is due on 5 May.", "The report is due on 20 May.", "When is the report due?"),
    ("The database listens on port 5433.", "The database listens on port 6380.", "Which port has the database?"),
    ("I have two cats.", "I have three cats.", "How many cats do I have?"),
    ("My son is 6.", "My son is 7.", "How old is my son?"),
    ("My phone is a Pixel.", "My phone is an iPhone.", "What phone do I have?"),
    ("Ich wohne in Köln.", "Ich bin nach Kiel umgezogen.", "Wo wohne ich?"),
    ("Vivo en Sevilla.", "Me mudé a Vigo.", "¿Dónde vivo?"),
]


@pytest.mark.parametrize(("old", "new", "question"), CHANGED)
def test_another_value_of_what_has_one_at_a_time_replaces_it(memos: MemOS, old: str, new: str, question: str) -> None:
    tell(memos, old, "The printer is out of toner.", new)
    assert standings(memos, question)[old] is Standing.REPLACED
    assert first(memos, question) == new


@pytest.mark.parametrize("new", ["I speak Finnish instead of Polish now.", "I no longer speak Polish."])
def test_words_of_change_replace_what_else_holds_together(memos: MemOS, new: str) -> None:
    tell(memos, "I speak Polish.", "The printer is out of toner.", new)
    assert standings(memos, "Do I speak Polish?")["I speak Polish."] is not Standing.CURRENT
    assert first(memos, "Do I speak Polish?") == new


def test_what_is_not_sure_is_at_most_possibly_outdated(memos: MemOS) -> None:
    tell(memos, "I study physics.", "The printer is out of toner.", "I study law.")
    assert standings(memos, "What do I study?")["I study physics."] is not Standing.REPLACED
    assert first(memos, "What do I study?") == "I study law."
