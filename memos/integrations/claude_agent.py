"""Claude Agent SDK: hooks that recall and remember, and an in-process MCP server with tools, for `ClaudeAgentOptions`.

Whose memory it is: the `Owner` that the program gives, since Claude knows no users; the conversation is the session.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import Any

from memos.integrations.memory import RECALL_TOOL, REMEMBER_TOOL, AgentMemory, Owner, missing_extra

try:
    from claude_agent_sdk import ClaudeAgentOptions, HookMatcher, McpSdkServerConfig, create_sdk_mcp_server, tool
    from claude_agent_sdk.types import HookContext, HookInput, HookJSONOutput
except ImportError as error:
    raise missing_extra("claude_agent", "claude-agent", error) from error

__all__ = ["SERVER", "memory_hooks", "memory_server", "with_memory"]

SERVER = "memory"
"""What the MCP server is called, and its tools after it: `mcp__memory__recall_memories`."""

_TOOLS = ("recall_memories", "remember_fact")
_NO_PROMPT = "<task-notification>"  # what Claude Code says to itself in the place of a prompt
_MOST_TURNS = 1_000


def with_memory(
    options: ClaudeAgentOptions,
    memory: AgentMemory,
    owner: Owner,
    *,
    turn: str | None = None,
    remember: bool = True,
    tools: bool = True,
) -> ClaudeAgentOptions:
    """Return options with memory added to them: recall with each prompt, remembering after each answer, and tools.

    Args:
        options: The options of an agent; its own hooks, servers and tools stay.
        memory: The memory; `memory.last_failure` tells when an agent went on without it.
        owner: Whose memory it is; without a conversation it is that of the session.
        turn: An id of the one prompt that the options are for, by which a retry in the same conversation stores nothing
            twice; by default Claude's own id of the prompt, which is new in a retry.
        remember: Store what is said.
        tools: Give the agent the tools of `memory_server`, too, and allow them.
    """
    hooks = {event: list(matchers) for event, matchers in (options.hooks or {}).items()}
    for event, matchers in memory_hooks(memory, owner, turn=turn, remember=remember).items():
        hooks.setdefault(event, []).extend(matchers)
    if not tools:
        return replace(options, hooks=hooks)
    if not isinstance(options.mcp_servers, dict):
        raise TypeError("mcp_servers is a file or text; give a dict of servers, or with_memory(..., tools=False)")
    return replace(
        options,
        hooks=hooks,
        mcp_servers={**options.mcp_servers, SERVER: memory_server(memory, owner)},
        allowed_tools=[*options.allowed_tools, *(f"mcp__{SERVER}__{name}" for name in _TOOLS)],
    )


def memory_hooks(
    memory: AgentMemory, owner: Owner, *, turn: str | None = None, remember: bool = True
) -> dict[Any, list[HookMatcher]]:
    """Return hooks that recall with each prompt and remember after each answer.

    Stored are the prompt and the last answer to it; an answer for which Claude used tools is stored as untrusted, since
    it may repeat what a page or a file says.
    """
    hooks = _Hooks(memory, owner, turn)
    found = {"UserPromptSubmit": hooks.recall}
    if remember:
        found |= {"PostToolUse": hooks.note_tool, "Stop": hooks.remember}
    return {event: [HookMatcher(hooks=[hook])] for event, hook in found.items()}


@dataclass(slots=True)
class _Turn:
    prompt: str = ""
    untrusted: bool = False


@dataclass(slots=True)
class _Hooks:
    memory: AgentMemory
    owner: Owner
    turn: str | None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _turns: OrderedDict[str, _Turn] = field(default_factory=OrderedDict)

    async def recall(self, event: HookInput, _: str | None, __: HookContext) -> HookJSONOutput:
        said: Any = event
        prompt = str(said["prompt"])
        if prompt.lstrip().startswith(_NO_PROMPT):
            return {}
        recalled = await self.memory.arecall(prompt, self._owner(said))
        now = self._current(said)
        now.prompt, now.untrusted = prompt, recalled.untrusted
        if recalled.failure is not None:
            told = f"Memory is not available: {recalled.failure.error}"
            return {"systemMessage": told, "hookSpecificOutput": _context(recalled.answer)}
        return {"hookSpecificOutput": _context(recalled.text)} if recalled.text else {}

    async def note_tool(self, event: HookInput, _: str | None, __: HookContext) -> HookJSONOutput:
        said: Any = event
        if not str(said["tool_name"]).startswith(f"mcp__{SERVER}__"):
            self._current(said).untrusted = True
        return {}

    async def remember(self, event: HookInput, _: str | None, __: HookContext) -> HookJSONOutput:
        said: Any = event
        now = self._current(said, ends=True)
        answer = str(said.get("last_assistant_message") or "")
        messages = [{"role": "user", "content": now.prompt}, {"role": "assistant", "content": answer}]
        turn = self.turn or said.get("prompt_id")
        await self.memory.aremember(messages, self._owner(said), turn=turn, untrusted=now.untrusted)
        return {}

    def _owner(self, said: Any) -> Owner:
        return self.owner if self.owner.conversation else replace(self.owner, conversation=said["session_id"])

    def _current(self, said: Any, *, ends: bool = False) -> _Turn:
        """Return the turn of a session that runs; a program may have many sessions at once."""
        session = str(said["session_id"])
        with self._lock:
            turn = self._turns.pop(session, None) or _Turn()
            if not ends:
                self._turns[session] = turn
                while len(self._turns) > _MOST_TURNS:
                    self._turns.popitem(last=False)
        return turn


def memory_server(memory: AgentMemory, owner: Owner) -> McpSdkServerConfig:
    """Return an in-process MCP server with the tools `recall_memories` and `remember_fact`."""

    @tool(_TOOLS[0], RECALL_TOOL, {"question": str})
    async def recall_memories(given: dict[str, Any]) -> dict[str, Any]:
        return _text((await memory.arecall(str(given["question"]), owner)).answer)

    @tool(_TOOLS[1], REMEMBER_TOOL, {"fact": str})
    async def remember_fact(given: dict[str, Any]) -> dict[str, Any]:
        fact = str(given["fact"])
        # By what it says: a call that is repeated stores nothing twice.
        told = await memory.aremember([{"role": "user", "content": fact}], owner, turn=f"fact:{fact[:500]}")
        return _text(told.answer)

    return create_sdk_mcp_server(SERVER, tools=[recall_memories, remember_fact])


def _context(text: str) -> Any:
    return {"hookEventName": "UserPromptSubmit", "additionalContext": text}


def _text(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}
