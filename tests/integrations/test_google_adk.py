"""Google ADK's agents with memory: the contract, and what only ADK has."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, ClassVar

import pytest
from google.adk.agents import LlmAgent
from google.adk.agents.callback_context import CallbackContext
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.tools.load_memory_tool import load_memory_tool
from google.adk.tools.preload_memory_tool import preload_memory_tool
from google.genai import types

from memos.errors import NotFound
from memos.integrations import AgentMemory
from memos.integrations.google_adk import MemosMemoryService
from tests.integrations.contract import FACT, QUESTION, Ask, Contract, Turn, run


class Scripted(BaseLlm):
    """Gives its answers in turn, and keeps what it was asked as text."""

    model: str = "scripted"
    answers: list[types.Part]
    asked: list[str]

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse]:
        parts = [part for content in llm_request.contents for part in content.parts or []]
        self.asked.append("\n".join(part.text or str(part.function_response) for part in parts))
        yield LlmResponse(content=types.Content(role="model", parts=[self.answers[len(self.asked) - 1]]))


def said(text: str) -> types.Content:
    return types.Content(role="user", parts=[types.Part(text=text)])


async def remember(callback_context: CallbackContext) -> None:
    await callback_context.add_session_to_memory()


async def say(memory: AgentMemory, ask: Ask, *answers: types.Part, tools: list[Any], app: str = "app") -> Turn:
    model = Scripted(answers=list(answers), asked=[])
    agent = LlmAgent(name="helper", model=model, tools=tools, after_agent_callback=remember)
    sessions = InMemorySessionService()
    runner = Runner(agent=agent, app_name=app, session_service=sessions, memory_service=MemosMemoryService(memory))
    await sessions.create_session(app_name=app, user_id=ask.user, session_id=ask.thread)
    answer = ""
    async for event in runner.run_async(user_id=ask.user, session_id=ask.thread, new_message=said(ask.text)):
        answer = event.content.parts[0].text if event.content and event.content.parts else answer
    return Turn(model.asked[-1], answer or "")


class TestMemoryService(Contract):
    info: ClassVar[dict[str, str]] = {"app": "app"}

    def turn(self, memory: AgentMemory, ask: Ask) -> Turn:
        return run(say(memory, ask, types.Part(text=ask.answer), tools=[preload_memory_tool]))

    def test_a_turn_that_is_retried_stores_nothing_twice(self, memory: AgentMemory, user: str, count: Any) -> None:
        """A session may be added many times; events have ids."""

        async def add_twice() -> None:
            sessions = InMemorySessionService()
            model = Scripted(answers=[types.Part(text="I see."), types.Part(text="Yes.")], asked=[])
            agent = LlmAgent(name="helper", model=model, after_agent_callback=remember)
            service = MemosMemoryService(memory)
            runner = Runner(agent=agent, app_name="app", session_service=sessions, memory_service=service)
            await sessions.create_session(app_name="app", user_id=user, session_id="s")
            for text in (FACT, "Do you?"):
                async for _ in runner.run_async(user_id=user, session_id="s", new_message=said(text)):
                    pass
            session = await sessions.get_session(app_name="app", user_id=user, session_id="s")
            await service.add_session_to_memory(session)

        run(add_twice())
        assert count(user) == 4
        assert memory.failures == 0


class TestLoadMemory(Contract):
    """Agents that call the tool themselves: the model's script calls it, and sees what it says."""

    info: ClassVar[dict[str, str]] = {"app": "app"}

    def turn(self, memory: AgentMemory, ask: Ask) -> Turn:
        call = types.Part(function_call=types.FunctionCall(name="load_memory", args={"query": ask.text}))
        turn = run(say(memory, ask, call, types.Part(text=ask.answer), tools=[load_memory_tool]))
        return Turn(turn.prompt.replace("\\n", "\n").replace(ask.text, "", 1), turn.answer)

    test_a_turn_that_is_retried_stores_nothing_twice = None  # as in the class above


def test_an_answer_made_with_a_tool_is_not_trusted_and_apps_keep_to_themselves(memory: AgentMemory, user: str) -> None:
    def look() -> str:
        """Look at the pet."""
        return "a green bird"

    call = types.Part(function_call=types.FunctionCall(name="look", args={}))
    run(say(memory, Ask(user, "Look!"), call, types.Part(text="The pet is a green bird."), tools=[look]))
    service, other = MemosMemoryService(memory), MemosMemoryService(memory, share_apps=True)
    found = run(service.search_memory(app_name="app", user_id=user, query="green bird?")).memories
    [entry] = [each for each in found if each.author == "helper"]
    assert entry.content.parts[0].text == '<untrusted source="helper">The pet is a green bird.</untrusted>'
    assert (entry.author, entry.content.role, entry.custom_metadata["untrusted"]) == ("helper", "model", True)
    assert run(service.search_memory(app_name="another", user_id=user, query="green bird?")).memories == []
    assert run(other.search_memory(app_name="another", user_id=user, query="green bird?")).memories == found


def test_memories_can_be_added_and_deleted_one_by_one(memory: AgentMemory, user: str) -> None:
    service = MemosMemoryService(memory)
    entries = [
        MemoryEntry(content=said(FACT), author="user", timestamp="2025-03-01T10:00:00+00:00"),
        MemoryEntry(content=said("The parrot Hugo likes nuts."), author="vet", custom_metadata={"kind": "food"}),
    ]
    run(service.add_memory(app_name="app", user_id=user, memories=entries))
    found = {
        each.author: each for each in run(service.search_memory(app_name="app", user_id=user, query=QUESTION)).memories
    }
    assert found["user"].timestamp == "2025-03-01T10:00:00+00:00"
    assert set(found) == {"user", "vet"}
    run(service.delete_memory(app_name="app", user_id=user, memory_id=found["user"].id))
    left = run(service.search_memory(app_name="app", user_id=user, query=QUESTION)).memories
    assert [each.author for each in left] == ["vet"]
    with pytest.raises(NotFound):
        run(service.delete_memory(app_name="app", user_id=f"not {user}", memory_id=found["vet"].id))
