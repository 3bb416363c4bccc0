"""Microsoft Agent Framework: a context provider, and a history provider.

Whose memory it is: `user_id` of the session's state, or else the `user` given to the provider, and the session.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memos.errors import InvalidInput
from memos.integrations.memory import AgentMemory, Owner, missing_extra
from memos.integrations.transcript import Transcript

try:
    from agent_framework import (
        AgentSession,
        ContextProvider,
        HistoryProvider,
        Message,
        SessionContext,
        SupportsAgentRun,
    )
except ImportError as error:
    raise missing_extra("agent_framework", "agent-framework", error) from error

__all__ = ["MemosContextProvider", "MemosHistoryProvider"]

_TURNS, _UNTRUSTED = "turns", "untrusted"


class MemosContextProvider(ContextProvider):
    """Recall before a run, remember after it.

    What is recalled becomes instructions of the run, but for what the messages of providers before this one say: name a
    history provider first. Stored are the messages of the user and the answer; a turn that is
    repeated at its place in a session stores nothing twice.

    Args:
        memory: The memory; `memory.last_failure` tells when an agent went on without it.
        user: Whose memory it is, where the session's state has no `user_id`.
        cube: A cube to share.
        remember: Store what is said.
        source_id: The provider's name in its session.
    """

    def __init__(
        self,
        memory: AgentMemory,
        *,
        user: str | None = None,
        cube: str | None = None,
        remember: bool = True,
        source_id: str = "memos",
    ) -> None:
        super().__init__(source_id)
        self.memory = memory
        self._user, self._cube, self._remembers = user, cube, remember

    async def before_run(
        self, *, agent: SupportsAgentRun, session: AgentSession, context: SessionContext, state: dict[str, Any]
    ) -> None:
        said = {message.text for message in context.get_messages(include_input=True)}
        question = _texts(context.input_messages, "user")
        found = await self.memory.arecall("\n".join(question), self._owner(session, agent), known=said)
        state[_UNTRUSTED] = found.untrusted
        if found.text:
            context.extend_instructions(self.source_id, found.text)

    async def after_run(
        self, *, agent: SupportsAgentRun, session: AgentSession, context: SessionContext, state: dict[str, Any]
    ) -> None:
        response = context.response
        if not self._remembers or response is None:
            return
        asked = _texts(context.input_messages, "user")
        answer = _texts([message for message in response.messages if not _calls(message)], "assistant")
        untrusted = state.pop(_UNTRUSTED, False) or any(message.role == "tool" for message in response.messages)
        said = [{"role": "user", "content": text} for text in asked]
        said += [{"role": "assistant", "content": text} for text in answer[-1:]]
        turn = state[_TURNS] = state.get(_TURNS, 0) + 1
        await self.memory.aremember(said, self._owner(session, agent), turn=str(turn), untrusted=untrusted)

    def _owner(self, session: AgentSession, agent: SupportsAgentRun) -> Owner:
        user = session.state.get("user_id") or self._user
        return Owner(None if user is None else str(user), session.session_id, self._cube, agent.name)


class MemosHistoryProvider(HistoryProvider):
    """Keeps the messages of sessions as they are, under the session's id.

    Args:
        memory: The memory; `memory.last_failure` tells when a history is empty because memory is away.
        user: Whose sessions they are.
        cube: A cube to share.
        source_id: The provider's name in its session.
        **options: Those of `HistoryProvider`, such as `store_outputs`.
    """

    def __init__(
        self,
        memory: AgentMemory,
        *,
        user: str | None = None,
        cube: str | None = None,
        source_id: str = "memos_history",
        **options: Any,
    ) -> None:
        super().__init__(source_id, **options)
        self.memory = memory
        self._user, self._cube = user, cube

    async def get_messages(
        self, session_id: str | None, *, state: dict[str, Any] | None = None, **kwargs: Any
    ) -> list[Message]:
        return [Message.from_dict(item) for item in await self._transcript(session_id).aitems()]

    async def save_messages(
        self,
        session_id: str | None,
        messages: Sequence[Message],
        *,
        state: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        await self._transcript(session_id).aappend([message.to_dict() for message in messages])

    def _transcript(self, session_id: str | None) -> Transcript:
        if session_id is None:
            raise InvalidInput("session_id", "is missing; run the agent with an AgentSession")
        return Transcript(self.memory, Owner(self._user, session_id, self._cube))


def _texts(messages: Sequence[Message], role: str) -> list[str]:
    return [message.text for message in messages if message.role == role and message.text]


def _calls(message: Message) -> bool:
    return any(content.type == "function_call" for content in message.contents)
