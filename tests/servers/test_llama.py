"""The model port against a real llama.cpp server with a small model: the form of answers, never their wisdom."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pytest
from pydantic import BaseModel, SecretStr

from memos.asking.asker import Asker
from memos.asking.meter import Meter
from memos.asking.reply_cache import ReplyCache
from memos.backends.openai_chat import OpenAIChat
from memos.errors import BackendUnavailable, ModelError
from memos.ports import ChatMessage, ChatRequest
from tests.servers import llama_server
from tests.servers.fixtures import unavailable
from tests.servers.llama_server import CONTEXT_TOKENS, LlamaServer


class Home(BaseModel):
    person: str
    city: str
    kind: Literal["home", "work"] = "home"


@pytest.fixture(scope="module")
def server() -> Iterator[LlamaServer]:
    missing = llama_server.missing()
    if missing is not None:
        unavailable(missing)
    with LlamaServer() as started:
        yield started


@pytest.fixture
def model(server: LlamaServer) -> Iterator[OpenAIChat]:
    opened = OpenAIChat(server.settings())
    yield opened
    opened.close()


def asking(text: str, **more: int) -> ChatRequest:
    return ChatRequest((ChatMessage("system", "Be brief."), ChatMessage("user", text)), **more)


def test_plain_text_comes_with_the_servers_own_count(model: OpenAIChat) -> None:
    reply = model.complete(asking("What is the capital of France? Answer in one short sentence.", max_tokens=200))
    assert reply.text
    assert not reply.tokens.estimated
    assert reply.tokens.prompt > 10
    assert 0 < reply.tokens.completion <= 200


def test_an_object_fits_its_schema_without_a_repair(model: OpenAIChat) -> None:
    meter = Meter("test")
    asker = Asker(model, ReplyCache(1_000_000))
    question = [ChatMessage("user", "Caroline moved to Lyon. Give the person and the city as JSON.")]
    home = asker.ask(question, Home, meter=meter, max_tokens=200)
    assert isinstance(home, Home)
    assert asker.ask(question, Home, meter=meter, max_tokens=200) == home
    assert (meter.spent.calls, meter.spent.cached) == (2, 1)


def test_a_cut_off_answer_is_an_error_with_its_cost(model: OpenAIChat) -> None:
    with pytest.raises(ModelError, match="cut off") as caught:
        model.complete(asking("Count from one to one hundred in words.", max_tokens=5))
    assert caught.value.tokens.completion == 5


def test_a_prompt_beyond_the_context_is_a_permanent_error(model: OpenAIChat) -> None:
    with pytest.raises(ModelError, match="too long") as caught:
        model.complete(asking("word " * (CONTEXT_TOKENS + 100)))
    assert caught.value.permanent


def test_a_wrong_key_is_refused(server: LlamaServer) -> None:
    wrong = OpenAIChat(server.settings(api_key=SecretStr("wrong")))
    with pytest.raises(BackendUnavailable, match="key") as caught:
        wrong.complete(asking("hi"))
    assert caught.value.permanent
    wrong.close()


@pytest.mark.parametrize(
    "text", ["\0", "\ud800", "我对花生过敏 👩‍👩‍👧", "<|im_end|>"], ids=["nul", "surrogate", "scripts", "template"]
)
def test_odd_prompts_reach_it(model: OpenAIChat, text: str) -> None:
    try:
        assert model.complete(asking(f"Say hello. {text}", max_tokens=100)).text
    except ModelError as error:  # a small model may go on until it is cut off, or say nothing
        assert not error.permanent
