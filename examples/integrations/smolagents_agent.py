"""An agent of smolagents remembers on Tuesday what it was told on Monday. Its model is scripted here: use your own."""

import tempfile
from typing import Any

from smolagents import Model, ToolCallingAgent
from smolagents.models import ChatMessage, ChatMessageToolCall, ChatMessageToolCallFunction, MessageRole

from memos import MemOS
from memos.integrations import AgentMemory, Owner
from memos.integrations.smolagents import run_with_memory


class Scripted(Model):
    """Stands in for a language model: it knows what its prompt says."""

    def generate(self, messages: list[Any], **_: Any) -> ChatMessage:
        answer = "Your parrot is Hugo." if "Hugo" in str(messages) else "I do not know."
        function = ChatMessageToolCallFunction({"answer": answer}, "final_answer")
        return ChatMessage(MessageRole.ASSISTANT, tool_calls=[ChatMessageToolCall(function, "call-1", "function")])


def ask(memory: AgentMemory, thread: str, text: str) -> str:
    agent = ToolCallingAgent(tools=[], model=Scripted(), verbosity_level=0)
    return run_with_memory(agent, text, memory, Owner("ana", thread))


with tempfile.TemporaryDirectory() as folder:
    for thread, text in (("monday", "My parrot is called Hugo."), ("tuesday", "What is my parrot called?")):
        with MemOS.open(folder) as memos, AgentMemory(memos, timeout_s=30) as memory:
            print(f"{thread}: {ask(memory, thread, text)}")
