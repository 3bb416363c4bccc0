"""CrewAI: a memory for crews, agents and flows.

Whose memory it is: the `user` given to the memory. Scopes and categories are kept as CrewAI has them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from memos.core.text.rendering import hit_line
from memos.core.types import Json, Trust
from memos.errors import NotFound
from memos.integrations.memory import AgentMemory, Owner, missing_extra

try:
    from crewai.memory.types import MemoryMatch, MemoryRecord, ScopeInfo
    from crewai.memory.unified_memory import Memory
    from crewai.memory.utils import join_scope_paths, normalize_scope_path
    from pydantic import PrivateAttr
except ImportError as error:
    raise missing_extra("crewai", "crewai", error) from error

__all__ = ["MemosMemory"]

_ROOT = "/"
_MOST = 10_000
_OURS = ("scope", "categories", "importance", "source", "private")
_REPORTS = "crewai"


class _Report(str):
    """What CrewAI itself wants remembered of a task: partly what tools and other agents said."""


class MemosMemory(Memory):
    """CrewAI's `Memory` over hippocube, without a language model, an embedder or a store of its own.

    Searches are hippocube's, whatever their `depth`. What CrewAI has a memory extract from a task is stored as it is,
    once, and not trusted, since tools may have had a say; what is remembered by `remember` and tools is trusted.

    Args:
        memory: The memory; `memory.last_failure` tells when a crew went on without it.
        user: Whose memory it is.
        cube: A cube to share.
        **options: Those of `Memory` that are not about models and stores: `root_scope`, `read_only`.
    """

    _agent_memory: AgentMemory = PrivateAttr()
    _owner: Owner = PrivateAttr()

    def __init__(
        self, memory: AgentMemory, *, user: str | None = None, cube: str | None = None, **options: Any
    ) -> None:
        owner = Owner(user, None, cube)
        super().__init__(storage=_Storage(memory, owner), embedder=_embed_nothing, **options)
        self._agent_memory, self._owner = memory, owner

    def extract_memories(self, content: str) -> list[str]:
        """Return the content as it is: facts are read from it by hippocube, if it is set to."""
        return [_Report(content)] if content.strip() else []

    async def aextract_memories(self, content: str) -> list[str]:
        """Return the content as it is."""
        return self.extract_memories(content)

    def remember(self, content: str, *given: Any, **named: Any) -> MemoryRecord | None:
        found = self.remember_many([content], *given, **named)
        return found[0] if found else None

    async def aremember(self, content: str, *given: Any, **named: Any) -> MemoryRecord | None:
        found = await self.aremember_many([content], *given, **named)
        return found[0] if found else None

    def remember_many(self, contents: list[str], *given: Any, **named: Any) -> list[MemoryRecord]:
        records: list[MemoryRecord] = []
        for content in [] if self.read_only else contents:
            record, said, options = self._to_store(content, *given, **named)
            stored = self._agent_memory.remember([said], self._owner, **options)
            records.append(record.model_copy(update={"id": stored.ids[0]} if stored.ids else {}))
        return records

    async def aremember_many(self, contents: list[str], *given: Any, **named: Any) -> list[MemoryRecord]:
        records: list[MemoryRecord] = []
        for content in [] if self.read_only else contents:
            record, said, options = self._to_store(content, *given, **named)
            stored = await self._agent_memory.aremember([said], self._owner, **options)
            records.append(record.model_copy(update={"id": stored.ids[0]} if stored.ids else {}))
        return records

    def recall(self, query: str, *given: Any, limit: int = 10, **named: Any) -> list[MemoryMatch]:
        only = self._only(*given, **named)
        found = self._agent_memory.recall(query, self._owner, filter=only, top_k=limit)
        return [_match(hit) for hit in found.hits]

    async def arecall(self, query: str, *given: Any, limit: int = 10, **named: Any) -> list[MemoryMatch]:
        only = self._only(*given, **named)
        found = await self._agent_memory.arecall(query, self._owner, filter=only, top_k=limit)
        return [_match(hit) for hit in found.hits]

    def _to_store(  # noqa: PLR0913, PLR0917 - what CrewAI gives
        self,
        content: str,
        scope: str | None = None,
        categories: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        importance: float | None = None,
        source: str | None = None,
        private: bool = False,
        agent_role: str | None = None,
        root_scope: str | None = None,
    ) -> tuple[MemoryRecord, dict[str, Any], dict[str, Any]]:
        """Return the record of a content, and the message and options that store it."""
        record = MemoryRecord(
            content=str(content),
            scope=join_scope_paths(self.root_scope if root_scope is None else root_scope, scope or _ROOT),
            categories=categories or [],
            metadata=metadata or {},
            importance=self.default_importance if importance is None else importance,
            source=source,
            private=private,
        )
        is_report = isinstance(content, _Report)
        said = {"role": "assistant" if is_report else "user", "content": str(content), "name": agent_role}
        said["trust"] = Trust.UNTRUSTED if is_report else None
        # CrewAI may run a task again; what is remembered on purpose may be true again.
        turn = f"{_REPORTS}:{record.scope}" if is_report else None
        return record, said, {"turn": turn, "info": _info(record)}

    def _only(
        self,
        scope: str | None = None,
        categories: list[str] | None = None,
        depth: str = "deep",
        source: str | None = None,
        include_private: bool = False,
    ) -> Mapping[str, Json] | None:
        within = scope if self.root_scope is None else join_scope_paths(self.root_scope, scope or _ROOT)
        visible: list[dict[str, Json]] = []
        if not include_private:
            own: list[dict[str, Json]] = [{"info.private": {"ne": True}}]
            visible = [{"or": [*own, {"info.source": source}]}] if source else own
        return _all(*_within(within), *_any_of(categories), *visible)


def _embed_nothing(texts: Sequence[str]) -> list[list[float]]:
    """Stand in for an embedder, which CrewAI asks when a record changes."""
    return [[0.0] for _ in texts]


class _Storage:
    """What CrewAI lists, changes and deletes: its `StorageBackend` but for searches by vectors."""

    def __init__(self, memory: AgentMemory, owner: Owner) -> None:
        self._memory, self._owner = memory, owner

    def save(self, records: list[MemoryRecord]) -> None:
        for record in records:
            self._memory.remember([{"role": "user", "content": record.content}], self._owner, info=_info(record))

    async def asave(self, records: list[MemoryRecord]) -> None:
        for record in records:
            said = [{"role": "user", "content": record.content}]
            await self._memory.aremember(said, self._owner, info=_info(record))

    def search(self, *_: Any, **__: Any) -> list[tuple[MemoryRecord, float]]:
        raise NotImplementedError("hippocube is asked in words: use MemosMemory.recall(query).")

    async def asearch(self, *_: Any, **__: Any) -> list[tuple[MemoryRecord, float]]:
        raise NotImplementedError("hippocube is asked in words: use MemosMemory.recall(query).")

    def delete(
        self,
        scope_prefix: str | None = None,
        categories: list[str] | None = None,
        record_ids: list[str] | None = None,
        older_than: datetime | None = None,
        metadata_filter: dict[str, Any] | None = None,
    ) -> int:
        before: list[dict[str, Json]] = []
        if older_than is not None:
            aware = older_than if older_than.tzinfo else older_than.replace(tzinfo=UTC)
            before = [{"created_at": {"lt": aware.isoformat()}}]
        metadata = [{f"info.{name}": value} for name, value in (metadata_filter or {}).items()]
        only = _all(*_within(scope_prefix), *_any_of(categories), *before, *metadata)
        found = self._items(only, fail_open=False)
        ids = [item.id for item in found if record_ids is None or item.id in record_ids]
        for at in range(0, len(ids), 500):
            self._memory.call("memories.delete", ids[at : at + 500], owner=self._owner, fail_open=False)
        return len(ids)

    async def adelete(self, *given: Any, **named: Any) -> int:
        # CrewAI itself calls the blocking one.
        return self.delete(*given, **named)

    def update(self, record: MemoryRecord) -> None:
        changes = {"memory": record.content, "info": _info(record)}
        self._memory.call("memories.update", record.id, owner=self._owner, fail_open=False, **changes)

    def get_record(self, record_id: str) -> MemoryRecord | None:
        try:
            return _record(self._memory.call("memories.get", record_id, owner=self._owner, fail_open=False))
        except NotFound:
            return None

    def list_records(self, scope_prefix: str | None = None, limit: int = 200, offset: int = 0) -> list[MemoryRecord]:
        only = _all(*_within(scope_prefix))
        return [_record(item) for item in self._items(only, limit=limit, offset=offset, sort="-created_at")]

    def get_scope_info(self, scope: str) -> ScopeInfo:
        records = [_record(item) for item in self._items(_all(*_within(scope)))]
        made = [record.created_at for record in records]
        return ScopeInfo(
            path=scope,
            record_count=len(records),
            categories=sorted({category for record in records for category in record.categories}),
            oldest_record=min(made, default=None),
            newest_record=max(made, default=None),
            child_scopes=_children(scope, records),
        )

    def list_scopes(self, parent: str = _ROOT) -> list[str]:
        return _children(parent, [_record(item) for item in self._items(_all(*_within(parent)))])

    def list_categories(self, scope_prefix: str | None = None) -> dict[str, int]:
        counts: dict[str, int] = {}
        for item in self._items(_all(*_within(scope_prefix))):
            for category in _record(item).categories:
                counts[category] = counts.get(category, 0) + 1
        return counts

    def count(self, scope_prefix: str | None = None) -> int:
        return len(self._items(_all(*_within(scope_prefix))))

    def reset(self, scope_prefix: str | None = None) -> None:
        self.delete(scope_prefix)

    def _items(self, only: Mapping[str, Json] | None, fail_open: bool | None = None, **options: Any) -> list[Any]:
        named = {"filter": only, "limit": _MOST, **options}
        found: list[Any] = self._memory.call(
            "memories.list", owner=self._owner, fallback=[], fail_open=fail_open, **named
        )
        return found


def _info(record: MemoryRecord) -> dict[str, Json]:
    own = {"scope": record.scope, "categories": record.categories, "importance": record.importance}
    given = {**record.metadata, **own, "source": record.source, "private": record.private}
    return {name: value for name, value in given.items() if value is not None}


def _record(item: Any, content: str | None = None) -> MemoryRecord:
    info = item.info
    return MemoryRecord(
        id=item.id,
        content=item.memory if content is None else content,
        scope=info.get("scope", _ROOT),
        categories=list(info.get("categories", ())),
        metadata={name: value for name, value in info.items() if name not in _OURS},
        importance=info.get("importance", 0.5),
        created_at=item.created_at,
        last_accessed=item.updated_at,
        source=info.get("source"),
        private=info.get("private", False),
    )


def _match(hit: Any) -> MemoryMatch:
    return MemoryMatch(record=_record(hit.item, hit_line(hit)), score=hit.relevance, match_reasons=["relevance"])


def _all(*conditions: dict[str, Json]) -> dict[str, Json] | None:
    return {"and": list(conditions)} if conditions else None


def _within(scope: str | None) -> list[dict[str, Json]]:
    path = _ROOT if scope is None else normalize_scope_path(scope)
    if path == _ROOT:
        return []
    return [{"or": [{"info.scope": path}, {"info.scope": {"startswith": f"{path}/"}}]}]


def _any_of(categories: Sequence[str] | None) -> list[dict[str, Json]]:
    return [{"info.categories": {"in": list(categories)}}] if categories else []


def _children(parent: str, records: Sequence[MemoryRecord]) -> list[str]:
    begin = f"{normalize_scope_path(parent).rstrip('/')}/"
    below = {record.scope for record in records if record.scope.startswith(begin) and record.scope != begin}
    return sorted({begin + scope.removeprefix(begin).partition("/")[0] for scope in below})
