"""LangChain's agents with memory: the contract, and what only LangChain has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver

from memos.integrations import AgentMemory, Owner
from memos.integrations.langchain import MemosChatMessageHistory, MemosMiddleware, MemosRetriever, memory_tools
from tests.integrations.contract import FACT, QUESTION, Ask, Contract, Turn, run, stored


class Scripted(BaseChatModel):
    """Gives its answers in turn, and keeps what it was asked."""

    answers: list[AIMessage]
    asked: list[list[BaseMessage]]

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        self.asked.append(messages)
        return ChatResult(generations=[ChatGeneration(message=self.answers[len(self.asked) - 1])])

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> Scripted:
        return self

    @property
    def prompt(self) -> str:
        return "\n".join(message.text for message in self.asked[-1])


def scripted(*answers: AIMessage | str) -> Scripted:
    return Scripted(answers=[AIMessage(each) if isinstance(each, str) else each for each in answers], asked=[])


def config(ask: Ask) -> Any:
    return {"configurable": {"thread_id": ask.thread, "user_id": ask.user}}


class TestLangChain(Contract):
    def turn(self, memory: AgentMemory, ask: Ask) -> Turn:
        model = scripted(ask.answer)
        agent = create_agent(model, system_prompt="Be brief.", middleware=[MemosMiddleware(memory)])
        done = agent.invoke({"messages": [HumanMessage(ask.text, id=ask.turn)]}, config(ask))
        return Turn(model.prompt, done["messages"][-1].text)


class TestLangChainAsync(Contract):
    def turn(self, memory: AgentMemory, ask: Ask) -> Turn:
        model = scripted(ask.answer)
        agent = create_agent(model, middleware=[MemosMiddleware(memory)])
        asked = {"messages": [HumanMessage(ask.text, id=ask.turn)]}
        done = run(agent.ainvoke(asked, config(ask)))
        return Turn(model.prompt, done["messages"][-1].text)


class TestTools(Contract):
    """Agents that call tools themselves: the model's script calls one, and sees what it says."""

    def turn(self, memory: AgentMemory, ask: Ask) -> Turn:
        tool, argument = ("recall_memories", "question") if "?" in ask.text else ("remember_fact", "fact")
        call = {"name": tool, "args": {argument: ask.text}, "id": ask.turn}
        model = scripted(AIMessage("", tool_calls=[call]), ask.answer)
        agent = create_agent(model, memory_tools(memory))
        done = agent.invoke({"messages": [ask.text]}, config(ask))
        return Turn(model.prompt.replace(ask.text, "", 1), done["messages"][-1].text)


def test_what_was_recalled_stands_in_each_prompt_of_a_turn_and_in_no_checkpoint(memory: AgentMemory, user: str) -> None:
    memory.remember([{"role": "user", "content": FACT}], Owner(user, "before"))
    call = {"name": "recall_memories", "args": {"question": QUESTION}, "id": "call-1"}
    model, saver = scripted(AIMessage("", tool_calls=[call]), "Hugo.", "Yes."), InMemorySaver()
    agent = create_agent(model, memory_tools(memory), middleware=[MemosMiddleware(memory)], checkpointer=saver)
    ask = config(Ask(user, QUESTION))
    agent.invoke({"messages": [QUESTION]}, ask)
    assert [sum(FACT in each.text for each in asked if each.type == "system") for asked in model.asked] == [1, 1]
    saved = [str(each.checkpoint["channel_values"].get("memos_recalled")) for each in saver.list(ask)]
    assert saved
    assert not any("Hugo" in each for each in saved)
    # In the second turn the first is in the prompt already, and its answer was made with what a tool said.
    agent.invoke({"messages": ["Are you sure about my parrot?"]}, ask)
    [system, *_] = model.asked[-1]
    assert f"user: {QUESTION}" not in system.text
    [answer] = [hit for hit in memory.recall("Hugo.", Owner(user)).hits if hit.item.memory == "Hugo."]
    assert [str(source.trust) for source in answer.sources] == ["untrusted"]


def test_the_user_may_stand_in_the_runtime_context_and_a_missing_one_is_told(
    memory: AgentMemory, user: str, caplog: pytest.LogCaptureFixture
) -> None:
    agent = create_agent(scripted("a", "b"), middleware=[MemosMiddleware(memory)])
    agent.invoke({"messages": [FACT]}, context={"user_id": user})
    assert memory.recall(QUESTION, Owner(user)).hits
    assert memory.failures == 0
    agent.invoke({"messages": [FACT]})
    assert memory.failures == 2
    assert "name the user" in caplog.text


@pytest.mark.parametrize("asynchronous", [False, True])
def test_the_retriever_returns_documents_of_the_user_of_its_configuration(
    memory: AgentMemory, user: str, asynchronous: bool
) -> None:
    memory.remember([{"role": "user", "content": FACT}], Owner(user, "before"))
    memory.remember([{"role": "user", "content": "My parrot is evil.", "trust": "untrusted"}], Owner(user, "page"))
    retriever, ask = MemosRetriever(memory=memory), config(Ask(user, QUESTION))
    found = run(retriever.ainvoke(QUESTION, ask)) if asynchronous else retriever.invoke(QUESTION, ask)
    first, second = sorted(found, key=lambda each: each.metadata["untrusted"])
    assert (first.page_content, first.metadata["speaker"]) == (FACT, "user")
    assert second.page_content == '<untrusted source="user">My parrot is evil.</untrusted>'
    assert MemosRetriever(memory=memory, owner=Owner("somebody else")).invoke(QUESTION, ask) == []


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_chat_history_keeps_messages_exactly_and_remembers_what_was_said(
    memory: AgentMemory, user: str, asynchronous: bool
) -> None:
    call = {"name": "look", "args": {"n": 1}, "id": "call-1", "type": "tool_call"}
    messages = [
        HumanMessage([{"type": "text", "text": FACT}], id="m1"),
        AIMessage("", tool_calls=[call], response_metadata={"tokens": 3}),
        ToolMessage("a green bird", tool_call_id="call-1", artifact={"raw": [1, 2]}),
        AIMessage("Hugo is green."),
    ]
    history, again = (MemosChatMessageHistory(memory, "s", user=user) for _ in range(2))
    if asynchronous:
        run(history.aadd_messages(messages[:1]))
        run(history.aadd_messages(messages[1:]))
        assert run(again.aget_messages()) == messages
    else:
        history.add_messages(messages[:1])
        history.add_messages(messages[1:])
        assert again.messages == messages
    assert stored(memory, user) == [(FACT, "trusted"), ("Hugo is green.", "untrusted")]
    run(history.aclear()) if asynchronous else history.clear()
    assert again.messages == []
    assert memory.failures == 0
