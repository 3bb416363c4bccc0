"""AutoGen's agents with memory: the contract, and what only AutoGen has."""

from __future__ import annotations

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import MemoryQueryEvent
from autogen_core.memory import MemoryContent, MemoryMimeType
from autogen_ext.models.replay import ReplayChatCompletionClient

from memos.integrations import AgentMemory, Owner
from memos.integrations.autogen import MemosMemory
from tests.integrations.contract import FACT, QUESTION, Ask, Contract, Turn, run


async def say(memory: MemosMemory, *texts: str, answer: str = "I see.") -> tuple[str, str, list[object]]:
    client = ReplayChatCompletionClient([answer] * len(texts))
    agent = AssistantAgent("helper", model_client=client, memory=[memory])
    events: list[object] = []
    for text in texts:
        done = await agent.run(task=text)
        events += done.messages
    prompt = "\n".join(str(message.content) for message in client.create_calls[-1]["messages"])
    return prompt, done.messages[-1].content, events


class TestMemory(Contract):
    def turn(self, memory: AgentMemory, ask: Ask) -> Turn:
        own = MemosMemory(memory, user=ask.user, conversation=ask.thread)
        prompt, answer, _ = run(say(own, ask.text, answer=ask.answer))
        return Turn(prompt, answer)


def test_what_a_context_shows_already_is_not_shown_again_and_answers_are_stored_with_the_next_turn(
    memory: AgentMemory, user: str
) -> None:
    memory.remember([{"role": "user", "content": FACT}], Owner(user, "before"))
    own = MemosMemory(memory, user=user, conversation="now")
    prompt, _, events = run(say(own, QUESTION, "Is my parrot called Hugo?", answer="I see."))
    assert prompt.count(FACT) == 1
    assert sum(isinstance(event, MemoryQueryEvent) for event in events) == 1
    said = [item.memory for item in memory.call("memories.list", owner=Owner(user), filter={"conversation": "now"})]
    assert said == [QUESTION, "I see.", "Is my parrot called Hugo?"]


def test_memories_can_be_added_queried_and_cleared(memory: AgentMemory, user: str) -> None:
    memory.remember([{"role": "user", "content": "My parrot is evil.", "trust": "untrusted"}], Owner(user, "page"))
    own = MemosMemory(memory, user=user, conversation="now")
    run(own.add(MemoryContent(content=FACT, mime_type=MemoryMimeType.TEXT, metadata={"kind": "pet"})))
    found = {each.metadata["untrusted"]: each.content for each in run(own.query(QUESTION)).results}
    assert found[False].endswith(f"user: {FACT}")
    assert found[True].endswith('<untrusted source="user">My parrot is evil.</untrusted>')
    run(own.clear())
    assert [each.metadata["untrusted"] for each in run(own.query(QUESTION)).results] == [True]
    with pytest.raises(TypeError, match="Only text"):
        run(own.add(MemoryContent(content=b"png", mime_type=MemoryMimeType.BINARY)))
