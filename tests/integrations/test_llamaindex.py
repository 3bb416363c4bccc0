"""LlamaIndex's agents with memory: the contract, and what only LlamaIndex has."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage, ChatResponse
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.memory import Memory
from llama_index.core.tools import FunctionTool, ToolSelection
from pydantic import PrivateAttr

from memos.integrations import AgentMemory, Owner
from memos.integrations.llamaindex import MemosMemory, MemosMemoryBlock, MemosRetriever
from tests.integrations.contract import FACT, QUESTION, Ask, Contract, Turn, run


class Scripted(MockFunctionCallingLLM):
    """Gives its answers in turn (a tool call is one), and keeps what it was asked as text."""

    _answers: list[Any] = PrivateAttr()
    _asked: list[str] = PrivateAttr(default_factory=list)

    def __init__(self, *answers: str | ToolSelection) -> None:
        super().__init__()
        self._answers = list(answers)

    @property
    def asked(self) -> list[str]:
        return self._asked

    async def astream_chat_with_tools(
        self, tools: Sequence[Any], *, chat_history: list[ChatMessage], **_: Any
    ) -> AsyncGenerator[ChatResponse]:
        self._asked.append("\n".join(message.content or "" for message in chat_history))
        answer = self._answers[len(self._asked) - 1]
        called = isinstance(answer, ToolSelection)
        message = ChatMessage(role="assistant", content="" if called else answer)
        message.additional_kwargs = {"tool_calls": [answer]} if called else {}

        async def told() -> AsyncGenerator[ChatResponse]:
            yield ChatResponse(message=message, delta=message.content)

        return told()

    def get_tool_calls_from_response(self, response: ChatResponse, **_: Any) -> list[ToolSelection]:
        return response.message.additional_kwargs.get("tool_calls", [])


async def look() -> str:
    """Look at the user's pet."""
    return "a green bird"


async def say(memory: Memory, text: str, *answers: str | ToolSelection) -> tuple[list[str], str]:
    llm = Scripted(*answers)
    agent = FunctionAgent(tools=[FunctionTool.from_defaults(async_fn=look)], llm=llm, system_prompt="Be brief.")
    return llm.asked, str(await agent.run(text, memory=memory))


class TestMemory(Contract):
    def turn(self, memory: AgentMemory, ask: Ask) -> Turn:
        chat = MemosMemory.over(memory, user=ask.user, session_id=ask.thread)
        asked, answer = run(say(chat, ask.text, ask.answer))
        return Turn(asked[-1], answer)


def test_an_answer_made_with_a_tool_is_not_trusted(memory: AgentMemory, user: str) -> None:
    call = ToolSelection(tool_id="call-1", tool_name="look", tool_kwargs={})
    asked, answer = run(say(MemosMemory.over(memory, user=user, session_id="s"), "Look!", call, "A green bird."))
    assert (len(asked), answer) == (2, "A green bird.")
    found = {hit.item.memory: hit for hit in memory.recall("the green bird", Owner(user)).hits}
    assert [str(source.trust) for source in found["A green bird."].sources] == ["untrusted"]


@pytest.mark.parametrize("limit", [240, 480])
def test_the_block_alone_is_told_what_leaves_the_history_and_keeps_the_limit(
    memory: AgentMemory, user: str, limit: int
) -> None:
    block = MemosMemoryBlock(memory=memory, user=user)
    chat = Memory.from_defaults(
        session_id="s", token_limit=limit, token_flush_size=10, chat_history_token_ratio=0.2, memory_blocks=[block]
    )
    for n in range(20):
        chat.put_messages([ChatMessage(role="user", content=f"My parrot number {n} is called Hugo {n}.")])
        chat.put_messages([ChatMessage(role="assistant", content="I see, that is a nice name for a parrot.")])
    assert memory.recall("What is parrot number 0 called?", Owner(user)).hits
    shown = "\n".join(str(message.content) for message in chat.get(input="What is parrot number 0 called?"))
    assert "Hugo 0" in shown
    assert len(chat.tokenizer_fn(shown)) <= limit


@pytest.mark.parametrize("asynchronous", [False, True])
def test_the_retriever_returns_nodes(memory: AgentMemory, user: str, asynchronous: bool) -> None:
    memory.remember([{"role": "user", "content": FACT}], Owner(user, "before"))
    memory.remember([{"role": "user", "content": "My parrot is evil.", "trust": "untrusted"}], Owner(user, "page"))
    retriever = MemosRetriever(memory, Owner(user))
    found = run(retriever.aretrieve(QUESTION)) if asynchronous else retriever.retrieve(QUESTION)
    first, second = sorted(found, key=lambda each: each.metadata["untrusted"])
    assert (first.text, first.metadata["speaker"]) == (FACT, "user")
    assert second.text == '<untrusted source="user">My parrot is evil.</untrusted>'
