"""AutoGen 0.7: a memory for `AssistantAgent`.

Whose memory it is: the `user` and `conversation` given to the memory; each conversation has one of its own.
"""

from __future__ import annotations

from typing import Any

from memos.core.text.rendering import hit_line, is_untrusted
from memos.integrations.memory import AgentMemory, Owner, missing_extra

try:
    from autogen_core import CancellationToken
    from autogen_core.memory import Memory, MemoryContent, MemoryMimeType, MemoryQueryResult, UpdateContextResult
    from autogen_core.model_context import ChatCompletionContext
    from autogen_core.models import AssistantMessage, FunctionExecutionResultMessage, SystemMessage, UserMessage
except ImportError as error:
    raise missing_extra("autogen", "autogen", error) from error

__all__ = ["MemosMemory"]


class MemosMemory(Memory):
    """All of AutoGen's `Memory`: recall into the model context, query, add and clear.

    AutoGen tells a memory of a turn when it begins, and nothing when it has ended: what a user says is stored at once,
    an answer with the next turn. A context that is seen again stores nothing twice.

    Args:
        memory: The memory; `memory.last_failure` tells when an agent went on without it. `close` leaves it open.
        user: Whose memory it is.
        conversation: The conversation.
        cube: A cube to share.
        remember: Store what is said.
    """

    def __init__(
        self,
        memory: AgentMemory,
        *,
        user: str | None = None,
        conversation: str | None = None,
        cube: str | None = None,
        remember: bool = True,
    ) -> None:
        self.memory = memory
        self._owner, self._remembers = Owner(user, conversation, cube), remember
        self._shown: set[str] = set()

    async def update_context(self, model_context: ChatCompletionContext) -> UpdateContextResult:
        messages = await model_context.get_messages()
        said, question = _said(messages)
        before = [message.content for message in messages if isinstance(message, SystemMessage)]
        shown = {text for text in self._shown if any(text in section for section in before)}
        known = {message["content"] for message in said} | shown
        found = await self.memory.arecall(question, self._owner, known=known)
        if found.text:
            self._shown |= {hit.item.memory for hit in found.hits}
            await model_context.add_message(SystemMessage(content=found.text))
        if self._remembers:
            # The same message of another call has the same id: it is named by what it says, and how often.
            await self.memory.aremember(said, self._owner, turn=self._owner.conversation)
        return UpdateContextResult(memories=MemoryQueryResult(results=[_content(hit) for hit in found.hits]))

    async def query(
        self, query: str | MemoryContent, cancellation_token: CancellationToken | None = None, **kwargs: Any
    ) -> MemoryQueryResult:
        found = await self.memory.arecall(_text(query), self._owner)
        return MemoryQueryResult(results=[_content(hit) for hit in found.hits])

    async def add(self, content: MemoryContent, cancellation_token: CancellationToken | None = None) -> None:
        said = [{"role": "user", "content": _text(content)}]
        await self.memory.aremember(said, self._owner, info=content.metadata)

    async def clear(self) -> None:
        """Delete what was said in the conversation, or without one all memories of the user."""
        await self.memory.aforget(self._owner)

    async def close(self) -> None:
        """Do nothing: the `AgentMemory` belongs to the program, which closes it."""


def _said(messages: list[Any]) -> tuple[list[dict[str, Any]], str]:
    """Return what was said by whom, and the last question."""
    told: list[dict[str, Any]] = []
    used_tools, question = False, ""
    for message in messages:
        if isinstance(message, FunctionExecutionResultMessage):
            used_tools = True
        elif isinstance(message, UserMessage):
            text = message.content if isinstance(message.content, str) else _parts(message.content)
            used_tools, question = False, text or question
            told.append({"role": "user", "content": text, "name": None if message.source == "user" else message.source})
        elif isinstance(message, AssistantMessage) and isinstance(message.content, str):
            trust = "untrusted" if used_tools else None
            told.append({"role": "assistant", "content": message.content, "name": message.source, "trust": trust})
    return told, question


def _parts(parts: list[Any]) -> str:
    return "\n".join(part for part in parts if isinstance(part, str))


def _text(content: str | MemoryContent) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content.content, str):
        raise TypeError(f"Only text can be remembered, not {type(content.content).__name__}; describe it in words.")
    return content.content


def _content(hit: Any) -> MemoryContent:
    about = {"id": hit.item.id, "relevance": hit.relevance, "untrusted": is_untrusted(hit.sources)}
    return MemoryContent(content=hit_line(hit), mime_type=MemoryMimeType.TEXT, metadata=about)
