"""Imports of memories that others made: owners are not mixed, changes followed, and what is over is over."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memos import MemOS
from memos.errors import InvalidInput
from memos.kernel.importing import import_export, preview_export
from tests.reader.importers.exports import write, zipped
from tests.reader.importers.test_chat_programs import ACTIVITY, CLAUDE, STUDIO, WEBUI
from tests.reader.importers.test_memory_programs import CHROMA, GRAPH, LETTA, STORE, database
from tests.reader.importers.test_messengers import ANDROID, SLACK, TELEGRAM
from tests.reader.importers.test_notes import BASIC, VAULT


def memory(id_: str, text: str, user: str = "ana", **more: Any) -> dict[str, Any]:
    at = "2026-01-05T10:00:00+00:00"
    return {"id": id_, "memory": text, "user_id": user, "created_at": at, "updated_at": None, **more}


def export(tmp_path: Path, *memories: dict[str, Any]) -> Path:
    return write(tmp_path, {"mem0.json": {"results": [*memories]}}) / "mem0.json"


def texts(memos: MemOS, cube: str = "default") -> list[str]:
    return [item.memory for item in memos.memories.list(cube=cube)]


def test_memories_of_several_users_do_not_come_into_one_cube_unasked(memos: MemOS, tmp_path: Path) -> None:
    path = export(tmp_path, memory("1", "Likes tea"), memory("2", "Plays chess", "ben/x"), memory("3", "Sails", ""))
    assert preview_export(memos, path, cube="default").owners == ("ana", "ben/x")
    with pytest.raises(InvalidInput, match=r"owners: are 2 in this export \(ana, ben/x\).*--owners split"):
        import_export(memos, path, cube="default")
    assert texts(memos) == []
    one = import_export(memos, path, cube="default", owner="ana")
    assert (one.added, one.left_out_by, texts(memos)) == (2, {"memories of other owners": 1}, ["Likes tea", "Sails"])
    with pytest.raises(InvalidInput, match="'eva' has no memories there"):
        import_export(memos, export(tmp_path, memory("1", "x")), cube="default", owner="eva")
    path = export(tmp_path, memory("1", "Likes tea"), memory("2", "Plays chess", "ben/x"), memory("3", "Sails", ""))
    split = import_export(memos, path, cube="default", owners="split")
    assert split.cubes[0] == "mem0-ana"
    assert [texts(memos, cube) for cube in split.cubes] == [["Likes tea"], ["Plays chess"], ["Likes tea", "Sails"]]
    again = import_export(memos, path, cube="default", owners="split")
    assert (again.added, again.known) == (0, 3)
    memos.cubes.create("mine")
    assert import_export(memos, path, cube="mine", owners="together").added == 3


def test_a_memory_that_the_other_program_changed_is_updated_unless_it_was_changed_here(
    memos: MemOS, tmp_path: Path
) -> None:
    import_export(memos, export(tmp_path, memory("1", "Likes tea"), memory("2", "Lives in Oslo")), cube="default")
    tea, oslo = memos.memories.list()
    newer = export(tmp_path, memory("1", "Likes coffee"), memory("2", "Lives in Bergen"), memory("3", "Sails"))
    memos.update(oslo.id, "Lives in Lyon")
    done = import_export(memos, newer, cube="default")
    assert (done.added, done.updated, done.known) == (1, 1, 0)
    [bad] = done.bad
    assert bad.problem == f"was changed since, and so was item {oslo.id} here, which is left as it is"
    assert texts(memos) == ["Likes coffee", "Lives in Lyon", "Sails"]
    assert [version.reason for version in memos.memories.history(tea.id)] == ["added", "imported again"]
    again = import_export(memos, newer, cube="default")
    assert (again.added, again.updated, again.known, len(again.bad)) == (0, 0, 2, 1)


def test_what_was_deleted_here_stays_so(memos: MemOS, tmp_path: Path) -> None:
    import_export(memos, export(tmp_path, memory("1", "Likes tea"), memory("2", "Sails")), cube="default")
    memos.delete(memos.memories.list()[0].id)
    for text in ("Likes tea", "Likes coffee"):
        done = import_export(memos, export(tmp_path, memory("1", text), memory("2", "Sails")), cube="default")
        assert (done.added, done.updated, done.known, done.bad) == (0, 0, 2, ())
    assert texts(memos) == ["Sails"]


def test_a_fact_that_ended_is_found_for_its_time_alone(memos: MemOS, tmp_path: Path) -> None:
    path = database(tmp_path / "knowledge_graph.sqlite3", GRAPH)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE triples SET valid_to = NULL")
    connection.close()
    done = import_export(memos, path, cube="default")
    assert (done.format, done.added, done.bad) == ("mempalace", 1, ())
    question = "Where does Alice work?"
    assert [hit.item.memory for hit in memos.search(question).hits] == ["Alice works at Acme"]
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE triples SET valid_to = '2024-01-01'")
    connection.close()
    ended = import_export(memos, path, cube="default")
    assert (ended.added, ended.updated, ended.known) == (0, 1, 0)
    [item] = memos.memories.list()
    assert (str(item.valid_from), str(item.valid_to)) == ("2020-01-01 00:00:00+00:00", "2024-01-01 00:00:00+00:00")
    assert memos.search(question).hits == ()
    then = memos.search(question, reference_time="2022-06-01T00:00:00Z").hits
    assert [hit.item.id for hit in then] == [item.id]
    again = import_export(memos, path, cube="default")
    assert (again.added, again.updated, again.known) == (0, 0, 1)
    assert memos.maintenance.verify().clean


def test_unknown_fields_of_plain_messages_become_info(memos: MemOS, tmp_path: Path) -> None:
    row = {"role": "human", "text": "I keep bees.", "created_at": "2026-01-05T10:00:00Z", "mood": "good", "id": 7}
    lines = [row, ["ai", "Lovely."], {**row, "nested": {"a": [1]}, "id": 8}]
    path = write(tmp_path, {"rows.jsonl": "\n".join(map(json.dumps, lines))}) / "rows.jsonl"
    done = import_export(memos, path, cube="default")
    assert (done.added, done.bad) == (3, ())
    first, second, third = memos.memories.list()
    assert (first.memory, first.role, first.info) == ("I keep bees.", "user", {"mood": "good", "id": 7})
    assert (second.role, second.info) == ("assistant", {})
    assert third.info == {"mood": "good", "nested": '{"a": [1]}', "id": 8}
    assert import_export(memos, path, cube="default").added == 0


EXPORTS: dict[str, Callable[[Path], Path]] = {
    "slack": lambda at: zipped(at / "slack.zip", SLACK),
    "telegram": lambda at: write(at, {"result.json": TELEGRAM}) / "result.json",
    "whatsapp": lambda at: write(at, {"_chat.txt": "\n".join(ANDROID)}) / "_chat.txt",
    "notes": lambda at: write(at / "vault", VAULT),
    "basic-memory": lambda at: write(at / "project", BASIC),
    "claude": lambda at: zipped(at / "claude.zip", CLAUDE),
    "gemini": lambda at: write(at, {"MyActivity.json": ACTIVITY}) / "MyActivity.json",
    "open-webui": lambda at: write(at, {"chats.json": [WEBUI]}) / "chats.json",
    "lm-studio": lambda at: write(at / "conversations", {"1.conversation.json": STUDIO}),
    "letta": lambda at: write(at, {"milo.af": LETTA}) / "milo.af",
    "langgraph": lambda at: database(at / "store.db", STORE),
    "mempalace": lambda at: database(at / "chroma.sqlite3", CHROMA),
}


@pytest.mark.parametrize("program", EXPORTS)
def test_what_every_program_exports_is_stored_once(memos: MemOS, tmp_path: Path, program: str) -> None:
    path = EXPORTS[program](tmp_path)
    preview = preview_export(memos, path, cube="default")
    first = import_export(memos, path, cube="default", owners="together")
    assert (first.format, first.added, len(first.bad)) == (program, preview.messages, preview.bad_count)
    assert (first.added > 0, first.left_out_by) == (True, preview.left_out_by)
    again = import_export(memos, path, cube="default", owners="together")
    assert (again.added, again.updated, again.known, again.bad) == (0, 0, first.added, first.bad)
    assert len(memos.memories.list()) == first.added


def test_a_grown_chat_adds_its_new_messages(memos: MemOS, tmp_path: Path) -> None:
    name = "WhatsApp Chat with Ana.txt"
    first = import_export(memos, write(tmp_path, {name: "\n".join(ANDROID)}) / name, cube="default")
    grown = write(tmp_path / "later", {f"{name[:-4]} (1).txt": "\n".join([*ANDROID, "1/14/26, 8:00 AM - Ana: Bye"])})
    done = import_export(memos, grown / f"{name[:-4]} (1).txt", cube="default")
    assert (done.added, done.known) == (1, first.added)
