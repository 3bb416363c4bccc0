"""What is said again is told from what is not, by words alone."""

from __future__ import annotations

import pytest

from memos.core.text.repetition import Repetition, repetition_of

PAIRS = [
    ("I live in Lyon.", "I'm living in Lyon, as you know.", Repetition.SAME),
    ("I live in Lyon.", "In Lyon I live.", Repetition.SAME),
    ("The rent is 900 euros.", "The rent is still 900 euros.", Repetition.SAME),
    ("Ich wohne in Bremen.", "In Bremen wohne ich ja weiterhin.", Repetition.SAME),
    ("Vivo en Sevilla.", "Todavía vivo en Sevilla, por cierto.", Repetition.SAME),
    ("我在银行上班。", "我还在银行上班。", Repetition.SAME),
    ("I live in Lyon.", "I live in Lyon, not in Paris.", Repetition.EXTENDED),
    ("I drink coffee.", "I drink coffee and tea.", Repetition.EXTENDED),
    ("My dentist is Dr. Fontaine.", "My dentist is Dr. Fontaine, on Baker Street.", Repetition.EXTENDED),
    ("The rent is 900 euros.", "The rent is 900 euros, 980 from May.", Repetition.WITHIN),
    ("Mein Bruder hat einen Hund.", "Der Hund von meinem Bruder heißt Rex.", Repetition.WITHIN),
    ("我妹妹有一只狗。", "我妹妹的狗叫Rex。", Repetition.WITHIN),
]


@pytest.mark.parametrize(("older", "newer", "repeated"), PAIRS)
def test_what_is_said_again(older: str, newer: str, repeated: Repetition) -> None:
    assert repetition_of(older, newer) is repeated


OTHERS = [
    ("I live in Lyon.", "I work in Lyon."),
    ("I live in Lyon.", "I live near Lyon."),
    ("I live in Lyon.", "I lived in Lyon."),
    ("I live in Lyon.", "I live in Lyon again."),
    ("I live in Lyon.", "I rarely live in Lyon."),
    ("I live in Lyon.", "I don't live in Lyon."),
    ("I live in Lyon.", "I live in Lyon, no, in Paris."),
    ("I live in Lyon.", "You live in Lyon."),
    ("I live in Lyon.", "My brother lives in Lyon."),
    ("I live in Lyon.", "I live with Ben, who works in Lyon."),
    ("I live in Lyon.", "Do I live in Lyon?"),
    ("I live in Lyon.", "I wish I could live in Lyon."),
    ("Anna is taller than Ben.", "Ben is taller than Anna."),
    ("My sister has two cats.", "My sister has three cats."),
    ("I have a dog.", "I have another dog."),
    ("Sounds great!", "Sounds great!"),
    ("", ""),
    ("Ich habe einen Hund.", "Ich habe noch einen Hund."),
    ("Meine Schwester hat einen Hund.", "Meine Schwester hat zwei Hunde."),
    ("Ich wohne in Bremen.", "Ich wohne nicht in Bremen."),
    ("Vivo en Sevilla.", "Ya no vivo en Sevilla."),
    ("Vivo en Sevilla.", "Vive en Sevilla."),
    ("我住在里昂。", "我不住在里昂。"),
    ("我住在里昂。", "我现在住在里昂。"),
    ("我有一只狗。", "我有两只狗。"),
]


@pytest.mark.parametrize(("older", "newer"), OTHERS)
def test_what_is_not_said_again(older: str, newer: str) -> None:
    assert repetition_of(older, newer) is None
