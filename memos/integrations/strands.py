"""Strands Agents: a memory store for `MemoryManager`.

Whose memory it is: the `user` and `session` given to the store; each agent has a store of its own.
"""

from __future__ import annotations

from typing import Any

from memos.core.clock import new_id
from memos.core.text.rendering import NOTICE, hit_line, is_untrusted, memory_section, remembered
from memos.integrations.memory import AgentMemory, Owner, missing_extra

try:
    from strands.memory import (
        AddMessagesContext,
        ExtractionConfig,
        InjectionFormatContext,
        InvocationTrigger,
        MemoryEntry,
        MemoryInjectionConfig,
        MemoryMessageFilter,
        MemoryStore,
        SearchOptions,
    )
    from strands.types.content import Message
except ImportError as error:
    raise missing_extra("strands", "strands", error) from error

__all__ = ["INJECTION", "MemosMemoryStore"]


def _section(context: InjectionFormatContext, **_: Any) -> str:
    """Render entries as one fenced section."""
    untrusted = any(entry.metadata and entry.metadata.get("untrusted") for entry in context.entries)
    lines = [remembered(f"- {entry.content}") for entry in context.entries]
    return memory_section([NOTICE, *lines] if untrusted else lines)


INJECTION = MemoryInjectionConfig(format=_section)
"""What `MemoryManager(injection=...)` needs to show memories as hippocube does: dated, fenced as data."""


class MemosMemoryStore(MemoryStore):
    """All of Strands's `MemoryStore`: search, writes by a tool, and all messages of each invocation.

    A batch that Strands sends again stores nothing twice, nor does a session's turn that is repeated at its place.

    Args:
        memory: The memory; `memory.last_failure` tells when an agent went on without it.
        user: Whose memory it is.
        session: The conversation; by default a new one for each agent.
        cube: A cube to share.
        name: The store's name in tools.
        writable: Store what is said, and let the tool `add_memory` write.
    """

    def __init__(  # noqa: PLR0913
        self,
        memory: AgentMemory,
        *,
        user: str | None = None,
        session: str | None = None,
        cube: str | None = None,
        name: str = "memos",
        description: str | None = "What is remembered from earlier conversations with the user.",
        max_search_results: int | None = None,
        writable: bool = True,
    ) -> None:
        self.memory = memory
        self.name, self.description, self.max_search_results, self.writable = (
            name,
            description,
            max_search_results,
            writable,
        )
        # Results of tools are kept to know what an answer was made with, not to be stored.
        keep = MemoryMessageFilter(exclude=[])
        self.extraction = ExtractionConfig(trigger=InvocationTrigger(), filter=keep) if writable else None
        self._owner = Owner(user, session or new_id(), cube)

    async def search(self, query: str, options: SearchOptions | None = None) -> list[MemoryEntry]:
        top_k = (options or {}).get("max_search_results") or self.max_search_results
        found = await self.memory.arecall(query, self._owner, top_k=top_k)
        return [MemoryEntry(hit_line(hit), metadata=_about(hit)) for hit in found.hits]

    async def add(self, content: str, metadata: dict[str, Any] | None = None) -> None:
        await self.memory.aremember([{"role": "user", "content": content}], self._owner, turn="added", info=metadata)

    async def add_messages(self, messages: list[Message], context: AddMessagesContext | None = None) -> None:
        numbers = None if context is None else context.sequence_numbers
        used_tools = False
        told: list[dict[str, Any]] = []
        for place, message in enumerate(messages):
            blocks, role = message["content"], message["role"]
            used_tools = used_tools or any("toolResult" in block for block in blocks)
            text = "\n".join(block["text"] for block in blocks if "text" in block)
            # A message with a call of a tool only announces it.
            if any("toolUse" in block for block in blocks):
                continue
            trust = "untrusted" if used_tools and role == "assistant" else None
            id_ = None if numbers is None else str(numbers[place])
            told.append({"role": role, "content": text, "id": id_, "trust": trust})
        await self.memory.aremember(told, self._owner)


def _about(hit: Any) -> dict[str, Any]:
    untrusted = is_untrusted(hit.sources)
    return {"id": hit.item.id, "score": hit.score, "relevance": hit.relevance, "untrusted": untrusted}
