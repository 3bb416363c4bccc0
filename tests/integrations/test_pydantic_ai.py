"""Pydantic AI's agents with memory: the contract, and what only Pydantic AI has."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from memos.integrations import AgentMemory, Owner
from memos.integrations.pydantic_ai import MemosCapability, memory_toolset
from tests.integrations.contract import FACT, QUESTION, Ask, Contract, Turn, run


class Scripted:
    """A model that gives its answers in turn, and keeps what it was asked as text."""

    def __init__(self, *answers: str | ToolCallPart) -> None:
        self._answers, self.asked = answers, []

    def __call__(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        told = [getattr(part, "content", "") for message in messages for part in message.parts]
        self.asked.append("\n".join([info.instructions or "", *map(str, told)]))
        answer = self._answers[len(self.asked) - 1]
        return ModelResponse([TextPart(answer) if isinstance(answer, str) else answer])

    @property
    def model(self) -> FunctionModel:
        return FunctionModel(self)


class TestCapability(Contract):
    def turn(self, memory: AgentMemory, ask: Ask) -> Turn:
        scripted = Scripted(ask.answer)
        agent = Agent(scripted.model, instructions="Be brief.", capabilities=[MemosCapability(memory)], deps_type=dict)
        done = run(agent.run(ask.text, deps={"user_id": ask.user}, conversation_id=ask.thread, run_id=ask.turn))
        return Turn(scripted.asked[-1], done.output)


class TestToolset(Contract):
    """Agents that call tools themselves: the model's script calls one, and sees what it says."""

    def turn(self, memory: AgentMemory, ask: Ask) -> Turn:
        tool, argument = ("recall_memories", "question") if "?" in ask.text else ("remember_fact", "fact")
        call = ToolCallPart(tool, {argument: ask.text}, tool_call_id=ask.turn)
        scripted = Scripted(call, ask.answer)
        agent = Agent(scripted.model, toolsets=[memory_toolset(memory)], deps_type=dict)
        done = run(agent.run(ask.text, deps={"user_id": ask.user}, conversation_id=ask.thread))
        return Turn(scripted.asked[-1].replace(ask.text, "", 1), done.output)


class Pet(BaseModel):
    name: str


def test_each_request_of_a_run_has_what_was_recalled_once(memory: AgentMemory, user: str) -> None:
    memory.remember([{"role": "user", "content": FACT}], Owner(user, "before"))
    recalls: list[str] = []
    original = memory.arecall

    async def counted(question: str, *given: Any, **named: Any) -> Any:
        recalls.append(question)
        return await original(question, *given, **named)

    memory.arecall = counted  # type: ignore[method-assign]
    scripted = Scripted(ToolCallPart("look", {}), ToolCallPart("final_result", {"name": "Hugo"}))
    agent = Agent(scripted.model, output_type=Pet, capabilities=[MemosCapability(memory, tools=True)], deps_type=dict)

    @agent.tool_plain
    def look() -> str:
        return "a green bird"

    done = run(agent.run(QUESTION, deps={"user_id": user}))
    assert done.output == Pet(name="Hugo")
    assert (len(recalls), [asked.count(FACT) for asked in scripted.asked]) == (1, [1, 1])
    [answer] = [hit for hit in memory.recall("Hugo?", Owner(user)).hits if "{" in hit.item.memory]
    assert answer.item.memory == '{"name":"Hugo"}'
    assert [str(source.trust) for source in answer.sources] == ["untrusted"]


def test_what_the_history_says_already_is_not_recalled(memory: AgentMemory, user: str) -> None:
    scripted = Scripted("I see.", "Hugo.")
    agent = Agent(scripted.model, capabilities=[MemosCapability(memory)], deps_type=dict)
    first = run(agent.run(FACT, deps={"user_id": user}))
    run(agent.run(QUESTION, deps={"user_id": user}, message_history=first.all_messages()))
    assert scripted.asked[-1].count(FACT) == 1
