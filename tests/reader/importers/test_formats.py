"""Each format: recognised, read as messages in order, and what cannot be read named by its place."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from memos.reader.importers.formats import CheckedRecord, Format, checked, detect, read_export

NOW = datetime(2025, 1, 1, tzinfo=UTC)


def records(folder: Path, document: Any, format: Format | None = None) -> list[CheckedRecord]:
    """Read a document as an import does: recognised (unless forced), checked, in the cube's zone (here Paris)."""
    path = folder / "export.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return list(checked(read_export(path, format or detect(path)), ZoneInfo("Europe/Paris"), NOW))


def messages(found: list[CheckedRecord]) -> list[dict[str, Any]]:
    return [entry.record.message for entry in found if entry.record.message]


def said(found: list[CheckedRecord]) -> list[tuple[str, str, Any]]:
    return [
        (entry.record.conversation, entry.record.message["role"], entry.record.message["content"])
        for entry in found
        if entry.record.message
    ]


def problems(found: list[CheckedRecord]) -> list[tuple[str, str]]:
    return [(entry.record.place, entry.record.problem) for entry in found if entry.record.problem is not None]


def left_out(found: list[CheckedRecord]) -> int:
    return sum(entry.record.left_out for entry in found)


# ChatGPT


def node(parent: str | None, role: str = "user", text: Any = "", **fields: Any) -> dict[str, Any]:
    content = text if isinstance(text, dict) else {"content_type": "text", "parts": [text]}
    return {"parent": parent, "children": [], "message": {"author": {"role": role}, "content": content, **fields}}


def chat(mapping: dict[str, Any], current: Any = None, **fields: Any) -> dict[str, Any]:
    for key, entry in mapping.items():
        if isinstance(entry, dict) and entry.get("parent") in mapping:
            mapping[entry["parent"]]["children"].append(key)
    return {
        "conversation_id": "c-1",
        "title": "A trip",
        "create_time": 1.0,
        "mapping": mapping,
        "current_node": current,
        **fields,
    }


def test_of_a_chatgpt_conversation_the_branch_shown_last_is_read(tmp_path: Path) -> None:
    mapping = {
        "root": {"parent": None, "children": [], "message": None},
        "s": node("root", "system"),
        "q": node("s", "user", "Where to?", id="m-q", create_time=1_700_000_000.5),
        "old": node("q", "assistant", "To Rome."),
        "a": node("q", "assistant", "To Pisa.", create_time=1_700_000_060),
        "t": node("a", "tool", {"content_type": "execution_output", "text": "42"}),
    }
    mapping["t"]["message"]["author"]["name"] = "python"
    found = records(tmp_path, [chat(mapping, "t")])
    assert said(found) == [
        ("c-1", "user", "Where to?"),
        ("c-1", "assistant", "To Pisa."),
        ("c-1", "tool", "42"),
    ]
    assert [message["message_id"] for message in messages(found)] == ["m-q", "a", "t"]
    assert messages(found)[0]["chat_time"] == datetime(2023, 11, 14, 22, 13, 20, 500_000, tzinfo=UTC)
    assert messages(found)[2]["chat_time"] == messages(found)[1]["chat_time"]
    assert messages(found)[2]["name"] == "python"
    assert (problems(found), left_out(found)) == ([], 2)  # the empty system node, the answer on the other branch


def test_chatgpt_parts_that_are_not_text_stand_as_marks_and_thoughts_are_left_out(tmp_path: Path) -> None:
    image = {"content_type": "image_asset_pointer", "asset_pointer": "file-service://x"}
    spoken = {"content_type": "audio_transcription", "text": "spoken"}
    mapping = {
        "a": node(None, "user", {"content_type": "multimodal_text", "parts": ["look", image, spoken, {"x": 1}]}),
        "b": node("a", "assistant", {"content_type": "thoughts", "thoughts": [{"content": "hm"}]}),
        "c": node("b", "assistant", {"content_type": "code", "language": "python", "text": "print(1)"}),
        "d": node("c", "user", "hidden", metadata={"is_visually_hidden_from_conversation": True}),
        "e": node("d", "user", "", metadata={"attachments": [{"name": "plan.pdf"}, {"mime_type": "image/png"}]}),
    }
    found = records(tmp_path, [chat(mapping)])
    first, second, third = messages(found)
    assert [part["type"] for part in first["content"]] == ["text", "image_url", "text", "file"]
    assert second["content"] == "print(1)"
    assert third["content"] == [{"type": "file", "file": {"filename": "plan.pdf"}}]
    assert (problems(found), left_out(found)) == ([], 2)


@pytest.mark.parametrize(("conversation", "place", "problem"), [
    (chat({}), "entry 1", "no current_node"),
    (chat({"a": node(None, text="x"), "b": node(None, text="y")}), "entry 1", "no current_node"),
    (chat({"a": node("b", text="x"), "b": node("a", text="y")}, "a"), "entry 1", "cycle at the node 'a'"),
    (chat({"a": node("gone", text="x")}, "a"), "entry 1", "the node 'gone', which is missing"),
    (chat({"a": node(None, text="x")}, ["a"]), "entry 1", "the node ['a'], which is missing"),
    (chat({"a": 5}, "a"), "entry 1", "the node 'a'"),
    (chat({"a": {"parent": None, "message": 5}}, "a"), "entry 1, message 1", "is int"),
    (chat({"a": node(None, "oracle", "x")}), "entry 1, message 1", "'oracle' is unknown; use one of system, user"),
    (chat({"a": node(None, None, "x")}), "entry 1, message 1", "None is unknown"),  # type: ignore[arg-type]
    (chat({"a": node(None, text={"content_type": "hologram"})}), "entry 1, message 1", "'hologram', which is unknown"),
    (chat({"a": node(None, text={"content_type": ["x"]})}), "entry 1, message 1", "which is unknown"),
    (chat({"a": node(None, text="x", content=["x"])}), "entry 1, message 1", "content that is list"),
    (chat({"a": node(None, text="x", create_time="03/04/2023")}), "entry 1, message 1", "ambiguous"),
    ({"title": "x"}, "entry 1", "is not a ChatGPT conversation"),
], ids=range(14))  # fmt: skip
def test_what_is_wrong_in_a_chatgpt_conversation_is_named(
    tmp_path: Path, conversation: Any, place: str, problem: str
) -> None:
    [(where, told)] = problems(records(tmp_path, [conversation], Format.CHATGPT))
    assert where == place
    assert problem in told


# Claude


def claude(*turns: Any, **fields: Any) -> dict[str, Any]:
    return {
        "uuid": "c-1",
        "name": "A trip",
        "created_at": "2025-01-01T00:00:00Z",
        "chat_messages": list(turns),
        **fields,
    }


def test_a_claude_conversation_is_read_with_its_tools_and_files(tmp_path: Path) -> None:
    remark = "This block is not supported on your current device yet."
    found = records(tmp_path, [claude(
        {"uuid": "m-1", "sender": "human", "text": "Hello", "content": [], "created_at": "2025-01-02T03:04:05.5Z"},
        {"uuid": "m-2", "sender": "assistant", "text": f"Hi\n{remark}", "created_at": "2025-01-02T03:05Z", "content": [
            {"type": "thinking", "thinking": "a greeting"},
            {"type": "text", "text": "Hi"},
            {"type": "tool_use", "id": "t-1", "name": "clock", "input": {"zone": "UTC"}},
            {"type": "tool_result", "content": "3:05"},
            {"type": "text", "text": "It is 3:05."},
        ]},
        {"uuid": "m-3", "sender": "human", "text": "", "attachments": [
            {"file_name": "notes.txt", "extracted_content": "many words"}], "files": [{"file_name": "a.png"}]},
        {"uuid": "m-4", "sender": "assistant", "text": "", "content": [{"type": "text", "text": " "}]},
    )])  # fmt: skip
    first, second, third = messages(found)
    assert (first["role"], first["content"], first["message_id"]) == ("user", "Hello", "m-1")
    assert first["chat_time"] == datetime(2025, 1, 2, 3, 4, 5, 500_000, tzinfo=UTC)
    assert second["content"] == "Hi\nIt is 3:05."
    [call] = second["tool_calls"]
    assert (call["id"], call["function"]) == ("t-1", {"name": "clock", "arguments": {"zone": "UTC"}})
    assert [part["file"]["filename"] for part in third["content"]] == ["notes.txt", "a.png"]
    assert {entry.record.conversation for entry in found} == {"c-1"}
    assert (problems(found), left_out(found)) == ([], 4)  # two blocks, the attachment's words, the empty turn


@pytest.mark.parametrize(("turn", "problem"), [
    ({"sender": "narrator", "text": "x"}, "'narrator' is unknown"),
    ({"text": "x"}, "None is unknown"),
    ({"sender": "human", "text": "x", "created_at": "yesterday"}, "is not a time"),
    (7, "is int"),
])  # fmt: skip
def test_what_is_wrong_in_a_claude_conversation_is_named(tmp_path: Path, turn: Any, problem: str) -> None:
    good = {"sender": "human", "text": "fine"}
    found = records(tmp_path, [claude(good, turn, good)])
    [(where, told)] = problems(found)
    assert where == "entry 1, message 2"
    assert problem in told
    assert len(messages(found)) == 2


# LoCoMo and LongMemEval


SAMPLE = {
    "sample_id": "conv-1",
    "conversation": {
        "speaker_a": "Ann", "speaker_b": "Ben",
        "session_10_date_time": "9:05 am on 2 June, 2023",
        "session_10": [{"speaker": "Ben", "dia_id": "D10:1", "text": "Last."}],
        "session_2_date_time": "1:56 pm on 8 May, 2023",
        "session_2": [
            {"speaker": "Ann", "dia_id": "D2:1", "text": "Look!", "img_url": ["u"], "blip_caption": "a dog"},
            {"speaker": "Ben", "dia_id": "D2:2", "text": "Nice."},
        ],
        "session_11_date_time": "9:05 am on 3 June, 2023",
    },
    "qa": [{"question": "What is it?", "answer": "a dog"}],
}  # fmt: skip


def test_locomo_sessions_become_conversations_of_their_sample(tmp_path: Path) -> None:
    found = records(tmp_path, [SAMPLE, {**SAMPLE, "sample_id": "conv-2"}])
    turns = [("conv-1/session_2", "Ann", "D2:1", "Look! [image: a dog]"), ("conv-1/session_2", "Ben", "D2:2", "Nice."),
             ("conv-1/session_10", "Ben", "D10:1", "Last.")]  # fmt: skip
    expected = [*turns, *((name.replace("conv-1", "conv-2"), *rest) for name, *rest in turns)]
    assert [
        (entry.record.conversation, message["name"], message["message_id"], message["content"])
        for entry in found
        if (message := entry.record.message)
    ] == expected
    assert messages(found)[0]["chat_time"].replace(tzinfo=None) == datetime(2023, 5, 8, 13, 56)  # noqa: DTZ001
    assert {message["role"] for message in messages(found)} == {"user"}
    assert (problems(found), left_out(found)) == ([], 0)


def test_what_is_wrong_in_a_locomo_sample_is_named(tmp_path: Path) -> None:
    turns = [{"speaker": "Ann", "dia_id": "D1:1"}, "x", {"speaker": "Ann", "dia_id": "D1:2", "text": " "}]
    sample = {"sample_id": "s", "conversation": {"session_1": turns, "session_2": 5, "session_2_date_time": "soon"}}
    found = problems(records(tmp_path, [sample, {"conversation": {}}], Format.LOCOMO))
    assert [place for place, _ in found] == [
        "entry 1, session_1, message 1", "entry 1, session_1, message 2", "entry 1, session_1, message 3",
        "entry 1, session_2", "entry 2",
    ]  # fmt: skip
    for (_, told), word in zip(found, ("no text", "is str", "empty", "is int", "not a LoCoMo sample"), strict=True):
        assert word in told


def question(*sessions: tuple[str, str, list[Any]]) -> dict[str, Any]:
    return {
        "question_id": "q", "question": "What?", "answer": "That.",
        "haystack_session_ids": [name for name, _, _ in sessions],
        "haystack_dates": [date for _, date, _ in sessions],
        "haystack_sessions": [turns for _, _, turns in sessions],
    }  # fmt: skip


def test_longmemeval_sessions_become_conversations(tmp_path: Path) -> None:
    turns = [{"role": "user", "content": "hi", "has_answer": True}, {"role": "assistant", "content": "hello"}]
    first = question(("s-1", "2023/05/20 (Sat) 02:21", turns), ("s-2", "2023/05/21 (Sun) 02:21", turns[:1]))
    found = records(tmp_path, [first, question(("s-1", "2023/04/01 (Sat) 00:00", turns))])
    again = [("s-1", "user", "hi"), ("s-1", "assistant", "hello")]
    assert said(found) == [*again, ("s-2", "user", "hi"), *again]
    ids = [(entry.record.conversation, entry.record.message["message_id"]) for entry in found]
    assert ids[:2] == ids[3:] == [("s-1", "turn-1"), ("s-1", "turn-2")]
    assert messages(found)[0]["chat_time"].replace(tzinfo=None) == datetime(2023, 5, 20, 2, 21)  # noqa: DTZ001
    assert not any(entry.late for entry in found), "a session told again, at another date, is no wrong order"


def test_what_is_wrong_in_a_longmemeval_question_is_named(tmp_path: Path) -> None:
    turns = [{"role": "user", "content": ""}, {"role": "user"}, {"content": "x"}, 5]
    short = {**question(("s", "2023/05/20", [])), "haystack_dates": []}
    same = question(("s-1", "2023/05/20", [{"role": "user", "content": "other"}]), ("t", "2023/05/20", "x"))  # type: ignore[arg-type]
    first = question(("s-1", "2023/05/20", [{"role": "user", "content": "hi"}, *turns]))
    found = problems(records(tmp_path, [first, short, same, {}], Format.LONGMEMEVAL))
    words = ("empty", "no content", "None is unknown", "is int", "number of haystack_dates", "of entry 1, session 1",
             "not a list of turns", "not a LongMemEval")  # fmt: skip
    for (_, told), word in zip(found, words, strict=True):
        assert word in told
    assert found[0][0] == "entry 1, session 1, message 2"


# LangChain


def lc(kind: str, **kwargs: Any) -> dict[str, Any]:
    return {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", kind], "kwargs": kwargs}


CALL = {"name": "clock", "args": {"zone": "UTC"}, "id": "t-1"}
PLAIN = [
    {"type": "system", "data": {"content": "Be brief."}},
    {"type": "human", "data": {"content": "What time?", "name": "Ann", "id": "m-1", "additional_kwargs": {}}},
    {"type": "ai", "data": {"content": "", "tool_calls": [CALL], "invalid_tool_calls": []}},
    {"type": "tool", "data": {"content": "3:05", "name": "clock", "tool_call_id": "t-1"}},
    {"type": "AIMessageChunk", "data": {"content": [{"type": "text", "text": "It is"}, "3:05.", {"type": "thinking"}]}},
]
SERIALISED = [
    lc("SystemMessage", content="Be brief."),
    lc("HumanMessage", content="What time?", name="Ann", id="m-1"),
    lc("AIMessage", content="", additional_kwargs={"tool_calls": [
        {"id": "t-1", "type": "function", "function": {"name": "clock", "arguments": {"zone": "UTC"}}}]}),
    lc("ToolMessage", content="3:05", name="clock", tool_call_id="t-1"),
    lc("AIMessageChunk", content="It is\n3:05.", tool_calls=[]),
]  # fmt: skip


@pytest.mark.parametrize(
    "written", [PLAIN, SERIALISED, {"id": "export", "messages": PLAIN}, {"id": "export", "messages": SERIALISED}]
)
def test_langchain_messages_are_read_in_both_forms(tmp_path: Path, written: Any) -> None:
    found = records(tmp_path, written)
    assert said(found) == [
        ("export", "system", "Be brief."), ("export", "user", "What time?"), ("export", "assistant", ""),
        ("export", "tool", "3:05"), ("export", "assistant", "It is\n3:05."),
    ]  # fmt: skip
    _, question, call, answer, _ = messages(found)
    assert (question["name"], question["message_id"]) == ("Ann", "m-1")
    assert call["tool_calls"] == [
        {"id": "t-1", "type": "function", "function": {"name": "clock", "arguments": {"zone": "UTC"}}}
    ]
    assert (answer["name"], answer["tool_call_id"]) == ("clock", "t-1")
    assert problems(found) == []


def test_lists_of_langchain_messages_are_conversations_and_old_forms_are_read(tmp_path: Path) -> None:
    older = {"function_call": {"name": "clock", "arguments": "{}"}}
    chat_message = {"type": "chat", "data": {"content": "hello", "role": "Human"}}
    pixels = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    seen = {"type": "human", "data": {"content": [pixels, {"type": "image_url", "image_url": "https://x/y.png"}]}}
    found = records(
        tmp_path, [[chat_message], [{"type": "ai", "data": {"content": "", "additional_kwargs": older}}, seen]]
    )
    assert [(name, role) for name, role, _ in said(found)] == [
        ("export-1", "user"), ("export-2", "assistant"), ("export-2", "user")
    ]  # fmt: skip
    assert messages(found)[1]["tool_calls"][0]["function"]["name"] == "clock"
    assert [part.get("was") for part in messages(found)[2]["content"]] == [None, "https://x/y.png"]


@pytest.mark.parametrize(("message", "problem"), [
    ({"type": "remove", "data": {"content": "x"}}, "the type 'remove', which is unknown; use human, ai, system"),
    ({"type": "human", "content": "x"}, "not a LangChain message"),
    (lc("HumanMessage"), "has no content"),
    ({"type": "ai", "data": {"content": " ", "tool_calls": []}}, "empty"),
    ({"type": "ai", "data": {"content": "x", "tool_calls": 5}}, "must be a list"),
    ({"type": "ai", "data": {"content": "x", "tool_calls": [5]}}, "must look like"),
    ({"type": "chat", "data": {"content": "x"}}, "'chat', which is unknown"),
    ({"lc": 1, "type": "not_implemented", "id": [], "repr": "x"}, "not a LangChain message"),
    (5, "not a LangChain message"),
])  # fmt: skip
def test_what_is_wrong_in_langchain_messages_is_named(tmp_path: Path, message: Any, problem: str) -> None:
    found = records(tmp_path, [PLAIN[0], message, PLAIN[1]], Format.LANGCHAIN)
    [(where, told)] = problems(found)
    assert where == "entry 2"
    assert problem in told
    assert len(messages(found)) == 2


# All of them


@pytest.mark.parametrize(("document", "format"), [
    ([chat({"a": node(None, text="x")})], Format.CHATGPT),
    (chat({"a": node(None, text="x")}), Format.CHATGPT),
    ([claude()], Format.CLAUDE),
    ({"conversations": [claude()]}, Format.CLAUDE),
    ([SAMPLE], Format.LOCOMO),
    (SAMPLE, Format.LOCOMO),
    ([question()], Format.LONGMEMEVAL),
    (PLAIN, Format.LANGCHAIN),
    (SERIALISED, Format.LANGCHAIN),
    ([SERIALISED], Format.LANGCHAIN),
    ([None, 5, claude()], Format.CLAUDE),
    ([], Format.GENERIC),
    ([[]], Format.GENERIC),
    ([{"role": "user", "content": "x", "type": "human"}], Format.GENERIC),
    ([{"id": "a", "messages": []}], Format.GENERIC),
    ([{"conversation": "a", "content": "x"}], Format.GENERIC),
])  # fmt: skip
def test_the_format_is_recognised_by_the_first_entry(tmp_path: Path, document: Any, format: Format) -> None:
    path = tmp_path / "export.json"
    path.write_text(json.dumps(document))
    assert detect(path) is format


@pytest.mark.parametrize(("given", "role"), [
    ("human", "user"), ("Human", "user"), ("USER", "user"), ("ai", "assistant"), ("bot", "assistant"),
    ("model", "assistant"), ("function", "tool"), ("developer", "system"),
])  # fmt: skip
def test_common_names_of_roles_are_understood(tmp_path: Path, given: str, role: str) -> None:
    assert said(records(tmp_path, [{"role": given, "content": "x"}])) == [("export", role, "x")]


def test_a_time_earlier_than_the_one_before_in_its_conversation_is_late(tmp_path: Path) -> None:
    times = [
        "20 May 2023 10:00",
        "20 May 2023 12:00",
        "2023-05-20T11:00:00",
        "2023-05-20T11:00:00",
        None,
        1_600_000_000,
    ]
    lines = [{"content": f"{n}", "chat_time": time} for n, time in enumerate(times)]
    other = {"content": "x", "chat_time": "2020-01-01", "conversation": "other"}
    found = records(tmp_path, [*lines[:3], other, *lines[3:]])
    assert [entry.record.message["content"] for entry in found if entry.late] == ["2", "5"]
