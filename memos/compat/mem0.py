"""mem0's `Memory` and `AsyncMemory`, over an installation in this process or over a client of a server.

A memory with a `user_id` is in that user's own cube, as what every other surface remembers of the user; one without is
in the cube `mem0`. `agent_id`, `run_id` and metadata are the memory's `info`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, Self, TypeVar

from memos.compat.mem0_shapes import (
    USUAL,
    MemoryNotFound,
    WrongValue,
    as_values,
    by_actor,
    changes_of,
    check_named,
    check_top_k,
    ending,
    least_relevance,
    messages_of,
    metadata_of,
    read_filters,
    required_scope,
    result_of,
    said_by_user,
    score_of,
    settings_of,
    text_of,
    without_ending,
)
from memos.core.closing import Closing
from memos.core.types import DEFAULT_CUBE, LOCAL_OWNER, Json, Mode
from memos.errors import Conflict, NotFound
from memos.kernel.memos import MemOS

__all__ = ["AsyncMemory", "Memory", "MemoryNotFound", "WrongValue"]

log = logging.getLogger("memos.compat")

CUBE = "mem0"
"""The cube of memories without a user."""

TAG = "mem0:memory"
"""The tag of what is added here; `memos import` gives it to mem0's memories too."""

_UNSET: Any = object()
_PAGE = 1_000
_IDENTITY = "user, agent or group"

_T = TypeVar("_T")


class Memory(Closing):
    """mem0's `Memory`: the same methods, parameters and results. Thread-safe; close it.

    Args:
        config: mem0's configuration, as an object or a dictionary. Of it, the language model is used.
        memos: An open `MemOS`, or a `MemOSClient` of a server, which stays the caller's to close. A client needs the
            key of an admin, to name users.
        path: The data folder to open in place of the usual one.
    """

    def __init__(self, config: Any = None, *, memos: Any = None, path: str | Path | None = None) -> None:
        settings = settings_of(config, given=memos is not None)
        self._own = None if memos is not None else MemOS.open(path, settings=settings)
        self._store = _Store(memos if memos is not None else self._own)

    @classmethod
    def from_config(cls, config_dict: dict[str, Any], *, memos: Any = None, path: str | Path | None = None) -> Self:
        """Return a memory for mem0's configuration."""
        return cls(config_dict, memos=memos, path=path)

    def add(  # noqa: PLR0913 - mem0's parameters
        self,
        messages: Any,
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        run_id: str | None = None,
        metadata: dict[str, Any] | None = None,
        timestamp: Any = None,
        expiration_date: Any = None,
        infer: bool = True,
        memory_type: str | None = None,
        prompt: str | None = None,
    ) -> dict[str, Any]:
        """Store a text, a message or messages; with `infer` they are read into facts too, in the background.

        Raises: WrongValue, BackendUnavailable.
        """
        scope = required_scope(user_id=user_id, agent_id=agent_id, run_id=run_id)
        if memory_type not in (None, "procedural_memory"):
            raise WrongValue("memory_type", "must be procedural_memory")
        if prompt is not None:
            log.warning("mem0: `prompt` is not used; facts are read as everywhere in hippocube.")
        info = {**metadata_of(metadata, {}), **scope, **ending(expiration_date)}
        mode = str(Mode.FINE if infer else Mode.ROUGH)
        results = []
        for actor, said in by_actor(messages_of(messages, timestamp)):
            beside = {**info, **({} if actor is None else {"actor_id": actor})}
            with as_values():
                ids = self._store.add(scope, said_by_user(said, user_id), info=beside, tags=[TAG], mode=mode)
            for id_, message in zip(ids, said, strict=True):
                told = {"id": id_, "memory": text_of(message["content"]), "event": "ADD"}
                results.append(told if infer else {**told, "actor_id": actor, "role": message["role"]})
        return {"results": results}

    def get(self, memory_id: str) -> dict[str, Any] | None:
        """Return a memory, None if there is none of that id."""
        item = self._store.get(memory_id)
        return None if item is None else result_of(item, {}) | {"score": None}

    def get_all(
        self, *, filters: dict[str, Any] | None = None, top_k: int = 20, show_expired: bool = False, **kwargs: Any
    ) -> dict[str, Any]:
        """Return the newest memories that pass the filters. Raises: WrongValue."""
        check_named(kwargs, "get_all")
        check_top_k(top_k)
        scope, node = read_filters(filters, show_expired=show_expired)
        with as_values():
            found = self._store.newest(scope, node, top_k)
        return {"results": [result_of(item, scope) for item in found]}

    def search(  # noqa: PLR0913 - mem0's parameters
        self,
        query: str,
        *,
        top_k: int = 20,
        filters: dict[str, Any] | None = None,
        threshold: float | None = USUAL,
        rerank: bool = False,
        explain: bool = False,
        reference_date: Any = None,
        show_expired: bool = False,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Return the memories that answer a question best. Raises: WrongValue.

        `score` is the relevance, on a scale on which mem0's usual threshold of 0.1 is hippocube's of 0.03. A configured
        reranker is always used, whatever `rerank` says.
        """
        check_named(kwargs, "search")
        check_top_k(top_k)
        if not isinstance(query, str) or not query.strip():
            raise WrongValue("query", "must not be empty")
        least = least_relevance(threshold)
        scope, node = read_filters(filters, show_expired=show_expired)
        if top_k == 0:
            return {"results": []}
        options = {"top_k": top_k, "min_relevance": least, "reference_time": reference_date}
        with as_values():
            hits = self._store.search(query.strip(), scope, filter=node, **options)
        results = []
        for hit in hits:
            told = result_of(hit.item, scope) | {"score": score_of(hit.relevance)}
            details = {"score": hit.score, "relevance": hit.relevance}
            results.append(told | {"score_details": details} if explain else told)
        return {"results": results}

    def update(
        self,
        memory_id: str,
        text: str | None = None,
        metadata: dict[str, Any] | None = None,
        expiration_date: Any = _UNSET,
        data: str | None = None,
    ) -> dict[str, str]:
        """Change a memory's text, metadata or expiration date. Raises: WrongValue, MemoryNotFound."""
        text = data if text is None else text
        if text is None and metadata is None and expiration_date is _UNSET:
            raise WrongValue("text", "is required, or metadata or expiration_date")
        item = self._store.get(memory_id)
        if item is None:
            raise MemoryNotFound(memory_id)
        info = {**item.info, **metadata_of(metadata, item.info)}
        if expiration_date is not _UNSET:
            info = without_ending(info) | ending(expiration_date)
        with as_values():
            self._store.update(memory_id, {} if text is None else {"memory": text}, info)
        return {"message": "Memory updated successfully!"}

    def delete(self, memory_id: str) -> dict[str, str]:
        """Delete a memory. Raises: MemoryNotFound."""
        if self._store.get(memory_id) is None:
            raise MemoryNotFound(memory_id)
        self._store.delete([memory_id])
        return {"message": "Memory deleted successfully!"}

    def delete_all(
        self, user_id: str | None = None, agent_id: str | None = None, run_id: str | None = None
    ) -> dict[str, str]:
        """Delete the memories of a user, an agent or a run. Raises: WrongValue."""
        scope = required_scope(user_id=user_id, agent_id=agent_id, run_id=run_id)
        _, node = read_filters(scope, show_expired=True)
        while found := self._store.newest(scope, node, _PAGE):
            self._store.delete([item.id for item in found])
        return {"message": "Memories deleted successfully!"}

    def history(self, memory_id: str) -> list[dict[str, Any]]:
        """Return the changes of a memory, the oldest first; none if there is no such memory."""
        return list(changes_of(self._store.history(memory_id)))

    def reset(self) -> None:
        """Erase everything that was added here or imported from mem0, of all users."""
        while found := self._store.newest({}, {"tags": {"contains": TAG}}, _PAGE):
            self._store.erase(found)

    def close(self) -> None:
        """Close the installation, unless it was given."""
        if self._own is not None:
            self._own.close()


def _in_thread(method: Callable[..., _T]) -> Callable[..., Coroutine[Any, Any, _T]]:
    @wraps(method)
    async def call(self: AsyncMemory, *given: Any, **named: Any) -> _T:
        return await asyncio.to_thread(method, self.memory, *given, **named)

    return call


class AsyncMemory:
    """mem0's `AsyncMemory`: the methods of `Memory`, in threads.

    Args:
        config: mem0's configuration, as for `Memory`.
        memos: A `MemOS` or a `MemOSClient`, as for `Memory`.
        path: The data folder, as for `Memory`.
    """

    def __init__(self, config: Any = None, *, memos: Any = None, path: str | Path | None = None) -> None:
        self.memory = Memory(config, memos=memos, path=path)

    @classmethod
    def from_config(cls, config_dict: dict[str, Any], *, memos: Any = None, path: str | Path | None = None) -> Self:
        """Return a memory for mem0's configuration."""
        return cls(config_dict, memos=memos, path=path)

    add = _in_thread(Memory.add)
    get = _in_thread(Memory.get)
    get_all = _in_thread(Memory.get_all)
    search = _in_thread(Memory.search)
    update = _in_thread(Memory.update)
    delete = _in_thread(Memory.delete)
    delete_all = _in_thread(Memory.delete_all)
    history = _in_thread(Memory.history)
    reset = _in_thread(Memory.reset)

    def close(self) -> None:
        """Close the installation, unless it was given."""
        self.memory.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)


class _Store:
    """Calls `MemOS` and `MemOSClient` alike."""

    def __init__(self, memos: Any) -> None:
        if not hasattr(memos, "memories") or hasattr(memos, "aclose"):
            raise WrongValue("memos", f"must be a MemOS or a MemOSClient, not {type(memos).__name__}")
        self._memos = memos
        self._is_client = hasattr(memos, "using")

    def add(self, scope: Mapping[str, str], messages: Json, **options: Any) -> Sequence[str]:
        where = self._cube_of(scope["user_id"], creates=True) if "user_id" in scope else self._shared()
        options |= {"conversation": scope.get("run_id"), **(where or {})}
        receipt = self._memos.memories.add(messages, **options)
        ids: Sequence[str] = receipt.item_ids
        return ids

    def search(self, query: str, scope: Mapping[str, str], **options: Any) -> Sequence[Any]:
        where: dict[str, Any] | None = {"cubes": self._cubes()}
        if "user_id" in scope:
            where = self._cube_of(scope["user_id"])
        if where is None:
            return []
        if "cube" in where:
            where = {**where, "cubes": [where["cube"]]}
            del where["cube"]
        ask = self._memos.memories.search if self._is_client else self._memos.search
        return self._of_known(lambda: ask(query, **where, **options).hits)

    def newest(self, scope: Mapping[str, str], node: Json, most: int) -> Sequence[Any]:
        if "user_id" in scope:
            where = self._cube_of(scope["user_id"])
            return [] if where is None else self._of_known(lambda: self._listed(where, node, most))
        found = [item for cube in self._cubes() for item in self._listed({"cube": cube}, node, most)]
        return sorted(found, key=lambda item: (item.said_at or item.created_at, item.id), reverse=True)[:most]

    def _of_known(self, call: Callable[[], Sequence[Any]]) -> Sequence[Any]:
        """Return nothing if a server does not know the user."""
        try:
            return call()
        except NotFound as error:
            if self._is_client and error.what == _IDENTITY:
                return []
            raise

    def get(self, memory_id: str) -> Any:
        try:
            return self._memos.memories.get(memory_id)
        except NotFound:
            return None

    def history(self, memory_id: str) -> Sequence[Any]:
        try:
            versions: Sequence[Any] = self._memos.memories.history(memory_id)
        except NotFound:
            return []
        return versions

    def update(self, memory_id: str, fields: Mapping[str, Any], info: Json) -> None:
        self._memos.memories.update(memory_id, **fields, info=info)

    def delete(self, ids: Sequence[str]) -> None:
        for memory_id in ids:  # of several cubes; what another call deletes meanwhile is deleted
            if self.get(memory_id) is not None:
                self._memos.memories.delete([memory_id])

    def erase(self, found: Sequence[Any]) -> None:
        for cube in dict.fromkeys(item.cube for item in found):
            self._memos.memories.erase([item.id for item in found if item.cube == cube], cube=cube, wait=False)

    def _listed(self, where: Mapping[str, Any], node: Json, most: int) -> list[Any]:
        found: list[Any] = []
        while len(found) < most:
            size = min(_PAGE, most - len(found))
            page = self._memos.memories.list(**where, filter=node, sort="-said_at", limit=size, offset=len(found))
            found += page
            if len(page) < size:
                break
        return found

    def _cube_of(self, user: str, *, creates: bool = False) -> dict[str, Any] | None:
        """Return the options of a call about a user's cube, None if there is no such user."""
        if self._is_client:
            return {"user": user}
        if user == LOCAL_OWNER:
            return {"cube": DEFAULT_CUBE, "actor": user}
        users = self._memos.users
        try:
            found = users.get(user)
        except NotFound:
            if not creates:
                return None
            try:
                found = users.create(user)
            except Conflict:  # another thread created it meanwhile
                found = users.get(user)
        return {"cube": found.home or DEFAULT_CUBE, "actor": user}

    def _cubes(self) -> list[str]:
        return [cube.id for cube in self._memos.cubes.list() if cube.kind == "memory"]

    def _shared(self) -> dict[str, Any]:
        if CUBE not in self._cubes():
            try:
                self._memos.cubes.create(CUBE, description="Memories of mem0 programs without a user")
            except Conflict:
                log.debug("another program made the cube %s meanwhile", CUBE)
        return {"cube": CUBE}
