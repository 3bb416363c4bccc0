"""AG2's agents with memory: the contract, and what only AG2 has."""

from __future__ import annotations

from uuid import NAMESPACE_URL, uuid5

from ag2 import Agent
from ag2.events import ToolCallEvent
from ag2.stream import MemoryStream
from ag2.testing import TestConfig, TrackingConfig

from memos.integrations import AgentMemory
from memos.integrations.ag2 import MemosPlugin
from tests.integrations.contract import Ask, Contract, Turn, run, stored


class TestPlugin(Contract):
    def turn(self, memory: AgentMemory, ask: Ask) -> Turn:
        config = TrackingConfig(TestConfig(ask.answer))
        agent = Agent("helper", "Be brief.", config=config, plugins=[MemosPlugin(memory)])
        stream = MemoryStream(id=uuid5(NAMESPACE_URL, ask.thread))
        reply = run(agent.ask(ask.text, stream=stream, variables={"user_id": ask.user}))
        return Turn("\n".join(config.calls[-1].prompt), reply.body)


class TestTools(Contract):
    """Agents that call tools themselves: the model's script calls one, and sees what it says."""

    def turn(self, memory: AgentMemory, ask: Ask) -> Turn:
        recalls = "?" in ask.text
        name, argument = ("recall_memories", "question") if recalls else ("remember_fact", "fact")
        call = ToolCallEvent(id=ask.turn, name=name, arguments=f'{{"{argument}": "{ask.text}"}}')
        config = TrackingConfig(TestConfig(call, ask.answer))
        agent = Agent("helper", config=config, plugins=[MemosPlugin(memory, remember=False, tools=True)])
        stream = MemoryStream(id=uuid5(NAMESPACE_URL, ask.thread))
        reply = run(agent.ask(ask.text, stream=stream, variables={"user_id": ask.user}))
        results = config.mock.call_args.args[0].results
        return Turn("\n".join(part.content for each in results for part in each.result.parts), reply.body)


def test_an_answer_made_with_a_tool_is_not_trusted_and_a_stream_has_turns(memory: AgentMemory, user: str) -> None:
    async def talk() -> None:
        agent = Agent("helper", config=TestConfig(ToolCallEvent(name="look", arguments="{}"), "A green bird."))
        agent.add_tool(look)
        reply = await agent.ask("Look!", plugins=[MemosPlugin(memory, user=user)])
        for _ in range(2):
            reply = await reply.ask("ok", config=TestConfig("ok"), plugins=[MemosPlugin(memory, user=user)])

    def look() -> str:
        return "a green bird"

    run(talk())
    said = [("Look!", "trusted"), ("A green bird.", "untrusted"), *[("ok", "trusted")] * 4]
    assert stored(memory, user) == said
