"""`Transcript`: the messages of a session, kept as a framework gives them and in order, for its own history."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from memos.core.clock import new_id
from memos.core.types import Json
from memos.integrations.memory import AgentMemory, Owner, storable

_PAGE = 1_000
_PUT = 200
# `info` of a record takes 64 KiB: longer texts of an item are in records of their own behind it.
_INFO_BYTES = 49_152
_LONG_CHARS = 2_048
_PART_CHARS = 12_288
_PARTS = "memos:parts"
_SHOWN_CHARS = 200


class Transcript:
    """The items of one session: JSON objects, stored as records that no search finds.

    They come back equal to what was given, but for secrets, which hippocube never stores, and for characters that no
    store keeps. A session belongs to its user. When memory fails, an empty history is returned and nothing is stored,
    as `AgentMemory` says.

    Args:
        memory: The memory.
        owner: Whose session it is; its conversation is the session.
    """

    def __init__(self, memory: AgentMemory, owner: Owner) -> None:
        self.memory, self.owner = memory, owner
        session = str(owner.conversation)
        # An id must be short and may not look like a secret.
        digest = hashlib.blake2b(session.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        self._prefix = f"sessions/{'/'.join(digest[at : at + 4] for at in range(0, len(digest), 4))}/"
        self._session = storable(session)

    def items(self, limit: int | None = None) -> list[dict[str, Any]]:
        """Return the items, the oldest first, or the newest `limit` of them."""
        return _newest(_unpacked(self._records()), limit)

    async def aitems(self, limit: int | None = None) -> list[dict[str, Any]]:
        """Return the items, the oldest first, or the newest `limit` of them."""
        return _newest(_unpacked(await self._arecords()), limit)

    def append(self, items: Sequence[Mapping[str, Any]]) -> None:
        """Add items."""
        for records in self._batches(items):
            self.memory.call("records.put_many", records, owner=self.owner)

    async def aappend(self, items: Sequence[Mapping[str, Any]]) -> None:
        """Add items."""
        for records in self._batches(items):
            await self.memory.acall("records.put_many", records, owner=self.owner)

    def pop(self) -> dict[str, Any] | None:
        """Remove the newest item and return it, None if there is none."""
        ids, item = _last(self._records())
        if ids:
            self.memory.call("records.delete_many", ids, owner=self.owner, fail_open=False)
        return item

    async def apop(self) -> dict[str, Any] | None:
        """Remove the newest item and return it, None if there is none."""
        ids, item = _last(await self._arecords())
        if ids:
            await self.memory.acall("records.delete_many", ids, owner=self.owner, fail_open=False)
        return item

    def clear(self) -> None:
        """Remove all items. Raises: MemosError."""
        ids = [record.record_id for record in self._records(fail_open=False)]
        for at in range(0, len(ids), _PAGE):
            self.memory.call("records.delete_many", ids[at : at + _PAGE], owner=self.owner, fail_open=False)

    async def aclear(self) -> None:
        """Remove all items. Raises: MemosError."""
        ids = [record.record_id for record in await self._arecords(fail_open=False)]
        for at in range(0, len(ids), _PAGE):
            await self.memory.acall("records.delete_many", ids[at : at + _PAGE], owner=self.owner, fail_open=False)

    def _records(self, fail_open: bool | None = None) -> list[Any]:
        found: list[Any] = []
        after = None
        while True:
            options = self._page(after, fail_open)
            page = self.memory.call("records.list", self._prefix, **options)
            found += page
            if len(page) < _PAGE:
                return found
            after = page[-1].record_id

    async def _arecords(self, fail_open: bool | None = None) -> list[Any]:
        found: list[Any] = []
        after = None
        while True:
            options = self._page(after, fail_open)
            page = await self.memory.acall("records.list", self._prefix, **options)
            found += page
            if len(page) < _PAGE:
                return found
            after = page[-1].record_id

    def _page(self, after: str | None, fail_open: bool | None) -> dict[str, Any]:
        return {"owner": self.owner, "fallback": [], "fail_open": fail_open, "limit": _PAGE, "after": after}

    def _batches(self, items: Sequence[Mapping[str, Any]]) -> Iterator[list[dict[str, Json]]]:
        """Yield records to put, those of one item together."""
        batch: list[dict[str, Json]] = []
        for item in items:
            records = self._packed(item)
            if batch and len(batch) + len(records) > _PUT:
                yield batch
                batch = []
            batch += records
        if batch:
            yield batch

    def _packed(self, item: Mapping[str, Any]) -> list[dict[str, Json]]:
        clean = _clean(dict(item))
        parts: list[str] = []
        if len(json.dumps(clean).encode()) > _INFO_BYTES:
            clean = _without_long(clean, parts)
        id_ = f"{self._prefix}{new_id()}"  # ids are in the order they are made in
        shown = f"{item.get('role') or item.get('type') or 'item'} of a session"[:_SHOWN_CHARS]
        common: dict[str, Json] = {"memory": shown, "index": False}
        info = [{"item": clean}, *({"text": part} for part in parts)]
        return [
            {**common, "id": f"{id_}.{place:05}", "info": {**each, "session": self._session}}
            for place, each in enumerate(info)
        ]


def _clean(value: Json) -> Json:
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, Mapping):
        return {storable(str(name)): _clean(each) for name, each in value.items()}
    return [_clean(each) for each in value] if isinstance(value, list | tuple) else value


def _without_long(value: Json, parts: list[str]) -> Json:
    """Return a value with the places of long texts in `parts` instead of these texts."""
    if isinstance(value, str) and len(value) > _LONG_CHARS:
        begin = len(parts)
        parts += [value[at : at + _PART_CHARS] for at in range(0, len(value), _PART_CHARS)]
        return {_PARTS: [begin, len(parts)]}
    if isinstance(value, dict):
        return {name: _without_long(each, parts) for name, each in value.items()}
    return [_without_long(each, parts) for each in value] if isinstance(value, list) else value


def _with_long(value: Json, parts: Sequence[str]) -> Json:
    if isinstance(value, dict):
        if value.keys() == {_PARTS}:
            begin, end = value[_PARTS]
            return "".join(parts[begin:end])
        return {name: _with_long(each, parts) for name, each in value.items()}
    return [_with_long(each, parts) for each in value] if isinstance(value, list) else value


def _groups(records: Sequence[Any]) -> Iterator[list[Any]]:
    """Yield the records of each item, which is a first one and those of its long texts."""
    group: list[Any] = []
    for record in records:
        if "item" in record.info and group:
            yield group
            group = []
        group.append(record)
    if group:
        yield group


def _item_of(group: Sequence[Any]) -> dict[str, Any]:
    first, *rest = group
    item: dict[str, Any] = _with_long(first.info["item"], [record.info["text"] for record in rest])
    return item


def _unpacked(records: Sequence[Any]) -> list[dict[str, Any]]:
    return [_item_of(group) for group in _groups(records) if "item" in group[0].info]


def _newest(items: list[dict[str, Any]], limit: int | None) -> list[dict[str, Any]]:
    return items if limit is None else items[-limit:] if limit > 0 else []


def _last(records: Sequence[Any]) -> tuple[list[str], dict[str, Any] | None]:
    groups = [group for group in _groups(records) if "item" in group[0].info]
    return ([record.record_id for record in groups[-1]], _item_of(groups[-1])) if groups else ([], None)
