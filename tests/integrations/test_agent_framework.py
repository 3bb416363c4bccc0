"""Microsoft Agent Framework's agents with memory: the contract, and what only this framework has."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

from agent_framework import (
    Agent,
    AgentSession,
    BaseChatClient,
    ChatResponse,
    Content,
    FunctionInvocationLayer,
    InMemoryHistoryProvider,
    Message,
)

from memos.integrations import AgentMemory
from memos.integrations.agent_framework import MemosContextProvider, MemosHistoryProvider
from tests.integrations.contract import FACT, QUESTION, Ask, Contract, Turn, run, stored


class Scripted(FunctionInvocationLayer, BaseChatClient):
    """Gives its answers in turn, and keeps what it was asked as text."""

    def __init__(self, *answers: str | Content) -> None:
        super().__init__()
        self._answers, self.asked = answers, []

    def _inner_get_response(
        self, *, messages: Sequence[Message], stream: bool, options: Mapping[str, Any], **_: Any
    ) -> Awaitable[ChatResponse]:
        async def told() -> ChatResponse:
            self.asked.append("\n".join([str(options.get("instructions")), *(message.text for message in messages)]))
            answer = self._answers[len(self.asked) - 1]
            return ChatResponse(messages=[Message("assistant", [answer])])

        return told()


class TestContextProvider(Contract):
    def turn(self, memory: AgentMemory, ask: Ask) -> Turn:
        client = Scripted(ask.answer)
        agent = Agent(client, "Be brief.", context_providers=[MemosContextProvider(memory)])
        session = AgentSession(session_id=ask.thread)
        session.state["user_id"] = ask.user
        return Turn(client.asked[-1] if (done := run(agent.run(ask.text, session=session))) else "", done.text)


def test_an_answer_made_with_a_tool_is_not_trusted_and_a_session_has_turns(memory: AgentMemory, user: str) -> None:
    def look() -> str:
        """Look at the pet."""
        return "a green bird"

    call = Content.from_function_call("call-1", "look", arguments={})
    client = Scripted(call, "It is a green bird.", "ok", "ok")
    agent = Agent(
        client, tools=[look], context_providers=[InMemoryHistoryProvider(), MemosContextProvider(memory, user=user)]
    )
    session = AgentSession()
    for text in ("Look!", "ok", "ok"):
        run(agent.run(text, session=session))
    said = [("Look!", "trusted"), ("It is a green bird.", "untrusted"), *[("ok", "trusted")] * 4]
    assert stored(memory, user) == said
    assert AgentSession.from_dict(session.to_dict()).state["memos"] == {"turns": 3}


def test_what_the_history_says_already_is_not_recalled(memory: AgentMemory, user: str) -> None:
    client = Scripted("I see.", "Hugo.")
    agent = Agent(client, context_providers=[InMemoryHistoryProvider(), MemosContextProvider(memory, user=user)])
    session = AgentSession()
    run(agent.run(FACT, session=session))
    run(agent.run(QUESTION, session=session))
    assert client.asked[-1].count(FACT) == 1


def test_a_history_is_there_in_the_next_process_and_is_not_recalled(memory: AgentMemory, user: str) -> None:
    def look() -> str:
        """Look at the pet."""
        return "a green bird"

    client = Scripted(Content.from_function_call("call-1", "look", arguments={}), "It is green.", "Hugo.")
    for text in (FACT, QUESTION):
        providers = [MemosHistoryProvider(memory, user=user), MemosContextProvider(memory, user=user)]
        agent = Agent(client, tools=[look], context_providers=providers)
        run(agent.run(text, session=AgentSession(session_id="s")))
    assert client.asked[-1].count(FACT) == 1
    [_, call, result, *_] = run(providers[0].get_messages("s"))
    assert (call.contents[0].type, result.contents[0].result) == ("function_call", "a green bird")
