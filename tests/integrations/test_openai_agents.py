"""Agents of the OpenAI Agents SDK with memory: the contract, and what only this SDK has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from agents import Agent, Model, ModelResponse, RunConfig, Runner, SQLiteSession, Usage, function_tool, handoff
from agents.items import TResponseInputItem
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from memos.integrations import AgentMemory, Owner
from memos.integrations.openai_agents import MemosRunHooks, MemosSession, memory_instructions, memory_tools
from tests.integrations.contract import FACT, QUESTION, Ask, Contract, Turn, run, stored

QUIET = RunConfig(tracing_disabled=True)


class Scripted(Model):
    """Gives its answers in turn, as text or the call of a tool, and keeps what it was asked as text."""

    def __init__(self, *answers: str | tuple[str, str]) -> None:
        self._answers, self.asked = answers, []

    async def get_response(
        self, system_instructions: str | None, input: str | list[TResponseInputItem], *_: Any, **__: Any
    ) -> ModelResponse:
        self.asked.append(f"{system_instructions}\n{input}")
        answer = self._answers[len(self.asked) - 1]
        if isinstance(answer, tuple):
            output: Any = ResponseFunctionToolCall(
                name=answer[0], arguments=answer[1], call_id=f"call-{answer[0]}", type="function_call"
            )
        else:
            text = ResponseOutputText(text=answer, annotations=[], type="output_text")
            output = ResponseOutputMessage(
                id="msg-1", content=[text], role="assistant", status="completed", type="message"
            )
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


@dataclass
class Context:
    user_id: str
    session_id: str = "thread-1"


class TestSession(Contract):
    def turn(self, memory: AgentMemory, ask: Ask) -> Turn:
        model, session = Scripted(ask.answer), MemosSession(ask.thread, memory, user=ask.user)
        agent = Agent("helper", instructions=memory_instructions(memory, "Be brief."), model=model)
        done = run(Runner.run(agent, ask.text, context=Context(ask.user), session=session, run_config=QUIET))
        return Turn(model.asked[-1].replace("\\n", "\n"), done.final_output)

    def test_a_turn_that_is_retried_stores_nothing_twice(
        self, memory: AgentMemory, user: str, count: Callable[[str], int]
    ) -> None:
        """As the SDK does when a turn fails: it takes back the items of the turn."""
        self.turn(memory, Ask(user, FACT))
        session = MemosSession("thread-1", memory, user=user)
        items, said = run(session.get_items()), stored(memory, user)
        while run(session.pop_item()):
            pass
        self.turn(memory, Ask(user, FACT))
        assert run(session.get_items()) == items
        assert stored(memory, user) == said


class TestHooks(Contract):
    """Another session keeps the items; hooks remember."""

    def turn(self, memory: AgentMemory, ask: Ask) -> Turn:
        model = Scripted(ask.answer)
        agent = Agent("helper", instructions=memory_instructions(memory), model=model)
        session, hooks = SQLiteSession(ask.thread), MemosRunHooks(memory)
        context = Context(ask.user, ask.thread)
        done = run(Runner.run(agent, ask.text, context=context, session=session, hooks=hooks, run_config=QUIET))
        session.close()
        return Turn(model.asked[-1].replace("\\n", "\n"), done.final_output)


class TestTools(Contract):
    """Agents that call tools themselves: the model's script calls one, and sees what it says."""

    def turn(self, memory: AgentMemory, ask: Ask) -> Turn:
        name, argument = ("recall_memories", "question") if "?" in ask.text else ("remember_fact", "fact")
        model = Scripted((name, f'{{"{argument}": "{ask.text}"}}'), ask.answer)
        agent = Agent("helper", model=model, tools=memory_tools(memory))
        done = run(Runner.run(agent, ask.text, context={"user_id": ask.user, "session_id": "s"}, run_config=QUIET))
        return Turn(model.asked[-1].replace("\\n", "\n").replace(ask.text, ""), done.final_output)


def test_handoffs_keep_whose_memory_it_is(memory: AgentMemory, user: str) -> None:
    memory.remember([{"role": "user", "content": FACT}], Owner(user, "before"))
    vet_model = Scripted(("recall_memories", '{"question": "What is the parrot called?"}'), "Hugo.")
    instructions = memory_instructions(memory, "You are a vet.")
    vet = Agent("vet", instructions=instructions, model=vet_model, tools=memory_tools(memory))
    front = Agent("front", model=Scripted(("transfer_to_vet", "{}")), handoffs=[handoff(vet)])
    session = MemosSession("s", memory, user=user)
    done = run(Runner.run(front, QUESTION, context=Context(user, "s"), session=session, run_config=QUIET))
    assert (done.final_output, done.last_agent.name) == ("Hugo.", "vet")
    assert [asked.count(FACT) for asked in vet_model.asked] == [1, 2]  # in the instructions; and from the tool
    assert stored(memory, user) == [(FACT, "trusted"), (QUESTION, "trusted"), ("Hugo.", "untrusted")]


def test_a_session_keeps_items_exactly_and_remembers_what_was_said(memory: AgentMemory, user: str) -> None:
    @function_tool
    def look() -> str:
        return "a green bird " * 10_000

    model, session = Scripted(("look", "{}"), "A green bird."), MemosSession("s", memory, user=user)
    done = run(Runner.run(Agent("helper", model=model, tools=[look]), "Look!", session=session, run_config=QUIET))
    items = run(session.get_items())
    assert items == done.to_input_list()
    assert run(session.get_items(limit=1)) == items[-1:]
    assert run(session.pop_item()) == items[-1]
    assert run(session.get_items()) == items[:-1]
    assert stored(memory, user) == [("Look!", "trusted"), ("A green bird.", "untrusted")]
    run(session.clear_session())
    assert run(session.get_items()) == []
    assert len(stored(memory, user)) == 2


@pytest.mark.parametrize("remember", [False, True])
def test_a_session_may_only_keep_its_history(memory: AgentMemory, user: str, remember: bool) -> None:
    session = MemosSession("s", memory, user=user, remember=remember)
    run(session.add_items([{"role": "user", "content": [{"type": "input_text", "text": FACT}]}]))
    assert stored(memory, user) == ([(FACT, "trusted")] if remember else [])
