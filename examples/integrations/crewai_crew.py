"""A crew of CrewAI remembers on Tuesday what it was told on Monday. Its model is scripted here: use your own."""

import os
import tempfile
from typing import Any

os.environ.setdefault("CREWAI_DISABLE_TELEMETRY", "true")

from crewai import Agent, Crew, Task
from crewai.llms.base_llm import BaseLLM

from memos import MemOS
from memos.integrations import AgentMemory
from memos.integrations.crewai import MemosMemory


class Scripted(BaseLLM):
    """Stands in for a language model: it knows what its prompt says."""

    def call(self, messages: Any, *_: Any, **__: Any) -> str:
        answer = "Your parrot is Hugo." if "Hugo" in str(messages) else "I do not know."
        return f"Thought: I now can give a great answer\nFinal Answer: {answer}"


def ask(memory: AgentMemory, text: str) -> str:
    agent = Agent(role="helper", goal="help", backstory="A helper.", llm=Scripted(model="scripted"))
    task = Task(description=text, expected_output="an answer", agent=agent)
    crew = Crew(agents=[agent], tasks=[task], memory=MemosMemory(memory, user="ana"))
    return crew.kickoff().raw


with tempfile.TemporaryDirectory() as folder:
    for day, text in (("monday", "My parrot is called Hugo."), ("tuesday", "What is my parrot called?")):
        with MemOS.open(folder) as memos, AgentMemory(memos, timeout_s=30) as memory:
            print(f"{day}: {ask(memory, text)}")
