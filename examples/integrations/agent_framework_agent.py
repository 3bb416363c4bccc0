"""An agent of Microsoft Agent Framework remembers on Tuesday what it was told on Monday. Its model is scripted here."""

import asyncio
import tempfile
from collections.abc import Awaitable
from typing import Any

from agent_framework import (
    Agent,
    AgentSession,
    BaseChatClient,
    ChatResponse,
    FunctionInvocationLayer,
    InMemoryHistoryProvider,
    Message,
)

from memos import MemOS
from memos.integrations import AgentMemory
from memos.integrations.agent_framework import MemosContextProvider


class Scripted(FunctionInvocationLayer, BaseChatClient):
    """Stands in for a language model: it knows what its prompt says."""

    def _inner_get_response(self, *, messages: Any, options: Any, **_: Any) -> Awaitable[ChatResponse]:
        async def answer() -> ChatResponse:
            known = any("Hugo" in message.text for message in messages) or "Hugo" in str(options)
            return ChatResponse(
                messages=[Message("assistant", ["Your parrot is Hugo." if known else "I do not know."])]
            )

        return answer()


async def ask(memory: AgentMemory, thread: str, text: str) -> str:
    providers = [InMemoryHistoryProvider(), MemosContextProvider(memory, user="ana")]
    agent = Agent(Scripted(), context_providers=providers)
    return (await agent.run(text, session=AgentSession(session_id=thread))).text


with tempfile.TemporaryDirectory() as folder:
    for thread, text in (("monday", "My parrot is called Hugo."), ("tuesday", "What is my parrot called?")):
        with MemOS.open(folder) as memos, AgentMemory(memos, timeout_s=30) as memory:
            print(f"{thread}: {asyncio.run(ask(memory, thread, text))}")
