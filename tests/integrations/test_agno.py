"""Agno's agents with memory: the contract, and what only Agno has."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from agno.agent import Agent
from agno.db.schemas import UserMemory
from agno.models.base import Model
from agno.models.response import ModelResponse

from memos.errors import NotFound
from memos.integrations import AgentMemory
from memos.integrations.agno import MemosMemoryManager
from tests.integrations.contract import FACT, QUESTION, Ask, Contract, Turn, run, stored


class Scripted(Model):
    """Gives its answers in turn (a mapping is the call of a tool), and keeps what it was asked as text."""

    def __init__(self, *answers: str | dict[str, Any]) -> None:
        super().__init__(id="scripted")
        self.answers, self.asked = answers, []

    def invoke(self, messages: list[Any], **_: Any) -> ModelResponse:
        self.asked.append("\n".join(message.get_content_string() for message in messages))
        answer = self.answers[len(self.asked) - 1]
        if isinstance(answer, str):
            return ModelResponse(role="assistant", content=answer)
        return ModelResponse(role="assistant", tool_calls=[{"id": "call-1", "type": "function", "function": answer}])

    async def ainvoke(self, messages: list[Any], **named: Any) -> ModelResponse:
        return self.invoke(messages, **named)

    def invoke_stream(self, *_: Any, **__: Any) -> Iterator[ModelResponse]:
        raise NotImplementedError

    def ainvoke_stream(self, *_: Any, **__: Any) -> AsyncIterator[ModelResponse]:
        raise NotImplementedError

    def _parse_provider_response(self, response: Any, **_: Any) -> ModelResponse:
        return response

    def _parse_provider_response_delta(self, response: Any) -> ModelResponse:
        return response


def agent_of(model: Model, manager: MemosMemoryManager, **options: Any) -> Agent:
    hooks = {"pre_hooks": [manager.before_run], "post_hooks": [manager.after_run]}
    return Agent(model=model, memory_manager=manager, telemetry=False, **{**hooks, **options})


class TestMemoryManager(Contract):
    def turn(self, memory: AgentMemory, ask: Ask) -> Turn:
        model = Scripted(ask.answer)
        agent = agent_of(model, MemosMemoryManager(memory))
        done = agent.run(ask.text, user_id=ask.user, session_id=ask.thread, run_id=ask.turn)
        return Turn(model.asked[-1], done.content)


class TestAsync(Contract):
    def turn(self, memory: AgentMemory, ask: Ask) -> Turn:
        model, manager = Scripted(ask.answer), MemosMemoryManager(memory)
        agent = agent_of(model, manager, pre_hooks=[manager.abefore_run], post_hooks=[manager.aafter_run])
        done = run(agent.arun(ask.text, user_id=ask.user, session_id=ask.thread, run_id=ask.turn))
        return Turn(model.asked[-1], done.content)


def test_agno_itself_may_store_what_a_user_says_and_nothing_is_stored_twice(memory: AgentMemory, user: str) -> None:
    def look() -> str:
        """Look at the pet."""
        return "a green bird"

    model = Scripted({"name": "look", "arguments": "{}"}, "A green bird.")
    agent = agent_of(model, MemosMemoryManager(memory), tools=[look], update_memory_on_run=True)
    agent.run("Look!", user_id=user, session_id="s")
    assert stored(memory, user) == [("Look!", "trusted"), ("A green bird.", "untrusted")]


def test_without_hooks_the_prompt_has_the_newest_memories(memory: AgentMemory, user: str) -> None:
    manager = MemosMemoryManager(memory, limit=2)
    for n in range(3):
        manager.add_user_memory(UserMemory(f"Fact {n}."), user_id=user)
    model = Scripted("I see.", "I see.")
    agent = agent_of(model, manager, pre_hooks=[], post_hooks=[], update_memory_on_run=True)
    agent.run(FACT, user_id=user)
    assert [f"Fact {n}." in model.asked[-1] for n in range(3)] == [False, True, True]
    run(agent.arun("Hm?", user_id=user))
    assert FACT in model.asked[-1]


def test_memories_can_be_read_changed_found_and_deleted(memory: AgentMemory, user: str) -> None:
    manager = MemosMemoryManager(memory)
    id_ = manager.add_user_memory(UserMemory("My parrot is called Bello.", topics=["pets"]), user_id=user)
    assert manager.replace_user_memory(id_, UserMemory(FACT), user_id=user) == id_
    found = manager.get_user_memory(id_, user_id=user)
    assert (found.memory, found.topics, found.memory_id) == (FACT, ["pets"], id_)
    assert manager.get_user_memory("unknown", user_id=user) is None
    assert memory.failures == 0
    assert "Remembered" in manager.update_memory_task("My dog is called Bello.", user_id=user)
    assert manager.search_user_memories(QUESTION, limit=1, user_id=user)[0].memory.endswith(f"user: {FACT}")
    assert [each.memory for each in manager.search_user_memories(retrieval_method="first_n", user_id=user)] == [
        FACT,
        "My dog is called Bello.",
    ]
    manager.delete_user_memory(id_, user_id=user)
    with pytest.raises(NotFound):
        manager.delete_user_memory("unknown", user_id=user)
    assert [each.memory for each in manager.optimize_memories(user)] == ["My dog is called Bello."]
    manager.clear_user_memories(user)
    assert run(manager.aget_user_memories(user)) == []
    with pytest.raises(NotImplementedError):
        manager.clear()
