"""LiteLLM with memory, in the library and in its proxy: the contract, and what only LiteLLM has."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx2
import pytest

from memos.integrations import AgentMemory, Owner
from memos.integrations.litellm import MemosLogger
from tests.integrations.contract import FACT, QUESTION, Ask, Contract, Server, Turn, run, stored
from tests.support.servers.openai_server import OpenAIServer, answer, events

import litellm  # isort: skip - after ours, which keeps it from the network

pytestmark = pytest.mark.filterwarnings("ignore")  # LiteLLM's own


class Scripted(litellm.CustomLLM):
    """A provider that gives an answer, and keeps what it was asked."""

    answer, asked = "", ""

    def completion(self, *_: Any, **given: Any) -> litellm.ModelResponse:
        self.asked = "\n".join(str(message["content"]) for message in given["messages"])
        message = {"role": "assistant", "content": self.answer}
        return litellm.ModelResponse(choices=[{"message": message, "finish_reason": "stop"}])

    async def acompletion(self, *_: Any, **given: Any) -> litellm.ModelResponse:
        return self.completion(**given)


@contextmanager
def with_memory(memory: AgentMemory) -> Iterator[tuple[Scripted, MemosLogger]]:
    model, logger = Scripted(), MemosLogger(memory)
    litellm.custom_provider_map = [{"provider": "scripted", "custom_handler": model}]
    litellm.callbacks = [logger]
    try:
        yield model, logger
    finally:
        for kind in ("success", "_async_success", "failure", "_async_failure", "input"):
            setattr(litellm, f"{kind}_callback", [])
        litellm.callbacks = []
        litellm.custom_provider_map = []


def call_of(ask: Ask) -> dict[str, Any]:
    messages = [{"role": "user", "content": ask.text}]
    ids = {"user": ask.user, "litellm_session_id": ask.thread, "litellm_call_id": ask.turn}
    return {"model": "scripted/model", "messages": messages, **ids}


class TestAsync(Contract):
    def turn(self, memory: AgentMemory, ask: Ask) -> Turn:
        async def answered() -> str:
            got = await litellm.acompletion(**call_of(ask))
            assert await logger.await_calls()
            return str(got.choices[0].message.content)

        with with_memory(memory) as (model, logger):
            model.answer = ask.answer
            answer = run(answered())
            return Turn(model.asked, answer)


class TestBlocking(Contract):
    def turn(self, memory: AgentMemory, ask: Ask) -> Turn:
        with with_memory(memory) as (model, logger):
            model.answer = ask.answer
            got = logger.completion(**call_of(ask))
            assert logger.wait()
            return Turn(model.asked, str(got.choices[0].message.content))


@pytest.mark.parametrize("blocking", [False, True])
def test_a_streamed_answer_is_remembered_once_at_its_end(memory: AgentMemory, user: str, blocking: bool) -> None:
    said = [{"role": "user", "content": FACT}]

    async def ask() -> None:
        call = {"model": "gpt-4o", "messages": said, "mock_response": "I see, I see.", "stream": True, "user": user}
        async for _ in await litellm.acompletion(**call):
            pass
        assert await logger.await_calls()

    with with_memory(memory) as (_, logger):
        if blocking:
            for _ in logger.completion(
                model="gpt-4o", messages=said, mock_response="I see, I see.", stream=True, user=user
            ):
                pass
            assert logger.wait()
        else:
            run(ask())
    assert [text for text, _ in sorted(stored(memory, user))] == ["I see, I see.", FACT]


def test_a_turn_with_a_tool_is_stored_once_and_its_answer_is_not_trusted(memory: AgentMemory, user: str) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    talk: list[Any] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is in the cage?"}]

    async def ask(answered: Any) -> None:
        await litellm.acompletion(
            model="gpt-4o", messages=talk, mock_response=answered, user=user, litellm_session_id="s"
        )
        assert await logger.await_calls()

    with with_memory(memory) as (_, logger):
        run(ask("Let me look."))
        talk += [
            {"role": "assistant", "content": "Let me look.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "a green bird"},
        ]
        run(ask("A green bird."))
    assert sorted(stored(memory, user)) == [
        ("A green bird.", "untrusted"), ("Let me look.", "trusted"), ("What is in the cage?", "trusted"),
    ]  # fmt: skip


def test_what_is_cut_off_or_fails_and_calls_of_other_kinds_pass(memory: AgentMemory, user: str) -> None:
    async def ask() -> None:
        cut = litellm.ModelResponse(choices=[{"message": {"content": "cut"}, "finish_reason": "length"}])
        call = {"model": "gpt-4o", "messages": [{"role": "user", "content": FACT}], "user": user}
        await litellm.acompletion(**call, mock_response=cut)
        assert await logger.await_calls()
        await litellm.aembedding("text-embedding-3-small", [FACT], mock_response=[0.1], user=user)
        with pytest.raises(litellm.RateLimitError):
            await litellm.acompletion(**call, mock_response="litellm.RateLimitError")
        assert await logger.await_calls()

    with with_memory(memory) as (_, logger):
        run(ask())
    assert memory.call("memories.list", owner=Owner(user), fallback=[]) == []
    assert memory.failures == 0


def test_messages_that_are_not_given_by_name_are_told(memory: AgentMemory, caplog: pytest.LogCaptureFixture) -> None:
    with with_memory(memory):
        said = [{"role": "user", "content": FACT}]
        run(litellm.acompletion("gpt-4o", said, mock_response="I see.", user="ana"))
    assert "by name" in caplog.text


def test_in_the_proxy_the_user_of_a_key_counts_and_not_whom_the_request_names(memory: AgentMemory, user: str) -> None:
    memory.remember([{"role": "user", "content": FACT}], Owner(user))

    def asked(**call: Any) -> str:
        messages = [{"role": "user", "content": QUESTION}]
        changed = run(logger.async_pre_call_deployment_hook({"messages": messages, **call}, "acompletion"))
        return json.dumps(changed["messages"])

    logger = MemosLogger(memory)
    key = {"user_api_key_hash": "h", "user_api_key_user_id": "ben"}
    assert FACT in asked(user=user)
    assert FACT not in asked(user=user, metadata=key)
    assert FACT in asked(user="ben", metadata={**key, "user_api_key_user_id": user})
    nobody = {**key, "user_api_key_user_id": "default_user_id"}
    assert FACT in asked(user=user, metadata=nobody)
    assert FACT in asked(litellm_metadata={**nobody, "user_api_key_end_user_id": user})


CALLBACK = """
from memos.api.client import MemOSClient
from memos.integrations import AgentMemory
from memos.integrations.litellm import MemosLogger

logger = MemosLogger(AgentMemory(MemOSClient({key!r}, {url!r}), timeout_s=60))
"""


@pytest.mark.skipif(find_spec("fastapi_sso") is None, reason="run: make test-integrations NAMES=litellm")
def test_the_proxy_remembers_for_the_user_of_the_request(server: Server, user: str, tmp_path: Path) -> None:
    with OpenAIServer([answer("I see."), events("Your parrot ", "is called Hugo.")]) as model:
        (tmp_path / "callback.py").write_text(CALLBACK.format(key=server.key, url=server.url))
        config = {
            "model_list": [{
                "model_name": "m", "litellm_params": {"model": "openai/m", "api_base": model.url, "api_key": "sk-x"}
            }],
            "litellm_settings": {"callbacks": ["callback.logger"], "telemetry": False},
            "general_settings": {"master_key": "sk-master"},
        }  # fmt: skip
        (tmp_path / "config.yaml").write_text(json.dumps(config))
        with proxy_of(tmp_path) as url:
            ask(url, FACT, user=user)
            deadline = time.monotonic() + 60
            while not server.memos.users.list(limit=1_000) or not _known(server, user):
                assert time.monotonic() < deadline
                time.sleep(0.1)
            assert "Hugo" in ask(url, QUESTION, user=user, stream=True)
            assert FACT in json.dumps(model.asked[-1].body["messages"])
            ask(url, QUESTION, user=f"ben-{user}", stream=True)
            assert "Hugo" not in json.dumps(model.asked[-1].body["messages"])


def _known(server: Server, user: str) -> bool:
    return any(each.id == user for each in server.memos.users.list(limit=1_000)) and bool(
        server.memos.memories.list(cube=str(server.memos.users.get(user).home))
    )


def ask(url: str, text: str, **more: Any) -> str:
    body = {"model": "m", "messages": [{"role": "user", "content": text}], **more}
    headers = {"Authorization": "Bearer sk-master"}
    got = httpx2.post(f"{url}/v1/chat/completions", json=body, headers=headers, timeout=60)
    assert got.status_code == 200, got.text
    return got.text


@contextmanager
def proxy_of(folder: Path) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "litellm.proxy.proxy_cli", "--config", "config.yaml", "--port", str(port)]
    with (folder / "log").open("wb") as log:
        started = subprocess.Popen([*command, "--host", "127.0.0.1"], cwd=folder, stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + 120
            while True:
                assert started.poll() is None, (folder / "log").read_text()
                assert time.monotonic() < deadline, (folder / "log").read_text()
                try:
                    httpx2.get(f"http://127.0.0.1:{port}/health/liveliness", timeout=5).raise_for_status()
                    break
                except httpx2.HTTPError:
                    time.sleep(0.2)
            yield f"http://127.0.0.1:{port}"
        finally:
            started.terminate()
            started.wait(30)
