"""Strands's agents with memory: the contract, and what only Strands has."""

from __future__ import annotations

from collections.abc import AsyncIterable
from typing import Any

from strands import Agent, tool
from strands.memory import AddMessagesContext, MemoryManager
from strands.models import Model

from memos.integrations import AgentMemory, Owner
from memos.integrations.strands import INJECTION, MemosMemoryStore
from tests.integrations.contract import FACT, Ask, Contract, Turn, run


class Scripted(Model):
    """Gives its answers in turn (a mapping is the call of a tool), and keeps what it was asked as text."""

    def __init__(self, *answers: str | dict[str, Any]) -> None:
        self._answers, self.asked = answers, []

    def update_config(self, **_: Any) -> None: ...

    def get_config(self) -> dict[str, Any]:
        return {}

    def structured_output(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    async def stream(self, messages: list[Any], *_: Any, system_prompt: Any = None, **__: Any) -> AsyncIterable[Any]:
        blocks = [block for message in messages for block in message["content"]]
        told = [block.get("text") or _text_of(block.get("toolResult", {})) for block in blocks]
        self.asked.append("\n".join([str(system_prompt), *told]))
        answer = self._answers[len(self.asked) - 1]
        yield {"messageStart": {"role": "assistant"}}
        if isinstance(answer, str):
            yield {"contentBlockDelta": {"delta": {"text": answer}}}
        else:
            yield {"contentBlockStart": {"start": {"toolUse": {"name": answer["name"], "toolUseId": "call-1"}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": answer["input"]}}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn" if isinstance(answer, str) else "tool_use"}}


def _text_of(result: dict[str, Any]) -> str:
    return "\n".join(str(part.get("text") or part.get("json")) for part in result.get("content", []))


class TestMemoryStore(Contract):
    def turn(self, memory: AgentMemory, ask: Ask) -> Turn:
        model = Scripted(ask.answer)
        store = MemosMemoryStore(memory, user=ask.user, session=ask.thread)
        manager = MemoryManager(stores=[store], injection=INJECTION)
        agent = Agent(model=model, memory_manager=manager, callback_handler=None)
        return Turn(model.asked[-1] if (answer := str(agent(ask.text))) else "", answer.strip())


class TestTools(Contract):
    """Agents that call tools themselves: the model's script calls one, and sees what it says."""

    def turn(self, memory: AgentMemory, ask: Ask) -> Turn:
        recalls = "?" in ask.text
        given = f'{{"query": "{ask.text}"}}' if recalls else f'{{"entries": ["{ask.text}"]}}'
        model = Scripted({"name": "search_memory" if recalls else "add_memory", "input": given}, ask.answer)
        store = MemosMemoryStore(memory, user=ask.user, session=ask.thread)
        store.extraction = None
        manager = MemoryManager(stores=[store], injection=False, add_tool_config=True)
        answer = str(Agent(model=model, memory_manager=manager, callback_handler=None)(ask.text))
        return Turn(model.asked[-1].replace("\\n", "\n").replace(ask.text, "", 1), answer.strip())


def test_an_answer_made_with_a_tool_is_not_trusted_and_a_batch_sent_again_is_known(
    memory: AgentMemory, user: str
) -> None:
    @tool
    def look() -> str:
        """Look at the pet."""
        return "a green bird"

    store = MemosMemoryStore(memory, user=user)
    model = Scripted({"name": "look", "input": "{}"}, "It is a green bird.")
    Agent(model=model, tools=[look], memory_manager=MemoryManager(stores=[store]), callback_handler=None)("Look!")
    found = {hit.item.memory: hit for hit in memory.recall("the green bird", Owner(user)).hits}
    assert set(found) == {"Look!", "It is a green bird."}
    assert [str(source.trust) for source in found["It is a green bird."].sources] == ["untrusted"]
    batch: Any = [{"role": "user", "content": [{"text": text}]} for text in ("ok", "ok", FACT)]
    for _ in range(2):
        run(store.add_messages(batch, AddMessagesContext(sequence_numbers=[7, 8, 9])))
    items = memory.call("memories.list", owner=Owner(user))
    assert sorted(item.memory for item in items) == sorted(["Look!", "It is a green bird.", "ok", "ok", FACT])


def test_a_store_that_is_not_writable_is_told_nothing(memory: AgentMemory, user: str) -> None:
    store = MemosMemoryStore(memory, user=user, writable=False)
    Agent(model=Scripted("I see."), memory_manager=MemoryManager(stores=[store]), callback_handler=None)(FACT)
    assert memory.call("memories.list", owner=Owner(user), fallback=[]) == []
