"""An agent of Pydantic AI remembers on Tuesday what it was told on Monday. Its model is scripted here: use your own."""

import asyncio
import tempfile
from dataclasses import dataclass

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from memos import MemOS
from memos.integrations import AgentMemory
from memos.integrations.pydantic_ai import MemosCapability


def scripted(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Stand in for a language model: it knows what its prompt says."""
    known = "Hugo" in f"{info.instructions} {messages}"
    return ModelResponse([TextPart("Your parrot is Hugo." if known else "I do not know.")])


@dataclass
class Deps:
    user_id: str


async def ask(memory: AgentMemory, thread: str, text: str) -> str:
    agent = Agent(FunctionModel(scripted), deps_type=Deps, capabilities=[MemosCapability(memory)])
    result = await agent.run(text, deps=Deps(user_id="ana"), conversation_id=thread)
    return result.output


with tempfile.TemporaryDirectory() as folder:
    for thread, text in (("monday", "My parrot is called Hugo."), ("tuesday", "What is my parrot called?")):
        with MemOS.open(folder) as memos, AgentMemory(memos, timeout_s=30) as memory:
            print(f"{thread}: {asyncio.run(ask(memory, thread, text))}")
