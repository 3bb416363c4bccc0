"""Messages of other programs in our shape: each shape once, as their packages write it, and what is left alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from memos.core.message_shapes import Shaped, shape_messages
from memos.errors import InvalidInput

PNG = "iVBORw0KGgo="
LANGCHAIN = {"additional_kwargs": {}, "response_metadata": {}, "name": None, "id": None}


class Block(BaseModel):
    """A block of an answer, as the SDKs have it."""

    type: str
    text: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None


class Answer(BaseModel):
    """An answer of Anthropic's SDK."""

    id: str = "msg_1"
    type: str = "message"
    role: str = "assistant"
    model: str = "claude"
    stop_reason: str | None = "end_turn"
    content: list[Block]


class Speaker(Enum):
    """Who speaks, as LlamaIndex and others have it."""

    USER = "user"


@dataclass
class Said:
    """A message of somebody's own."""

    role: Speaker
    content: str
    metadata: dict[str, str] = field(default_factory=dict)


def call(name: str = "f", arguments: Any = "{}", id_: Any = "c1") -> dict[str, Any]:
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}


SHAPES: dict[str, tuple[Any, list[dict[str, Any]]]] = {
    "pair": (("human", "hi"), [{"role": "user", "content": "hi"}]),
    "pair of JSON": (["ai", "hi"], [{"role": "assistant", "content": "hi"}]),
    "roles of others": ({"role": "developer", "content": "be brief"}, [{"role": "system", "content": "be brief"}]),
    "Gemini's role": ({"role": "model", "content": "hi"}, [{"role": "assistant", "content": "hi"}]),
    "created_at": (
        {"role": "user", "content": "hi", "created_at": 5},
        [{"role": "user", "content": "hi", "chat_time": 5}],
    ),
    "timestamp beside an equal chat_time": (
        {"role": "user", "content": "hi", "timestamp": 5, "chat_time": 5},
        [{"role": "user", "content": "hi", "chat_time": 5}],
    ),
    "text, speaker and metadata": (
        {"speaker": "Ann", "text": "hi", "metadata": {"a": 1}, "uuid": "u"},
        [{"name": "Ann", "content": "hi", "info": {"a": 1}, "message_id": "u"}],
    ),
    "a number as id": ({"content": "hi", "id": 7}, [{"content": "hi", "message_id": "7"}]),
    "object with an enum as role": (
        Said(Speaker.USER, "hi", {"a": "b"}),
        [{"role": "user", "content": "hi", "info": {"a": "b"}}],
    ),
    "OpenAI chat completion": (
        {"content": None, "refusal": None, "role": "assistant", "annotations": None, "audio": None,
         "function_call": None, "tool_calls": [call()]},
        [{"content": None, "role": "assistant", "tool_calls": [call()]}],
    ),
    "OpenAI refusal": (
        {"role": "assistant", "content": None, "refusal": "I will not."},
        [{"role": "assistant", "content": "I will not."}],
    ),
    "OpenAI audio": (
        {"role": "assistant", "content": None, "audio": {"id": "a", "transcript": "hello"}},
        [{"role": "assistant", "content": "hello"}],
    ),
    "OpenAI function call": (
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        [{"role": "assistant", "content": None, "tool_calls": [call(id_=None)]}],
    ),
    "OpenAI custom tool": (
        {"role": "assistant", "content": "", "tool_calls": [
            {"id": "c1", "type": "custom", "custom": {"name": "f", "input": "go"}}]},
        [{"role": "assistant", "content": "", "tool_calls": [call(arguments="go")]}],
    ),
    "OpenAI audio part": (
        {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "xx", "format": "wav"}}]},
        [{"role": "user", "content": [{"type": "file", "file": {"filename": "audio.wav"}}]}],
    ),
    "Responses input": (
        {"type": "message", "role": "user", "content": [
            {"type": "input_text", "text": "look"},
            {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "auto"},
            {"type": "input_file", "filename": "a.pdf", "file_id": "file-1"}]},
        [{"role": "user", "content": [
            {"type": "text", "text": "look"},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
            {"type": "file", "file": {"filename": "a.pdf"}}]}],
    ),
    "Responses output": (
        {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "phase": None, "content": [
            {"type": "output_text", "text": "hi", "annotations": [], "logprobs": None},
            {"type": "refusal", "refusal": "no"}]},
        [{"message_id": "msg_1", "role": "assistant", "content": [
            {"type": "text", "text": "hi"}, {"type": "text", "text": "no"}]}],
    ),
    "Responses function call": (
        {"id": "fc_1", "type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}", "status": "completed"},
        [{"role": "assistant", "content": None, "tool_calls": [call()], "message_id": "fc_1"}],
    ),
    "Responses function output": (
        {"type": "function_call_output", "call_id": "c1", "output": "42", "created_at": 5},
        [{"role": "tool", "content": "42", "tool_call_id": "c1", "chat_time": 5}],
    ),
    "Responses function output in parts": (
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "42"}]},
        [{"role": "tool", "content": [{"type": "text", "text": "42"}], "tool_call_id": "c1"}],
    ),
    "Responses MCP call": (
        {"id": "mcp_1", "type": "mcp_call", "name": "f", "arguments": "{}", "output": "42", "server_label": "s"},
        [{"role": "assistant", "content": None, "tool_calls": [call(id_="mcp_1")], "message_id": "mcp_1"},
         {"role": "tool", "content": "42", "tool_call_id": "mcp_1", "message_id": "mcp_1:output"}],
    ),
    "Anthropic answer": (
        {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "stop_reason": "tool_use",
         "stop_sequence": None, "usage": {"input_tokens": 1}, "container": None, "content": [
            {"type": "thinking", "thinking": "…", "signature": "s"},
            {"type": "text", "text": "hi"},
            {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}}]},
        [{"message_id": "msg_1", "role": "assistant", "content": [{"type": "text", "text": "hi"}],
          "tool_calls": [call(arguments={"a": 1})]}],
    ),
    "Anthropic object": (
        Answer(content=[Block(type="text", text="hi"), Block(type="tool_use", id="c1", name="f", input={"a": 1})]),
        [{"message_id": "msg_1", "role": "assistant", "tool_calls": [call(arguments={"a": 1})], "content": [
            {"type": "text", "text": "hi", "id": None, "name": None, "input": None}]}],
    ),
    "Anthropic objects in a mapping": (
        {"role": "assistant", "content": [Block(type="tool_use", id="c1", name="f", input={})]},
        [{"role": "assistant", "content": [], "tool_calls": [call(arguments="")]}],
    ),
    "Anthropic results, then words": (
        {"role": "user", "created_at": 5, "content": [
            {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "42"}]},
            {"type": "tool_result", "tool_use_id": "c2", "content": "43", "is_error": False},
            {"type": "text", "text": "and?"}]},
        [{"role": "tool", "content": [{"type": "text", "text": "42"}], "tool_call_id": "c1", "chat_time": 5},
         {"role": "tool", "content": "43", "tool_call_id": "c2", "chat_time": 5},
         {"role": "user", "content": [{"type": "text", "text": "and?"}], "chat_time": 5}],
    ),
    "Anthropic result alone": (
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": None}]},
        [{"role": "tool", "content": None, "tool_call_id": "c1"}],
    ),
    "Anthropic image": (
        {"role": "user", "content": [
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
            {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
            {"type": "image", "source": {"type": "file", "file_id": "f"}}]},
        [{"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
            {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
            {"type": "image_url", "image_url": {}}]}],
    ),
    "Anthropic documents": (
        {"role": "user", "content": [
            {"type": "document", "title": "Plan", "source": {"type": "text", "media_type": "text/plain", "data": "go"}},
            {"type": "document", "title": "a.pdf", "source": {"type": "base64", "data": "xx"}},
            {"type": "search_result", "title": "T", "source": "S", "content": [{"type": "text", "text": "found"}]}]},
        [{"role": "user", "content": [
            {"type": "text", "text": "Plan"}, {"type": "text", "text": "go"},
            {"type": "file", "file": {"filename": "a.pdf"}},
            {"type": "text", "text": "T\nS"}, {"type": "text", "text": "found"}]}],
    ),
    "LangChain object's dump": (
        {**LANGCHAIN, "content": "hi", "type": "human"},
        [{"content": "hi", "name": None, "role": "user"}],
    ),
    "LangChain chunk with calls in content and beside it": (
        {**LANGCHAIN, "id": "run-1", "type": "AIMessageChunk", "usage_metadata": None, "tool_call_chunks": [],
         "chunk_position": None, "content": ["yes", {"type": "tool_use", "id": "c1", "name": "f", "input": {}}],
         "tool_calls": [{"name": "f", "args": {"a": 1}, "id": "c1", "type": "tool_call"}], "invalid_tool_calls": []},
        [{"message_id": "run-1", "name": None, "role": "assistant", "content": [{"type": "text", "text": "yes"}],
          "tool_calls": [call(arguments={"a": 1})]}],
    ),
    "LangChain message_to_dict": (
        {"type": "tool", "data": {**LANGCHAIN, "type": "tool", "content": "4", "tool_call_id": "c1",
                                  "artifact": None, "status": "success"}},
        [{"content": "4", "name": None, "tool_call_id": "c1", "role": "tool"}],
    ),
    "LangChain dumpd": (
        {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "SystemMessage"],
         "kwargs": {"content": "be brief", "type": "system"}},
        [{"content": "be brief", "role": "system"}],
    ),
    "LangChain chat": (
        {"type": "chat", "content": "hi", "role": "user"},
        [{"content": "hi", "role": "user"}],
    ),
    "LangChain calls that OpenAI wrote": (
        {"type": "ai", "content": "", "additional_kwargs": {"tool_calls": [call()]}},
        [{"content": "", "role": "assistant", "tool_calls": [call()]}],
    ),
    "LangChain broken calls": (
        {"type": "ai", "content": "", "tool_calls": [], "invalid_tool_calls": [
            {"name": "f", "args": "{", "id": "c1", "error": "cut", "type": "invalid_tool_call"}]},
        [{"content": "", "role": "assistant", "tool_calls": [call(arguments="{")]}],
    ),
    "LangChain images": (
        {"role": "user", "content": [
            {"type": "image", "base64": PNG, "mime_type": "image/png"},
            {"type": "image", "source_type": "base64", "data": PNG, "mime_type": "image/png"},
            {"type": "image", "url": "https://example.org/a.png"}]},
        [{"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
            {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}]}],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
def test_a_known_shape_becomes_ours_and_ours_stays(name: str) -> None:
    raw, ours = SHAPES[name]
    shaped = shape_messages([raw])
    assert shaped.messages == ours
    assert shaped.places == (0,) * len(ours)
    assert shape_messages(shaped.messages).messages == ours


@pytest.mark.parametrize(
    "entry",
    [
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "x"}], "content": None},
        {"type": "item_reference", "id": "msg_1"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"type": "remove", "content": "", "id": "1"},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "x"}, {"type": "redacted_thinking"}]},
        {"role": "assistant", "content": [{"type": "server_tool_use", "id": "1"}, {"type": "web_search_tool_result"}]},
    ],
)
def test_what_nobody_said_is_left_out_and_places_go_on(entry: Any) -> None:
    shaped = shape_messages([("user", "hi"), entry, ("ai", "yes")])
    assert [message["content"] for message in shaped.messages] == ["hi", "yes"]
    assert (shaped.places, shaped.left_out > 0) == ((0, 2), True)


@pytest.mark.parametrize(
    "raw",
    [
        {"role": "user", "content": "x", "mesage": 1},
        {"role": "robot", "content": "x"},
        {"type": "humn", "content": "x"},
        {"type": "weird_item", "id": "1"},
        {"content": "x", "created_at": 1, "timestamp": 2},
        {"role": "user", "content": [{"type": "hologram"}]},
        {"role": "user", "content": [5, None]},
        {"lc": 1, "id": [], "kwargs": {}},
        5,
        None,
    ],
)
def test_what_is_not_known_stays_for_its_reader_to_refuse(raw: Any) -> None:
    [message] = shape_messages([raw]).messages
    if not isinstance(raw, dict):
        assert message == raw
    elif "id" in raw:
        assert set(message) <= {*raw, "message_id"}
    else:
        assert message == raw


def test_text_one_message_and_a_list_are_told_apart() -> None:
    assert shape_messages("hi").given == "hi"
    assert shape_messages(("user", "hi")).messages == ["user", "hi"]  # two texts: a pair stands in a list
    assert shape_messages({"role": "human", "content": "hi"}).given == {"role": "user", "content": "hi"}
    assert shape_messages([{"content": "hi"}]).given == [{"content": "hi"}]
    assert shape_messages(5) == Shaped(5)
    shaped = shape_messages(["hi"])
    assert shape_messages(shaped) is shaped


def test_an_object_that_fails_is_named_by_its_class() -> None:
    class Broken:
        def model_dump(self) -> dict[str, Any]:
            raise RuntimeError("sk-secret")

    with pytest.raises(InvalidInput, match=r"messages\[1\]: model_dump\(\) of this Broken failed") as caught:
        shape_messages(["hi", Broken()])
    assert "sk-secret" not in str(caught.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5)
    | st.sampled_from(["user", "human", "ai", "text", "tool_use", "tool_result", "thinking", "image", "function_call"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["role", "content", "type", "data", "id", "lc", "kwargs", "text", "tool_calls", "input", "name",
                         "source", "function_call", "additional_kwargs", "call_id", "output", "timestamp", "x"]),
        inner, max_size=5,
    ),
    max_leaves=12,
)  # fmt: skip


@given(JSON)
def test_any_json_is_taken_or_left_and_a_second_time_changes_nothing(raw: Any) -> None:
    once = shape_messages(raw)
    if isinstance(once.messages, list):
        assert len(once.messages) == len(once.places)
    assert shape_messages(once.messages).messages == once.messages
