"""An agent of the Claude Agent SDK remembers on Tuesday what it was told on Monday. It needs ANTHROPIC_API_KEY."""

import asyncio
import tempfile

from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query

from memos import MemOS
from memos.integrations import AgentMemory, Owner
from memos.integrations.claude_agent import with_memory


async def ask(memory: AgentMemory, thread: str, text: str) -> str:
    options = with_memory(ClaudeAgentOptions(setting_sources=[]), memory, Owner("ana", thread))
    answer = ""
    async for message in query(prompt=text, options=options):
        if isinstance(message, ResultMessage):
            answer = message.result or ""
    return answer


with tempfile.TemporaryDirectory() as folder:
    for thread, text in (("monday", "My parrot is called Hugo."), ("tuesday", "What is my parrot called?")):
        with MemOS.open(folder) as memos, AgentMemory(memos, timeout_s=30) as memory:
            print(f"{thread}: {asyncio.run(ask(memory, thread, text))}")
