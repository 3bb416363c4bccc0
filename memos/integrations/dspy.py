"""DSPy: a retriever, a retrieval model for `dspy.settings`, and tools for `ReAct`.

Whose memory it is: the `Owner` given to each.
"""

from __future__ import annotations

from typing import Any

from memos.core.text.rendering import hit_line
from memos.integrations.memory import RECALL_TOOL, REMEMBER_TOOL, AgentMemory, Owner, missing_extra

try:
    import dspy
except ImportError as error:
    raise missing_extra("dspy", "dspy", error) from error

__all__ = ["MemosRM", "MemosRetrieve", "memory_tools"]


class MemosRetrieve(dspy.Retrieve):
    """Returns memories as passages, the best first: dated, and fenced if they are not trusted.

    Args:
        memory: The memory.
        owner: Whose memory it is.
        k: The most passages.
    """

    def __init__(self, memory: AgentMemory, owner: Owner, k: int = 5) -> None:
        super().__init__(k=k)
        self._memory, self._owner = memory, owner

    def forward(self, query: str, k: int | None = None, **_: Any) -> dspy.Prediction:
        found = self._memory.recall(query, self._owner, top_k=k or self.k)
        return dspy.Prediction(passages=[hit_line(hit) for hit in found.hits])

    async def aforward(self, query: str, k: int | None = None, **_: Any) -> dspy.Prediction:
        """Return memories as passages, without blocking the event loop."""
        found = await self._memory.arecall(query, self._owner, top_k=k or self.k)
        return dspy.Prediction(passages=[hit_line(hit) for hit in found.hits])


class MemosRM:
    """A retrieval model, which `dspy.Retrieve` asks: `dspy.configure(rm=MemosRM(memory, owner))`."""

    def __init__(self, memory: AgentMemory, owner: Owner) -> None:
        self._memory, self._owner = memory, owner

    def __call__(self, query: str, k: int = 5, **_: Any) -> list[dspy.Prediction]:
        """Return the memories that matter to a query."""
        found = self._memory.recall(query, self._owner, top_k=k)
        return [dspy.Prediction(long_text=hit_line(hit), id=hit.item.id) for hit in found.hits]


def memory_tools(memory: AgentMemory, owner: Owner) -> list[dspy.Tool]:
    """Return the tools `recall_memories` and `remember_fact`, for `dspy.ReAct`.

    The same fact is stored once in a conversation.
    """

    def recall_memories(question: str) -> str:
        return memory.recall(question, owner).answer

    def remember_fact(fact: str) -> str:
        return memory.remember([{"role": "user", "content": fact}], owner, turn=owner.conversation).answer

    return [dspy.Tool(recall_memories, desc=RECALL_TOOL), dspy.Tool(remember_fact, desc=REMEMBER_TOOL)]
