"""Attributes that are told in unlike words, and what only looks like another value of one."""

from __future__ import annotations

import pytest

from memos.core.text.attributes import (
    asked_attribute,
    gives_attribute_another_value,
    tells_attribute,
    tells_of_death_in,
)


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("I'm 29.", "I turned 30 on Saturday."),
        ("Our puppy Otto is four months old.", "Otto turned one yesterday."),
        ("I get up at seven.", "Lately my alarm goes off at quarter to six."),
        ("I go to bed at midnight.", "These days I'm asleep by half past ten."),
        ("I work as a line cook.", "They made me sous-chef last month."),
        ("I'm a junior analyst at the bank.", "I've been promoted to team lead."),
        ("Anna is our boss.", "Since Monday Ted is our boss."),
        ("My manager is Ruth.", "I report to Ivan now."),
        ("Marek coaches our team.", "Helen has taken over as our coach."),
        ("My cleaner is Rosa.", "It's Agnieszka who cleans my flat now."),
        ("The flat belongs to Ms Petrova.", "I have a new landlord, Mrs Lindqvist."),
        ("I'm single.", "I got engaged to Marta."),
        ("My sister Jo is married to Karl.", "Jo and Karl got divorced."),
        ("I work at the shipyard.", "I was laid off in the spring."),
        ("Nina is expecting a baby.", "Nina had a little boy."),
        ("I was in hospital.", "I'm out of hospital."),
        ("I moved from Cork to Tallinn.", "First night in my new flat in Aarhus!"),
        ("Brightwell hired me.", "My payslips come from Pebble Labs these days."),
        ("The build server has 16 GB of memory.", "The memory of the build server was upgraded to 32 GB."),
        ("The server has 16 GB of RAM.", "The server's memory was doubled."),
    ],
)
def test_one_attribute_is_given_another_value_in_other_words(older: str, newer: str) -> None:
    assert gives_attribute_another_value(older, newer)


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("I'm 29.", "I have 30 students and 3 classes now."),
        ("Aunt Elena turns 70 in March.", "Aunt Helena turns 65 in May."),
        ("My wife gets up at six.", "I get up at five."),
        ("I get up at six.", "This morning I was up at nine, but only today."),
        ("My boss is Ingrid.", "Since June Paul is my wife's boss."),
        ("Anna is our team lead.", "Since Monday Ted is our department head."),
        ("I'm an accountant.", "My wife got promoted to director."),
        ("I live in Lyon.", "My sister moved to Rome."),
        ("The laptop has 16 GB of memory.", "The build server has 64 GB of memory."),
        ("The web server has 16 GB of memory.", "The mail server has 64 GB of memory."),
        ("I'm a vegetarian.", "I've been promoted to team lead."),
    ],
)
def test_what_is_told_of_others_or_of_one_day_is_no_other_value(older: str, newer: str) -> None:
    assert not gives_attribute_another_value(older, newer)


@pytest.mark.parametrize(
    ("older", "newer", "told"),
    [
        ("We have a cat called Tiger.", "Tiger died last week.", True),
        ("Our rabbit Flopsy lives in the garden.", "We had to put Flopsy down.", True),
        ("My grandfather lives in Hull.", "My grandfather passed away in March.", True),
        ("Our cat Tiger is eight.", "Our neighbour's cat Simba died last week.", False),
        ("My car's battery is new.", "My car's battery died.", False),
    ],
)
def test_a_death_is_told_of_those_who_are_named(older: str, newer: str, told: bool) -> None:
    assert tells_of_death_in(older, newer) is told


@pytest.mark.parametrize(
    ("question", "statement", "other"),
    [
        ("How old am I?", "I'm 29.", "I have 29 students."),
        ("How old am I?", "Hi, I'm Ana, 34, from Porto.", "I moved to Porto in 2019."),
        ("Where do I work?", "I work at Heron Logistics.", "I work nights."),
        ("Who do I work for?", "Brightwell hired me.", "I work hard."),
        ("What's my job?", "I'm a plumber.", "I'm a vegetarian."),
        ("When do I get up?", "My alarm rings at 6:30.", "My bus leaves at 7:40."),
    ],
)
def test_a_question_asks_for_an_attribute_that_a_statement_tells(question: str, statement: str, other: str) -> None:
    asked = asked_attribute(question)
    assert asked is not None
    assert tells_attribute(statement, asked)
    assert not tells_attribute(other, asked)
