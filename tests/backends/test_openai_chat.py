"""The OpenAI-compatible adapter against a scripted server: retries, dialects, hostile bodies, limits, secrets."""

from __future__ import annotations

import json
import logging
import math
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from enum import Enum
from typing import Any

import pytest
import stamina.instrumentation
from pydantic import BaseModel, SecretStr, ValidationError

from memos.backends import http as endpoint_client
from memos.backends.openai.chat import OpenAIChat
from memos.backends.openai.requests import strict_schema
from memos.backends.openai.responses import retry_after_s, without_reasoning
from memos.core.ports import ChatMessage, ChatReply, ChatRequest
from memos.core.settings import ChatSettings
from memos.core.tokens import Tokens
from memos.errors import BackendTimeout, BackendUnavailable, InvalidInput, MemosError, ModelError
from tests.support.servers.openai_server import Asked, OpenAIServer, Said, Script, answer, counted, error, events

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CITY = '{"city": "Lyon"}'
SECRET = "sk-live-1234567890"
PROMPT = "Caroline's diagnosis is private"

Open = Callable[..., tuple[OpenAIChat, OpenAIServer]]


def asking(text: str = PROMPT, **more: Any) -> ChatRequest:
    return ChatRequest((ChatMessage("user", text),), **more)


@pytest.fixture
def opened() -> Iterator[Open]:
    ends: list[Callable[[], None]] = []

    def open_(script: Script, *, retries: int = 3, **changes: Any) -> tuple[OpenAIChat, OpenAIServer]:
        server = OpenAIServer(script)
        chat = server.settings(**{"api_key": SecretStr(SECRET), **changes})
        model = OpenAIChat(chat, first_wait_s=0.01, retries=retries)
        ends.extend((model.close, server.__exit__))
        return model, server

    yield open_
    for end in ends:
        end()


@pytest.fixture
def waits() -> Iterator[list[float]]:
    """The seconds waited before each retry."""
    seen: list[float] = []

    def note(details: stamina.instrumentation.RetryDetails) -> None:
        seen.append(details.wait_for)
        assert details.wait_for < 30  # fail before waiting

    stamina.instrumentation.set_on_retry_hooks([note])
    yield seen
    stamina.instrumentation.set_on_retry_hooks(None)


# Sending


def test_a_request_has_the_model_the_messages_and_the_settings(opened: Open) -> None:
    model, server = opened([answer("ok")], max_tokens=77)
    model.complete(ChatRequest((ChatMessage("system", "s"), ChatMessage("user", "u"), ChatMessage("assistant", "a"))))
    [asked] = server.asked
    assert asked.path == "/v1/chat/completions"
    assert asked.headers["authorization"] == f"Bearer {SECRET}"
    assert asked.body == {
        "model": "m",
        "messages": [{"role": role, "content": role[0]} for role in ("system", "user", "assistant")],
        "max_tokens": 77,
        "temperature": 0.0,
    }


def test_a_requests_own_limits_go_before_the_settings(opened: Open) -> None:
    model, server = opened([answer("ok")], max_tokens=77)
    model.complete(asking(max_tokens=5, temperature=0.5))
    assert (server.asked[0].body["max_tokens"], server.asked[0].body["temperature"]) == (5, 0.5)


def test_nothing_of_other_programs_or_of_this_machine_is_sent(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_ADMIN_KEY"):
        monkeypatch.setenv(name, "from-elsewhere")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Elsewhere: from-elsewhere")
    model, server = opened([answer("ok")], api_key=None)
    model.complete(asking())
    [asked] = server.asked
    assert "from-elsewhere" not in asked.headers.values()
    assert set(asked.headers) <= {
        "host", "accept", "accept-encoding", "connection", "user-agent", "content-type", "content-length"
    }  # fmt: skip


def test_a_redirect_is_not_followed(opened: Open) -> None:
    _, elsewhere = opened([answer("stolen")])
    model, _ = opened([Said(307, headers={"Location": f"{elsewhere.url}/chat/completions"})])
    with pytest.raises(BackendUnavailable, match="BASE_URL") as caught:
        model.complete(asking())
    assert caught.value.permanent
    assert elsewhere.asked == []


# JSON and dialects


def test_a_schema_is_asked_for_strictly(opened: Open) -> None:
    model, server = opened([answer(CITY)])
    model.complete(asking(schema=SCHEMA, schema_name="Home"))
    assert server.asked[0].body["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "Home", "strict": True, "schema": {**SCHEMA, "additionalProperties": False}},
    }


def picky(*refused: str, message: str = "Unsupported parameter") -> Callable[[Asked], Said]:
    """A server that refuses these fields, or kinds of response_format."""

    def said(asked: Asked) -> Said:
        fields = {*asked.body, asked.body.get("response_format", {}).get("type")}
        for name in refused:
            if name in fields:
                return error(400, f"{message}: '{name}' is not supported here", param=name)
        return answer(CITY)

    return said


def test_an_endpoint_without_json_schema_is_asked_for_a_json_object_and_remembered(opened: Open) -> None:
    model, server = opened(picky("json_schema"))
    for _ in range(2):
        assert model.complete(asking(schema=SCHEMA)).text == CITY
    kinds = [asked.body["response_format"]["type"] for asked in server.asked]
    assert kinds == ["json_schema", "json_object", "json_object"]
    assert '"city"' in server.asked[-1].body["messages"][-1]["content"]


def test_an_endpoint_without_any_format_is_told_in_words(opened: Open) -> None:
    model, server = opened(picky("response_format"))
    for _ in range(2):
        assert model.complete(asking(schema=SCHEMA)).text == CITY
    assert ["response_format" in asked.body for asked in server.asked] == [True, True, False, False]
    said = server.asked[-1].body["messages"][-1]["content"]
    assert said.startswith(PROMPT)
    assert "JSON" in said


def test_a_bare_400_means_the_format_too(opened: Open) -> None:
    model, _ = opened([Said(400, "Bad Request", content_type="text/plain"), answer(CITY)])
    assert model.complete(asking(schema=SCHEMA)).text == CITY


def test_one_refused_schema_does_not_weaken_the_others(opened: Open) -> None:
    other = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}

    def said(asked: Asked) -> Said:
        refused = "age" in json.dumps(asked.body.get("response_format", {}))
        return error(400, "Invalid schema") if refused else answer(CITY)

    model, server = opened(said)
    for schema in (other, SCHEMA):
        model.complete(asking(schema=schema))
    assert server.asked[-1].body["response_format"]["type"] == "json_schema"


def test_the_other_name_of_the_token_limit_is_tried_and_remembered(opened: Open) -> None:
    model, server = opened(picky("max_tokens"))
    for _ in range(2):
        model.complete(asking(max_tokens=9))
    assert [asked.body.get("max_tokens") for asked in server.asked] == [9, None, None]
    assert [asked.body.get("max_completion_tokens") for asked in server.asked] == [None, 9, 9]


def test_a_refused_temperature_is_left_out(opened: Open) -> None:
    model, server = opened(picky("temperature"))
    for _ in range(2):
        model.complete(asking())
    assert ["temperature" in asked.body for asked in server.asked] == [True, False, False]


def likely(*tokens: tuple[str, float]) -> Said:
    """Return an answer cut off after "Yes", with the probabilities of its first token."""
    told = [{"token": token, "logprob": math.log(probability)} for token, probability in tokens]
    said = answer("Yes", finish="length")
    assert isinstance(said.body, dict)
    said.body["choices"][0]["logprobs"] = {"content": [{"token": "Yes", "top_logprobs": told}]}
    return said


def test_probabilities_of_wanted_words_come_with_the_answer(opened: Open) -> None:
    model, server = opened([likely(("Yes", 0.5), (" yes", 0.1), ("No", 0.3), ("Maybe", 0.05))])
    reply = model.complete(asking(words=("Yes", "No")))
    assert reply.text == "Yes"
    assert reply.probabilities == pytest.approx({"Yes": 0.6, "No": 0.3})
    assert (server.asked[0].body["logprobs"], server.asked[0].body["top_logprobs"]) == (True, 5)


def test_an_endpoint_without_probabilities_is_asked_for_none(opened: Open) -> None:
    model, server = opened(picky("logprobs"))
    for _ in range(2):
        assert model.complete(asking(words=("Paris", "Lyon"))).probabilities is None
    assert ["logprobs" in asked.body for asked in server.asked] == [True, False, False]


@pytest.mark.parametrize("told", [None, [], [{}], [{"token": "Yes", "top_logprobs": [None, {"token": 1}]}], "x"])
def test_nonsense_instead_of_probabilities_is_none(opened: Open, told: Any) -> None:
    said = answer("Yes")
    assert isinstance(said.body, dict)
    said.body["choices"][0]["logprobs"] = {"content": told}
    model, _ = opened([said])
    assert model.complete(asking(words=("Yes", "No"))).probabilities is None


def test_everything_may_be_refused_at_once(opened: Open) -> None:
    model, server = opened(picky("max_tokens", "temperature", "response_format"))
    assert model.complete(asking(schema=SCHEMA)).text == CITY
    assert len(server.asked) == 5
    model.complete(asking(schema=SCHEMA))
    assert len(server.asked) == 6


def test_an_endpoint_that_refuses_whatever_is_sent_is_a_permanent_error(opened: Open) -> None:
    model, server = opened([error(400, "max_tokens temperature nonsense", code="bad_thing")])
    with pytest.raises(ModelError, match=r"400 bad_thing") as caught:
        model.complete(asking(schema=SCHEMA))
    assert caught.value.permanent
    assert len(server.asked) <= 5


def test_a_free_form_schema_is_not_called_strict(opened: Open) -> None:
    model, server = opened([answer("{}")])
    model.complete(asking(schema={"type": "object", "additionalProperties": {"type": "string"}}))
    assert server.asked[0].body["response_format"]["json_schema"]["strict"] is False


class Kind(Enum):
    FACT = "fact"
    TASTE = "taste"


class Fact(BaseModel):
    """A nested model with what strict mode does not take as pydantic writes it."""

    text: str
    kind: Kind = Kind.FACT
    default: str = "a property may be called like a keyword"


class Facts(BaseModel):
    facts: list[Fact] = []
    first: Fact | None = None


def test_a_pydantic_schema_becomes_strict_in_every_depth() -> None:
    strict = strict_schema(Facts.model_json_schema())
    assert strict is not None
    fact = strict["$defs"]["Fact"]
    assert fact["required"] == ["text", "kind", "default"]
    assert fact["additionalProperties"] is strict["additionalProperties"] is False
    assert fact["properties"]["kind"] == {"$ref": "#/$defs/Kind"}
    assert strict["required"] == ["facts", "first"]
    assert "default" not in strict["properties"]["facts"]


def test_a_schema_with_an_open_dictionary_inside_cannot_be_strict() -> None:
    class Open(BaseModel):
        names: dict[str, str]

    assert strict_schema(Open.model_json_schema()) is None


# Answers


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("<think>He moved.</think>\n\nLyon", "Lyon"),
        ("  <think>\na\n</think>Lyon", "Lyon"),
        ("He moved.\n</think>\nLyon", "Lyon"),
        ("Lyon", "Lyon"),
        ("The tag is written <think>x</think>.", "The tag is written <think>x</think>."),
        ("A tag ends with </think> there.", "A tag ends with </think> there."),
        ("<think>never done", ""),
    ],
)
def test_thoughts_are_left_out(text: str, kept: str) -> None:
    assert without_reasoning(text).strip() == kept


@pytest.mark.parametrize(
    "said",
    [
        answer("<think>" + "hm " * 100),
        answer(None, reasoning_content="hm"),
        answer(None),
        answer(5),
        answer(["a"]),
        answer({}),
        Said(body={"choices": []}),
        Said(body={"choices": [None]}),
        Said(body={"choices": [{}]}),
        Said(body={"choices": {"0": 1}}),
        Said(body={}),
        Said(body=b""),
        Said(body=b"null"),
        Said(body=b"[]"),
        Said(body=b'{"choices": [{"mess'),
        Said(body=b"\xff\xfe\x00"),
        Said(body=b"[" * 200_000),
        Said(body=b'{"a": ' * 100_000),
        Said(body=b'data: {"choices": []}\n\ndata: [DONE]\n\n', content_type="text/event-stream"),
        answer("text", finish="tool_calls"),
        answer("half", finish="length"),
    ],
    ids=str,
)
def test_nonsense_with_status_200_is_a_model_error(opened: Open, said: Said) -> None:
    model, server = opened([said])
    with pytest.raises(ModelError) as caught:
        model.complete(asking())
    assert not caught.value.permanent
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "said",
    [answer("half", finish="content_filter"), answer(None, refusal="No."), answer("No.", refusal="No.")],
    ids=["filter", "refusal", "refusal with text"],
)
def test_a_refusal_is_permanent(opened: Open, said: Said) -> None:
    model, _ = opened([said])
    with pytest.raises(ModelError) as caught:
        model.complete(asking())
    assert caught.value.permanent


def test_a_web_page_means_a_wrong_address(opened: Open) -> None:
    model, _ = opened([Said(body="<html>Log in</html>", content_type="text/html; charset=utf-8")])
    with pytest.raises(BackendUnavailable, match="web page") as caught:
        model.complete(asking())
    assert caught.value.permanent


def test_an_answer_of_another_content_type_is_read(opened: Open) -> None:
    said = answer("ok")
    model, _ = opened([Said(body=said.body, content_type="text/plain")])
    assert model.complete(asking()).text == "ok"


@pytest.mark.parametrize("finish", [None, "", "eos", "stop", 7])
def test_a_text_that_ended_somehow_is_an_answer(opened: Open, finish: object) -> None:
    model, _ = opened([answer("ok", finish=finish)])
    assert model.complete(asking()).text == "ok"


@pytest.mark.parametrize(
    "usage",
    [None, {}, [], "many", {"prompt_tokens": "3"}, {"prompt_tokens": -1, "completion_tokens": 2}, counted(10**12, 1)],
    ids=str,
)
def test_a_nonsensical_count_is_estimated(opened: Open, usage: object) -> None:
    model, _ = opened([answer("ok okay", usage=usage)])
    assert model.complete(asking("x" * 40)).tokens == Tokens(10, 2, estimated=True)


def test_a_failure_behind_status_200_is_a_failure(opened: Open) -> None:
    model, server = opened([Said(body={"error": {"code": 429, "message": "slow down"}}), answer("ok")])
    assert model.complete(asking()).text == "ok"
    assert len(server.asked) == 2


def test_a_huge_body_is_given_up(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_client, "MOST_BYTES", 100_000)
    model, server = opened([answer("x" * 200_000)])
    with pytest.raises(ModelError, match="100,000 bytes"):
        model.complete(asking())
    assert len(server.asked) == 1


# Failures and retries


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 529])
def test_a_passing_failure_is_repeated(opened: Open, status: int) -> None:
    model, server = opened([error(status, "later"), error(status, "later"), answer("ok")])
    assert model.complete(asking()).text == "ok"
    assert len(server.asked) == 3


@pytest.mark.parametrize(
    ("status", "code", "raised"),
    [
        (400, None, ModelError),
        (400, "content_filter", ModelError),
        (401, "invalid_api_key", BackendUnavailable),
        (402, None, BackendUnavailable),
        (403, None, BackendUnavailable),
        (404, "model_not_found", BackendUnavailable),
        (405, None, BackendUnavailable),
        (413, None, ModelError),
        (418, None, BackendUnavailable),
        (422, None, ModelError),
        (429, "insufficient_quota", BackendUnavailable),
        (501, None, BackendUnavailable),
        (302, None, BackendUnavailable),
    ],
)
def test_a_lasting_failure_is_not_repeated(
    opened: Open, status: int, code: str | None, raised: type[MemosError]
) -> None:
    model, server = opened([error(status, "no", code=code), answer("ok")])
    with pytest.raises(raised) as caught:
        model.complete(asking())
    assert getattr(caught.value, "permanent") is True  # noqa: B009 - of both kinds
    assert len(server.asked) == 1


def test_attempts_end_with_the_last_failure(opened: Open) -> None:
    model, server = opened([error(500, "a"), error(502, "b"), error(503, "c"), answer("late")], retries=2)
    with pytest.raises(BackendUnavailable, match="503") as caught:
        model.complete(asking())
    assert not caught.value.permanent
    assert len(server.asked) == 3


def test_retry_after_is_waited_for(opened: Open, waits: list[float]) -> None:
    model, _ = opened([error(429, "later", headers={"Retry-After": "0.2"}), answer("ok")])
    assert model.complete(asking()).text == "ok"
    assert waits == [0.2]


@pytest.mark.parametrize("after", ["3600", "61"])
def test_a_long_retry_after_is_left_to_the_caller(opened: Open, waits: list[float], after: str) -> None:
    model, server = opened([error(429, "later", headers={"Retry-After": after}), answer("ok")], timeout_s=3600)
    with pytest.raises(BackendUnavailable) as caught:
        model.complete(asking())
    assert caught.value.retry_after_s == float(after)
    assert (waits, len(server.asked)) == ([], 1)


def test_no_wait_goes_beyond_the_deadline_of_the_call(opened: Open, waits: list[float]) -> None:
    model, server = opened([error(429, "later", headers={"Retry-After": "50"}), answer("ok")], timeout_s=10, retries=3)
    with pytest.raises(BackendUnavailable):
        model.complete(asking())
    assert (waits, len(server.asked)) == ([], 1)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("7", 7.0), ("0", 0.0), ("-5", 0.0), ("", None), ("soon", None), ("nan", None), ("inf", None), ("9" * 400, None)],
)
def test_retry_after_is_read(value: str, seconds: float | None) -> None:
    assert retry_after_s({"retry-after": value}) == seconds


def test_retry_after_may_be_a_date() -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    seconds = retry_after_s({"retry-after": date})
    assert seconds is not None
    assert 0 < seconds <= 100
    assert retry_after_s({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 0


def test_backing_off_grows(opened: Open, waits: list[float]) -> None:
    model, _ = opened([error(500, "x")] * 4 + [answer("ok")], retries=4)
    model.complete(asking())
    assert len(waits) == 4
    assert waits[3] > waits[0]


def test_a_server_that_does_not_answer_is_a_timeout(opened: Open) -> None:
    never = threading.Event()
    model, server = opened([Said(gate=never)], timeout_s=0.2, retries=1)
    with pytest.raises(BackendTimeout, match=r"0\.2 s"):
        model.complete(asking())
    assert 1 <= len(server.asked) <= 2
    never.set()


def test_a_slow_answer_is_asked_for_again(opened: Open) -> None:
    never = threading.Event()
    model, _ = opened([Said(gate=never), answer("ok")], timeout_s=1, retries=2)
    assert model.complete(asking()).text == "ok"
    never.set()


def test_an_answer_that_drips_in_too_slowly_is_a_timeout(opened: Open) -> None:
    model, _ = opened([Said(body=answer("ok").body, drip=150)], timeout_s=0.3, retries=0)
    with pytest.raises(BackendTimeout):
        model.complete(asking())


@pytest.mark.parametrize("cut", [-1, 0, 20], ids=["before the head", "before the body", "in the body"])
def test_a_dropped_connection_is_asked_again(opened: Open, cut: int) -> None:
    model, server = opened([Said(body=answer("ok").body, cut=cut), answer("ok")])
    assert model.complete(asking()).text == "ok"
    assert len(server.asked) == 2


def test_a_connection_that_keeps_breaking_is_unavailable(opened: Open) -> None:
    model, server = opened([Said(body=answer("ok").body, cut=20)], retries=2)
    with pytest.raises(BackendUnavailable, match="connection was lost"):
        model.complete(asking())
    assert len(server.asked) == 3


def test_a_port_where_nobody_listens_is_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    model = OpenAIChat(ChatSettings(base_url=f"http://127.0.0.1:{port}/v1", model="m"), first_wait_s=0.01, retries=1)
    with pytest.raises(BackendUnavailable, match="cannot be reached") as caught:
        model.complete(asking())
    assert not caught.value.permanent
    model.close()


@pytest.mark.parametrize(
    "url",
    ["http://[::1]:1/v1", "http://" + "a." * 60 + "invalid/v1", "http://no-such-host.invalid/v1", "http://0:1/v1"],
)
def test_an_odd_address_is_unavailable(url: str) -> None:
    model = OpenAIChat(ChatSettings(base_url=url, model="m", timeout_s=5), retries=0)
    with pytest.raises(BackendUnavailable):
        model.complete(asking())
    model.close()


def test_tls_where_there_is_none_is_unavailable(opened: Open) -> None:
    _, server = opened([answer("ok")])
    model = OpenAIChat(ChatSettings(base_url=server.url.replace("http:", "https:"), model="m", timeout_s=5), retries=0)
    with pytest.raises(BackendUnavailable):
        model.complete(asking())
    model.close()


# Limits


def test_no_more_calls_run_at_once_than_allowed(opened: Open) -> None:
    gate = threading.Event()
    model, server = opened(lambda _: Said(body=answer("ok").body, gate=gate), parallel=3)
    with ThreadPoolExecutor(10) as pool:
        replies = [pool.submit(model.complete, asking(str(n))) for n in range(10)]
        while server.running < 3:
            gate.wait(0.01)
        gate.wait(0.2)  # time for a fourth to come, if it could
        gate.set()
        assert {reply.result().text for reply in replies} == {"ok"}
    assert server.most_at_once == 3


def test_calls_that_find_no_room_in_time_say_so(opened: Open) -> None:
    model, server = opened([answer("ok")], parallel=1, timeout_s=0.5, retries=0)
    with model._slot(time.monotonic() + 60), pytest.raises(BackendTimeout, match="PARALLEL"):
        model.complete(asking())
    assert server.asked == []
    assert model.complete(asking()).text == "ok"


def test_closing_lets_a_call_under_way_finish(opened: Open) -> None:
    gate = threading.Event()
    model, server = opened(lambda _: Said(body=answer("ok").body, gate=gate))
    with ThreadPoolExecutor(1) as pool:
        reply = pool.submit(model.complete, asking())
        while server.running == 0:
            gate.wait(0.01)
        model.close()
        gate.set()
        assert reply.result().text == "ok"
    with pytest.raises(BackendUnavailable, match="shutting down"):
        model.complete(asking())


# Secrets


@pytest.mark.parametrize("status", [200, 307, 400, 401, 403, 404, 413, 422, 429, 500])
def test_neither_the_key_nor_the_prompt_is_in_errors_or_logs(
    opened: Open, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    caplog.set_level(logging.DEBUG)
    echo = {"error": {"message": f"{SECRET} {PROMPT}", "code": SECRET, "type": PROMPT, "param": SECRET}}
    model, _ = opened([Said(status, echo, headers={"X-Echo": SECRET})], retries=1)
    with pytest.raises(MemosError) as caught:
        model.complete(asking())
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value) + repr(model)
    logged = "".join(
        f"{record.getMessage()} {vars(record)}" for record in caplog.records if record.name != "httpcore2.http11"
    )
    for secret in (SECRET, PROMPT):
        assert secret not in shown
        assert secret not in logged


def test_settings_do_not_show_the_key() -> None:
    settings = ChatSettings(base_url="http://127.0.0.1/v1", model="m", api_key=SecretStr(SECRET))
    assert SECRET not in repr(settings) + str(settings) + settings.model_dump_json()


@pytest.mark.parametrize(
    "wrong",
    [
        {"base_url": f"http://user:{SECRET}@127.0.0.1/v1", "model": "m"},
        {"base_url": f"http://127.0.0.1/v1?key={SECRET}", "model": "m"},
        {"base_url": "http://127.0.0.1/v1", "model": "m", "api_key": f"{SECRET}\u2026"},
        {"base_url": "http://127.0.0.1/v1", "api_key": SECRET},
        {"base_url": "http://127.0.0.1/v1", "model": "m", "key": SECRET},
    ],
    ids=["user", "query", "key", "no model", "unknown field"],
)
def test_wrong_settings_are_refused_without_showing_them(wrong: dict[str, str]) -> None:
    with pytest.raises(ValidationError) as caught:
        ChatSettings(**wrong)  # type: ignore[arg-type]
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["", "m", "ftp://h/v1", "http://", "http:///v1", "http://h:99999/v1", "http://a b/v1", "http://" + "a" * 64]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ValidationError, match="must be a URL"):
        ChatSettings(base_url=url, model="m")


def test_a_key_from_a_file_may_end_with_a_newline() -> None:
    key = ChatSettings(base_url="http://h/v1", model="m", api_key=SecretStr(f"{SECRET}\n")).api_key
    assert key is not None
    assert key.get_secret_value() == SECRET


def test_a_model_needs_an_address() -> None:
    with pytest.raises(InvalidInput, match="BASE_URL"):
        OpenAIChat(ChatSettings())


def test_importing_memos_does_not_import_what_asks_endpoints() -> None:
    code = "import sys, memos, memos.cli, memos.kernel.opening; sys.exit('stamina' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_stream_comes_in_pieces_without_thoughts_and_with_the_endpoints_count() -> None:
    said = events("<think>Hm.", "</think>", "In ", "Lyon.", usage=counted(7, 5))
    with OpenAIServer([said]) as server, closing(OpenAIChat(server.settings())) as model:
        *pieces, last = model.stream(asking())
    assert pieces == ["In ", "Lyon."]
    assert last == ChatReply("In Lyon.", Tokens(7, 5))
    assert server.asked[0].body["stream"] is True
    assert server.asked[0].body["stream_options"] == {"include_usage": True}


def test_an_endpoint_that_knows_no_stream_options_is_asked_without() -> None:
    refused = error(400, "Unrecognized request argument: stream_options")
    with OpenAIServer([refused, events("ok")]) as server, closing(OpenAIChat(server.settings())) as model:
        assert [list(model.stream(asking()))[-1].text for _ in range(2)] == ["ok", "ok"]
    assert ["stream_options" in each.body for each in server.asked] == [True, False, False]


def test_a_stream_is_begun_again_after_a_failure_and_never_after_its_first_piece() -> None:
    said = events("In ", "Lyon.")
    broken = Said(body=said.body, content_type=said.content_type, cut=len(str(said.body)) - 40)
    with (
        OpenAIServer([error(503, "busy"), said, broken]) as server,
        closing(OpenAIChat(server.settings(), first_wait_s=0.01, retries=2)) as model,
    ):
        assert list(model.stream(asking()))[-1].text == "In Lyon."
        pieces = []
        with pytest.raises(BackendUnavailable, match="connection was lost"):
            pieces += model.stream(asking())
    assert len(server.asked) == 3


@pytest.mark.parametrize(
    ("said", "raised", "match"),
    [
        (events("In ", finish=None, done=False), BackendUnavailable, "closed the connection"),
        (events(""), ModelError, "empty"),
        (events("x", finish="content_filter"), ModelError, "filter"),
        (events("x", finish="length"), ModelError, "cut off"),
        (events(finish="tool_calls"), ModelError, "tool"),
        (Said(body='data: {"error": {"code": 503, "message": "sk-test"}}\n\n', content_type="text/event-stream"),
         BackendUnavailable, "503"),
        (Said(body='data: {"error": "sk-test"}\n\n', content_type="text/event-stream"), ModelError, "middle"),
        (Said(body="data: nonsense\n\ndata: [DONE]\n\n", content_type="text/event-stream"), ModelError, "empty"),
        (Said(body=b"data: " + b"x" * 9_000_000, content_type="text/event-stream"), ModelError, "not an event stream"),
        (Said(body="<html>", content_type="text/html"), BackendUnavailable, "web page"),
    ],
    ids=range(10),
)  # fmt: skip
def test_a_stream_that_is_no_answer_is_an_error(said: Said, raised: type[Exception], match: str) -> None:
    with OpenAIServer([said]) as server, closing(OpenAIChat(server.settings(), retries=0)) as model:
        with pytest.raises(raised, match=match) as caught:
            list(model.stream(asking()))
        assert "sk-test" not in str(caught.value)
