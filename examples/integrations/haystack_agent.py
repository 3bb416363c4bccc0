"""An agent of Haystack remembers on Tuesday what it was told on Monday. Its model is scripted here: use your own."""

import tempfile
from typing import Any

from haystack import component
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage

from memos import MemOS
from memos.integrations import AgentMemory
from memos.integrations.haystack import memory_hooks


@component
class Scripted:
    """Stands in for a language model: it knows what its prompt says."""

    @component.output_types(replies=list[ChatMessage])
    def run(self, messages: list[ChatMessage], tools: Any = None) -> dict[str, Any]:
        known = any("Hugo" in (message.text or "") for message in messages)
        return {"replies": [ChatMessage.from_assistant("Your parrot is Hugo." if known else "I do not know.")]}


def ask(memory: AgentMemory, thread: str, text: str) -> str:
    agent = Agent(chat_generator=Scripted(), hooks=memory_hooks(memory))
    run = agent.run(messages=[ChatMessage.from_user(text)], hook_context={"user_id": "ana", "session_id": thread})
    return run["last_message"].text


with tempfile.TemporaryDirectory() as folder:
    for thread, text in (("monday", "My parrot is called Hugo."), ("tuesday", "What is my parrot called?")):
        with MemOS.open(folder) as memos, AgentMemory(memos, timeout_s=30) as memory:
            print(f"{thread}: {ask(memory, thread, text)}")
