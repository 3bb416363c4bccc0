"""An agent of Strands remembers on Tuesday what it was told on Monday. Its model is scripted here: use your own."""

import tempfile
from collections.abc import AsyncIterable
from typing import Any

from strands import Agent
from strands.memory import MemoryManager
from strands.models import Model

from memos import MemOS
from memos.integrations import AgentMemory
from memos.integrations.strands import INJECTION, MemosMemoryStore


class Scripted(Model):
    """Stands in for a language model: it knows what its prompt says."""

    def update_config(self, **_: Any) -> None: ...

    def get_config(self) -> dict[str, Any]:
        return {}

    def structured_output(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    async def stream(self, messages: list[Any], *_: Any, **__: Any) -> AsyncIterable[Any]:
        yield {"messageStart": {"role": "assistant"}}
        answer = "Your parrot is Hugo." if "Hugo" in str(messages) else "I do not know."
        yield {"contentBlockDelta": {"delta": {"text": answer}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn"}}


def ask(memory: AgentMemory, thread: str, text: str) -> str:
    store = MemosMemoryStore(memory, user="ana", session=thread)
    manager = MemoryManager(stores=[store], injection=INJECTION)
    agent = Agent(model=Scripted(), memory_manager=manager, callback_handler=None)
    return str(agent(text)).strip()


with tempfile.TemporaryDirectory() as folder:
    for thread, text in (("monday", "My parrot is called Hugo."), ("tuesday", "What is my parrot called?")):
        with MemOS.open(folder) as memos, AgentMemory(memos, timeout_s=30) as memory:
            print(f"{thread}: {ask(memory, thread, text)}")
