"""The model port against a real llama.cpp server with a small model: the form of answers, never their wisdom."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import openai
import pytest
from pydantic import BaseModel, SecretStr

from memos import MemOS, Settings
from memos.backends.openai.chat import OpenAIChat
from memos.core.kv_cache import Prefix
from memos.core.ports import ChatMessage, ChatRequest
from memos.core.settings import RecallSettings, TaskSettings
from memos.errors import BackendUnavailable, InvalidAnswer, ModelError
from memos.llm.client import LLMClient, ResponseCache
from memos.llm.usage import UsageMeter
from tests.api.running import running
from tests.fakes import WordEmbedder
from tests.support.servers import llama_server
from tests.support.servers.fixtures import unavailable
from tests.support.servers.llama_server import CONTEXT_TOKENS, LlamaServer


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
    meter = UsageMeter("test")
    asker = LLMClient(model, ResponseCache(1_000_000))
    question = [ChatMessage("user", "Caroline moved to Lyon. Give the person and the city as JSON.")]
    home = asker.complete_json(question, Home, meter=meter, max_tokens=200)
    assert isinstance(home, Home)
    assert asker.complete_json(question, Home, meter=meter, max_tokens=200) == home
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


def test_the_proxy_and_a_chat_have_a_real_model_answer_with_memory(server: LlamaServer, tmp_path: Path) -> None:
    settings = Settings(
        chat_model=server.settings(max_tokens=300), tasks=TaskSettings(workers=0), recall=RecallSettings(tokens=300)
    )
    with MemOS.open(tmp_path, settings=settings, embedder=WordEmbedder()) as memos, running(memos, "token") as url:
        memos.add("My sister Maria lives in Lyon.")
        with openai.OpenAI(base_url=f"{url}/openai/v1", api_key="token", max_retries=0) as client:
            asked = [{"role": "user", "content": "Where does my sister Maria live? Answer in one short sentence."}]
            whole = client.chat.completions.create(model="any", messages=asked, max_tokens=200)
            stream = client.chat.completions.create(model="any", messages=asked, max_tokens=200, stream=True)
            choices = [chunk.choices[0] for chunk in stream if chunk.choices]
        pieces = [choice.delta.content for choice in choices if choice.delta.content]
        assert whole.choices[0].message.content
        assert len(pieces) > 1
        # An answer that was cut off is not remembered.
        said = [(whole.choices[0].message.content, whole.choices[0].finish_reason)]
        said.append(("".join(pieces), choices[-1].finish_reason))
        answers = {item.memory for item in memos.memories.list() if item.role == "assistant"}
        assert answers == {text.strip() for text, reason in said if reason == "stop"}

        with memos.chat.stream("Where does Maria live?", system_prompt="Answer in one word.") as told:
            try:
                text = "".join(told)
            except ModelError as error:  # so small a model may talk on and on
                assert "cut off" in str(error)
            else:
                assert told.result is not None
                assert told.result.text == text.strip()
                assert told.result.prompt_tokens > 50
                assert not told.result.tokens_estimated


def test_a_prefix_that_was_warmed_is_cached_and_counted(model: OpenAIChat) -> None:
    """llama.cpp keeps the prompt of a slot; what it says of it is what we show."""
    system = "You look after the harbour of a small town and know every boat that ever came to it. " * 12
    head = ChatMessage("system", system)
    prefix = Prefix("harbour", len(system))
    with contextlib.suppress(InvalidAnswer):  # an answer of one token is cut off
        model.complete(ChatRequest((head, ChatMessage("user", "?")), 1, prefix=prefix))
    reply = None
    for place in ("France", "Italy", "Spain", "Japan", "Norway", "Egypt"):  # a small model does not always find an end
        asked = ChatMessage("user", f"What is the capital of {place}? Answer in one short sentence.")
        with contextlib.suppress(InvalidAnswer):
            reply = model.complete(ChatRequest((head, asked), 200, prefix=prefix))
            break
    assert reply is not None
    assert reply.activation is not None
    assert reply.activation.tier == "server"
    assert reply.activation.cached_tokens > 0.7 * reply.activation.prompt_tokens
