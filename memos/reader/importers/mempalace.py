"""A palace of MemPalace: its drawers, in ChromaDB's file or its own, and the facts of its knowledge graph.

Source: mempalace 3.11, the tables that its backends write.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from sqlite3 import Connection

from memos.core.types import Json
from memos.errors import InvalidInput
from memos.reader.importers import databases
from memos.reader.importers.base import ExportRecord, memory_record, name_of
from memos.reader.importers.sources import Export, SourceFile, printable

DRAWER, FACT = "mempalace:drawer", "mempalace:fact"
SPEAKER = "mempalace"
CLOSETS = "closets, which are made of the drawers"
_CHROMA = {"collections", "segments", "embeddings", "embedding_metadata"}
_EXACT = {"collections", "documents"}
_GRAPH = {"entities", "triples"}
_DOCUMENT = "chroma:document"
_DRAWERS = "drawers"


def is_mempalace(export: Export) -> bool:
    kinds = [_kind(file) for file in export.files if databases.is_sqlite(file)]
    return "graph" in kinds or "exact" in kinds or "chroma" in kinds


def _kind(file: SourceFile) -> str | None:
    there = databases.tables(file)
    for kind, wanted in (("chroma", _CHROMA), ("exact", _EXACT), ("graph", _GRAPH)):
        if wanted <= there:
            return kind
    return None


def mempalace_records(export: Export, fallback: str) -> Iterator[ExportRecord]:
    for file in export.files:
        kind = _kind(file) if databases.is_sqlite(file) else None
        if kind is None:
            yield ExportRecord(printable(file.name), fallback, {}, left_out=1, reason="files that hold no memories")
            continue
        try:
            with databases.opened(file) as connection:
                if kind == "graph":
                    yield from _facts(connection)
                else:
                    yield from _of_chroma(connection) if kind == "chroma" else _of_documents(connection)
        except InvalidInput as error:
            yield ExportRecord(printable(file.name), fallback, {}, error.reason)
        except TypeError:  # ids that are no numbers: not what MemPalace writes
            yield ExportRecord(printable(file.name), fallback, {}, "has columns of other types than MemPalace's")


def _of_chroma(connection: Connection) -> Iterator[ExportRecord]:
    names = dict(databases.rows(connection, "collections", ["id", "name"]))
    of_segment = {
        id_: names.get(collection) for id_, collection in databases.rows(connection, "segments", ["id", "collection"])
    }
    metadata = databases.rows(
        connection, "embedding_metadata", ["id", "key", "string_value", "int_value", "float_value", "bool_value"], "id"
    )
    waiting = next(metadata, None)
    rows = databases.rows(connection, "embeddings", ["id", "segment_id", "embedding_id", "created_at"], "id")
    for number, (row, segment, drawer, created) in enumerate(rows, start=1):
        fields: dict[str, Json] = {}
        while waiting is not None and waiting[0] <= row:
            if waiting[0] == row:
                told = [value for value in waiting[2:] if value is not None]
                fields[str(waiting[1])] = told[0] if told else None
            waiting = next(metadata, None)
        text = fields.pop(_DOCUMENT, None)
        yield _drawer(f"drawer {number}", of_segment.get(segment), drawer, text, fields, created)


def _of_documents(connection: Connection) -> Iterator[ExportRecord]:
    names = dict(databases.rows(connection, "collections", ["id", "name"]))
    columns = ["collection_id", "id", "document", "metadata_json", "created_at"]
    for number, row in enumerate(databases.rows(connection, "documents", columns), start=1):
        collection, drawer, text, raw, created = row
        fields: Json = None
        with suppress(TypeError, ValueError, RecursionError):
            fields = json.loads(raw)
        more = dict(fields) if isinstance(fields, Mapping) else {}
        yield _drawer(f"drawer {number}", names.get(collection), drawer, text, more, created)


def _drawer(place: str, collection: Json, drawer: Json, text: Json, fields: dict[str, Json], at: Json) -> ExportRecord:
    wing, room = (name_of((fields.get(name),), "") for name in ("wing", "room"))
    conversation = " ".join(each for each in ("mempalace", wing, room) if each)[:250]
    if isinstance(collection, str) and _DRAWERS not in collection:
        return ExportRecord(place, conversation, {}, left_out=1, reason=CLOSETS)
    when = fields.get("content_date") or fields.get("date") or fields.get("filed_at") or at
    return memory_record(
        place,
        conversation,
        text,
        id_=f"mempalace:{drawer}"[:250],
        tag=DRAWER,
        at=when,
        name=SPEAKER,
        tags=[each for each in (wing, room) if each],
        info=fields,
    )


def _facts(connection: Connection) -> Iterator[ExportRecord]:
    names = dict(databases.rows(connection, "entities", ["id", "name"]))
    columns = [
        "id",
        "subject",
        "predicate",
        "object",
        "valid_from",
        "valid_to",
        "confidence",
        "source_file",
        "extracted_at",
    ]
    for number, row in enumerate(databases.rows(connection, "triples", columns), start=1):
        id_, subject, predicate, object_, valid_from, valid_to, confidence, source, extracted = row
        told = (names.get(subject, subject), str(predicate).replace("_", " "), names.get(object_, object_))
        info = {"confidence": confidence, "source_file": source, "predicate": predicate}
        yield memory_record(
            f"fact {number}",
            "mempalace facts",
            " ".join(map(str, told)),
            id_=f"mempalace:{id_}"[:250],
            tag=FACT,
            at=valid_from or extracted,
            name=SPEAKER,
            info=info,
            valid_from=valid_from,
            valid_to=valid_to,
        )
