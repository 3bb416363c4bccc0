"""Anthropic's official client against the proxy: memory goes in, answers come as messages, exchanges are remembered."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import pytest
from PIL import Image

from memos.api.proxy import anthropic as anthropic_routes
from memos.core.text.rendering import MEMORY_NOTICE
from memos.core.types import Json
from tests.api.conftest import Server
from tests.api.proxying import Proxy, behind, inside, proxied
from tests.support.scripted_chat import ScriptedChat
from tests.support.servers.openai_server import OpenAIServer, Said, answer, counted, error, events

TOOL: Any = {
    "name": "weather",
    "description": "Tells the weather",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
AS_FUNCTION = {
    "type": "function",
    "function": {"name": "weather", "parameters": TOOL["input_schema"], "description": "Tells the weather"},
}
CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Lyon"}'}}
PIECES = [
    {"index": 0, "id": "c1", "type": "function", "function": {"name": "weather", "arguments": ""}},
    {"index": 0, "function": {"arguments": '{"city": '}},
    {"index": 0, "function": {"arguments": '"Lyon"}'}},
]


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    with proxied(tmp_path_factory.mktemp("anthropic")) as running:
        yield running


def asking(text: Any = "Where does Maria live?", **more: Any) -> dict[str, Any]:
    return {"model": "claude-x", "max_tokens": 50, "messages": [{"role": "user", "content": text}], **more}


def post(proxy: Proxy, key: str, body: Json, **headers: str) -> httpx2.Response:
    headers = {"x-api-key": key, "anthropic-version": "2023-06-01", **headers}
    return httpx2.post(f"{proxy.root}/anthropic/v1/messages", json=body, headers=headers, timeout=60)


def picture() -> str:
    file = BytesIO()
    Image.new("RGB", (3, 3)).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def test_the_official_client_gets_memory_by_its_base_url_alone(proxy: Proxy) -> None:
    key = proxy.user("plain", "My sister Maria lives in Lyon.")
    proxy.says(answer("In Lyon.", usage={**counted(7, 2), "prompt_tokens_details": {"cached_tokens": 3}}))
    with proxy.anthropic(key) as client:
        got = client.messages.create(
            **asking(system="Be brief.", stop_sequences=["\n"]), extra_body={"temperature": 0.5, "top_k": 3}
        )
    assert [block.to_dict() for block in got.content] == [{"type": "text", "text": "In Lyon.", "citations": None}]
    assert (got.role, got.model, got.stop_reason, got.type) == ("assistant", "m", "end_turn", "message")
    assert (got.usage.input_tokens, got.usage.output_tokens, got.usage.cache_read_input_tokens) == (4, 2, 3)
    assert got._request_id
    system, user = proxy.asked["messages"]
    assert system["content"].startswith("Be brief.\n\n" + MEMORY_NOTICE)
    assert "My sister Maria lives in Lyon." in system["content"]
    assert user == {"role": "user", "content": "Where does Maria live?"}
    sent = {name: value for name, value in proxy.asked.items() if name != "messages"}
    assert sent == {"model": "m", "max_tokens": 50, "temperature": 0.5, "top_k": 3, "stop": ["\n"]}
    assert proxy.stored("plain")[1:] == [("user", "Where does Maria live?"), ("assistant", "In Lyon.")]


def test_it_streams_as_events_of_one_message_and_stores_it_at_the_end(proxy: Proxy) -> None:
    key = proxy.user("streamed", "My sister Maria lives in Lyon.")
    hold = threading.Event()
    said = events("In ", "Lyon.", usage=counted(7, 2))
    proxy.says(Said(body=said.body, content_type=said.content_type, hold=hold, held_at=str(said.body).index("Lyon")))
    with proxy.anthropic(key) as client, client.messages.stream(**asking()) as stream:
        kinds = []
        for event in stream:
            kinds.append(event.type)
            if event.type == "text" and event.text == "In ":
                assert proxy.stored("streamed") == [("user", "My sister Maria lives in Lyon.")]
                hold.set()
        got = stream.get_final_message()
    assert kinds == [
        "message_start", "content_block_start", "content_block_delta", "text", "content_block_delta", "text",
        "content_block_stop", "message_delta", "message_stop",
    ]  # fmt: skip
    assert proxy.asked["stream_options"] == {"include_usage": True}
    assert stream.get_final_text() == "In Lyon."
    assert (got.stop_reason, got.usage.input_tokens, got.usage.output_tokens) == ("end_turn", 7, 2)
    assert proxy.stored("streamed")[1:] == [("user", "Where does Maria live?"), ("assistant", "In Lyon.")]


def test_the_asynchronous_client_streams_too(proxy: Proxy) -> None:
    key = proxy.user("async")
    proxy.says(events("In Lyon."))

    async def ask() -> str:
        async with (
            anthropic.AsyncAnthropic(base_url=f"{proxy.root}/anthropic", api_key=key) as client,
            client.messages.stream(**asking()) as stream,
        ):
            return await stream.get_final_text()

    assert asyncio.run(ask()) == "In Lyon."
    assert proxy.stored("async")[-1] == ("assistant", "In Lyon.")


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_is_called_and_its_result_answered(proxy: Proxy, stream: bool) -> None:
    user = f"tools-{stream}"
    key = proxy.user(user)

    def ask(client: anthropic.Anthropic, talk: list[Any]) -> anthropic.types.Message:
        more: Any = {
            "messages": talk,
            "tools": [TOOL],
            "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        }
        if not stream:
            return client.messages.create(**asking() | more)
        with client.messages.stream(**asking() | more) as going:
            return going.get_final_message()

    with proxy.anthropic(key, default_headers={"X-Memos-Conversation": "w"}) as client:
        first = events("Let me look.", calls=PIECES, finish="tool_calls")
        whole = answer("Let me look.", tool_calls=[CALL], finish="tool_calls")
        proxy.says(first if stream else whole)
        talk: list[Any] = [{"role": "user", "content": "How is the weather in Lyon?"}]
        got = ask(client, talk)
        assert got.stop_reason == "tool_use"
        text, call = got.content
        assert (text.type, call.type) == ("text", "tool_use")
        assert isinstance(call, anthropic.types.ToolUseBlock)
        assert (call.id, call.name, call.input) == ("c1", "weather", {"city": "Lyon"})
        assert proxy.asked["tools"] == [AS_FUNCTION]
        assert (proxy.asked["tool_choice"], proxy.asked["parallel_tool_calls"]) == ("required", False)
        result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "18 degrees"}]}
        talk += [{"role": "assistant", "content": got.content}, {"role": "user", "content": [result]}]
        proxy.says(events("It is warm.") if stream else answer("It is warm."))
        assert ask(client, talk).content[0].to_dict()["text"] == "It is warm."
    assert proxy.asked["messages"][-3:] == [
        {"role": "user", "content": "How is the weather in Lyon?"},
        {"role": "assistant", "content": "Let me look.", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "18 degrees"},
    ]
    assert proxy.stored(user) == [
        ("user", "How is the weather in Lyon?"), ("assistant", 'Let me look.\nweather({"city": "Lyon"})'),
        ("tool", "18 degrees"), ("assistant", "It is warm."),
    ]  # fmt: skip
    assert {"tool_schema", "tool_trajectory"} <= {str(item.type) for item in proxy.memos.memories.list(cube=user)}


def test_images_documents_and_pictures_of_tools_reach_the_model(proxy: Proxy) -> None:
    key = proxy.user("images")
    source = {"type": "base64", "media_type": "image/png", "data": picture()}
    url = f"data:image/png;base64,{source['data']}"
    seen = {"type": "image_url", "image_url": {"url": url}}
    talk = [
        {"role": "user", "content": [
            {"type": "text", "text": "What is this?", "cache_control": {"type": "ephemeral"}},
            {"type": "image", "source": source},
            {"type": "document", "title": "a.txt", "source": {"type": "text", "media_type": "text/plain", "data": "A"}},
            {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}},
        ]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "s"},
            {"type": "tool_use", "id": "c2", "name": "look", "input": {}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c2", "is_error": True,
             "content": [{"type": "image", "source": source}]},
            {"type": "text", "text": "And now?"},
        ]},
    ]  # fmt: skip
    proxy.says(answer("A dot."))
    with proxy.anthropic(key) as client:
        client.messages.create(**asking() | {"messages": talk})
    call = {"id": "c2", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    assert proxy.asked["messages"] == [
        {"role": "user", "content": [
            {"type": "text", "text": "What is this?"}, seen, {"type": "text", "text": "a.txt"},
            {"type": "text", "text": "A"},
            {"type": "file", "file": {"filename": "document", "file_data": "data:application/pdf;base64,JVBERi0="}},
        ]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c2", "content": "The tool failed:"},
        {"role": "user", "content": [seen, {"type": "text", "text": "And now?"}]},
    ]  # fmt: skip
    assert proxy.stored("images")[1][1].startswith("[image")
    [item] = [item for item in proxy.memos.memories.list(cube="images") if item.memory.endswith("And now?")]
    assert proxy.memos.images.of(item.id)[0].media_type == "image/png"


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (answer("cut", finish="length"), "max_tokens"),
        (answer("", finish="content_filter"), "refusal"),
        (answer(None, refusal="No."), "refusal"),
        (answer(None, tool_calls=[CALL], finish="stop"), "tool_use"),
        (events("cut", finish="length"), "max_tokens"),
    ],
    ids=["cut", "filtered", "refused", "called", "cut-stream"],
)
def test_reasons_for_an_end_are_anthropics(
    proxy: Proxy, said: Said, reason: str, request: pytest.FixtureRequest
) -> None:
    user = f"reason-{request.node.callspec.id}"
    key = proxy.user(user)
    proxy.says(said)
    with proxy.anthropic(key) as client:
        if said.content_type == "text/event-stream":
            with client.messages.stream(**asking()) as stream:
                got = stream.get_final_message()
        else:
            got = client.messages.create(**asking())
    assert got.stop_reason == reason
    assert (proxy.stored(user) != []) == (reason == "tool_use")


def test_a_stop_sequence_is_named_where_the_endpoint_names_it(proxy: Proxy) -> None:
    key = proxy.user("stops")
    choice = {"index": 0, "message": {"content": "One"}, "finish_reason": "stop", "stop_reason": "END"}
    proxy.says(Said(body={"choices": [choice]}))
    with proxy.anthropic(key) as client:
        got = client.messages.create(**asking(stop_sequences=["END"]))
    assert (got.stop_reason, got.stop_sequence) == ("stop_sequence", "END")


def test_thoughts_are_shown_to_those_who_ask_for_them_and_not_remembered(proxy: Proxy) -> None:
    key = proxy.user("thoughts")
    proxy.says(answer("In Lyon.", reasoning_content="Hm."))
    with proxy.anthropic(key) as client:
        got = client.messages.create(**asking(thinking={"type": "enabled", "budget_tokens": 1024}))
        assert [block.type for block in got.content] == ["thinking", "text"]
        assert [block.type for block in client.messages.create(**asking()).content] == ["text"]
    assert "Hm." not in json.dumps(proxy.stored("thoughts"))


def test_an_answer_in_a_shape_is_asked_for_as_chat_completions_do(proxy: Proxy) -> None:
    key = proxy.user("shape")
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    proxy.says(answer('{"city": "Lyon"}'))
    more = {"output_config": {"effort": "low", "format": {"type": "json_schema", "schema": schema}}}
    assert post(proxy, key, asking(**more)).status_code == 200
    assert proxy.asked["reasoning_effort"] == "low"
    assert proxy.asked["response_format"]["json_schema"]["schema"] == schema


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (error(429, "slow down", headers={"Retry-After": "7"}), anthropic.RateLimitError),
        (error(500, "the upstream broke"), anthropic.InternalServerError),
        (error(400, "no such field"), anthropic.BadRequestError),
        (Said(404, b"<h1>not here</h1>", content_type="text/html"), anthropic.NotFoundError),
    ],
    ids=["429", "500", "400", "404"],
)
def test_failures_of_the_endpoint_are_told_in_anthropics_form(
    proxy: Proxy, said: Said, kind: type[anthropic.APIStatusError]
) -> None:
    user = f"failure-{said.status}"
    key = proxy.user(user)
    proxy.says(said)
    with proxy.anthropic(key) as client, pytest.raises(kind) as caught:
        client.messages.create(**asking())
    told: Any = caught.value.body
    assert told["type"] == "error"
    assert told["error"]["message"] in ("slow down", "the upstream broke", "no such field", "<h1>not here</h1>")
    assert caught.value.response.headers.get("retry-after") == said.headers.get("Retry-After")
    assert proxy.stored(user) == []


def test_a_limit_that_has_another_name_at_the_endpoint_is_sent_again_by_it(tmp_path: Path) -> None:
    wrong = error(400, "Unsupported parameter: 'max_tokens' ... use 'max_completion_tokens' instead.")
    with OpenAIServer([wrong, answer("ok")]) as upstream, behind(tmp_path, upstream.settings()) as (url, key, _):
        with anthropic.Anthropic(base_url=f"{url}/anthropic", api_key=key, max_retries=0) as client:
            for _ in range(2):
                assert client.messages.create(**asking()).content[0].to_dict()["text"] == "ok"
        assert [next(name for name in asked.body if name.startswith("max_")) for asked in upstream.asked] == [
            "max_tokens", "max_completion_tokens", "max_completion_tokens",
        ]  # fmt: skip


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "said",
    [
        Said(body=b"no json"),
        Said(body=b'{"choices": []}'),
        Said(body=b'data: {"error": {"message": "broke"}}\n\n', content_type="text/event-stream"),
        events("no end", finish=None, done=False),
        events(calls=[{"index": 0, "id": "c", "function": {"name": "f", "arguments": "[1]"}}], finish="tool_calls"),
        events(calls=[*PIECES, {"index": 1, "function": {"name": "f"}}, PIECES[1]], finish="tool_calls"),
    ],
    ids=range(6),
)
def test_what_is_no_complete_answer_is_an_error_and_not_remembered(
    proxy: Proxy, said: Said, stream: bool, request: pytest.FixtureRequest
) -> None:
    user = f"broken-{request.node.callspec.id}"
    key = proxy.user(user)
    proxy.says(said)
    with proxy.anthropic(key) as client, pytest.raises(anthropic.APIError):
        if stream:
            with client.messages.stream(**asking()) as going:
                going.get_final_message()
        else:
            client.messages.create(**asking())
    assert proxy.stored(user) == []


def test_a_stream_that_breaks_ends_with_an_error_and_is_not_remembered(proxy: Proxy) -> None:
    key = proxy.user("lost")
    said = events("In ", "Lyon.")
    proxy.says(Said(body=said.body, content_type=said.content_type, cut=len(str(said.body)) - 200))
    with (
        proxy.anthropic(key) as client,
        pytest.raises(anthropic.APIStatusError, match="connection was lost"),
        client.messages.stream(**asking()) as stream,
    ):
        stream.get_final_message()
    assert proxy.stored("lost") == []


def test_an_endpoint_that_does_not_stream_is_told_as_a_stream(proxy: Proxy) -> None:
    key = proxy.user("whole")
    proxy.says(answer("In Lyon.", tool_calls=[CALL], finish="tool_calls"))
    with proxy.anthropic(key) as client, client.messages.stream(**asking()) as stream:
        got = stream.get_final_message()
    assert [block.type for block in got.content] == ["text", "tool_use"]
    assert got.content[1].to_dict()["input"] == {"city": "Lyon"}


def test_a_client_that_goes_away_lets_the_endpoint_go_and_nothing_is_remembered(proxy: Proxy) -> None:
    key = proxy.user("gone")
    hold, left = threading.Event(), threading.Event()
    said = events("In ", "Lyon.")
    first = str(said.body).index("Lyon")
    proxy.says(Said(body=said.body, content_type=said.content_type, hold=hold, held_at=first, left=left))
    with proxy.anthropic(key) as client, client.messages.stream(**asking()) as stream:
        assert next(iter(stream.text_stream)) == "In "
    assert left.wait(30)
    assert proxy.stored("gone") == []


def test_an_endpoint_that_is_too_slow_is_told_so(tmp_path: Path) -> None:
    gate = threading.Event()
    try:
        with (
            OpenAIServer([Said(gate=gate)]) as upstream,
            behind(tmp_path, upstream.settings(timeout_s=0.3)) as (url, key, _),
            anthropic.Anthropic(base_url=f"{url}/anthropic", api_key=key, max_retries=0) as client,
            pytest.raises(anthropic.APIStatusError, match="in time") as caught,
        ):
            client.messages.create(**asking())
        assert (caught.value.status_code, caught.value.type) == (504, "timeout_error")
    finally:
        gate.set()


@pytest.mark.parametrize("stream", [False, True])
def test_without_memory_the_answer_comes_and_says_so(proxy: Proxy, stream: bool) -> None:
    user = f"away-{stream}"
    key = proxy.user(user, "My sister Maria lives in Lyon.")
    proxy.says(events("I do not know.") if stream else answer("I do not know."))
    proxy.embedder.away = True
    try:
        got = post(proxy, key, asking(f"Where does Maria live, {stream}?", stream=stream))
    finally:
        proxy.embedder.away = False
    assert got.status_code == 200
    assert got.headers["x-memos-failed"] == "recall"
    assert "Lyon" not in json.dumps(proxy.asked["messages"])
    assert proxy.stored(user)[-1] == ("assistant", "I do not know.")
    assert "x-memos-failed" not in post(proxy, key, asking(stream=stream)).headers


@pytest.mark.parametrize("stream", [False, True])
def test_what_cannot_be_stored_is_answered_and_says_so(proxy: Proxy, stream: bool) -> None:
    user = f"full-{stream}"
    proxy.user(user)
    key = proxy.memos.keys.create(user, "full", limits={"items_per_day": 1}).secret
    proxy.says(events("Ok.") if stream else answer("Ok."))
    got = post(proxy, key, asking(stream=stream))
    assert got.status_code == 200
    if stream:
        assert ": X-Memos-Failed: store" in got.text
        assert "message_stop" in got.text
    else:
        assert got.headers["x-memos-failed"] == "store"
    assert proxy.stored(user) == []


def test_users_are_apart_and_a_key_acts_for_its_own_alone(proxy: Proxy) -> None:
    ana, ben = proxy.user("a-ana", "My secret is a blue door."), proxy.user("a-ben", "My secret is a red door.")
    proxy.says(answer("ok"))
    assert post(proxy, ben, asking("What is my secret?")).status_code == 200
    assert "red door" in json.dumps(proxy.asked)
    assert "blue" not in json.dumps(proxy.asked)
    before = len(proxy.upstream.asked)
    for name in ("a-ana", "nobody"):
        got = post(proxy, ben, asking(metadata={"user_id": name}))
        assert got.status_code in (403, 404)
        assert got.json()["error"]["type"] in ("permission_error", "not_found_error")
    assert len(proxy.upstream.asked) == before
    assert post(proxy, ana, asking("What is my secret?", metadata={"user_id": "a-ana"})).status_code == 200
    assert "blue door" in json.dumps(proxy.asked)
    admin = proxy.memos.keys.create("admin", "proxy").secret
    assert post(proxy, admin, asking("What is my secret?", metadata={"user_id": "a-ben"})).status_code == 200
    assert "red door" in json.dumps(proxy.asked)


@pytest.mark.parametrize(
    "user_id",
    [
        f"user_{'0' * 64}_account_12345678-1234-1234-1234-123456789012_session_87654321-1234-1234-1234-123456789012",
        '{"device_id": "d", "account_uuid": "", "session_id": "87654321-1234-1234-1234-123456789012"}',
    ],
    ids=["text", "json"],
)
def test_a_session_of_claude_code_is_a_conversation_of_the_keys_owner(
    proxy: Proxy, user_id: str, request: pytest.FixtureRequest
) -> None:
    user = f"code-{request.node.callspec.id}"
    key = proxy.user(user, "My sister Maria lives in Lyon.")
    proxy.says(answer("ok"))
    reminder = "<system-reminder>\nBe a beekeeper.\n</system-reminder>\n"
    parts = [{"type": "text", "text": reminder * 3}, {"type": "text", "text": f"{reminder}Where does Maria live?"}]
    assert post(proxy, key, asking(parts, metadata={"user_id": user_id})).status_code == 200
    assert proxy.asked["messages"][1]["content"] == parts
    assert "Lyon" in proxy.asked["messages"][0]["content"]
    assert proxy.stored(user)[1:] == [("user", "Where does Maria live?"), ("assistant", "ok")]
    assert {item.conversation for item in proxy.memos.memories.list(cube=user)} == {
        None, "87654321-1234-1234-1234-123456789012",
    }  # fmt: skip


def test_nothing_is_stored_if_a_header_says_so(proxy: Proxy) -> None:
    proxy.user("reader", "My sister Maria lives in Lyon.")
    key = proxy.memos.keys.create("reader", "r", rights=["read"]).secret
    proxy.says(answer("In Lyon."))
    assert post(proxy, key, asking()).status_code == 403
    assert post(proxy, key, asking(), **{"X-Memos-Store": "false"}).status_code == 200
    assert "Lyon" in proxy.asked["messages"][0]["content"]
    assert len(proxy.stored("reader")) == 1


def test_a_wrong_key_is_refused_in_anthropics_form(proxy: Proxy) -> None:
    with proxy.anthropic("wrong") as client, pytest.raises(anthropic.AuthenticationError) as caught:
        client.messages.create(**asking())
    assert caught.value.type == "authentication_error"
    got = httpx2.post(f"{proxy.root}/anthropic/v1/messages", json=asking())
    assert got.status_code == 401
    assert "x-api-key" in got.json()["error"]["message"]
    key = proxy.user("bearer")
    proxy.says(answer("ok"))
    headers = {"Authorization": f"Bearer {key}"}  # as Claude Code sends an ANTHROPIC_AUTH_TOKEN
    assert httpx2.post(f"{proxy.root}/anthropic/v1/messages", json=asking(), headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": ["x"]}, "messages[0]"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "It"}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
        ({"messages": [{"role": "user", "content": [{"type": "search_result"}]}]}, "messages[0].content[0].type"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "file"}}]}]},
            "messages[0].content[0].source.type",
        ),
        ({"system": [{"type": "image"}]}, "system[0].type"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"name": "f"}]}, "tools[0].input_schema"),
        ({"tool_choice": {"type": "some"}}, "tool_choice.type"),
        ({"container": "c"}, "container"),
        ({"mcp_servers": [{"type": "url"}]}, "mcp_servers"),
        ({"output_config": {"format": {"type": "xml"}}}, "output_config.format.type"),
        ({"metadata": "ana"}, "metadata"),
        ({"metadata": {"user_id": 7}}, "user_id"),
        ({"max_token": 5}, "max_token"),
        ({"thinking": True}, "thinking"),
    ],
    ids=range(23),
)
def test_what_cannot_be_translated_is_refused_by_name(
    proxy: Proxy, change: dict[str, Any], named: str, request: pytest.FixtureRequest
) -> None:
    key = proxy.user(f"bad-{request.node.callspec.id}")
    before = len(proxy.upstream.asked)
    got = post(proxy, key, asking(**change))
    assert got.status_code == 400
    told = got.json()
    assert (told["type"], told["error"]["type"]) == ("error", "invalid_request_error")
    assert told["error"]["message"].startswith(f"{named}: ")
    assert len(proxy.upstream.asked) == before


def test_tokens_are_estimated(proxy: Proxy) -> None:
    key = proxy.user("count")
    with proxy.anthropic(key) as client:
        short = client.messages.count_tokens(model="m", messages=[{"role": "user", "content": "Hello"}])
        source: Any = {"type": "base64", "media_type": "image/png", "data": picture()}
        parts: Any = [{"type": "image", "source": source}, {"type": "text", "text": "Hello " * 100}]
        long = client.messages.count_tokens(model="m", messages=[{"role": "user", "content": parts}], tools=[TOOL])
    assert 0 < short.input_tokens < 10
    assert long.input_tokens > 765 + 100


def test_the_models_are_listed(proxy: Proxy) -> None:
    with proxy.anthropic(proxy.user("models")) as client:
        assert [model.id for model in client.models.list()] == ["m"]
        assert client.models.retrieve("m").display_name == "m"
        with pytest.raises(anthropic.NotFoundError):
            client.models.retrieve("other")


def test_the_tokens_that_are_taken_are_charged_to_the_key(proxy: Proxy) -> None:
    proxy.user("charged")
    made = proxy.memos.keys.create("charged", "k", limits={"tokens_per_day": 5_000})
    proxy.says(events("ok", usage=counted(30, 4)))
    assert post(proxy, made.secret, asking(stream=True)).status_code == 200
    assert proxy.memos.quotas.used(made.key)["tokens"] == 34
    got = post(proxy, made.secret, asking() | {"max_tokens": 5_000})
    assert (got.status_code, got.json()["error"]["type"]) == (429, "rate_limit_error")
    assert int(got.headers["retry-after"]) > 0


def test_without_a_configured_model_it_is_a_clear_503(server: Server) -> None:
    got = server.http.post("/anthropic/v1/messages", json=asking(), headers={"x-api-key": server.ana})
    assert got.status_code == 503
    assert got.headers["x-should-retry"] == "false"
    assert got.json()["error"]["type"] == "api_error"
    assert "MEMOS_CHAT_MODEL__BASE_URL" in got.json()["error"]["message"]
    listed = server.http.get("/anthropic/v1/models", headers={"x-api-key": server.ana})
    assert listed.json() == {"data": [], "has_more": False, "first_id": None, "last_id": None}


def test_a_model_in_this_process_answers_too(tmp_path: Path) -> None:
    model = ScriptedChat(["In Lyon.", "In Lyon."])
    with inside(tmp_path, anthropic_routes, model) as (key, http):
        headers = {"x-api-key": key}
        got = http.post("/messages", json=asking(system="Be brief."), headers=headers).json()
        assert got["content"] == [{"type": "text", "text": "In Lyon.", "citations": None}]
        assert got["usage"]["output_tokens"] > 0
        head, question = model.requests[0].messages
        assert "My sister Maria lives in Lyon." in head.content
        assert (question.role, question.content, model.requests[0].max_tokens) == (
            "user",
            asking()["messages"][0]["content"],
            50,
        )
        streamed = http.post("/messages", json=asking(stream=True), headers=headers).text
        assert '"text": "In L"' in streamed
        assert streamed.rstrip().endswith('data: {"type": "message_stop"}')
        refused = http.post("/messages", json=asking(tools=[TOOL]), headers=headers)
        assert (refused.status_code, refused.json()["error"]["type"]) == (400, "invalid_request_error")
        assert "tools" in refused.json()["error"]["message"]
