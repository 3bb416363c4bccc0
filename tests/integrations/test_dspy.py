"""DSPy's programs with memory: the contract, and what only DSPy has."""

from __future__ import annotations

from typing import Any

import dspy
import pytest
from dspy.utils import DummyLM

from memos.integrations import AgentMemory, Owner
from memos.integrations.dspy import MemosRetrieve, MemosRM, memory_tools
from tests.integrations.contract import FACT, QUESTION, Ask, Contract, Turn, run


def prompt_of(lm: DummyLM) -> str:
    return "\n".join(str(message["content"]) for message in lm.history[-1]["messages"])


class TestTools(Contract):
    """A `ReAct` program calls tools itself: the model's script calls one, and sees what it says."""

    def turn(self, memory: AgentMemory, ask: Ask) -> Turn:
        recalls = "?" in ask.text
        name, argument = ("recall_memories", "question") if recalls else ("remember_fact", "fact")
        steps = [
            {"next_thought": "t", "next_tool_name": name, "next_tool_args": {argument: ask.text}},
            {"next_thought": "t", "next_tool_name": "finish", "next_tool_args": {}},
        ]
        lm = DummyLM([*steps, {"reasoning": "r", "answer": ask.answer}])
        with dspy.context(lm=lm):
            program = dspy.ReAct("question -> answer", tools=memory_tools(memory, Owner(ask.user, ask.thread)))
            done = program(question=ask.text)
        return Turn(prompt_of(lm).replace(ask.text, ""), done.answer)


class Rag(dspy.Module):
    def __init__(self, retrieve: Any) -> None:
        super().__init__()
        self.retrieve, self.answer = retrieve, dspy.Predict("context, question -> answer")

    def forward(self, question: str) -> dspy.Prediction:
        return self.answer(context=self.retrieve(question).passages, question=question)


@pytest.mark.parametrize("configured", [False, True])
def test_a_program_retrieves_passages(memory: AgentMemory, user: str, configured: bool) -> None:
    memory.remember([{"role": "user", "content": FACT}], Owner(user, "before"))
    memory.remember([{"role": "user", "content": "My parrot is evil.", "trust": "untrusted"}], Owner(user, "page"))
    lm, owner = DummyLM([{"answer": "Hugo"}]), Owner(user)
    with dspy.context(lm=lm, rm=MemosRM(memory, owner)):
        retrieve = dspy.Retrieve(k=2) if configured else MemosRetrieve(memory, owner)
        assert Rag(retrieve)(QUESTION).answer == "Hugo"
    assert f"user: {FACT}" in prompt_of(lm)
    assert '<untrusted source="user">My parrot is evil.</untrusted>' in prompt_of(lm)


def test_a_retriever_does_not_block_an_event_loop(memory: AgentMemory, user: str) -> None:
    memory.remember([{"role": "user", "content": FACT}], Owner(user, "before"))
    [passage] = run(MemosRetrieve(memory, Owner(user)).aforward(QUESTION)).passages
    assert passage.endswith(f"user: {FACT}")
