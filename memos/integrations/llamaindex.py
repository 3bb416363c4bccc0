"""LlamaIndex: a chat memory with a memory block, and a retriever.

Whose memory it is: the `user` given to each, and the session of the chat memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from memos.core.text.rendering import is_untrusted, quoted
from memos.integrations.memory import AgentMemory, Owner, Recalled, missing_extra

try:
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.llms import ChatMessage, MessageRole
    from llama_index.core.memory import BaseMemoryBlock, Memory
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
    from pydantic import PrivateAttr
except ImportError as error:
    raise missing_extra("llamaindex", "llamaindex", error) from error

__all__ = ["MemosMemory", "MemosMemoryBlock", "MemosRetriever"]


class MemosMemoryBlock(BaseMemoryBlock[str]):
    """A memory block that recalls what is remembered for the last message, and remembers what it is given.

    A `Memory` gives its blocks only what no longer fits into its history; `MemosMemory` remembers each turn at once.

    Attributes:
        memory: The memory; `memory.last_failure` tells when an agent went on without it.
        user: Whose memory it is.
        cube: A cube to share.
    """

    name: str = "remembered"
    description: str | None = "What is remembered from earlier conversations."
    priority: int = 1
    memory: AgentMemory
    user: str | None = None
    cube: str | None = None
    _found: Recalled = PrivateAttr(default=Recalled())

    async def _aget(self, messages: Sequence[ChatMessage] | None = None, **block_kwargs: Any) -> str:
        said = [message.content or "" for message in messages or ()]
        asked = [each.content or "" for each in messages or () if each.role == MessageRole.USER]
        owner = self.owner_of(block_kwargs.get("session_id"))
        found = await self.memory.arecall(asked[-1] if asked else "", owner, known=said)
        self._found = found
        return found.text

    async def atruncate(self, content: str, tokens_to_truncate: int) -> str | None:
        return self._found.within(self._found.tokens - tokens_to_truncate).text or None

    async def _aput(self, messages: Sequence[ChatMessage]) -> None:
        session = next((each.additional_kwargs.get("session_id") for each in messages), None)
        await self.remember(messages, session, turn=None)

    async def remember(self, messages: Sequence[ChatMessage], session: str | None, *, turn: str | None) -> None:
        """Store what the user and the assistant said."""
        told = [
            {"role": str(each.role.value), "content": each.content or ""}
            for each in messages
            if each.role in (MessageRole.USER, MessageRole.ASSISTANT) and not each.additional_kwargs.get("tool_calls")
        ]
        untrusted = self._found.untrusted or any(each.role == MessageRole.TOOL for each in messages)
        await self.memory.aremember(told, self.owner_of(session), turn=turn, untrusted=untrusted)

    def owner_of(self, session: str | None) -> Owner:
        """Return whose memory a session is about."""
        return Owner(self.user, session, self.cube)


class MemosMemory(Memory):
    """LlamaIndex's chat memory, which remembers each message as it is put, and recalls by a `MemosMemoryBlock`.

    A turn that is repeated at the same place of its session stores nothing twice.
    """

    @classmethod
    def class_name(cls) -> str:
        return "MemosMemory"

    @classmethod
    def over(cls, memory: AgentMemory, *, user: str | None = None, cube: str | None = None, **options: Any) -> Self:
        """Return a chat memory of a user over an `AgentMemory`.

        Args:
            memory: The memory.
            user: Whose memory it is.
            cube: A cube to share.
            **options: Those of `Memory.from_defaults`, such as `session_id` and further `memory_blocks`.
        """
        block = MemosMemoryBlock(memory=memory, user=user, cube=cube, accept_short_term_memory=False)
        others = options.pop("memory_blocks", None) or []
        return cls.from_defaults(memory_blocks=[block, *others], **options)

    async def aput(self, message: ChatMessage) -> None:
        await self._remember([message])
        await super().aput(message)

    async def aput_messages(self, messages: list[ChatMessage]) -> None:
        await self._remember(messages)
        await super().aput_messages(messages)

    async def _remember(self, messages: list[ChatMessage]) -> None:
        place = str(len(await self.aget_all()))
        for block in self.memory_blocks:
            if isinstance(block, MemosMemoryBlock):
                await block.remember(messages, self.session_id, turn=place)


class MemosRetriever(BaseRetriever):
    """Returns memories as nodes, the best first; text of sources that are not trusted is fenced.

    Args:
        memory: The memory.
        owner: Whose memory it is.
        **options: Those of `BaseRetriever`.
    """

    def __init__(self, memory: AgentMemory, owner: Owner = Owner(), **options: Any) -> None:
        self._memory, self._owner = memory, owner
        super().__init__(**options)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [_node(hit) for hit in self._memory.recall(query_bundle.query_str, self._owner).hits]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [_node(hit) for hit in (await self._memory.arecall(query_bundle.query_str, self._owner)).hits]


def _node(hit: Any) -> NodeWithScore:
    item = hit.item
    at = None if item.said_at is None else item.said_at.isoformat()
    about = {"speaker": item.speaker, "said_at": at, "cube": item.cube, "untrusted": is_untrusted(hit.sources)}
    node = TextNode(id_=item.id, text=quoted(item, item.memory), metadata={**about, "relevance": hit.relevance})
    return NodeWithScore(node=node, score=hit.score)
