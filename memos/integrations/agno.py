"""Agno: a memory manager, with hooks that tell it of each run.

Whose memory it is: the `user_id` of the run, and its session. The user that Agno names "default" is nobody.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

from memos.core.text.rendering import hit_line, remembered
from memos.integrations.memory import AgentMemory, Owner, Recalled, missing_extra

try:
    from agno.db.schemas import UserMemory
    from agno.memory import MemoryManager
    from agno.models.message import Message
    from agno.run import RunContext
    from agno.run.agent import RunInput, RunOutput
except ImportError as error:
    raise missing_extra("agno", "agno", error) from error

__all__ = ["MemosMemoryManager"]

_NOBODY = "default"
_RUNS = 1_000
_NEWEST = "-created_at"
_NO_RECORDS = {"type": {"ne": "record"}}


class MemosMemoryManager(MemoryManager):
    """Agno's `MemoryManager` over hippocube, without a model or database of its own.

    Agno asks its manager for all memories of a user. With the hooks, it gets those that matter to the run's question
    and learns the answer and the run's id too, so that a run that is repeated stores nothing twice:
    `Agent(memory_manager=manager, pre_hooks=[manager.before_run], post_hooks=[manager.after_run])`, or `abefore_run`
    and `aafter_run` where the agent is run with `arun`. Without them it gets the newest.

    Args:
        memory: The memory; `memory.last_failure` tells when an agent went on without it.
        cube: A cube to share.
        limit: The most memories that a prompt gets without a question.
    """

    def __init__(self, memory: AgentMemory, *, cube: str | None = None, limit: int = 20) -> None:
        super().__init__(delete_memories=True, clear_memories=True)
        self.memory = memory
        self._cube, self._limit = cube, limit
        self._lock = threading.Lock()
        self._recalled: OrderedDict[str | None, Recalled] = OrderedDict()
        self._runs: OrderedDict[tuple[str | None, str], RunContext] = OrderedDict()

    def before_run(self, run_input: RunInput, run_context: RunContext) -> None:
        """Recall for a run's question: a hook before `run`."""
        question, owner = run_input.input_content_string(), self._owner(run_context.user_id)
        self._begin(run_context, question, self.memory.recall(question, owner))

    async def abefore_run(self, run_input: RunInput, run_context: RunContext) -> None:
        """Recall for a run's question: a hook before `arun`."""
        question, owner = run_input.input_content_string(), self._owner(run_context.user_id)
        self._begin(run_context, question, await self.memory.arecall(question, owner))

    def after_run(self, run_output: RunOutput, run_context: RunContext) -> None:
        """Remember a run's question and answer: a hook after `run`."""
        said, untrusted = self._said(run_output)
        owner = self._owner(run_context.user_id, run_context.session_id)
        self.memory.remember(said, owner, turn=run_context.run_id, untrusted=untrusted)

    async def aafter_run(self, run_output: RunOutput, run_context: RunContext) -> None:
        """Remember a run's question and answer: a hook after `arun`."""
        said, untrusted = self._said(run_output)
        owner = self._owner(run_context.user_id, run_context.session_id)
        await self.memory.aremember(said, owner, turn=run_context.run_id, untrusted=untrusted)

    def get_user_memories(self, user_id: str | None = None) -> list[UserMemory]:
        found = self._for_prompt(user_id)
        if found is not None:
            return found
        return self._listed(user_id, limit=self._limit)

    async def aget_user_memories(self, user_id: str | None = None) -> list[UserMemory]:
        found = self._for_prompt(user_id)
        if found is not None:
            return found
        return await self._alisted(user_id, limit=self._limit)

    def get_user_memory(self, memory_id: str, user_id: str | None = None) -> UserMemory | None:
        item = self.memory.call("memories.get", memory_id, owner=self._owner(user_id))
        return None if item is None else _of_item(item)

    def add_user_memory(self, memory: UserMemory, user_id: str | None = None) -> str | None:
        said = [{"role": "user", "content": memory.memory, "id": memory.memory_id}]
        info = {"topics": list(memory.topics)} if memory.topics else None
        stored = self.memory.remember(said, self._owner(user_id or memory.user_id, "memories"), info=info)
        return stored.ids[0] if stored.ids else None

    def replace_user_memory(self, memory_id: str, memory: UserMemory, user_id: str | None = None) -> str | None:
        item = self.memory.call("memories.update", memory_id, memory.memory, owner=self._owner(user_id))
        return None if item is None else str(item.id)

    def delete_user_memory(self, memory_id: str, user_id: str | None = None) -> None:
        """Delete a memory. Raises: NotFound, and whatever keeps the memory from being deleted."""
        self.memory.call("memories.delete", [memory_id], owner=self._owner(user_id), fail_open=False)

    def clear_user_memories(self, user_id: str | None = None) -> None:
        """Delete all memories of a user."""
        self.memory.forget(self._owner(user_id))

    async def aclear_user_memories(self, user_id: str | None = None) -> None:
        """Delete all memories of a user."""
        await self.memory.aforget(self._owner(user_id))

    def clear(self) -> None:
        """Refuse: it would delete everybody's memories. Clear those of a user."""
        raise NotImplementedError("MemosMemoryManager deletes nothing of everybody; use clear_user_memories(user_id).")

    def search_user_memories(
        self,
        query: str | None = None,
        limit: int | None = None,
        retrieval_method: str | None = None,
        user_id: str | None = None,
    ) -> list[UserMemory]:
        if query and retrieval_method in (None, "agentic"):
            return [_of_hit(hit) for hit in self.memory.recall(query, self._owner(user_id), top_k=limit).hits]
        sort = "created_at" if retrieval_method == "first_n" else _NEWEST
        return self._listed(user_id, limit=limit or 1_000, sort=sort)

    def create_user_memories(
        self, message: str | None = None, messages: list[Message] | None = None, user_id: str | None = None, **_: Any
    ) -> str:
        """Store what a user said, as it was said."""
        return self.memory.remember(*self._to_store(message, messages, user_id)).answer

    async def acreate_user_memories(
        self, message: str | None = None, messages: list[Message] | None = None, user_id: str | None = None, **_: Any
    ) -> str:
        """Store what a user said, as it was said."""
        said, owner = self._to_store(message, messages, user_id)
        return (await self.memory.aremember(said, owner)).answer

    def update_memory_task(self, task: str, user_id: str | None = None) -> str:
        """Store what an agent wants to be remembered, by its tool."""
        return self.memory.remember([{"role": "user", "content": task}], self._owner(user_id, "memories")).answer

    async def aupdate_memory_task(self, task: str, user_id: str | None = None) -> str:
        """Store what an agent wants to be remembered, by its tool."""
        said = [{"role": "user", "content": task}]
        return (await self.memory.aremember(said, self._owner(user_id, "memories"))).answer

    def optimize_memories(self, user_id: str | None = None, *_: Any, **__: Any) -> list[UserMemory]:
        """Return a user's memories: hippocube consolidates them itself, in the background."""
        return self._listed(user_id, limit=1_000)

    async def aoptimize_memories(self, user_id: str | None = None, *_: Any, **__: Any) -> list[UserMemory]:
        """Return a user's memories: hippocube consolidates them itself, in the background."""
        return await self._alisted(user_id, limit=1_000)

    def _begin(self, run: RunContext, question: str, found: Recalled) -> None:
        with self._lock:
            self._recalled[run.user_id] = found
            self._runs[run.user_id, question] = run
            for kept in (self._recalled, self._runs):
                while len(kept) > _RUNS:
                    kept.popitem(last=False)

    def _for_prompt(self, user_id: str | None) -> list[UserMemory] | None:
        with self._lock:
            found = self._recalled.get(user_id)
        return None if found is None else [_of_hit(hit) for hit in found.hits]

    def _said(self, run: RunOutput) -> tuple[list[dict[str, Any]], bool]:
        question = "" if run.input is None else run.input.input_content_string()
        answer = run.content if isinstance(run.content, str) else run.get_content_as_string()
        with self._lock:
            found = self._recalled.pop(run.user_id, None)
        said = [{"role": "user", "content": question}, {"role": "assistant", "content": answer, "name": run.agent_name}]
        return said, bool(run.tools) or bool(found and found.untrusted)

    def _to_store(
        self, message: str | None, messages: list[Message] | None, user_id: str | None
    ) -> tuple[list[dict[str, Any]], Owner]:
        texts = [message] if message else [each.get_content_string() for each in messages or () if each.role == "user"]
        with self._lock:
            run = next((self._runs[user_id, text] for text in texts if (user_id, text) in self._runs), None)
        session = None if run is None else run.session_id
        said = [{"role": "user", "content": text, "id": None if run is None else run.run_id} for text in texts]
        return said, self._owner(user_id, session)

    def _listed(self, user_id: str | None, *, limit: int, sort: str = _NEWEST) -> list[UserMemory]:
        owner = self._owner(user_id)
        found = self.memory.call("memories.list", owner=owner, sort=sort, limit=limit, filter=_NO_RECORDS, fallback=[])
        return [_of_item(item) for item in found]

    async def _alisted(self, user_id: str | None, *, limit: int) -> list[UserMemory]:
        owner = self._owner(user_id)
        found = await self.memory.acall(
            "memories.list", owner=owner, sort=_NEWEST, limit=limit, filter=_NO_RECORDS, fallback=[]
        )
        return [_of_item(item) for item in found]

    def _owner(self, user_id: str | None, session: str | None = None) -> Owner:
        return Owner(None if user_id == _NOBODY else user_id, session, self._cube)


def _of_hit(hit: Any) -> UserMemory:
    return _memory(hit.item, remembered(hit_line(hit)))


def _of_item(item: Any) -> UserMemory:
    return _memory(item, item.memory)


def _memory(item: Any, text: str) -> UserMemory:
    topics = item.info.get("topics")
    times = {"created_at": int(item.created_at.timestamp()), "updated_at": int(item.updated_at.timestamp())}
    return UserMemory(text, item.id, list(topics) if topics else None, **times)
