"""Exports of Claude, Gemini, Open WebUI, LibreChat and LM Studio: the branch that was shown, without reasoning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memos.reader.importers.base import BRANCH, CONTENTS, REASONING, SERVICE
from memos.reader.importers.formats import Format
from tests.reader.importers.exports import left_out, problems, read, said, times, write, zipped

CLAUDE = {
    "conversations.json": [{"uuid": "c1", "name": "Bees", "chat_messages": [
        {"uuid": "m1", "sender": "human", "text": "Hi", "created_at": "2026-01-05T10:00:00Z",
         "attachments": [{"file_name": "a.txt", "extracted_content": "long"}]},
        {"uuid": "m2", "sender": "assistant", "created_at": "2026-01-05T10:00:01Z", "text": "Hello!", "content": [
            {"type": "thinking", "thinking": "…"}, {"type": "text", "text": "Hello!"}]},
    ]}],
    "projects.json": [{"uuid": "p1", "name": "Garden", "description": "My garden", "prompt_template": "Be brief.",
                       "created_at": "2026-01-01T00:00:00Z", "docs": [
                           {"uuid": "d1", "filename": "beds.md", "content": "Two beds.", "created_at": "2026-01-02"}]}],
    "memories.json": [{"conversations_memory": "Ana keeps bees.", "project_memories": {"p1": "Beds face south."},
                       "account_uuid": "u1"}],
    "users.json": [{"uuid": "u1", "full_name": "Ana", "email_address": "ana@example.org"}],
}  # fmt: skip


def test_claudes_archive_has_conversations_projects_and_memories(tmp_path: Path) -> None:
    format_, records = read(zipped(tmp_path / "data-2026.zip", CLAUDE))
    assert (format_, problems(records)) == (Format.CLAUDE, [])
    assert said(records) == [
        ("c1", "user", [{"type": "text", "text": "Hi"}, {"type": "file", "file": {"filename": "a.txt"}}]),
        ("c1", "assistant", "Hello!"),
        ("claude memories", "imported memory", "Ana keeps bees."),
        ("claude memories", "imported memory", "Beds face south."),
        ("project p1", "imported memory", "Project Garden\n\nMy garden\n\nBe brief."),
        ("project p1", "imported memory", "Two beds."),
    ]
    assert [each.tags for each in records if each.message][2:] == [("claude:memory",)] * 2 + [("claude:project",)] * 2
    assert left_out(records) == {CONTENTS: 1, REASONING: 1, "users.json, which holds no conversations": 1}


ACTIVITY = [
    {"header": "Gemini Apps", "title": "Prompted How deep do I sow peas?", "time": "2026-01-05T10:05:00.000Z",
     "products": ["Gemini Apps"], "safeHtmlItem": [{"html": "<p>About <b>5 cm</b>.</p><ul><li>in rows</li></ul>"}],
     "subtitles": [{"name": "Attached 1 file."}]},
    {"header": "Gemini Apps", "title": "Used Gemini Apps", "time": "2026-01-05T10:00:00.000Z",
     "products": ["Gemini Apps"]},
    {"header": "Gemini Apps", "title": "Prompted Hello", "time": "2026-01-05T09:00:00.000Z",
     "products": ["Gemini Apps"], "safeHtmlItem": [{"html": "<p>Hi &amp; welcome</p>"}]},
    {"header": "Bard", "title": "Said Good day", "time": "2024-01-05T09:00:00.000Z", "products": ["Bard"]},
]  # fmt: skip
CELL = (
    '<div class="outer-cell mdl-cell"><div class="mdl-grid"><div class="header-cell"><p>Gemini Apps<br></p></div>'
    '<div class="content-cell mdl-cell mdl-cell--6-col mdl-typography--body-1">Prompted\xa0How deep do I sow peas?<br>'
    "Jan 5, 2026, 10:05:00\u202fAM CET<br><p>About <b>5 cm</b>.</p><ul><li>in rows</li></ul></div>"
    '<div class="content-cell mdl-cell mdl-typography--body-1 mdl-typography--text-right"></div>'
    '<div class="content-cell mdl-cell mdl-typography--caption"><b>Products:</b><br>Gemini Apps<br></div></div></div>'
)


def test_takeouts_activity_of_gemini_is_read_day_by_day_oldest_first(tmp_path: Path) -> None:
    files = {
        "Takeout/archive_browser.html": "<html></html>",
        "Takeout/My Activity/Gemini Apps/MyActivity.json": ACTIVITY,
    }
    format_, records = read(zipped(tmp_path / "takeout.zip", files))
    assert (format_, problems(records)) == (Format.GEMINI, [])
    file = {"type": "file", "file": {}}
    assert said(records) == [
        ("gemini 2026-01-05", "user", "Hello"),
        ("gemini 2026-01-05", "assistant", "Hi & welcome"),
        ("gemini 2026-01-05", "user", [{"type": "text", "text": "How deep do I sow peas?"}, file]),
        ("gemini 2026-01-05", "assistant", "About 5 cm.\n\nin rows"),
        ("gemini 2024-01-05", "user", "Good day"),
    ]
    assert times(records)[0] == "2026-01-05 09:00:00+00:00"
    assert left_out(records) == {SERVICE: 1, "files of the type .html": 1}


def test_the_same_activity_is_read_as_html(tmp_path: Path) -> None:
    broken = CELL.replace("Jan 5, 2026, 10:05:00\u202fAM CET", "neulich")
    path = write(tmp_path, {"MyActivity.html": f"<html><body>{CELL}{broken}</body></html>"}) / "MyActivity.html"
    format_, records = read(path)
    assert format_ is Format.GEMINI
    assert said(records) == [
        ("gemini 2026-01-05", "user", "How deep do I sow peas?"),
        ("gemini 2026-01-05", "assistant", "About 5 cm.\n\nin rows"),
    ]
    assert times(records) == ["2026-01-05 10:05:00"] * 2
    assert [place for place, _ in problems(records)] == ["entry 2"]


WEBUI = {"id": "w1", "user_id": "ana", "title": "Bees", "created_at": 1_767_607_200, "chat": {
    "title": "Bees", "models": ["llama"], "messages": [], "history": {"currentId": "c", "messages": {
        "a": {"id": "a", "parentId": None, "childrenIds": ["b", "c"], "role": "user", "content": "Hi",
              "timestamp": 1_767_607_201, "files": [{"type": "file", "name": "a.pdf"}, {"type": "image", "url": "x"}]},
        "b": {"id": "b", "parentId": "a", "childrenIds": [], "role": "assistant", "content": "Other answer"},
        "c": {"id": "c", "parentId": "a", "childrenIds": [], "role": "assistant", "model": "llama",
              "timestamp": 0, "content": '<details type="reasoning" done="true">…</details>\nHello!'}}}}}  # fmt: skip


def test_open_webui_shows_one_branch_without_thoughts(tmp_path: Path) -> None:
    format_, records = read(write(tmp_path, {"chat-export-1.json": [WEBUI]}) / "chat-export-1.json")
    assert (format_, problems(records)) == (Format.OPEN_WEBUI, [])
    assert said(records) == [
        ("w1", "user", [
            {"type": "text", "text": "Hi"}, {"type": "file", "file": {"filename": "a.pdf"}},
            {"type": "image_url", "image_url": {}}]),
        ("w1", "assistant", "Hello!"),
    ]  # fmt: skip
    assert times(records) == ["2026-01-05 10:00:01+00:00"] * 2
    assert ({each.owner for each in records}, left_out(records)) == ({"ana"}, {BRANCH: 1})


def librechat(*messages: dict[str, Any]) -> dict[str, Any]:
    return {"conversationId": "l1", "title": "Bees", "endpoint": "openAI", "branches": True, "messages": [*messages]}


def turn(id_: str, parent: str, text: str, *, user: bool = False, **more: Any) -> dict[str, Any]:
    at = f"2026-01-05T10:00:0{len(id_)}.000Z"
    return {"messageId": id_, "parentMessageId": parent, "text": text, "isCreatedByUser": user, "createdAt": at, **more}


ROOT = "00000000-0000-0000-0000-000000000000"
PARTS = [
    {"type": "think", "think": "…"}, {"type": "text", "text": {"value": "Seven."}},
    {"type": "tool_call", "tool_call": {"id": "t1", "name": "count", "args": "{}", "output": "7"}},
]  # fmt: skip


def test_librechat_takes_the_newest_branch_and_recursive_exports(tmp_path: Path) -> None:
    flat = librechat(
        turn("a", ROOT, "How many?", user=True), turn("bb", "a", "Old"), turn("ccc", "a", "", content=PARTS),
        turn("dddd", "bb", "", error=True),
    )  # fmt: skip
    format_, records = read(write(tmp_path, {"a.json": flat}) / "a.json")
    assert (format_, problems(records)) == (Format.LIBRECHAT, [])
    assert left_out(records)[BRANCH] == 1  # the newest leaf is an error, on the other branch
    flat["messages"].pop()
    records = read(write(tmp_path, {"a.json": flat}) / "a.json")[1]
    assert said(records) == [("l1", "user", "How many?"), ("l1", "assistant", "Seven.")]
    assert [each.message.get("tool_calls", [{}])[0].get("function") for each in records if each.message][1] == {
        "name": "count", "arguments": "{}",
    }  # fmt: skip
    assert left_out(records) == {BRANCH: 1, REASONING: 2}
    nested = librechat({**turn("a", ROOT, "How many?", user=True), "children": [turn("bb", "a", "Seven.")]})
    assert [text for _, _, text in said(read(write(tmp_path, {"b.json": nested}) / "b.json")[1])] == [
        "How many?", "Seven.",
    ]  # fmt: skip


STUDIO = {
    "name": "Bees", "createdAt": 1_767_607_200_000, "systemPrompt": "", "messages": [
        {"currentlySelected": 1, "versions": [
            {"type": "singleStep", "role": "user", "content": [{"type": "text", "text": "How may?"}]},
            {"type": "singleStep", "role": "user", "content": [
                {"type": "text", "text": "How many?"},
                {"type": "file", "fileIdentifier": "1 - a.png", "fileType": "image"}]}]},
        {"currentlySelected": 0, "versions": [{"type": "multiStep", "role": "assistant", "steps": [
            {"type": "contentBlock", "style": {"type": "thinking"}, "content": [{"type": "text", "text": "…"}]},
            {"type": "contentBlock", "content": [{"type": "text", "text": "Seven."}]},
            {"type": "debugInfoBlock", "debugInfo": "x"}]}]},
    ],
}  # fmt: skip


def test_lm_studios_folder_has_the_selected_versions(tmp_path: Path) -> None:
    files = {"1767607200000.conversation.json": STUDIO, "Work/2.conversation.json": STUDIO, "Work/notes.txt": "x"}
    format_, records = read(write(tmp_path / "conversations", files))
    assert (format_, problems(records)) == (Format.LM_STUDIO, [])
    assert said(records)[:2] == [
        ("1767607200000", "user", [{"type": "text", "text": "How many?"}, {"type": "image_url", "image_url": {}}]),
        ("1767607200000", "assistant", "Seven."),
    ]
    assert [name for name, _, _ in said(records)][2:] == ["2", "2"]
    assert times(records)[0] == "2026-01-05 10:00:00+00:00"
    assert left_out(records) == {BRANCH: 2, REASONING: 2, "files of the type .txt": 1}


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"chat": {"history": {"currentId": "x", "messages": {"a": {"id": "a"}}}}}, "names the message 'x'"),
        ({"chat": {"history": {"currentId": "a", "messages": {"a": {"parentId": "a"}}}}}, "has a cycle"),
        ({"chat": {"history": {"messages": {"a": {"role": "user"}}}}}, "does not say which message was shown last"),
        ({"messages": [{"versions": []}]}, "has no version that can be read"),
    ],
)
def test_what_is_wrong_in_a_tree_is_named(tmp_path: Path, entry: Any, problem: str) -> None:
    [(_, told)] = problems(read(write(tmp_path, {"a.json": [entry]}) / "a.json")[1])
    assert told.startswith(problem)


def test_markup_that_means_harm_is_read_in_no_time(tmp_path: Path) -> None:
    hostile = "<!--" * 80_000 + "<a " * 80_000 + "<?" * 80_000 + "<b>x</b>"
    entry = {**ACTIVITY[0], "safeHtmlItem": [{"html": hostile}], "subtitles": []}
    files = {"My Activity/a.json": [entry], "b.html": f"{CELL}{hostile}"}
    assert len(said(read(zipped(tmp_path / "a.zip", files))[1])) == 2
    endless = b'<div class="outer-cell Gemini' + b"<!--" * 3_000_000
    path = write(tmp_path, {"MyActivity.html": endless + CELL.encode()}) / "MyActivity.html"
    assert said(read(path)[1])[0] == ("gemini 2026-01-05", "user", "How deep do I sow peas?")
    details = {**WEBUI, "chat": {"messages": [{"role": "assistant", "content": '<details type="reasoning"' * 200_000}]}}
    assert len(said(read(write(tmp_path, {"a.json": [details]}) / "a.json")[1])) == 0
