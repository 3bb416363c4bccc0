"""AG2 1.x: a plugin that gives agents memory.

Whose memory it is: `user_id` of the context variables, or else the `user` given to the plugin, and the stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memos.integrations.memory import RECALL_TOOL, REMEMBER_TOOL, AgentMemory, Owner, Recalled, missing_extra

try:
    from ag2 import Context, tool
    from ag2.events import BaseEvent, ModelRequest, ModelResponse, TextInput, ToolCallEvent
    from ag2.middleware.base import AgentTurn, BaseMiddleware, LLMCall, ToolExecution, ToolResultType
    from ag2.plugin import Plugin
except ImportError as error:
    raise missing_extra("ag2", "ag2", error) from error

__all__ = ["MemosPlugin"]


class MemosPlugin(Plugin):
    """Recall before a turn, remember after it.

    What is recalled stands behind the system prompt of every model call of a turn. Stored are the request and the
    answer; a turn that is repeated at its place in a stream stores nothing twice.

    Args:
        memory: The memory; `memory.last_failure` tells when an agent went on without it.
        user: Whose memory it is, where the context variables have no `user_id`.
        cube: A cube to share.
        remember: Store what is said.
        tools: Give the agent the tools `recall_memories` and `remember_fact`.
    """

    def __init__(
        self,
        memory: AgentMemory,
        *,
        user: str | None = None,
        cube: str | None = None,
        remember: bool = True,
        tools: bool = False,
    ) -> None:
        self.memory = memory
        self._user, self._cube, self._remembers = user, cube, remember
        super().__init__(middleware=[self._middleware_of], tools=self._own_tools() if tools else ())

    def owner_of(self, context: Context) -> Owner:
        """Return whose memory a context is about."""
        user = context.variables.get("user_id") or self._user
        return Owner(None if user is None else str(user), str(context.stream.id), self._cube)

    def _middleware_of(self, event: BaseEvent, context: Context) -> BaseMiddleware:
        return _Memory(event, context, self.memory, self.owner_of(context), remembers=self._remembers)

    def _own_tools(self) -> list[Any]:
        memory, owner_of = self.memory, self.owner_of

        @tool(description=RECALL_TOOL)
        async def recall_memories(question: str, context: Context) -> str:
            return (await memory.arecall(question, owner_of(context))).answer

        @tool(description=REMEMBER_TOOL)
        async def remember_fact(fact: str, context: Context) -> str:
            said = [{"role": "user", "content": fact}]
            return (await memory.aremember(said, owner_of(context), turn=context.tool_call_id)).answer

        return [recall_memories, remember_fact]


class _Memory(BaseMiddleware):
    """One turn of an agent with memory."""

    def __init__(
        self, event: BaseEvent, context: Context, memory: AgentMemory, owner: Owner, *, remembers: bool
    ) -> None:
        super().__init__(event, context)
        self._memory, self._owner, self._remembers = memory, owner, remembers
        self._found, self._used_tools = Recalled(), False

    async def on_turn(self, call_next: AgentTurn, event: BaseEvent, context: Context) -> ModelResponse:
        question = _text(event)
        before = [each for each in await context.stream.history.get_events() if each is not event]
        known = {_text(each) for each in before}
        self._found = await self._memory.arecall(question, self._owner, known=known)
        response = await call_next(event, context)
        if self._remembers:
            said = [{"role": "user", "content": question}, {"role": "assistant", "content": response.content or ""}]
            place = str(sum(isinstance(each, ModelRequest) for each in before))
            untrusted = self._used_tools or self._found.untrusted
            await self._memory.aremember(said, self._owner, turn=place, untrusted=untrusted)
        return response

    async def on_llm_call(self, call_next: LLMCall, events: Sequence[BaseEvent], context: Context) -> ModelResponse:
        if not self._found.text:
            return await call_next(events, context)
        prompt = context.prompt
        context.prompt = [*prompt, self._found.text]
        try:
            return await call_next(events, context)
        finally:
            context.prompt = prompt

    async def on_tool_execution(
        self, call_next: ToolExecution, event: ToolCallEvent, context: Context
    ) -> ToolResultType:
        self._used_tools = True
        return await call_next(event, context)


def _text(event: BaseEvent) -> str:
    if isinstance(event, ModelRequest):
        return "\n".join(part.content for part in event.parts if isinstance(part, TextInput))
    return (event.content or "") if isinstance(event, ModelResponse) else ""
