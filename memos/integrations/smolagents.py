"""smolagents: tools, and runs of an agent with memory.

smolagents keeps the steps of a run and has no interface for what lasts longer: `run_with_memory` recalls before a run
and remembers after it, and the tools are for agents that decide themselves.
"""

from __future__ import annotations

from collections.abc import Generator
from inspect import isgenerator
from typing import Any

from memos.core.clock import new_id
from memos.integrations.memory import RECALL_TOOL, REMEMBER_TOOL, AgentMemory, Owner, Recalled, missing_extra

try:
    from smolagents import ActionStep, FinalAnswerStep, MultiStepAgent, TaskStep, Tool
except ImportError as error:
    raise missing_extra("smolagents", "smolagents", error) from error

__all__ = ["RecallTool", "RememberTool", "run_with_memory"]


def run_with_memory(
    agent: MultiStepAgent, task: str, memory: AgentMemory, owner: Owner, *, turn: str | None = None, **options: Any
) -> Any:
    """Run an agent with what is remembered in its instructions, and store the task and the final answer.

    Args:
        agent: The agent; as ever, it runs one task at a time.
        task: What the user wants.
        memory: The memory; `memory.last_failure` tells when the agent went on without it.
        owner: Whose memory it is.
        turn: The turn's id, by which a run that is repeated is recognised.
        **options: Those of `agent.run`, such as `stream` and `reset`.

    Returns:
        What `agent.run` returns.
    """
    found = memory.recall(task, owner)
    before = agent.instructions
    agent.instructions = "\n\n".join(filter(None, [before, found.text])) or None
    try:
        done = agent.run(task, **options)
    finally:
        agent.instructions = before
    run = _Run(agent, task, memory, owner, turn or new_id(), found)
    if isgenerator(done):
        return run.streamed(done)
    run.remember(getattr(done, "output", done))
    return done


class _Run:
    def __init__(
        self, agent: MultiStepAgent, task: str, memory: AgentMemory, owner: Owner, turn: str, found: Recalled
    ) -> None:
        self._agent, self._task, self._memory = agent, task, memory
        self._owner, self._turn, self._found = owner, turn, found

    def streamed(self, steps: Any) -> Generator[Any, None, None]:
        for step in steps:
            yield step
            if isinstance(step, FinalAnswerStep):
                self.remember(step.output)

    def remember(self, output: Any) -> None:
        # Tools and code bring in what others wrote; an answer in the first step is the model's own.
        steps = 0
        for step in reversed(self._agent.memory.steps):
            if isinstance(step, TaskStep):
                break
            steps += isinstance(step, ActionStep)
        untrusted = steps > 1 or self._found.untrusted
        said = [{"role": "user", "content": self._task}, {"role": "assistant", "content": str(output)}]
        self._memory.remember(said, self._owner, turn=self._turn, untrusted=untrusted)


class RecallTool(Tool):
    """A tool that recalls.

    Args:
        memory: The memory.
        owner: Whose memory it is.
    """

    name = "recall_memories"
    description = RECALL_TOOL
    inputs = {"question": {"type": "string", "description": "The question, in plain words"}}  # noqa: RUF012
    output_type = "string"

    def __init__(self, memory: AgentMemory, owner: Owner) -> None:
        super().__init__()
        self._memory, self._owner = memory, owner

    def forward(self, question: str) -> str:
        return self._memory.recall(question, self._owner).answer


class RememberTool(Tool):
    """A tool that remembers. The same fact is stored once in a conversation.

    Args:
        memory: The memory.
        owner: Whose memory it is.
    """

    name = "remember_fact"
    description = REMEMBER_TOOL
    inputs = {"fact": {"type": "string", "description": "One fact, as a full sentence"}}  # noqa: RUF012
    output_type = "string"

    def __init__(self, memory: AgentMemory, owner: Owner) -> None:
        super().__init__()
        self._memory, self._owner = memory, owner

    def forward(self, fact: str) -> str:
        said = [{"role": "user", "content": fact}]
        return self._memory.remember(said, self._owner, turn=self._owner.conversation).answer
