"""An agent of AutoGen remembers on Tuesday what it was told on Monday. Its model is scripted here: use your own."""

import asyncio
import tempfile
from collections.abc import Sequence
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_core.models import CreateResult, LLMMessage, RequestUsage
from autogen_ext.models.replay import ReplayChatCompletionClient

from memos import MemOS
from memos.integrations import AgentMemory
from memos.integrations.autogen import MemosMemory


class Scripted(ReplayChatCompletionClient):
    """Stands in for a language model: it knows what its prompt says."""

    async def create(self, messages: Sequence[LLMMessage], **_: Any) -> CreateResult:
        answer = "Your parrot is Hugo." if "Hugo" in str(messages) else "I do not know."
        return CreateResult(finish_reason="stop", content=answer, usage=RequestUsage(0, 0), cached=False)


async def ask(memory: AgentMemory, thread: str, text: str) -> str:
    own = MemosMemory(memory, user="ana", conversation=thread)
    agent = AssistantAgent("helper", model_client=Scripted([]), memory=[own])
    return (await agent.run(task=text)).messages[-1].content


with tempfile.TemporaryDirectory() as folder:
    for thread, text in (("monday", "My parrot is called Hugo."), ("tuesday", "What is my parrot called?")):
        with MemOS.open(folder) as memos, AgentMemory(memos, timeout_s=30) as memory:
            print(f"{thread}: {asyncio.run(ask(memory, thread, text))}")
