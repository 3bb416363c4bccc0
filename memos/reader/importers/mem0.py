"""mem0's memories: the JSON of `get_all`, the folder of its local Qdrant, or its collection on a Qdrant server.

Source: https://github.com/mem0ai/mem0 (mem0ai 2.2), the payloads that its memory writes.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from memos.core.message_shapes import role_of
from memos.core.types import Json, Role
from memos.errors import BackendUnavailable, InvalidInput
from memos.reader.importers import databases
from memos.reader.importers.base import (
    SPEAKER,
    ExportRecord,
    list_in,
    mapping_in,
    memory_record,
    name_of,
    read_date,
    text_in,
)
from memos.reader.importers.sources import Export, SourceFile, printable

MEMORY, RELATION = "mem0:memory", "mem0:relation"
EXPIRED = "memories that have expired"
_STORAGE = "storage.sqlite"
# What mem0 computes for itself.
_INNER = {
    "data",
    "memory",
    "hash",
    "text_lemmatized",
    "id",
    "created_at",
    "updated_at",
    "user_id",
    "agent_id",
    "run_id",
    "metadata",
    "score",
    "role",
}
_PAGE = 256


def is_mem0(value: Json) -> bool:
    """Return True for one memory, or for the answer of `get_all`."""
    if not isinstance(value, Mapping):
        return False
    if isinstance(value.get("results"), list):
        held = value["results"]
        return all(isinstance(each, Mapping) and "memory" in each for each in held[:5]) and bool(held)
    return isinstance(value.get("memory"), str) and "id" in value and not {"role", "content"} & set(value)


def mem0_records(entry: Json, place: str, fallback: str) -> Iterator[ExportRecord]:
    if not is_mem0(entry):
        yield ExportRecord(place, fallback, {}, "is not a memory of mem0: it has no id and memory")
        return
    if not isinstance(entry.get("results"), list):
        yield from _memory(entry, place)
        return
    for number, raw in enumerate(entry["results"], start=1):
        yield from _memory(raw, f"{place}, memory {number}")
    for number, raw in enumerate(list_in(entry, "relations"), start=1):
        here = f"{place}, relation {number}"
        parts = [name_of((mapping_in({"r": raw}, "r").get(name),), "") for name in _RELATION]
        text = " ".join(part.replace("_", " ") for part in parts if part)
        yield memory_record(here, "mem0", text, id_=f"{RELATION}:{text}"[:250], tag=RELATION)


_RELATION = ("source", "relationship", "target")


def _memory(raw: Json, place: str) -> Iterator[ExportRecord]:
    if not isinstance(raw, Mapping):
        yield ExportRecord(place, "mem0", {}, f"is {type(raw).__name__}, not a memory")
        return
    run, user, agent = (name_of((raw.get(name),), "") for name in ("run_id", "user_id", "agent_id"))
    conversation = f"mem0 {run}" if run else "mem0"
    ending = _ending(raw.get("expiration_date"))
    if ending is not None and ending < datetime.now(UTC):
        yield ExportRecord(place, conversation, {}, left_out=1, reason=EXPIRED, owner=user or agent)
        return
    text = raw.get("memory") if "memory" in raw else raw.get("data")
    more = {name: value for name, value in raw.items() if name not in _INNER}
    info = {**more, **mapping_in(raw, "metadata"), "user_id": user, "agent_id": agent, "run_id": run}
    if ending is not None:
        info["expires_on"] = int(f"{ending:%Y%m%d}")  # by which memos.compat.mem0 hides it from that day on
    role = role_of(raw.get("role"))
    yield memory_record(
        place,
        conversation,
        text,
        id_=f"mem0:{name_of((raw.get('id'),), place)}",
        tag=MEMORY,
        at=raw.get("updated_at") or raw.get("created_at"),
        name=name_of((raw.get("actor_id"),), user or agent or SPEAKER),
        role=Role.ASSISTANT if role == Role.ASSISTANT or (agent and not user) else Role.USER,
        info=info,
        owner=user or agent,
    )


def _ending(value: Json) -> datetime | None:
    if not isinstance(value, str) or not value:
        return None
    try:
        at = read_date(value)
    except InvalidInput:
        return None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def is_mem0_storage(export: Export) -> bool:
    """Return True for a folder that qdrant-client keeps collections in, or for the file of one."""
    return any(True for _ in _storages(export))


def _storages(export: Export) -> Iterator[SourceFile]:
    for file in export.files:
        if (export.single or file.name.rpartition("/")[2] == _STORAGE) and databases.tables(file) == {"points"}:
            yield file


def mem0_storage_records(export: Export, fallback: str) -> Iterator[ExportRecord]:
    files = [*_storages(export)]
    for file in files:
        collection = file.name.split("/")[-2] if "/" in file.name else file.stem
        try:
            with databases.opened(file) as connection:
                for number, (raw,) in enumerate(databases.rows(connection, "points", ["point"]), start=1):
                    place = f"{collection}, point {number}"
                    try:
                        point = databases.fields_of_pickle(raw if isinstance(raw, bytes) else b"")
                    except InvalidInput as error:
                        yield ExportRecord(place, fallback, {}, error.reason)
                        continue
                    yield from _point(point.get("id"), point.get("payload"), place)
        except InvalidInput as error:
            yield ExportRecord(printable(file.name), fallback, {}, error.reason)


def _point(id_: Json, payload: Json, place: str) -> Iterator[ExportRecord]:
    fields = payload if isinstance(payload, Mapping) else {}
    if "linked_memory_ids" in fields:  # an entity, found again in the memories
        yield ExportRecord(place, "mem0", {}, left_out=1, reason="entities, which are found again in the texts")
        return
    if not text_in(fields, "data"):
        yield ExportRecord(place, "mem0", {}, left_out=1, reason="points that are no memories")
        return
    yield from _memory({**fields, "id": str(id_)}, place)


def mem0_server_records(url: str, collection: str, api_key: str | None = None) -> Iterator[ExportRecord]:
    """Yield the memories of a collection on a Qdrant server.

    Raises:
        InvalidInput: There is no such collection, or qdrant-client is not installed.
        BackendUnavailable: The server cannot be reached.
    """
    try:
        from qdrant_client import QdrantClient  # noqa: PLC0415
        from qdrant_client.http.exceptions import UnexpectedResponse  # noqa: PLC0415
    except ImportError as error:
        raise InvalidInput("file", "is a Qdrant server; install the client: pip install '.[qdrant]'") from error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a key is sent without TLS: the caller's address says so
        client = QdrantClient(url=url, api_key=api_key, timeout=30, check_compatibility=False)
    offset: Any = None
    number = 0
    try:
        while True:
            points, offset = client.scroll(collection, limit=_PAGE, offset=offset, with_vectors=False)
            for point in points:
                number += 1
                yield from _point(point.id, point.payload, f"{collection}, point {number}")
            if offset is None:
                return
    except UnexpectedResponse as error:
        told = "does not exist" if error.status_code == 404 else f"cannot be read (status {error.status_code})"
        raise InvalidInput("collection", f"{collection!r} {told}; name mem0's collection with --collection") from error
    except OSError as error:
        raise BackendUnavailable(f"The Qdrant server cannot be reached ({type(error).__name__}).") from error
    except Exception as error:
        if type(error).__module__.startswith("qdrant_client"):  # its own wrapper of a connection's error
            raise BackendUnavailable(f"The Qdrant server cannot be reached ({type(error).__name__}).") from error
        raise
    finally:
        client.close()
