"""Pydantic AI: a capability that gives agents memory, and a toolset.

Whose memory it is: `user_id` of the dependencies (an attribute, or a key of a mapping), and the run's conversation.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from memos.integrations.memory import RECALL_TOOL, REMEMBER_TOOL, AgentMemory, Owner, Recalled, missing_extra

try:
    from pydantic_ai import AgentRunResult, FunctionToolset, RunContext
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.messages import ModelMessage, ToolReturnPart, UserContent, UserPromptPart
    from pydantic_core import to_json
except ImportError as error:
    raise missing_extra("pydantic_ai", "pydantic-ai", error) from error

__all__ = ["MemosCapability", "memory_toolset", "owner_of"]


def owner_of(context: RunContext[Any]) -> Owner:
    """Return whose memory a run is about: the user of its dependencies, and its conversation."""
    of = context.deps
    user = of.get("user_id") if isinstance(of, Mapping) else getattr(of, "user_id", None)
    name = None if context.agent is None else context.agent.name
    return Owner(None if user is None else str(user), context.conversation_id, agent=name)


OwnerOf = Callable[[RunContext[Any]], Owner]


@dataclass
class MemosCapability(AbstractCapability[Any]):
    """Recall before the model is asked, remember after the run.

    What is recalled is an instruction of each request of a run. Stored are the prompt and the output. A run that is
    repeated with its `run_id` stores nothing twice.

    Attributes:
        memory: The memory; `memory.last_failure` tells when an agent went on without it.
        owner: Returns whose memory a run is about.
        remember: Store what is said.
        tools: Give the agent the tools of `memory_toolset` too.
    """

    memory: AgentMemory
    owner: OwnerOf = owner_of
    remember: bool = True
    tools: bool = False
    _recalled: Recalled | None = field(default=None, init=False, repr=False)

    async def for_run(self, ctx: RunContext[Any]) -> Self:
        return copy.copy(self)

    def get_instructions(self) -> Any:
        async def recall(ctx: RunContext[Any]) -> str | None:
            if self._recalled is None:
                known = _texts(ctx.messages)
                self._recalled = await self.memory.arecall(_text(ctx.prompt), self.owner(ctx), known=known)
            return self._recalled.text or None

        return recall

    def get_toolset(self) -> FunctionToolset[Any] | None:
        return memory_toolset(self.memory, owner=self.owner) if self.tools else None

    async def after_run(self, ctx: RunContext[Any], *, result: AgentRunResult[Any]) -> AgentRunResult[Any]:
        if self.remember:
            output = result.output if isinstance(result.output, str) else to_json(result.output).decode()
            said = [{"role": "user", "content": _text(ctx.prompt)}, {"role": "assistant", "content": output}]
            untrusted = _used_tools(result.new_messages()) or bool(self._recalled and self._recalled.untrusted)
            await self.memory.aremember(said, self.owner(ctx), turn=ctx.run_id, untrusted=untrusted)
        return result


def memory_toolset(memory: AgentMemory, *, owner: OwnerOf = owner_of) -> FunctionToolset[Any]:
    """Return the tools `recall_memories` and `remember_fact`, for agents that decide themselves when to use memory."""
    toolset: FunctionToolset[Any] = FunctionToolset()

    @toolset.tool(description=RECALL_TOOL)
    async def recall_memories(ctx: RunContext[Any], question: str) -> str:
        return (await memory.arecall(question, owner(ctx))).answer

    @toolset.tool(description=REMEMBER_TOOL)
    async def remember_fact(ctx: RunContext[Any], fact: str) -> str:
        said = [{"role": "user", "content": fact}]
        return (await memory.aremember(said, owner(ctx), turn=ctx.tool_call_id)).answer

    return toolset


def _text(prompt: str | Iterable[UserContent] | None) -> str:
    if prompt is None or isinstance(prompt, str):
        return prompt or ""
    return "\n".join(part for part in prompt if isinstance(part, str))


def _texts(messages: Iterable[ModelMessage]) -> set[str]:
    """Return what users and models said in a history."""
    parts = [part for message in messages for part in message.parts]
    asked = {_text(part.content) for part in parts if isinstance(part, UserPromptPart)}
    return asked | {part.content for part in parts if part.part_kind == "text"}


def _used_tools(messages: Iterable[ModelMessage]) -> bool:
    return any(isinstance(part, ToolReturnPart) for message in messages for part in message.parts)
