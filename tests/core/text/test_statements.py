"""What a sentence states about its speaker: found, and not found where it must not be."""

from __future__ import annotations

import pytest

from memos.core.text.matching import entities
from memos.core.text.statements import (
    ThirdPersonStatement,
    key_of,
    past_statements,
    statements,
    third_person_statements,
)

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
STATED += [
    ("I moved to Lyon last week", "residence", "Lyon"),
    ("I moved from Paris to Lyon last week.", "residence", "Lyon"),
    ("I live in Paris, I think", "residence", "Paris"),
    ("I work at Acme and live in Lyon", "employer", "Acme"),
    ("I work as a nurse at the Charité", "employer", "Charité"),
    ("My job is senior analyst at Zalando from tomorrow.", "my:job", "senior analyst at Zalando"),
    ("My car is from 2015", "my:car", "from 2015"),
    ("My birthday is on 12 September", "my:birthday", "12 September"),
    ("My email is ana@mail.example.org.", "my:email", "ana@mail.example.org"),
    ("My email is ana@x.org now", "my:email", "ana@x.org"),
    ("My doctor is Dr. Smith.", "my:doctor", "Dr. Smith"),
    ("My flight is at 10:30, I think", "my:flight", "at 10:30"),
    ("My job is teaching.", "my:job", "teaching"),
]
STATED += [
    ("I live in Saint-Denis", "residence", "Saint-Denis"),
    ("I live in Sa\u0303o Paulo now", "residence", "Sa\u0303o Paulo"),
    ("我上个月刚搬到成都啦，房租便宜", "residence", "成都"),
    ("我和男朋友今年搬去了厦门", "residence", "厦门"),
    ("我三月份跳槽去了字节跳动", "employer", "字节跳动"),
    ("Just started a new job at Globex yesterday", "employer", "Globex"),
]
OVER = [
    ("I left Paris for good in 2018.", "residence", "Paris"),
    ("I left Lyon in 2018", "residence", "Lyon"),
    ("我2018年就离开北京了", "residence", "北京"),
    ("I used to live in Paris but now I live in Lyon", "residence", "Paris"),
    ("I no longer live in New York", "residence", "New York"),
    ("I don't live in Rio de Janeiro any more.", "residence", "Rio de Janeiro"),
    ("We lived in Oslo back then", "residence", "Oslo"),
    ("I've moved away from Paris", "residence", "Paris"),
    ("I used to work as a clerk at Acme", "employer", "Acme"),
    ("I don't work for Acme anymore", "employer", "Acme"),
    ("I left Acme last month.", "employer", "Acme"),
    ("I quit my job at Globex", "employer", "Globex"),
    ("I quit Acme on Friday!", "employer", "Acme"),
    ("I quit Acme in 2019", "employer", "Acme"),
    ("我以前住在巴黎", "residence", "巴黎"),
    ("我以前住在巴黎的时候很开心", "residence", "巴黎"),
    ("我不住在北京了", "residence", "北京"),
    ("我不再住在北京。", "residence", "北京"),
    ("我以前在医院工作", "employer", "医院"),
    ("我从华为离职了", "employer", "华为"),
]
NOT_OVER = [
    "I left Paris.",
    "I left Paris last week",
    "I live in Paris.",
    "I don't live in Paris.",
    "She used to live in Paris",
    "I left Maya Okafor at the station",
    "I left Monday morning",
    "I left New York on Monday",
    "I've lived in Paris since 2019",
    "我住在巴黎",
    "我不住在巴黎",
    "",
]
NOT_STATED = [
    "We moved to PostgreSQL last sprint",
    "We moved to Kafka",
    "We moved to Phase 2",
    "I moved to Monday",
    "I work for Free on weekends",
    "I work for Fun",
    "我们部门搬到了新大楼",
    "我们搬到新办公室了",
    "我叫了外卖",
    "我叫你别买",
    "My email is not ana@x.org",
    "My email is no longer ana@x.org",
    "My phone is broken.",
    "My doctor is very late.",
    "我们住在一起。",
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


@pytest.mark.parametrize(
    "text", ["I live in Lyon and work at Acme.", "I work at Acme and live in Lyon", "我住在里昂，在医院工作。"]
)
def test_two_statements_of_one_subject_are_both_found(text: str) -> None:
    assert sorted(each.attribute for each in statements(text)) == ["employer", "residence"]


@pytest.mark.parametrize("text", ["I work for people who pay badly and live in Monaco", "我女儿住在里昂，在医院工作。"])
def test_where_others_live_and_work_is_theirs(text: str) -> None:
    assert statements(text) == []


@pytest.mark.parametrize("text", NOT_STATED)
def test_denials_questions_and_others_state_nothing(text: str) -> None:
    assert statements(text) == []


@pytest.mark.parametrize(("text", "attribute", "value"), OVER)
def test_what_is_over_is_found_and_is_no_current_statement(text: str, attribute: str, value: str) -> None:
    [past] = past_statements(text)
    assert (past.attribute, past.value, past.ended) == (attribute, value, True)
    assert value in text[past.start : past.end]
    assert (attribute, value) not in [(each.attribute, each.value) for each in statements(text)]


@pytest.mark.parametrize("text", NOT_OVER)
def test_what_is_so_or_never_was_is_not_over(text: str) -> None:
    assert past_statements(text) == []
    assert not any(each.ended for each in statements(text))


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


@pytest.mark.parametrize(
    ("text", "names", "attribute", "value"),
    [
        ("My sister Eva lives in Oslo", {"my sister", "eva"}, "residence", "Oslo"),
        ("no, Eva moved to Bergen in May", {"eva"}, "residence", "Bergen"),
        ("Eva\u2019s moved to Rome", {"eva"}, "residence", "Rome"),
        ("my boss is based in Paris", {"my boss"}, "residence", "Paris"),
        ("No, my best friend works at Acme now", {"my best friend"}, "employer", "Acme"),
        ("Maria Garcia is now living in Porto", {"maria garcia"}, "residence", "Porto"),
    ],
)
def test_where_somebody_else_lives_or_works_is_told(text: str, names: set[str], attribute: str, value: str) -> None:
    assert third_person_statements(text) == [ThirdPersonStatement(frozenset(names), attribute, value)]


@pytest.mark.parametrize(
    "text",
    [
        "I live in Oslo", "Eva no longer lives in Oslo", "Eva is a nurse", "Python lives in PostgreSQL",
        "Eva lives with me", "Where Eva lives I do not know", "",
    ],
)  # fmt: skip
def test_what_says_nothing_of_that_kind_tells_nothing_of_others(text: str) -> None:
    assert third_person_statements(text) == []
