"""Haystack: hooks that give agents memory, and a retriever for pipelines.

Whose memory it is: `user_id` and `session_id` of the run's `hook_context`, or else the `user` given to the hooks.
"""

from __future__ import annotations

from typing import Any

from memos.core.text.rendering import is_untrusted, quoted
from memos.integrations.memory import AgentMemory, Owner, missing_extra

try:
    from haystack import Document, component
    from haystack.components.agents import State
    from haystack.dataclasses import ChatMessage, ChatRole
except ImportError as error:
    raise missing_extra("haystack", "haystack", error) from error

__all__ = ["MemosRetriever", "memory_hooks"]

_MARK = "memos"
_UNTRUSTED = "untrusted"


def memory_hooks(
    memory: AgentMemory, *, user: str | None = None, cube: str | None = None, remember: bool = True
) -> dict[str, list[Any]]:
    """Return the hooks of an agent: `Agent(hooks=memory_hooks(memory))`.

    Before a run they add what is recalled as a system message, and after it they take it out of the messages again and
    store what the user and the agent said. A turn that is repeated at its place in a session stores nothing twice.

    Args:
        memory: The memory; `memory.last_failure` tells when an agent went on without it.
        user: Whose memory it is, where the run's `hook_context` has no `user_id`.
        cube: A cube to share.
        remember: Store what is said.
    """
    default = Owner(user, None, cube)
    return {"before_run": [_Recall(memory, default)], "after_run": [_Remember(memory, default, remembers=remember)]}


class _Hook:
    def __init__(self, memory: AgentMemory, default: Owner) -> None:
        self.memory, self._default = memory, default

    def owner_of(self, state: State) -> Owner:
        given = state.get("hook_context") or {}
        user, session = given.get("user_id") or self._default.user, given.get("session_id")
        return Owner(None if user is None else str(user), None if session is None else str(session), self._default.cube)

    def to_dict(self) -> dict[str, Any]:
        raise NotImplementedError("Hooks with a memory cannot be written to a file; add them with memory_hooks().")

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> _Hook:
        raise NotImplementedError("Hooks with a memory cannot be read from a file; add them with memory_hooks().")


class _Recall(_Hook):
    def run(self, state: State) -> None:
        question, known = _question(state)
        self._show(state, self.memory.recall(question, self.owner_of(state), known=known))

    async def run_async(self, state: State) -> None:
        question, known = _question(state)
        self._show(state, await self.memory.arecall(question, self.owner_of(state), known=known))

    def _show(self, state: State, found: Any) -> None:
        if not found.text:
            return
        messages = list(state.get("messages"))
        place = sum(message.is_from(ChatRole.SYSTEM) for message in messages)
        shown = ChatMessage.from_system(found.text, meta={_MARK: True, _UNTRUSTED: found.untrusted})
        messages.insert(min(place, len(messages)), shown)
        _replace(state, messages)


class _Remember(_Hook):
    def __init__(self, memory: AgentMemory, default: Owner, *, remembers: bool) -> None:
        super().__init__(memory, default)
        self._remembers = remembers

    def run(self, state: State) -> None:
        said, turn, untrusted = self._turn(state)
        if self._remembers:
            self.memory.remember(said, self.owner_of(state), turn=turn, untrusted=untrusted)

    async def run_async(self, state: State) -> None:
        said, turn, untrusted = self._turn(state)
        if self._remembers:
            await self.memory.aremember(said, self.owner_of(state), turn=turn, untrusted=untrusted)

    def _turn(self, state: State) -> tuple[list[dict[str, Any]], str, bool]:
        messages = list(state.get("messages"))
        own = [message for message in messages if message.meta.get(_MARK)]
        messages = [message for message in messages if not message.meta.get(_MARK)]
        _replace(state, messages)
        asked = [n for n, message in enumerate(messages) if message.is_from(ChatRole.USER)]
        if not asked:
            return [], "", False
        after = messages[asked[-1] + 1 :]
        answers = [
            each.text for each in after if each.is_from(ChatRole.ASSISTANT) and each.text and not each.tool_calls
        ]
        said = [{"role": "user", "content": messages[asked[-1]].text or ""}]
        said += [{"role": "assistant", "content": text} for text in answers[-1:]]
        used_tools = any(message.is_from(ChatRole.TOOL) for message in after)
        return said, str(len(asked)), used_tools or any(each.meta[_UNTRUSTED] for each in own)


@component
class MemosRetriever:
    """Returns memories as documents, the best first; text of sources that are not trusted is fenced.

    Args:
        memory: The memory.
        user: Whose memory it is, where a run names nobody.
        cube: A cube to share.
        top_k: The most documents.
    """

    def __init__(
        self, memory: AgentMemory, *, user: str | None = None, cube: str | None = None, top_k: int | None = None
    ) -> None:
        self._memory, self._user, self._cube, self._top_k = memory, user, cube, top_k

    @component.output_types(documents=list[Document])
    def run(self, query: str, user_id: str | None = None, top_k: int | None = None) -> dict[str, list[Document]]:
        """Return the memories that matter to a query."""
        found = self._memory.recall(query, Owner(user_id or self._user, None, self._cube), top_k=top_k or self._top_k)
        return {"documents": [_document(hit) for hit in found.hits]}

    @component.output_types(documents=list[Document])
    async def run_async(
        self, query: str, user_id: str | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Return the memories that matter to a query."""
        owner = Owner(user_id or self._user, None, self._cube)
        found = await self._memory.arecall(query, owner, top_k=top_k or self._top_k)
        return {"documents": [_document(hit) for hit in found.hits]}


def _question(state: State) -> tuple[str, set[str]]:
    messages = state.get("messages")
    asked = [message.text or "" for message in messages if message.is_from(ChatRole.USER)]
    return asked[-1] if asked else "", {message.text or "" for message in messages}


def _replace(state: State, messages: list[ChatMessage]) -> None:
    state.set("messages", messages, handler_override=lambda _, new: new)


def _document(hit: Any) -> Document:
    item = hit.item
    at = None if item.said_at is None else item.said_at.isoformat()
    about = {"speaker": item.speaker, "said_at": at, "cube": item.cube, "untrusted": is_untrusted(hit.sources)}
    text = quoted(item, item.memory)
    return Document(id=item.id, content=text, meta={**about, "relevance": hit.relevance}, score=hit.score)
