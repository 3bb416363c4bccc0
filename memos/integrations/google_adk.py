"""Google ADK: a memory service.

Whose memory it is: the user of the session. What one app is told, only this app recalls; `share_apps` changes that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from memos.core.text.rendering import is_untrusted, quoted
from memos.core.types import Trust
from memos.integrations.memory import AgentMemory, Owner, missing_extra

try:
    from google.adk.events import Event
    from google.adk.memory import BaseMemoryService
    from google.adk.memory.base_memory_service import SearchMemoryResponse
    from google.adk.memory.memory_entry import MemoryEntry
    from google.adk.sessions import Session
    from google.genai import types
except ImportError as error:
    raise missing_extra("google_adk", "google-adk", error) from error

__all__ = ["MemosMemoryService"]

_MESSAGES = 500  # of one call, half of what the memory takes
_ENTRIES = "memories"
_USER = "user"


class MemosMemoryService(BaseMemoryService):
    """All of ADK's `BaseMemoryService`. An event is stored once, however often its session is added.

    Args:
        memory: The memory; `memory.last_failure` tells when an agent went on without it.
        cube: A cube to share, in place of that of each user.
        share_apps: Recall also what other apps were told.
    """

    def __init__(self, memory: AgentMemory, *, cube: str | None = None, share_apps: bool = False) -> None:
        self.memory = memory
        self._cube, self._share_apps = cube, share_apps

    async def add_session_to_memory(self, session: Session) -> None:
        await self.add_events_to_memory(
            app_name=session.app_name, user_id=session.user_id, events=session.events, session_id=session.id
        )

    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Sequence[Event],
        session_id: str | None = None,
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        messages = _messages(events)
        owner, info = self._owner(user_id, session_id), {**(custom_metadata or {}), "app": app_name}
        for start in range(0, len(messages), _MESSAGES):
            await self.memory.aremember(messages[start : start + _MESSAGES], owner, info=info)

    async def add_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        memories: Sequence[MemoryEntry],
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        for entry in memories:
            info = {**(custom_metadata or {}), **entry.custom_metadata, "app": app_name}
            author = entry.author or _USER
            message = {
                "role": _role(author),
                "name": None if author == _USER else author,
                "content": _text(entry.content),
                "id": entry.id,
                "chat_time": entry.timestamp,
            }
            await self.memory.aremember([message], self._owner(user_id, _ENTRIES), info=info)

    async def search_memory(self, *, app_name: str, user_id: str, query: str) -> SearchMemoryResponse:
        only = None if self._share_apps else {"info.app": app_name}
        found = await self.memory.arecall(query, self._owner(user_id, None), filter=only)
        return SearchMemoryResponse(memories=[_entry(hit) for hit in found.hits])

    async def delete_memory(self, *, app_name: str, user_id: str, memory_id: str | None = None) -> None:
        """Delete a memory. Raises: NotFound, and whatever keeps the memory from being deleted."""
        if memory_id is not None:
            await self.memory.acall("memories.delete", [memory_id], owner=self._owner(user_id, None), fail_open=False)

    def _owner(self, user_id: str, session_id: str | None) -> Owner:
        return Owner(user_id, session_id, self._cube)


def _messages(events: Sequence[Event]) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = []
    used_tools: set[str] = set()
    for event in events:
        if event.get_function_responses():
            used_tools.add(event.invocation_id)
        text = _text(event.content)
        if not text or event.partial:
            continue
        mine = event.author == _USER
        untrusted = not mine and event.invocation_id in used_tools
        told.append(
            {
                "role": _role(event.author),
                "name": None if mine else event.author,
                "content": text,
                "id": event.id,
                "chat_time": datetime.fromtimestamp(event.timestamp, UTC).isoformat(),
                "trust": Trust.UNTRUSTED if untrusted else None,
            }
        )
    return told


def _text(content: types.Content | None) -> str:
    parts = content.parts if content is not None and content.parts else []
    return "\n".join(part.text for part in parts if part.text and not part.thought)


def _role(author: str) -> str:
    return "user" if author == _USER else "assistant"


def _entry(hit: Any) -> MemoryEntry:
    item = hit.item
    role = "user" if item.role == "user" else "model"
    return MemoryEntry(
        content=types.Content(role=role, parts=[types.Part(text=quoted(item, item.memory))]),
        id=item.id,
        author=item.speaker,
        timestamp=None if item.said_at is None else item.said_at.isoformat(),
        custom_metadata={"relevance": hit.relevance, "untrusted": is_untrusted(hit.sources)},
    )
