"""Haystack's agents with memory: the contract, and what only Haystack has."""

from __future__ import annotations

from typing import Any

import pytest
from haystack import Pipeline, component
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.tools import tool

from memos.integrations import AgentMemory, Owner
from memos.integrations.haystack import MemosRetriever, memory_hooks
from tests.integrations.contract import FACT, QUESTION, Ask, Contract, Turn, run, stored


@component
class Scripted:
    """Gives its answers in turn, and keeps what it was asked as text."""

    def __init__(self, *answers: str | ToolCall) -> None:
        self.answers, self.asked = answers, []

    @component.output_types(replies=list[ChatMessage])
    def run(self, messages: list[ChatMessage], tools: Any = None) -> dict[str, Any]:
        self.asked.append("\n".join(message.text or "" for message in messages))
        answer = self.answers[len(self.asked) - 1]
        if isinstance(answer, str):
            return {"replies": [ChatMessage.from_assistant(answer)]}
        return {"replies": [ChatMessage.from_assistant(tool_calls=[answer])]}

    @component.output_types(replies=list[ChatMessage])
    async def run_async(self, messages: list[ChatMessage], tools: Any = None) -> dict[str, Any]:
        return self.run(messages, tools)


def context(ask: Ask) -> dict[str, str]:
    return {"user_id": ask.user, "session_id": ask.thread}


class TestHooks(Contract):
    def turn(self, memory: AgentMemory, ask: Ask) -> Turn:
        llm = Scripted(ask.answer)
        agent = Agent(chat_generator=llm, system_prompt="Be brief.", hooks=memory_hooks(memory))
        done = agent.run(messages=[ChatMessage.from_user(ask.text)], hook_context=context(ask))
        return Turn(llm.asked[-1], done["last_message"].text)


class TestAsync(Contract):
    def turn(self, memory: AgentMemory, ask: Ask) -> Turn:
        llm = Scripted(ask.answer)
        agent = Agent(chat_generator=llm, hooks=memory_hooks(memory))
        done = run(agent.run_async(messages=[ChatMessage.from_user(ask.text)], hook_context=context(ask)))
        return Turn(llm.asked[-1], done["last_message"].text)


@tool
def look() -> str:
    """Look at the pet."""
    return "a green bird"


def test_the_messages_of_a_run_are_those_without_memory_and_answers_made_with_tools_are_not_trusted(
    memory: AgentMemory, user: str
) -> None:
    memory.remember([{"role": "user", "content": FACT}], Owner(user, "before"))
    llm = Scripted(ToolCall("look", {}, id="call-1"), "A green bird called Hugo.", "Yes.")
    agent = Agent(chat_generator=llm, tools=[look], hooks=memory_hooks(memory, user=user))
    first = agent.run(messages=[ChatMessage.from_user(QUESTION)], hook_context={"session_id": "s"})
    assert [asked.count(FACT) for asked in llm.asked] == [1, 1]
    assert not any(FACT in (message.text or "") for message in first["messages"])
    agent.run(messages=[*first["messages"], ChatMessage.from_user("Sure?")], hook_context={"session_id": "s"})
    assert stored(memory, user)[1:3] == [(QUESTION, "trusted"), ("A green bird called Hugo.", "untrusted")]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_pipeline_retrieves_documents(memory: AgentMemory, user: str, asynchronous: bool) -> None:
    memory.remember([{"role": "user", "content": FACT}], Owner(user, "before"))
    memory.remember([{"role": "user", "content": "My parrot is evil.", "trust": "untrusted"}], Owner(user, "page"))
    pipeline = Pipeline()
    pipeline.add_component("memory", MemosRetriever(memory))
    asked = {"memory": {"query": QUESTION, "user_id": user}}
    done = run(pipeline.run_async(asked)) if asynchronous else pipeline.run(asked)
    first, second = sorted(done["memory"]["documents"], key=lambda each: each.meta["untrusted"])
    assert (first.content, first.meta["speaker"]) == (FACT, "user")
    assert second.content == '<untrusted source="user">My parrot is evil.</untrusted>'
