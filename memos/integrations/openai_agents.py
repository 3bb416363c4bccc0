"""OpenAI Agents SDK: a session, instructions, hooks and tools.

Whose memory it is: the `user` given to a session; else `user_id` and `session_id` of the run's context, an attribute or
a key of a mapping, which handoffs pass on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from memos.integrations.memory import RECALL_TOOL, REMEMBER_TOOL, AgentMemory, Owner, missing_extra
from memos.integrations.transcript import Transcript

try:
    from agents import Agent, FunctionTool, RunContextWrapper, RunHooks, SessionSettings, function_tool
    from agents.items import TResponseInputItem
    from agents.memory import SessionABC
    from agents.tool_context import ToolContext
except ImportError as error:
    raise missing_extra("openai_agents", "openai-agents", error) from error

__all__ = ["MemosRunHooks", "MemosSession", "memory_instructions", "memory_tools", "owner_of"]


def owner_of(context: RunContextWrapper[Any]) -> Owner:
    """Return whose memory a run is about, from its context."""
    of = context.context

    def named(name: str) -> str | None:
        found = of.get(name) if isinstance(of, Mapping) else getattr(of, name, None)
        return None if found is None else str(found)

    return Owner(named("user_id"), named("session_id"))


OwnerOf = Callable[[RunContextWrapper[Any]], Owner]


class MemosSession(SessionABC):
    """A session that keeps its items as they are, and remembers what is said in it for other sessions of its user.

    A turn that the SDK takes back and repeats stores nothing twice.

    Args:
        session_id: The session.
        memory: The memory; `memory.last_failure` tells when an agent went on without it, and without its history.
        user: Whose session it is.
        cube: A cube to share.
        remember: Store what is said as memories too.
        session_settings: Settings of the SDK, such as the most items of a history.
    """

    def __init__(
        self,
        session_id: str,
        memory: AgentMemory,
        *,
        user: str | None = None,
        cube: str | None = None,
        remember: bool = True,
        session_settings: SessionSettings | None = None,
    ) -> None:
        self.session_id = session_id
        self.session_settings = session_settings
        self.memory = memory
        self._owner, self._remembers = Owner(user, session_id, cube), remember
        self._transcript = Transcript(memory, self._owner)

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        usual = None if self.session_settings is None else self.session_settings.limit
        return await self._transcript.aitems(usual if limit is None else limit)

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        if self._remembers and (said := _said(items)):
            before = await self._transcript.aitems()
            untrusted = any(_is_result(item) for item in [*_since_question(before), *items])
            await self.memory.aremember(said, self._owner, turn=str(len(before)), untrusted=untrusted)
        await self._transcript.aappend([dict(item) for item in items])

    async def pop_item(self) -> TResponseInputItem | None:
        return await self._transcript.apop()

    async def clear_session(self) -> None:
        """Remove the items; what was remembered of them stays."""
        await self._transcript.aclear()


def memory_instructions(
    memory: AgentMemory, instructions: str = "", *, owner: OwnerOf = owner_of
) -> Callable[[RunContextWrapper[Any], Agent[Any]], Awaitable[str]]:
    """Return instructions of an agent that end with what is remembered for the last message of the user.

    Args:
        memory: The memory; `memory.last_failure` tells when an agent went on without it.
        instructions: The agent's own instructions.
        owner: Returns whose memory a run is about.
    """

    async def with_memory(context: RunContextWrapper[Any], agent: Agent[Any]) -> str:
        said = _said(context.turn_input)
        asked = [message["content"] for message in said if message["role"] == "user"]
        known = {message["content"] for message in said}
        found = await memory.arecall(asked[-1] if asked else "", owner(context), known=known)
        return "\n\n".join(filter(None, [instructions, found.text]))

    return with_memory


class MemosRunHooks(RunHooks[Any]):
    """Remembers each run, for agents whose session is another than a `MemosSession`: `Runner.run(hooks=...)`.

    Args:
        memory: The memory.
        owner: Returns whose memory a run is about.
    """

    def __init__(self, memory: AgentMemory, *, owner: OwnerOf = owner_of) -> None:
        self.memory = memory
        self._owner = owner

    async def on_agent_end(self, context: Any, agent: Agent[Any], output: Any) -> None:
        """Store the last message of the user and the output."""
        asked = [message for message in _said(context.turn_input) if message["role"] == "user"]
        said = [*asked[-1:], {"role": "assistant", "content": str(output), "name": agent.name}]
        # Whether tools were called is not said here.
        untrusted = bool(agent.tools or agent.mcp_servers or agent.handoffs)
        await self.memory.aremember(said, self._owner(context), turn=str(len(asked)), untrusted=untrusted)


def memory_tools(memory: AgentMemory, *, owner: OwnerOf = owner_of) -> list[FunctionTool]:
    """Return the tools `recall_memories` and `remember_fact`, for agents that decide themselves when to use memory."""

    @function_tool(description_override=RECALL_TOOL)
    async def recall_memories(context: ToolContext[Any], question: str) -> str:
        return (await memory.arecall(question, owner(context))).answer

    @function_tool(description_override=REMEMBER_TOOL)
    async def remember_fact(context: ToolContext[Any], fact: str) -> str:
        said = [{"role": "user", "content": fact}]
        return (await memory.aremember(said, owner(context), turn=context.tool_call_id)).answer

    return [recall_memories, remember_fact]


def _said(items: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return what the user and the assistant said in items."""
    told = [{"role": item.get("role"), "content": _text(item.get("content"))} for item in items]
    return [each for each in told if each["role"] in ("user", "assistant") and each["content"]]


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(str(part["text"]) for part in content if isinstance(part, Mapping) and part.get("text"))
    return content if isinstance(content, str) else ""


def _is_result(item: Mapping[str, Any]) -> bool:
    """Return True if an item is what a tool gave, or its call by the SDK itself: a search, code, an image."""
    return str(item.get("type", "")).endswith(("_output", "_call")) and item.get("type") != "function_call"


def _since_question(items: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    last = max((n for n, item in enumerate(items) if item.get("role") == "user"), default=-1)
    return items[last + 1 :]
