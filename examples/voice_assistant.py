"""A voice assistant that may wait 300 ms for memory: what is not there by then, it answers without.

`AgentMemory` keeps the budget for any agent: recall before the model is asked, remember while it speaks.
"""

import asyncio
import os
import tempfile

from memos import MemOS
from memos.integrations import AgentMemory, Owner

BUDGET_S = float(os.environ.get("VOICE_BUDGET_S", "0.3"))


async def speak(heard: str, remembered: str) -> None:
    """Answer aloud. Put your own model and its voice here."""
    known = [line for line in remembered.splitlines() if line.startswith("[")]
    print(f"heard: {heard}", *known, sep="\n    ")


async def turn(memory: AgentMemory, heard: str) -> None:
    """Answer what was heard, and store it while the answer is spoken."""
    owner = Owner(user="maya", conversation="kitchen")
    recalled = await memory.arecall(heard, owner)
    if recalled.failure is not None:
        print(f"memory was late ({recalled.failure.operation}), the assistant goes on")
    said = {"role": "user", "content": heard}
    await asyncio.gather(speak(heard, recalled.text), memory.aremember([said], owner))


async def main(folder: str) -> None:
    with MemOS.open(folder) as memos:
        async with AgentMemory(memos, timeout_s=BUDGET_S, top_k=3) as memory:
            for heard in (
                "I drink my coffee black.",
                "My sister Noor lives in Bergen.",
                "I take my coffee with oat milk now.",
                "Please make my coffee.",
                "Where does Noor live?",
            ):
                await turn(memory, heard)
        # As if the disk hung: the assistant goes on without its memory instead of keeping somebody waiting.
        async with AgentMemory(memos, timeout_s=1e-9) as memory:
            await turn(memory, "And what did I want to drink?")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(folder))
