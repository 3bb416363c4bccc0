"""An agent of AG2 remembers on Tuesday what it was told on Monday. Its model is scripted here: use your own."""

import asyncio
import tempfile
from typing import Any

from ag2 import Agent
from ag2.testing import TestClient, TestConfig

from memos import MemOS
from memos.integrations import AgentMemory
from memos.integrations.ag2 import MemosPlugin


class Scripted(TestConfig):
    """Stands in for a language model: it knows what its prompt says."""

    def create(self) -> Any:

        async def answer(messages: Any, context: Any, **options: Any) -> Any:
            known = "Hugo" in f"{context.prompt} {messages}"
            client = TestClient("Your parrot is Hugo." if known else "I do not know.")
            return await client(messages, context, **options)

        return answer


async def ask(memory: AgentMemory, text: str) -> str:
    agent = Agent("helper", config=Scripted(), plugins=[MemosPlugin(memory)])
    reply = await agent.ask(text, variables={"user_id": "ana"})
    return reply.body


with tempfile.TemporaryDirectory() as folder:
    for day, text in (("monday", "My parrot is called Hugo."), ("tuesday", "What is my parrot called?")):
        with MemOS.open(folder) as memos, AgentMemory(memos, timeout_s=30) as memory:
            print(f"{day}: {asyncio.run(ask(memory, text))}")
