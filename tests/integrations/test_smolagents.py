"""smolagents's agents with memory: the contract, and what only smolagents has."""

from __future__ import annotations

from typing import Any

import pytest
from smolagents import FinalAnswerStep, Model, ToolCallingAgent
from smolagents.models import ChatMessage, ChatMessageToolCall, ChatMessageToolCallFunction, MessageRole

from memos.integrations import AgentMemory, Owner
from memos.integrations.smolagents import RecallTool, RememberTool, run_with_memory
from tests.integrations.contract import FACT, Ask, Contract, Turn, stored


class Scripted(Model):
    """Calls tools in turn, as (name, arguments), and keeps what it was asked as text."""

    def __init__(self, *calls: tuple[str, dict[str, Any]]) -> None:
        super().__init__(model_id="scripted")
        self.calls, self.asked = calls, []

    def generate(self, messages: list[Any], **_: Any) -> ChatMessage:
        parts = [part for message in messages for part in message.content]
        self.asked.append("\n".join(part.get("text", "") for part in parts))
        name, arguments = self.calls[len(self.asked) - 1]
        call = ChatMessageToolCall(ChatMessageToolCallFunction(arguments, name), "call-1", "function")
        return ChatMessage(MessageRole.ASSISTANT, content="", tool_calls=[call])


def answer(text: str) -> tuple[str, dict[str, Any]]:
    return "final_answer", {"answer": text}


class TestRuns(Contract):
    def turn(self, memory: AgentMemory, ask: Ask) -> Turn:
        model = Scripted(answer(ask.answer))
        agent = ToolCallingAgent(tools=[], model=model, instructions="Be brief.", verbosity_level=0)
        done = run_with_memory(agent, ask.text, memory, Owner(ask.user, ask.thread), turn=ask.turn)
        assert agent.instructions == "Be brief."
        return Turn(model.asked[-1], done)


class TestTools(Contract):
    """Agents that call tools themselves: the model's script calls one, and sees what it says."""

    def turn(self, memory: AgentMemory, ask: Ask) -> Turn:
        recalls = "?" in ask.text
        call = ("recall_memories", {"question": ask.text}) if recalls else ("remember_fact", {"fact": ask.text})
        model, owner = Scripted(call, answer(ask.answer)), Owner(ask.user, ask.thread)
        tools = [RecallTool(memory, owner), RememberTool(memory, owner)]
        done = ToolCallingAgent(tools=tools, model=model, verbosity_level=0).run(ask.text)
        return Turn(model.asked[-1].replace(ask.text, ""), done)


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_made_with_a_tool_is_not_trusted_also_when_it_is_streamed(
    memory: AgentMemory, user: str, stream: bool
) -> None:
    model = Scripted(("recall_memories", {"question": "Bird?"}), answer("A green bird."))
    agent = ToolCallingAgent(tools=[RecallTool(memory, Owner(user))], model=model, verbosity_level=0)
    done = run_with_memory(agent, "Look!", memory, Owner(user, "s"), stream=stream)
    if stream:
        [last] = [step for step in done if isinstance(step, FinalAnswerStep)]
        done = last.output
    assert done == "A green bird."
    assert stored(memory, user) == [("Look!", "trusted"), ("A green bird.", "untrusted")]
    assert FACT not in model.asked[0]
