"""Entries made to break the readers: whatever stands in whichever field, there are records and no exception."""

from __future__ import annotations

import copy
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memos.reader.importers.formats import Format, checked, detect, read_export

SHAPES: list[Any] = [
    {
        "title": "t", "id": "i", "conversation_id": "c", "create_time": 1.0, "current_node": "b",
        "mapping": {
            "a": {"parent": None, "children": ["b"], "message": {
                "id": "m", "author": {"role": "user", "name": "n"}, "create_time": 1.0,
                "content": {"content_type": "text", "parts": ["x", {"content_type": "image_asset_pointer"}]}}},
            "b": {"parent": "a", "children": [], "message": {
                "author": {"role": "tool"}, "content": {"content_type": "code", "text": "x"},
                "metadata": {"attachments": [{"name": "f", "mime_type": "text/plain"}]}}},
        },
    },
    {
        "uuid": "u", "name": "n", "chat_messages": [
            {"uuid": "m", "sender": "human", "text": "x", "created_at": "2025-01-01", "files": [{"file_name": "f"}]},
            {"sender": "assistant", "content": [
                {"type": "text", "text": "x"}, {"type": "tool_use", "id": "i", "name": "n", "input": {"a": 1}}]},
        ],
    },
    {
        "sample_id": "s", "conversation": {
            "session_1_date_time": "1:56 pm on 8 May, 2023",
            "session_1": [{"speaker": "a", "dia_id": "d", "text": "x", "blip_caption": "c"}],
        },
    },
    {
        "haystack_session_ids": ["s"], "haystack_dates": ["2023/05/20 (Sat) 02:21"],
        "haystack_sessions": [[{"role": "user", "content": "x"}]],
    },
    [{"type": "ai", "data": {"content": ["x"], "id": "i", "tool_calls": [{"name": "n", "args": {"a": 1}, "id": "i"}]}}],
    {"messages": [{"lc": 1, "id": ["HumanMessage"], "kwargs": {
        "content": [{"type": "image", "image_url": {"url": "u"}}],
        "additional_kwargs": {"function_call": {"name": "n"}}}}]},
    {"id": "i", "messages": [{"role": "user", "content": "x", "name": "n", "chat_time": 1, "message_id": "m"}]},
    {"id": "c", "user_id": "u", "title": "t", "created_at": 1, "chat": {"history": {"currentId": "b", "messages": {
        "a": {"id": "a", "parentId": None, "role": "user", "content": "x", "timestamp": 1, "files": [{"name": "f"}]},
        "b": {"id": "b", "parentId": "a", "role": "assistant", "content": [{"type": "text", "text": "x"}]}}}}},
    {"conversationId": "c", "user": "u", "messages": [
        {"messageId": "a", "parentMessageId": "0", "text": "x", "isCreatedByUser": True, "createdAt": "2025-01-01"},
        {"messageId": "b", "parentMessageId": "a", "isCreatedByUser": False, "content": [
            {"type": "think", "think": "x"}, {"type": "text", "text": {"value": "x"}},
            {"type": "tool_call", "tool_call": {"id": "i", "name": "n", "args": "{}", "output": "x"}}]}]},
    {"name": "n", "createdAt": 1, "messages": [
        {"currentlySelected": 0, "versions": [
            {"type": "singleStep", "role": "user", "content": [{"type": "text", "text": "x"}]}]},
        {"currentlySelected": 0, "versions": [{"type": "multiStep", "role": "assistant", "steps": [
            {"type": "contentBlock", "style": {"type": "thinking"}, "content": [{"type": "text", "text": "x"}]},
            {"type": "contentBlock", "content": [{"type": "text", "text": "x"}]}]}]}]},
    {"agents": [{"id": "a", "name": "n", "block_ids": ["b"], "messages": [
        {"id": "m", "role": "user", "content": [{"type": "text", "text": "x"}], "created_at": "2025-01-01"},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "i", "function": {"name": "send_message", "arguments": '{"message": "x"}'}}]}]}],
     "blocks": [{"id": "b", "label": "l", "value": "x"}], "files": []},
    {"namespace": ["a", "b"], "key": "k", "value": {"content": {"content": "x"}}, "updated_at": "2025-01-01"},
    {"results": [{"id": "i", "memory": "x", "user_id": "u", "created_at": "2025-01-01", "metadata": {"a": "b"}}],
     "relations": [{"source": "a", "relationship": "b", "target": "c"}]},
    {"uuid": "u", "name": "n", "description": "x", "prompt_template": "x", "created_at": "2025-01-01",
     "docs": [{"uuid": "d", "filename": "f", "content": "x"}]},
    {"conversations_memory": "x", "project_memories": {"p": "x"}, "account_uuid": "a"},
]  # fmt: skip
ENTRIES = [
    Format.CHATGPT, Format.CLAUDE, Format.OPEN_WEBUI, Format.LIBRECHAT, Format.LM_STUDIO, Format.LETTA,
    Format.LANGGRAPH, Format.MEM0, Format.LOCOMO, Format.LONGMEMEVAL, Format.LANGCHAIN, Format.GENERIC,
]  # fmt: skip

ODD: list[Any] = [
    None, True, 0, -1, 10**4000, 1e308, float("nan"), "", " ", "\0", "\ud800", "x" * 300, "03/04/2023", "\x1b[31m",
    [], {}, [[]], [None], {"a": None}, "DEEP LIST", "DEEP OBJECT",
]  # fmt: skip
DEEP = {'"DEEP LIST"': "[" * 800 + "]" * 800, '"DEEP OBJECT"': '{"a":' * 800 + "1" + "}" * 800}


def paths(value: Any) -> list[tuple[Any, ...]]:
    """Return the way to every field of a value."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [(), *((key, *rest) for key, child in children for rest in paths(child))]


def replaced(value: Any, path: tuple[Any, ...], odd: Any) -> Any:
    if not path:
        return odd
    changed = copy.deepcopy(value)
    holder = changed
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = odd
    return changed


def read(path: Path, document: Any, format: Format | None = None) -> int:
    """Read a document as an import does and check what is told; return how many messages it had."""
    text = json.dumps(document)
    for mark, deep in DEEP.items():
        text = text.replace(mark, deep)
    path.write_text(text)
    count = 0
    form = format or detect(path)
    for entry in checked(read_export(path, form), ZoneInfo("UTC"), datetime(2025, 1, 1, tzinfo=UTC)):
        record = entry.record
        assert record.place.startswith("entry 1")
        assert sum((record.problem is not None, bool(record.message), record.left_out > 0 and not record.message)) == 1
        if record.problem is not None:
            assert "\n" not in record.problem
            assert len(record.problem) < 600
        count += bool(record.message)
    return count


def test_the_shapes_are_good_before_they_are_changed(tmp_path: Path) -> None:
    assert [read(tmp_path / "export.json", [shape]) for shape in SHAPES] == [
        2, 2, 1, 1, 1, 1, 1, 2, 2, 2, 3, 1, 2, 2, 2
    ]  # fmt: skip


@pytest.mark.parametrize("shape", range(len(SHAPES)))
def test_any_field_may_hold_anything(tmp_path: Path, shape: int) -> None:
    for path in paths(SHAPES[shape]):
        for odd in ODD:
            read(tmp_path / "export.json", [replaced(SHAPES[shape], path, odd)])


@pytest.mark.parametrize("format", ENTRIES)
def test_any_shape_may_be_read_as_any_format(tmp_path: Path, format: Format) -> None:
    for shape in SHAPES:
        read(tmp_path / "export.json", [shape], format)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data(), format=st.sampled_from(ENTRIES))
def test_several_fields_may_hold_anything_at_once(tmp_path: Path, data: st.DataObject, format: Format) -> None:
    shape = data.draw(st.sampled_from(SHAPES))
    for _ in range(3):
        path = data.draw(st.sampled_from(paths(shape)))
        shape = replaced(shape, path, data.draw(st.sampled_from([*ODD, *SHAPES])))
    read(tmp_path / "export.json", [shape], format)


def test_what_is_bad_is_not_counted_as_left_out(tmp_path: Path) -> None:
    odd = {"type": "ai", "data": {"content": [[]], "id": True, "tool_calls": [{"name": "n", "args": {}, "id": "i"}]}}
    assert read(tmp_path / "export.json", [[odd]], Format.LANGCHAIN) == 0
