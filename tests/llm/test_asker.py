"""Asking models: what comes back is valid or an error, what is remembered, and what it costs."""

from __future__ import annotations

import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from typing import Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, field_validator

from memos import errors
from memos.core.ports import ChatMessage, ChatReply, ChatRequest
from memos.core.tokens import Tokens
from memos.errors import BackendUnavailable, InvalidAnswer, ModelError
from memos.llm.client import LLMClient, ResponseCache
from memos.llm.usage import Call, Usage, UsageMeter
from tests.support.scripted_chat import Script, ScriptedChat

ASKED = [ChatMessage("user", "Where does Caroline live?")]


class Home(BaseModel):
    model_config = ConfigDict(extra="forbid")

    city: str = Field(min_length=1)
    since: date | None = None
    kind: Literal["home", "work"] = "home"


GOOD = '{"city": "Lyon", "since": "2023-06-05"}'


def asker(script: Script, cache_bytes: int = 1_000_000) -> tuple[LLMClient, ScriptedChat, UsageMeter]:
    model = ScriptedChat(script)
    return LLMClient(model, ResponseCache(cache_bytes)), model, UsageMeter("reading", cube="alice", task="t1")


def cost(text: str, prompt: int, completion: int) -> ChatReply:
    return ChatReply(text, Tokens(prompt, completion))


# Free text


def test_text_comes_back_and_is_remembered() -> None:
    asking, model, meter = asker(["In Lyon."])
    assert asking.complete_text(ASKED, meter=meter) == asking.complete_text(ASKED, meter=meter) == "In Lyon."
    assert len(model.requests) == 1
    assert meter.spent.cached == 1


def test_another_question_is_not_the_same_one() -> None:
    asking, _, meter = asker(["a", "b", "c", "d"])
    said = [
        asking.complete_text(ASKED, meter=meter),
        asking.complete_text(ASKED, meter=meter, max_tokens=3),
        asking.complete_text(ASKED, meter=meter, temperature=1.0),
        asking.complete_text([*ASKED, *ASKED], meter=meter),
    ]
    assert said == ["a", "b", "c", "d"]


@pytest.mark.parametrize("failure", ["", ModelError("cut off"), BackendUnavailable("down")])
def test_a_failure_is_raised_and_never_remembered(failure: str | Exception) -> None:
    asking, model, meter = asker([failure, "In Lyon."])
    with pytest.raises((ModelError, BackendUnavailable)):
        asking.complete_text(ASKED, meter=meter)
    assert asking.complete_text(ASKED, meter=meter) == "In Lyon."
    assert len(model.requests) == 2


# Words


def test_a_choice_is_how_probable_each_word_is() -> None:
    told = ChatReply("Yes", Tokens(9, 1), probabilities={"Yes": 0.7, "No": 0.2})
    asking, model, meter = asker([told, "**No**, since", "Perhaps", "Yes"])
    assert asking.complete_choice(ASKED, ("Yes", "No"), meter=meter) == {"Yes": 0.7, "No": 0.2}
    assert asking.complete_choice(ASKED, ("Yes", "No"), meter=meter) == {"Yes": 0.7, "No": 0.2}  # remembered
    assert asking.complete_choice(ASKED[:1], ("yes", "no"), meter=meter) == {"yes": 0.0, "no": 1.0}
    with pytest.raises(InvalidAnswer):
        asking.complete_choice([*ASKED, *ASKED], ("Yes", "No"), meter=meter)
    assert asking.complete_choice([*ASKED, *ASKED], ("Yes", "No"), meter=meter) == {"Yes": 1.0, "No": 0.0}
    assert len(model.requests) == 4


# Objects


@pytest.mark.parametrize("written", [GOOD, f"```json\n{GOOD}\n```", f"Sure, {{here}}:\n{GOOD}\nBye."])
def test_an_object_is_validated(written: str) -> None:
    asking, model, meter = asker([written])
    assert asking.complete_json(ASKED, Home, meter=meter) == Home(city="Lyon", since=date(2023, 6, 5))
    assert model.requests[0].schema == Home.model_json_schema()
    assert model.requests[0].schema_name == "Home"


WRONG = [
    "I do not know.",
    '{"city": "Lyon"',
    '{"city": ""}',
    '{"town": "Lyon"}',
    '{"city": "Lyon", "kind": "hotel"}',
    '{"city": 5}',
    '["Lyon"]',
    '{"city": null}',
]


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_answer_is_repaired_once(wrong: str) -> None:
    asking, model, meter = asker([wrong, GOOD])
    assert asking.complete_json(ASKED, Home, meter=meter).city == "Lyon"
    _, repair = model.requests
    assert repair.messages[:-2] == tuple(ASKED)
    assert repair.messages[-2] == ChatMessage("assistant", wrong)
    assert '"city"' in repair.messages[-1].content
    assert repair.schema == Home.model_json_schema()
    assert meter.spent.calls == 2


@pytest.mark.parametrize("wrong", WRONG)
def test_two_wrong_answers_are_an_error(wrong: str) -> None:
    asking, model, meter = asker([cost(wrong, 10, 5), cost("still wrong", 30, 7), GOOD])
    with pytest.raises(ModelError, match="Home") as caught:
        asking.complete_json(ASKED, Home, meter=meter)
    assert len(model.requests) == 2
    assert caught.value.tokens == Tokens(40, 12)
    assert (meter.spent.prompt_tokens, meter.spent.completion_tokens) == (40, 12)
    assert asking.complete_json(ASKED, Home, meter=meter).city == "Lyon"  # nothing of it was remembered


def test_an_error_does_not_quote_the_answer() -> None:
    asking, _, meter = asker(['{"city": "", "secret diagnosis": 1}'] * 2)
    with pytest.raises(ModelError) as caught:
        asking.complete_json(ASKED, Home, meter=meter)
    assert "diagnosis" not in "".join(traceback.format_exception(caught.value))


def test_the_repair_says_what_is_wrong() -> None:
    asking, model, meter = asker(['{"city": "Lyon", "kind": "hotel"}', GOOD])
    asking.complete_json(ASKED, Home, meter=meter)
    assert "kind: " in model.requests[1].messages[-1].content


def test_a_megabyte_of_nonsense_is_not_sent_back_whole() -> None:
    asking, model, meter = asker(["x" * 1_000_000, GOOD])
    asking.complete_json(ASKED, Home, meter=meter)
    assert sum(len(message.content) for message in model.requests[1].messages) < 20_000


def test_a_repaired_answer_is_remembered_for_the_first_question() -> None:
    asking, model, meter = asker(["nonsense", GOOD])
    first = asking.complete_json(ASKED, Home, meter=meter)
    assert asking.complete_json(ASKED, Home, meter=meter) == first
    assert len(model.requests) == 2


def test_a_remembered_answer_is_checked_again() -> None:
    class Strict(BaseModel):
        city: str

        @field_validator("city")
        @classmethod
        def _french(cls, value: str) -> str:
            if not strict_now:
                return value
            raise ValueError("not this one")

    strict_now = False
    asking, model, meter = asker(['{"city": "Lyon"}', '{"city": "Nice"}', '{"city": "Nice"}'])
    asking.complete_json(ASKED, Strict, meter=meter)
    strict_now = True
    with pytest.raises(ModelError):
        asking.complete_json(ASKED, Strict, meter=meter)
    assert len(model.requests) == 3


def test_a_repair_that_fails_raises_its_own_error() -> None:
    asking, _, meter = asker([cost("nonsense", 10, 5), ModelError("cut off", tokens=Tokens(20, 9))])
    with pytest.raises(ModelError, match="cut off"):
        asking.complete_json(ASKED, Home, meter=meter)
    assert meter.spent.tokens == 44


# Erasures


def test_forgetting_empties_the_memory() -> None:
    asking, model, meter = asker(["a", GOOD, "b", GOOD])
    for _ in range(2):
        asking.complete_text(ASKED, meter=meter)
        asking.complete_json(ASKED, Home, meter=meter)
        asking.forget()
    assert len(model.requests) == 4


@pytest.mark.parametrize("schema", [None, Home])
def test_what_is_asked_while_forgetting_is_not_remembered(schema: type[Home] | None) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def said(_: ChatRequest) -> str:
        reached.set()
        assert go_on.wait(30)
        return GOOD

    asking, model, meter = asker(said)

    def ask() -> object:
        return (
            asking.complete_text(ASKED, meter=meter)
            if schema is None
            else asking.complete_json(ASKED, schema, meter=meter)
        )

    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ask)
        assert reached.wait(30)
        asking.forget()
        go_on.set()
        assert answer.result()
    ask()
    assert len(model.requests) == 2


# Accounts


def test_every_call_is_told_with_who_and_what_for() -> None:
    told: list[Call] = []
    model = ScriptedChat([cost("In Lyon.", 20, 4), ModelError("cut off", tokens=Tokens(5, 6)), BackendUnavailable("x")])
    asking = LLMClient(model, ResponseCache(1_000_000))
    meter = UsageMeter("summary", cube="alice", task="t1", tell=told.append)
    asking.complete_text(ASKED, meter=meter)
    asking.complete_text(ASKED, meter=meter)
    for failure in (ModelError, BackendUnavailable):
        with pytest.raises(failure):
            asking.complete_text([*ASKED, *ASKED], meter=meter)
    assert [(call.tokens[:2], call.cached, call.failed) for call in told] == [
        ((20, 4), False, False),
        ((20, 4), True, False),
        ((5, 6), False, True),
        ((0, 0), False, True),
    ]
    assert {(call.purpose, call.cube, call.task, call.model) for call in told} == {
        ("summary", "alice", "t1", "scripted")
    }
    spent = meter.spent
    assert (spent.calls, spent.cached, spent.failed, spent.prompt_tokens, spent.completion_tokens) == (4, 1, 2, 25, 10)
    assert not spent.estimated
    assert spent.seconds >= 0


def test_estimates_mark_the_sum() -> None:
    asking, _, meter = asker(["In Lyon."])
    asking.complete_text(ASKED, meter=meter)
    assert meter.spent.estimated


def test_threads_lose_no_count() -> None:
    asking, _, meter = asker(lambda _: cost("ok", 2, 1), cache_bytes=0)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: asking.complete_text([ChatMessage("user", str(n))], meter=meter), range(200)))
    spent = meter.spent
    assert (spent.calls, spent.prompt_tokens, spent.completion_tokens) == (200, 400, 200)


def test_a_meter_begins_with_nothing() -> None:
    assert UsageMeter("x").spent == Usage()


def test_former_names_work_and_warn() -> None:
    asking, _, meter = asker([GOOD])
    with pytest.warns(DeprecationWarning, match="complete_json"):
        assert asking.ask(ASKED, Home, meter=meter).city == "Lyon"
    with pytest.warns(DeprecationWarning, match="InvalidAnswer"):
        assert errors.UnfitAnswer is errors.InvalidAnswer
