"""CrewAI's crews with memory: the contract, and what only CrewAI has."""

from __future__ import annotations

from typing import Any

import pytest
from crewai import Agent, Crew, Task
from crewai.llms.base_llm import BaseLLM
from pydantic import PrivateAttr

from memos.errors import BackendUnavailable
from memos.integrations import AgentMemory, Owner
from memos.integrations.crewai import MemosMemory
from tests.integrations.contract import FACT, QUESTION, Ask, Contract, Turn, run, stored


class Scripted(BaseLLM):
    """Gives its answers in turn, and keeps what it was asked as text."""

    _answers: list[str] = PrivateAttr()
    _asked: list[str] = PrivateAttr(default_factory=list)

    def __init__(self, *answers: str) -> None:
        super().__init__(model="scripted")
        self._answers = list(answers)

    def call(self, messages: Any, *_: Any, **__: Any) -> str:
        told = messages if isinstance(messages, str) else "\n".join(str(each["content"]) for each in messages)
        self._asked.append(told)
        return f"Thought: I now can give a great answer\nFinal Answer: {self._answers[len(self._asked) - 1]}"

    def supports_stop_words(self) -> bool:
        return False

    @property
    def asked(self) -> list[str]:
        return self._asked


def kickoff(memory: MemosMemory, text: str, answer: str) -> Turn:
    llm = Scripted(answer)
    agent = Agent(role="helper", goal="help", backstory="A helper.", llm=llm)
    task = Task(description=text, expected_output="an answer", agent=agent)
    done = Crew(agents=[agent], tasks=[task], memory=memory).kickoff()
    return Turn(llm.asked[-1].replace(text, "", 1), done.raw)


class TestCrew(Contract):
    def turn(self, memory: AgentMemory, ask: Ask) -> Turn:
        return kickoff(MemosMemory(memory, user=ask.user), ask.text, ask.answer)


def test_what_a_task_leaves_is_not_trusted_and_what_is_remembered_on_purpose_is(memory: AgentMemory, user: str) -> None:
    crew = MemosMemory(memory, user=user)
    kickoff(crew, "Look at the pet.", "It is a green bird.")
    record = crew.remember(FACT)
    [(report, trust), said] = stored(memory, user)
    assert "It is a green bird." in report
    assert (trust, said) == ("untrusted", (FACT, "trusted"))
    assert record is not None
    [first, *_] = crew.recall(QUESTION, limit=1)
    assert (first.record.id, first.record.content.endswith(f"user: {FACT}")) == (record.id, True)
    assert '<untrusted source="helper">' in crew.recall("green bird?", limit=1)[0].record.content


def test_scopes_categories_and_private_records(memory: AgentMemory, user: str) -> None:
    crew = MemosMemory(memory, user=user)
    crew.remember("Ana likes tea.", scope="/team/ana", categories=["food"], metadata={"by": "x"}, importance=0.9)
    crew.remember_many(["Ben likes coffee.", "Ben hates tea."], scope="/team/ben", categories=["food", "taste"])
    crew.remember("Ana's secret tea.", scope="/team/ana", source="ana", private=True)
    assert [match.record.scope for match in crew.recall("Who likes tea?", scope="/team/ana")] == ["/team/ana"]
    assert {match.record.scope for match in crew.recall("tea?", scope="/team")} == {"/team/ana", "/team/ben"}
    assert crew.recall("tea?", scope="/te") == []
    assert len(crew.recall("tea?", categories=["taste"])) == 2
    assert len(crew.recall("tea?", scope="/team/ana", source="ana")) == 2
    assert len(crew.recall("tea?", scope="/team/ana", include_private=True)) == 2
    assert crew.list_scopes() == ["/team"]
    assert crew.list_scopes("/team") == ["/team/ana", "/team/ben"]
    assert crew.list_categories() == {"food": 3, "taste": 2}
    info = crew.info("/team")
    assert (info.record_count, info.child_scopes) == (4, ["/team/ana", "/team/ben"])
    assert "/team/ben (2 records)" in crew.tree()
    view = crew.scope("/team/ben")
    assert {match.record.content.partition(": ")[2] for match in view.recall("tea?")} == {
        "Ben likes coffee.",
        "Ben hates tea.",
    }
    [newest, *_] = crew.list_records("/team/ana")
    changed = crew.update(newest.id, content="Ana's secret is mint tea.", importance=0.1)
    assert crew.list_records("/team/ana")[0].content == changed.content == "Ana's secret is mint tea."
    assert (changed.importance, changed.private, changed.source) == (0.1, True, "ana")
    assert crew.forget(categories=["taste"]) == 2
    assert crew.forget(record_ids=[newest.id]) == 1
    assert [(record.metadata, record.importance) for record in crew.list_records()] == [({"by": "x"}, 0.9)]
    crew.reset()
    assert crew.list_records() == []
    assert memory.failures == 0


def test_a_root_scope_keeps_crews_apart_and_read_only_ones_store_nothing(memory: AgentMemory, user: str) -> None:
    one, other = (MemosMemory(memory, user=user, root_scope=root) for root in ("/crew/one", "/crew/other"))
    one.remember(FACT, scope="/pets")
    assert [match.record.scope for match in one.recall(QUESTION)] == ["/crew/one/pets"]
    assert other.recall(QUESTION) == []
    reader = MemosMemory(memory, user=user, read_only=True)
    kickoff(reader, "Say something.", "Something.")
    assert reader.remember("Nothing.") is None
    assert len(stored(memory, user)) == 1


def test_coroutines_do_the_same(memory: AgentMemory, user: str) -> None:
    crew = MemosMemory(memory, user=user)
    record = run(crew.aremember(FACT, scope="/pets"))
    assert run(crew.aextract_memories(FACT)) == [FACT]
    assert [match.record.id for match in run(crew.arecall(QUESTION, scope="/pets"))] == [record.id]
    assert memory.recall(QUESTION, Owner(user)).hits


def test_without_memory_deleting_is_refused(away: AgentMemory) -> None:
    with pytest.raises(BackendUnavailable):
        MemosMemory(away, user="ana").forget(scope="/team")
