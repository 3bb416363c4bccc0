"""Memories of other memory programs: mem0, Zep, Letta, LangGraph and MemPalace, with owners and valid times."""

from __future__ import annotations

import json
import pickle
import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from qdrant_client import QdrantClient, models

from memos.errors import BackendUnavailable, InvalidInput
from memos.reader.importers import graphiti
from memos.reader.importers.base import REASONING, SERVICE
from memos.reader.importers.formats import Format, label_of, read_export
from memos.reader.importers.letta import SYSTEM
from memos.reader.importers.mem0 import EXPIRED
from memos.reader.importers.mempalace import CLOSETS
from tests.reader.importers.exports import left_out, problems, read, said, times, write

MEM0 = {
    "id": "m1", "memory": "Likes pizza", "hash": "x", "user_id": "ana", "metadata": {"category": "food"},
    "created_at": "2026-01-05T10:00:00+00:00", "updated_at": None, "score": 0.5,
}  # fmt: skip


@pytest.mark.parametrize("document", [{"results": [MEM0]}, [MEM0], [{"results": [MEM0]}]])
def test_mem0s_get_all_is_read(tmp_path: Path, document: Any) -> None:
    format_, records = read(write(tmp_path, {"mem0.json": document}) / "mem0.json")
    assert (format_, problems(records)) == (Format.MEM0, [])
    [record] = records
    assert (record.conversation, record.owner, record.tags) == ("mem0", "ana", ("mem0:memory",))
    assert record.message == {
        "role": "user", "name": "ana", "content": "Likes pizza", "message_id": "mem0:m1",
        "chat_time": datetime(2026, 1, 5, 10, tzinfo=UTC), "info": {"category": "food", "user_id": "ana"},
    }  # fmt: skip


def test_runs_agents_relations_and_expired_memories_of_mem0_are_kept_apart(tmp_path: Path) -> None:
    document = {
        "results": [
            {**MEM0, "user_id": None, "agent_id": "cook", "run_id": "r1", "actor_id": "bob"},
            {**MEM0, "id": "m2", "expiration_date": "2020-01-01"},
        ],
        "relations": [{"source": "ana", "relationship": "works_at", "target": "acme"}],
    }
    records = read(write(tmp_path, {"mem0.json": document}) / "mem0.json")[1]
    assert said(records) == [("mem0 r1", "bob", "Likes pizza"), ("mem0", "imported memory", "ana works at acme")]
    assert [each.message["role"] for each in records if each.message] == ["assistant", "user"]
    assert left_out(records) == {EXPIRED: 1}


def test_mem0s_local_qdrant_is_read_without_unpickling_it(tmp_path: Path) -> None:
    client = QdrantClient(path=str(tmp_path / "qdrant"))
    for name in ("mem0", "mem0_entities"):
        size = models.VectorParams(size=2, distance=models.Distance.COSINE)
        client.create_collection(name, vectors_config=size)
    payload = {"data": "Likes pizza", "user_id": "ana", "created_at": "2026-01-05T10:00:00+00:00", "tags": ["a"]}
    points = [models.PointStruct(id="7b4d8c9e-0000-4000-8000-000000000001", vector=[1, 0], payload=payload)]
    client.upsert("mem0", points)
    entity = {"data": "pizza", "linked_memory_ids": ["7b4d8c9e-0000-4000-8000-000000000001"]}
    client.upsert("mem0_entities", [models.PointStruct(id=1, vector=[1, 0], payload=entity)])
    client.close()
    format_, records = read(tmp_path / "qdrant")
    assert (format_, problems(records)) == (Format.MEM0, [])
    assert said(records) == [("mem0", "ana", "Likes pizza")]
    assert records[0].message["message_id"] == "mem0:7b4d8c9e-0000-4000-8000-000000000001"
    assert records[0].message["info"] == {"tags": ["a"], "user_id": "ana"}
    assert sum(left_out(records).values()) == 1
    storage = tmp_path / "qdrant" / "collection" / "mem0" / "storage.sqlite"
    assert said(read(storage)[1]) == [("mem0", "ana", "Likes pizza")]

    class Harm:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "harmed",)

    with sqlite3.connect(storage) as connection:
        connection.execute("UPDATE points SET point = ?", (pickle.dumps(Harm()),))
        connection.execute("INSERT INTO points VALUES ('b', ?)", (b"nonsense",))
    connection.close()
    assert [problem for _, problem in problems(read(storage)[1])] == ["cannot be read (UnpicklingError)"] * 2
    assert not (tmp_path / "harmed").exists()


WRAPPED = json.dumps({"type": "user_message", "message": "I keep bees.", "time": "…"})
ANSWER = {"id": "c1", "type": "function", "function": {"name": "send_message", "arguments": '{"message": "Lovely!"}'}}
LETTA = {
    "agents": [{"id": "agent-0", "name": "Milo", "block_ids": ["block-0"], "messages": [
        {"id": "m0", "role": "system", "content": [{"type": "text", "text": "You are Milo."}]},
        {"id": "m1", "role": "user", "created_at": "2026-01-05T10:00:00Z", "content": [
            {"type": "text", "text": WRAPPED}]},
        {"id": "m2", "role": "assistant", "created_at": "2026-01-05T10:00:01Z",
         "content": [{"type": "text", "text": "inner thought"}], "tool_calls": [ANSWER]},
        {"id": "m3", "role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": '{"status": "OK"}'}]},
        {"id": "m4", "role": "user", "content": [{"type": "text", "text": '{"type": "heartbeat", "reason": "…"}'}]},
        {"id": "m5", "role": "assistant", "content": [
            {"type": "reasoning", "reasoning": "…"}, {"type": "text", "text": "Anything else?"}]},
    ]}],
    "blocks": [{"id": "block-0", "label": "human", "value": "Ana keeps bees."},
               {"id": "b2", "label": "x", "value": " "}],
    "files": [{"id": "f"}], "groups": [], "tools": [],
}  # fmt: skip


def test_lettas_agent_file_has_blocks_and_what_was_said(tmp_path: Path) -> None:
    format_, records = read(write(tmp_path, {"milo.af": LETTA}) / "milo.af")
    assert (format_, problems(records)) == (Format.LETTA, [])
    assert said(records) == [
        ("letta Milo", "Milo", "human: Ana keeps bees."),
        ("letta Milo", "user", "I keep bees."),
        ("letta Milo", "assistant", "Lovely!"),
        ("letta Milo", "assistant", "Anything else?"),
    ]
    assert left_out(records) == {SYSTEM: 1, SERVICE: 2, REASONING: 2, "files and sources of agents": 1}
    older = {"agent_type": "memgpt_agent", "name": "Old", "core_memory": [{"label": "human", "value": "Ana"}],
             "messages": [{"role": "user", "text": "hi", "created_at": "2025-01-05T10:00:00"}]}  # fmt: skip
    assert [text for _, _, text in said(read(write(tmp_path, {"old.af": older}) / "old.af")[1])] == ["human: Ana", "hi"]


STORE = """
CREATE TABLE store (prefix text NOT NULL, key text NOT NULL, value text NOT NULL,
    created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP, updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
    expires_at TIMESTAMP, ttl_minutes REAL, PRIMARY KEY (prefix, key));
INSERT INTO store VALUES
    ('memories.ana', 'k1', '{"text": "Likes tea", "mood": "good"}', '2026-01-05 10:00:00', '2026-01-05 10:00:00',
        NULL, NULL),
    ('memories.ana', 'k2', '{"kind": "Memory", "content": {"content": "Plays chess"}}', '2026-01-05 10:00:01',
        '2026-01-06 10:00:00', '2999-01-01 00:00:00+00:00', 5),
    ('memories.ben', 'k3', '{"theme": "dark", "size": 3}', '2026-01-05 10:00:00', NULL, NULL, NULL),
    ('memories.ben', 'k4', '{}', '2026-01-05 10:00:00', NULL, '2020-01-01 00:00:00+00:00', 5),
    ('memories.ben', 'k5', 'no json', '2026-01-05 10:00:00', NULL, NULL, NULL);
"""


def database(path: Path, script: str) -> Path:
    with sqlite3.connect(path) as connection:
        connection.executescript(script)
    connection.close()
    return path


def test_langgraphs_store_is_read_from_its_file_and_from_json(tmp_path: Path) -> None:
    format_, records = read(database(tmp_path / "store.db", STORE))
    assert format_ is Format.LANGGRAPH
    assert said(records) == [
        ("langgraph memories.ana", "imported memory", "Likes tea"),
        ("langgraph memories.ana", "imported memory", "Plays chess"),
        ("langgraph memories.ben", "imported memory", "theme: dark\nsize: 3"),
    ]
    assert times(records)[:2] == ["2026-01-05 10:00:00+00:00", "2026-01-06 10:00:00+00:00"]
    assert {each.owner for each in records} == {"memories.ana", "memories.ben"}
    assert records[0].message["info"] == {"mood": "good", "key": "k1", "namespace": "memories.ana"}
    assert left_out(records) == {EXPIRED: 1}
    assert problems(records) == [("item 5", "has a value that is not JSON")]
    items = [{"namespace": ["memories", "ana"], "key": "k1", "value": {"text": "Likes tea"},
              "created_at": "2026-01-05T10:00:00", "updated_at": "2026-01-05T10:00:00", "score": None}]  # fmt: skip
    format_, listed = read(write(tmp_path, {"items.json": items}) / "items.json")
    assert (format_, said(listed)) == (Format.LANGGRAPH, said(records)[:1])
    assert listed[0].message["message_id"] == records[0].message["message_id"]


CHROMA = """
CREATE TABLE collections (id TEXT PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE segments (id TEXT PRIMARY KEY, type TEXT NOT NULL, scope TEXT NOT NULL, collection TEXT NOT NULL);
CREATE TABLE embeddings (id INTEGER PRIMARY KEY, segment_id TEXT NOT NULL, embedding_id TEXT NOT NULL,
    seq_id BLOB NOT NULL, created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, UNIQUE (segment_id, embedding_id));
CREATE TABLE embedding_metadata (id INTEGER, key TEXT NOT NULL, string_value TEXT, int_value INTEGER,
    float_value REAL, bool_value INTEGER, PRIMARY KEY (id, key));
INSERT INTO collections VALUES ('c1', 'mempalace_drawers'), ('c2', 'mempalace_closets');
INSERT INTO segments VALUES ('s1', 'm', 'METADATA', 'c1'), ('s2', 'm', 'METADATA', 'c2');
INSERT INTO embeddings VALUES (1, 's1', 'd1', 1, '2026-01-05 10:00:00'), (2, 's1', 'd2', 2, '2026-01-05 10:00:00'),
    (3, 's2', 'd3', 3, '2026-01-05 10:00:00');
INSERT INTO embedding_metadata VALUES (1, 'chroma:document', 'Bees need water.', NULL, NULL, NULL),
    (1, 'wing', 'garden', NULL, NULL, NULL), (1, 'room', 'bees', NULL, NULL, NULL),
    (1, 'filed_at', '2026-01-04T09:00:00', NULL, NULL, NULL), (1, 'chunk_index', NULL, 0, NULL, NULL),
    (3, 'chroma:document', 'closet', NULL, NULL, NULL);
"""
EXACT = """
CREATE TABLE collections (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE documents (collection_id INTEGER NOT NULL, id TEXT NOT NULL, document TEXT NOT NULL,
    metadata_json TEXT NOT NULL, embedding BLOB NOT NULL, created_at TEXT NOT NULL, PRIMARY KEY (collection_id, id));
INSERT INTO collections VALUES (1, 'mempalace_drawers');
INSERT INTO documents VALUES (1, 'd1', 'Bees need water.', '{"wing": "garden", "room": "bees"}', x'00', '2026-01-05');
"""
GRAPH = """
CREATE TABLE entities (id TEXT PRIMARY KEY, name TEXT NOT NULL, type TEXT);
CREATE TABLE triples (id TEXT PRIMARY KEY, subject TEXT NOT NULL, predicate TEXT NOT NULL, object TEXT NOT NULL,
    valid_from TEXT, valid_to TEXT, confidence REAL, source_file TEXT, extracted_at TEXT);
INSERT INTO entities VALUES ('alice', 'Alice', 'person'), ('acme', 'Acme', 'unknown');
INSERT INTO triples VALUES ('t1', 'alice', 'works_at', 'acme', '2020-01-01', '2026-01-01', 1.0, NULL, '2026-01-02');
"""


def test_a_palace_of_mempalace_has_drawers_and_facts_with_their_time(tmp_path: Path) -> None:
    palace = tmp_path / "palace"
    palace.mkdir()
    database(palace / "chroma.sqlite3", CHROMA)
    database(palace / "knowledge_graph.sqlite3", GRAPH)
    (palace / "config.yaml").write_text("x")
    format_, records = read(palace)
    assert format_ is Format.MEMPALACE
    assert said(records) == [
        ("mempalace garden bees", "mempalace", "Bees need water."),
        ("mempalace facts", "mempalace", "Alice works at Acme"),
    ]
    drawer, fact = (each for each in records if each.message)
    assert drawer.tags == ("mempalace:drawer", "garden", "bees")
    assert drawer.message["info"]["chunk_index"] == 0
    assert (fact.valid_from, fact.valid_to) == (datetime(2020, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC))
    assert left_out(records) == {CLOSETS: 1, "files that hold no memories": 1}
    assert problems(records) == [("drawer 2", "has no text")]
    assert said(read(database(tmp_path / "sqlite_exact.sqlite3", EXACT))[1]) == said(records)[:1]


def test_a_view_is_no_table_and_a_damaged_database_is_told(tmp_path: Path) -> None:
    script = f"{STORE}; ALTER TABLE store RENAME TO held; CREATE VIEW store AS SELECT * FROM held;"
    with pytest.raises(InvalidInput, match=r"is not (?:UTF-8|JSON)"):
        read(database(tmp_path / "view.db", script))
    path = database(tmp_path / "store.db", STORE)
    raw = bytearray(path.read_bytes())
    raw[-4096:] = b"\xff" * 4096
    path.write_bytes(raw)
    [(place, problem)] = problems(read(path)[1])
    assert (place, problem.startswith("cannot be read as a database")) == ("store.db", True)


def test_episodes_facts_and_entities_of_a_graph_are_records() -> None:
    at = datetime(2026, 1, 5, 10, tzinfo=UTC)
    row = {"uuid": "e1", "group_id": "ana", "name": "talk", "source": "message", "description": "chat",
           "content": "Ana(user): I work at Acme.", "valid_at": at, "created_at": at}  # fmt: skip
    said_ = graphiti.episode(row, 1)
    assert (said_.conversation, said_.owner, said_.message["content"]) == ("zep ana", "ana", "I work at Acme.")
    assert (said_.message["name"], said_.message["role"]) == ("Ana", "user")
    answered = graphiti.episode({**row, "content": "assistant: Noted."}, 2)
    assert (answered.message["role"], "name" in answered.message) == ("assistant", False)
    told = graphiti.episode({**row, "source": "text", "content": "A page: of text"}, 3)
    assert (told.message["content"], told.tags) == ("A page: of text", ("zep:episode",))
    over = graphiti.fact(
        {"uuid": "f1", "group_id": "ana", "name": "WORKS_AT", "fact": "Ana works at Acme", "valid_at": at,
         "invalid_at": None, "expired_at": datetime(2026, 2, 1, tzinfo=UTC), "subject": "Ana", "object": "Acme"}, 1,
    )  # fmt: skip
    assert (over.valid_from, over.valid_to) == ("2026-01-05T10:00:00+00:00", "2026-02-01T00:00:00+00:00")
    assert over.message["info"] == {"relation": "WORKS_AT", "subject": "Ana", "object": "Acme"}
    [known, empty] = [graphiti.entity({"uuid": "n", "name": "Ana", "summary": text}, 1) for text in ("keeps bees", "")]
    assert (known.message["content"], empty.left_out) == ("Ana: keeps bees", 1)


def test_a_server_that_is_away_is_told_without_its_password() -> None:
    for url, format_ in (("bolt://neo4j:secret@127.0.0.1:9", Format.ZEP), ("http://u:secret@127.0.0.1:9", Format.MEM0)):
        assert "secret" not in label_of(url)
        with pytest.raises(BackendUnavailable, match=r"cannot be (?:read|reached)") as caught:
            list(read_export(url, format_))
        assert "secret" not in str(caught.value)
    with pytest.raises(InvalidInput, match="letta is not read from a server"):
        list(read_export("bolt://127.0.0.1:9", Format.LETTA))
