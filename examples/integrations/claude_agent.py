"""An agent of the Claude Agent SDK that remembers. Needs the extra `claude-agent` and ANTHROPIC_API_KEY."""

import asyncio
import tempfile

from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query

from memos import MemOS
from memos.integrations import AgentMemory, Owner
from memos.integrations.claude_agent import with_memory


async def ask(memory: AgentMemory, prompt: str) -> str:
    """Ask in a session of its own; return the answer."""
    options = with_memory(ClaudeAgentOptions(setting_sources=[]), memory, Owner(user="ana"))
    answer = ""
    async for message in query(prompt=prompt, options=options):
        if isinstance(message, ResultMessage):
            answer = message.result or ""
    return answer


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder, MemOS.open(folder) as memos, AgentMemory(memos) as memory:
        for prompt in ("My parrot is called Hugo.", "What is my parrot called?"):
            print(f"> {prompt}\n{await ask(memory, prompt)}")
        if memory.last_failure is not None:
            print(f"Memory was away: {memory.last_failure}")


asyncio.run(main())
