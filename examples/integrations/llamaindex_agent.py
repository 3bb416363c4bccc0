"""An agent of LlamaIndex remembers on Tuesday what it was told on Monday. Its model is scripted here: use your own."""

import asyncio
import tempfile
from typing import Any

from llama_index.core.agent.workflow import ReActAgent
from llama_index.core.llms import ChatMessage, CompletionResponse, CustomLLM, LLMMetadata
from llama_index.core.memory import InsertMethod

from memos import MemOS
from memos.integrations import AgentMemory
from memos.integrations.llamaindex import MemosMemory


class Scripted(CustomLLM):
    """Stands in for a language model: it knows what its prompt says."""

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata()

    def complete(self, prompt: str, formatted: bool = False, **_: Any) -> CompletionResponse:
        answer = "Your parrot is Hugo." if "Hugo" in prompt else "I do not know."
        return CompletionResponse(text=f"Thought: I can answer without using any more tools.\nAnswer: {answer}")

    def stream_complete(self, prompt: str, formatted: bool = False, **_: Any) -> Any:
        yield self.complete(prompt)


async def ask(memory: AgentMemory, thread: str, text: str) -> str:
    agent = ReActAgent(llm=Scripted(), streaming=False)
    # ReActAgent drops system messages; others need no insert_method.
    chat = MemosMemory.over(memory, user="ana", session_id=thread, insert_method=InsertMethod.USER)
    return str(await agent.run(ChatMessage(text), memory=chat))


with tempfile.TemporaryDirectory() as folder:
    for thread, text in (("monday", "My parrot is called Hugo."), ("tuesday", "What is my parrot called?")):
        with MemOS.open(folder) as memos, AgentMemory(memos, timeout_s=30) as memory:
            print(f"{thread}: {asyncio.run(ask(memory, thread, text))}")
