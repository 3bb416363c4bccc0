"""The long-term store of LangGraph: the SQLite file of `SqliteStore`, or a JSON list of its items.

Source: langgraph-checkpoint-sqlite 3.1, the table `store`, and `Item.dict()`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from memos.core.types import Json
from memos.errors import InvalidInput
from memos.reader.importers import databases
from memos.reader.importers.base import ExportRecord, flat, left_out, list_in, memory_record, read_date
from memos.reader.importers.mem0 import EXPIRED
from memos.reader.importers.sources import Export, SourceFile, printable

ITEM = "langgraph:item"
_COLUMNS = ("prefix", "key", "value", "created_at", "updated_at", "expires_at")
_TEXTS = ("text", "memory", "content", "data", "fact", "value")


def is_langgraph(value: Json) -> bool:
    return isinstance(value, Mapping) and {"namespace", "key", "value"} <= set(value)


def langgraph_records(entry: Json, place: str, fallback: str) -> Iterator[ExportRecord]:
    if not is_langgraph(entry):
        yield ExportRecord(place, fallback, {}, "is not an item of a store: it has no namespace, key and value")
        return
    given = entry["namespace"]
    namespace = ".".join(str(each) for each in given) if isinstance(given, list) else str(given)
    yield _item(place, namespace, entry["key"], entry["value"], entry.get("updated_at") or entry.get("created_at"))


def is_store(export: Export) -> bool:
    return any("store" in databases.tables(file) for file in export.files)


def store_records(export: Export, fallback: str) -> Iterator[ExportRecord]:
    files = [file for file in export.files if "store" in databases.tables(file)]
    if not files:
        yield ExportRecord("the export", fallback, {}, "has no table `store`")
    for file in files:
        try:
            yield from _of_file(file, "" if len(files) == 1 else f"{file.label}: ")
        except InvalidInput as error:
            yield ExportRecord(printable(file.name), fallback, {}, error.reason)
    yield from left_out(export.others(files))


def _of_file(file: SourceFile, before: str) -> Iterator[ExportRecord]:
    with databases.opened(file) as connection:
        rows = databases.rows(connection, "store", _COLUMNS, order="prefix, created_at, key")
        for number, (prefix, key, raw, created, updated, expires) in enumerate(rows, start=1):
            place = f"{before}item {number}"
            namespace = str(prefix)
            if _is_over(expires):
                yield ExportRecord(place, namespace, {}, left_out=1, reason=EXPIRED, owner=namespace)
                continue
            try:
                value = json.loads(raw)
            except (TypeError, ValueError, RecursionError):
                yield ExportRecord(place, namespace, {}, "has a value that is not JSON", owner=namespace)
                continue
            yield _item(place, namespace, key, value, _utc(updated or created))


def _item(place: str, namespace: str, key: Json, value: Json, at: Json) -> ExportRecord:
    text, rest = _text(value)
    info = {**rest, "key": str(key), "namespace": namespace}
    return memory_record(
        place,
        f"langgraph {namespace}"[:250],
        text,
        id_=f"langgraph:{namespace}:{key}"[:250],
        tag=ITEM,
        at=at,
        info=info,
        owner=namespace,
    )


def _text(value: Json) -> tuple[str, dict[str, Json]]:
    """Return what a value says, and its other fields."""
    if isinstance(value, str):
        return value, {}
    if not isinstance(value, Mapping):
        return json.dumps(value, ensure_ascii=False, default=str), {}
    for name in _TEXTS:
        inner = value.get(name)
        if isinstance(inner, str) and inner.strip():
            return inner, flat({key: each for key, each in value.items() if key != name})
        if isinstance(inner, Mapping) and any(key in inner for key in _TEXTS):
            text, rest = _text(inner)
            return text, {**flat({key: each for key, each in value.items() if key != name}), **rest}
    if messages := list_in(value, "messages"):
        return json.dumps(messages, ensure_ascii=False, default=str), {}
    return "\n".join(f"{name}: {told}" for name, told in flat(value).items()), {}


def _utc(value: Json) -> Json:
    # SQLite's CURRENT_TIMESTAMP is in UTC and does not say so.
    return f"{value}Z" if isinstance(value, str) and len(value) == 19 else value


def _is_over(value: Json) -> bool:
    if not isinstance(value, str):
        return False
    try:
        at = read_date(_utc(value))
    except InvalidInput:
        return False
    return (at if at.tzinfo else at.replace(tzinfo=UTC)) < datetime.now(UTC)
