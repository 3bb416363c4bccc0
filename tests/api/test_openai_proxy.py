"""The proxy for OpenAI's clients: memory goes in, answers come through untouched, finished exchanges are remembered."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from memos.core.text.rendering import MEMORY_NOTICE
from memos.core.tokens import estimate_tokens
from memos.core.types import Trust
from memos.memcube.ledger.schema import messages as message_rows
from tests.api.conftest import Server
from tests.api.proxying import CAP, Proxy, behind, proxied
from tests.support.servers.openai_server import OpenAIServer, Said, answer, counted, error, events

TOOL = {
    "type": "function",
    "function": {"name": "weather", "description": "Tells the weather", "parameters": {"type": "object"}},
}


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    with proxied(tmp_path_factory.mktemp("proxy")) as running:
        yield running


def asking(text: Any = "Where does Maria live?", **more: Any) -> dict[str, Any]:
    return {"model": "gpt-4o", "messages": [{"role": "user", "content": text}], **more}


def test_the_official_client_gets_memory_by_its_base_url_alone(proxy: Proxy) -> None:
    key = proxy.user("sync", "My sister Maria lives in Lyon.")
    proxy.says(answer("In Lyon.", usage=counted(7, 2)))
    before = proxy.memos.statistics.totals().tokens.get("proxy", 0)
    with proxy.client(key) as client:
        got = client.chat.completions.create(**asking())
    assert got.choices[0].message.content == "In Lyon."
    assert got.usage is not None
    assert got.usage.total_tokens == 9
    assert proxy.memos.statistics.totals().tokens["proxy"] - before == 9
    system, user = proxy.asked["messages"]
    assert system["content"].startswith(MEMORY_NOTICE)
    assert "My sister Maria lives in Lyon." in system["content"]
    assert user == {"role": "user", "content": "Where does Maria live?"}
    assert proxy.stored("sync")[1:] == [("user", "Where does Maria live?"), ("assistant", "In Lyon.")]
    maria, _, stored = proxy.memos.memories.list(cube="sync")
    assert stored.info == {"recalled": [maria.id]}


def test_it_streams_and_the_exchange_is_stored_when_the_stream_ends(proxy: Proxy) -> None:
    key = proxy.user("streamed", "My sister Maria lives in Lyon.")
    proxy.says(events("In ", "Lyon", "."))
    with proxy.client(key) as client:
        pieces = [each.choices[0].delta.content for each in client.chat.completions.create(stream=True, **asking())]
    assert "".join(piece or "" for piece in pieces) == "In Lyon."
    assert proxy.stored("streamed")[1:] == [("user", "Where does Maria live?"), ("assistant", "In Lyon.")]


def test_the_asynchronous_client_does_too(proxy: Proxy) -> None:
    key = proxy.user("async", "My sister Maria lives in Lyon.")
    proxy.says(events("In Lyon."))

    async def ask() -> str:
        async with openai.AsyncOpenAI(base_url=proxy.url, api_key=key) as client:
            stream = await client.chat.completions.create(stream=True, **asking())
            return "".join([each.choices[0].delta.content or "" async for each in stream])

    assert asyncio.run(ask()) == "In Lyon."
    assert proxy.stored("async")[-1] == ("assistant", "In Lyon.")


@pytest.mark.parametrize("end", ["\r\n", "\n", "\r"])
def test_the_bytes_come_through_as_they_are(proxy: Proxy, end: str) -> None:
    key = proxy.user(f"bytes-{ord(end[0])}-{len(end)}")
    body = events("Grüße, ", "世界 \U0001f30d", "<think>", usage=counted(1, 2)).body
    raw = f": a comment{end}{end}".encode() + str(body).replace("\n", end).encode() + b"\n: what comes behind\n\n"
    said = Said(body=raw, content_type="text/event-stream; charset=utf-8", headers={
        "Set-Cookie": "a=b", "OpenAI-Organization": "the-operator", "x-ratelimit-remaining-requests": "7",
        "Keep-Alive": "timeout=5", "X-Secret": "sk-test",
    })  # fmt: skip
    proxy.says(said)
    got = proxy.post(key, asking(stream=True))
    assert got.content == raw
    assert got.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert got.headers["x-ratelimit-remaining-requests"] == "7"
    assert not {"set-cookie", "openai-organization", "keep-alive", "x-secret"} & set(got.headers)
    proxy.says(Said(body=b'{"choices": [ ],  "odd": 1.50}\n'))
    assert proxy.post(key, asking()).content == b'{"choices": [ ],  "odd": 1.50}\n'


def test_all_other_fields_go_through_and_the_key_stays_here(proxy: Proxy) -> None:
    key = proxy.user("fields")
    proxy.says(answer("ok"))
    more = {"temperature": 0.25, "seed": 2**70, "logit_bias": {"5": -1}, "stop": ["\n"], "nobody": {"knows": [None]}}
    got = proxy.post(key, asking(**more), {"X-Client": "mine", "OpenAI-Organization": "mine"})
    assert got.status_code == 200
    assert proxy.asked == {**asking(), "model": "m", **more}
    headers = proxy.upstream.asked[-1].headers
    assert headers["authorization"] == "Bearer sk-test"
    assert set(headers) <= {
        "host", "accept", "connection", "content-type", "content-length", "user-agent", "authorization",
        "accept-encoding",
    }  # fmt: skip


@pytest.mark.parametrize(("named", "asked"), [("gpt-4o", "m"), ("m", "m"), (None, "m"), (7, "m")])
def test_a_model_that_may_not_be_named_is_the_configured_one(proxy: Proxy, named: Any, asked: str) -> None:
    key = proxy.user(f"model-{named}")
    proxy.says(answer("ok"))
    assert proxy.post(key, asking() | {"model": named}).status_code == 200
    assert proxy.asked["model"] == asked


def test_the_models_are_listed(proxy: Proxy) -> None:
    with proxy.client(proxy.user("models")) as client:
        assert [model.id for model in client.models.list()] == ["m"]
        assert client.models.retrieve("m").id == "m"
        with pytest.raises(openai.NotFoundError, match="GET /models"):
            client.models.retrieve("gpt/4o")
        with pytest.raises(openai.NotFoundError, match="No such route"):
            client.embeddings.create(model="m", input="x")


def test_the_section_keeps_to_its_cap(proxy: Proxy) -> None:
    key = proxy.user("cap")
    proxy.memos.add([f"Maria has bean row {n}, and it is red and long." for n in range(60)], cube="cap", actor="cap")
    proxy.says(answer("ok"))
    proxy.post(key, asking("Which bean rows has Maria?"))
    section = proxy.asked["messages"][0]["content"]
    assert CAP / 2 < estimate_tokens(section) <= CAP
    assert section.count("bean row") > 2


def test_a_conversation_in_many_requests_is_stored_once(proxy: Proxy) -> None:
    key = proxy.user("turns")
    talk: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}]
    for question, said in (("My name is Ana.", "Hello Ana."), ("What is my name?", "Ana."), ("Thanks.", "Bye.")):
        talk.append({"role": "user", "content": question})
        proxy.says(answer(said))
        assert proxy.post(key, {"messages": talk}, {"X-Memos-Conversation": "c é".encode()}).status_code == 200
        talk.append({"role": "assistant", "content": said})
    assert proxy.stored("turns") == [(each["role"], each["content"]) for each in talk[1:]]
    assert {item.conversation for item in proxy.memos.memories.list(cube="turns")} == {"c é"}
    # What the request says anyway is not shown a second time.
    assert proxy.asked["messages"][0]["content"] == "Be brief."


def test_a_client_without_a_history_is_reminded_of_its_conversation(proxy: Proxy) -> None:
    key, headers = proxy.user("stateless"), {"X-Memos-Conversation": "c"}
    proxy.says(answer("Noted."))
    proxy.post(key, asking("The door is blue."), headers)
    proxy.post(key, asking("Zzz qqq?"), headers)
    assert "The door is blue." in proxy.asked["messages"][0]["content"].split("Said last in this conversation:")[1]


@pytest.mark.parametrize("stream", [False, True])
def test_calls_of_tools_and_their_results_are_remembered(proxy: Proxy, stream: bool) -> None:
    user = f"tools-{stream}"
    key = proxy.user(user)
    whole = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Lyon"}'}}
    pieces = [
        {"index": 0, "id": "c1", "type": "function", "function": {"name": "weather", "arguments": ""}},
        {"index": 0, "function": {"arguments": '{"city": '}},
        {"index": 0, "function": {"arguments": '"Lyon"}'}},
    ]
    calling = events(calls=pieces, finish="tool_calls")
    proxy.says(calling if stream else answer(None, tool_calls=[whole], finish="tool_calls"))
    talk: list[dict[str, Any]] = [{"role": "user", "content": "How is the weather in Lyon?"}]
    headers = {"X-Memos-Conversation": "w"}
    assert proxy.post(key, {"messages": talk, "tools": [TOOL], "stream": stream}, headers).status_code == 200
    assert proxy.asked["tools"] == [TOOL]
    talk += [
        {"role": "assistant", "content": None, "tool_calls": [whole]},
        {"role": "tool", "tool_call_id": "c1", "content": "18 degrees"},
    ]
    proxy.says(events("It is warm.") if stream else answer("It is warm."))
    assert proxy.post(key, {"messages": talk, "tools": [TOOL], "stream": stream}, headers).status_code == 200
    assert proxy.asked["messages"][-3:] == talk
    assert proxy.stored(user) == [
        ("user", "How is the weather in Lyon?"), ("assistant", 'weather({"city": "Lyon"})'), ("tool", "18 degrees"),
        ("assistant", "It is warm."),
    ]  # fmt: skip
    assert {"tool_schema", "tool_trajectory"} <= {str(item.type) for item in proxy.memos.memories.list(cube=user)}


def test_tools_that_memory_does_not_know_hinder_nothing(proxy: Proxy) -> None:
    key = proxy.user("odd-tools")
    proxy.says(answer("ok"))
    assert proxy.post(key, asking(tools=[{"type": "web_search"}])).status_code == 200
    assert proxy.stored("odd-tools")[-1] == ("assistant", "ok")


def test_content_in_parts_is_asked_for_and_stored_by_its_words(proxy: Proxy) -> None:
    key = proxy.user("parts", "My sister Maria lives in Lyon.")
    parts = [
        {"type": "text", "text": "Where does Maria live?"},
        {"type": "image_url", "image_url": {"url": "https://pictures.example.org/maria.png"}},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
        {"type": "nobody knows"}, 7,
    ]  # fmt: skip
    proxy.says(answer("In Lyon."))
    assert proxy.post(key, asking(parts)).status_code == 200
    assert "Lyon" in proxy.asked["messages"][0]["content"]
    assert proxy.asked["messages"][1]["content"] == parts
    assert proxy.stored("parts")[1] == ("user", "Where does Maria live?\n[image]\n[audio]")


@pytest.mark.parametrize("content", ["", None, [], [{"type": "image_url", "image_url": {"url": "data:,x"}}], {"a": 1}])
def test_a_message_without_words_goes_through(proxy: Proxy, content: Any) -> None:
    key = proxy.user(f"wordless-{abs(hash(str(content)))}", "My sister Maria lives in Lyon.")
    proxy.says(answer("ok"))
    assert proxy.post(key, asking(content)).status_code == 200
    assert proxy.asked["messages"][-1]["content"] == content


@pytest.mark.parametrize(
    "said",
    [
        error(429, "slow down", code="rate_limit_exceeded", headers={"Retry-After": "7"}),
        error(500, "the upstream broke"),
        error(400, "no such field", param="seed"),
        Said(404, b"<h1>not here</h1>", content_type="text/html"),
    ],
    ids=["429", "500", "400", "404"],
)
@pytest.mark.parametrize("stream", [False, True])
def test_failures_of_the_endpoint_come_through(proxy: Proxy, said: Said, stream: bool) -> None:
    user = f"failure-{said.status}-{stream}"
    key = proxy.user(user)
    proxy.says(said)
    got = proxy.post(key, asking(stream=stream))
    assert got.status_code == said.status
    assert got.content == (said.body if isinstance(said.body, bytes) else json.dumps(said.body).encode())
    assert got.headers.get("retry-after") == said.headers.get("Retry-After")
    assert got.headers["content-type"] == said.content_type
    assert proxy.stored(user) == []


def test_the_official_client_reads_a_failure_as_its_own_kind_and_tries_again(proxy: Proxy) -> None:
    key = proxy.user("retries")
    proxy.says(error(429, "slow down", headers={"retry-after-ms": "1"}), answer("ok"))
    with proxy.client(key, max_retries=1) as client:
        assert client.chat.completions.create(**asking()).choices[0].message.content == "ok"
    proxy.says(error(429, "slow down"))
    with proxy.client(key) as client, pytest.raises(openai.RateLimitError, match="slow down"):
        client.chat.completions.create(**asking())


@pytest.mark.parametrize(
    "said", [error(401, "Incorrect API key: sk-test"), Said(302, headers={"Location": "http://x"})]
)
def test_what_is_wrong_between_endpoint_and_server_is_told_as_that(proxy: Proxy, said: Said) -> None:
    key = proxy.user(f"between-{said.status}")
    proxy.says(said)
    got = proxy.post(key, asking())
    assert got.status_code == 503
    assert got.headers["x-should-retry"] == "false"
    assert "operator" in got.json()["error"]["message"]
    assert "sk-test" not in got.text


def test_an_endpoint_that_quotes_the_key_is_not_quoted(proxy: Proxy) -> None:
    proxy.says(error(403, "key sk-test may not do this"))
    got = proxy.post(proxy.user("quoted"), asking())
    assert got.status_code == 403
    assert got.json()["error"]["message"] == "key *** may not do this"


@pytest.mark.parametrize(
    "said",
    [
        answer("cut", finish="length"),
        answer("x", finish="content_filter"),
        answer(None, refusal="No."),
        answer(""),
        answer("<think>only thoughts</think>"),
        Said(body=b"no json"),
        Said(body=b"[1, 2]"),
        Said(body=b'{"choices": [{"message": 7}]}'),
        events("cut", finish="length"),
        events("no end", finish=None, done=False),
        events("nothing", calls=[{"index": "x"}]),
        Said(body=b'data: {"error": {"message": "broke"}}\n\ndata: [DONE]\n\n', content_type="text/event-stream"),
        Said(body=b"data: [DONE]\n\n", content_type="text/event-stream"),
        Said(body=b"data: " + b"[" * 9_000_000, content_type="text/event-stream"),
    ],
    ids=range(14),
)
def test_what_is_no_finished_answer_goes_through_and_is_not_remembered(
    proxy: Proxy, said: Said, request: pytest.FixtureRequest
) -> None:
    user = f"unfinished-{request.node.callspec.id}"
    key = proxy.user(user)
    proxy.says(said)
    got = proxy.post(key, asking())
    assert got.status_code == 200
    assert proxy.stored(user) == []


def test_thoughts_come_through_and_are_not_remembered(proxy: Proxy) -> None:
    key = proxy.user("thoughts")
    proxy.says(events("<think>Hm.", "</think>", "In Lyon."))
    assert "<think>Hm." in proxy.post(key, asking(stream=True)).text
    assert proxy.stored("thoughts")[-1] == ("assistant", "In Lyon.")


def test_a_stream_that_breaks_ends_with_an_error_and_is_not_remembered(proxy: Proxy) -> None:
    key = proxy.user("broken")
    said = events("In ", "Lyon.")
    proxy.says(Said(body=said.body, content_type=said.content_type, cut=len(str(said.body)) - 40))
    with proxy.client(key) as client, pytest.raises(openai.APIError, match="connection was lost"):
        list(client.chat.completions.create(stream=True, **asking()))
    assert proxy.stored("broken") == []


def test_a_client_that_goes_away_lets_the_endpoint_go_and_nothing_is_remembered(proxy: Proxy) -> None:
    key = proxy.user("gone")
    hold, left = threading.Event(), threading.Event()
    said = events("In ", "Lyon.")
    first = str(said.body).index("Lyon")
    proxy.says(Said(body=said.body, content_type=said.content_type, hold=hold, held_at=first, left=left))
    headers = {"Authorization": f"Bearer {key}"}
    with httpx2.stream("POST", f"{proxy.url}/chat/completions", json=asking(stream=True), headers=headers) as got:
        assert b"In " in next(got.iter_raw())
    assert left.wait(30)
    assert proxy.stored("gone") == []


def test_a_client_that_goes_away_from_a_whole_answer_lets_the_endpoint_go_too(proxy: Proxy) -> None:
    key = proxy.user("gone-early")
    hold, left = threading.Event(), threading.Event()
    said = answer("In Lyon.")
    proxy.says(Said(body=said.body, content_type=said.content_type, hold=hold, held_at=9, left=left))
    with pytest.raises(httpx2.ReadTimeout):
        httpx2.post(
            f"{proxy.url}/chat/completions", json=asking(), headers={"Authorization": f"Bearer {key}"}, timeout=2
        )
    assert left.wait(30)
    assert proxy.stored("gone-early") == []


def test_pieces_are_passed_on_as_they_come(proxy: Proxy) -> None:
    key = proxy.user("at-once")
    hold = threading.Event()
    said = events("In ", "Lyon.")
    proxy.says(Said(body=said.body, content_type=said.content_type, hold=hold, held_at=str(said.body).index("Lyon")))
    with proxy.client(key) as client:
        stream = client.chat.completions.create(stream=True, **asking())
        assert next(stream).choices[0].delta.content == ""
        assert next(stream).choices[0].delta.content == "In "
        assert proxy.stored("at-once") == []
        hold.set()
        assert [each.choices[0].delta.content for each in stream] == ["Lyon.", None]
    assert proxy.stored("at-once")[-1] == ("assistant", "In Lyon.")


def test_nobody_gets_anothers_memory(proxy: Proxy) -> None:
    ana, ben = proxy.user("t-ana", "My secret is a blue door."), proxy.user("t-ben", "My secret is a red door.")
    proxy.says(answer("ok"))
    assert proxy.post(ben, asking("What is my secret?")).status_code == 200
    assert "red door" in json.dumps(proxy.asked)
    assert "blue" not in json.dumps(proxy.asked)
    before = len(proxy.upstream.asked)
    for body, headers in (
        (asking(user="t-ana"), {}),
        (asking(), {"X-Memos-User": "t-ana"}),
        (asking(user="nobody"), {}),
    ):
        got = proxy.post(ben, body, headers)
        assert got.status_code in (403, 404)
        assert got.json()["error"]["type"] in ("permission_error", "not_found_error")
        assert "blue" not in got.text
    assert len(proxy.upstream.asked) == before
    assert proxy.stored("t-ana") == [("user", "My secret is a blue door.")]
    assert proxy.post(ana, asking("What is my secret?", user="t-ana")).status_code == 200
    assert "blue door" in json.dumps(proxy.asked)


def test_an_admins_key_acts_for_whom_the_request_names(proxy: Proxy) -> None:
    proxy.user("named", "My sister Maria lives in Lyon.")
    key = proxy.memos.keys.create("admin", "proxy").secret
    proxy.says(answer("In Lyon."))
    with proxy.client(key) as client:
        client.chat.completions.create(user="named", **asking())
        assert "Lyon" in proxy.asked["messages"][0]["content"]
        assert proxy.asked["user"] == "named"
        client.chat.completions.create(extra_headers={"X-Memos-User": "brand new"}, **asking())
    assert proxy.stored("named")[-1] == ("assistant", "In Lyon.")
    assert proxy.stored("brand new") == [("user", "Where does Maria live?"), ("assistant", "In Lyon.")]


def test_a_key_that_may_only_read_is_refused_unless_nothing_is_to_be_stored(proxy: Proxy) -> None:
    proxy.user("reader", "My sister Maria lives in Lyon.")
    key = proxy.memos.keys.create("reader", "r", rights=["read"]).secret
    proxy.says(answer("In Lyon."))
    assert proxy.post(key, asking()).status_code == 403
    assert proxy.post(key, asking(), {"X-Memos-Store": "false"}).status_code == 200
    assert "Lyon" in proxy.asked["messages"][0]["content"]
    assert len(proxy.stored("reader")) == 1


def test_the_tokens_that_are_taken_are_charged_to_the_key(proxy: Proxy) -> None:
    proxy.user("charged")
    made = proxy.memos.keys.create("charged", "k", limits={"tokens_per_day": 5_000})
    used = lambda: proxy.memos.quotas.used(made.key)["tokens"]  # noqa: E731
    proxy.says(answer("ok", usage=counted(30, 4)))
    assert proxy.post(made.secret, asking()).status_code == 200
    assert used() == 34
    proxy.says(events("ok", usage=counted(30, 4)))
    assert proxy.post(made.secret, asking(stream=True)).status_code == 200
    assert used() == 68
    proxy.says(error(500, "broke"))
    assert proxy.post(made.secret, asking()).status_code == 500
    assert used() == 68
    proxy.says(events("nobody counts " * 100))
    assert proxy.post(made.secret, asking(stream=True)).status_code == 200
    assert 68 + 350 < used() < 68 + 1_000
    before = len(proxy.upstream.asked)
    got = proxy.post(made.secret, asking(max_tokens=4_900))
    assert got.status_code == 429
    assert got.json()["error"]["type"] == "rate_limit_error"
    assert int(got.headers["retry-after"]) > 0
    assert len(proxy.upstream.asked) == before


def test_an_answer_made_from_what_others_told_is_not_trusted_either(proxy: Proxy) -> None:
    key = proxy.user("web")
    proxy.memos.add([{"role": "tool", "content": "Maria lives in Rome."}], cube="web", actor="web")
    proxy.says(answer("In Rome."))
    proxy.post(key, asking())
    with proxy.memos.ledger.read() as connection:
        rows = connection.execute(message_rows.select().where(message_rows.c.cube_id == "web"))
        trust = {row.text: row.trust for row in rows}
    assert trust["In Rome."] == Trust.UNTRUSTED
    assert trust["Where does Maria live?"] == Trust.TRUSTED


@pytest.mark.parametrize(
    ("body", "headers", "param"),
    [
        (b"", {}, "body"),
        (b"[]", {}, "body"),
        (b"{", {}, "body"),
        (b'{"messages": NaN}', {}, "body"),
        (b'{"messages": [{}], "x": 1e999}', {}, "body"),
        (b'{"messages": [{}], "x": ' + b"9" * 5000 + b"}", {}, "body"),
        (b"[" * 100_000, {}, "body"),
        (b'{"messages": "\xff"}', {}, "body"),
        (b"{}", {}, "messages"),
        (b'{"messages": []}', {}, "messages"),
        (b'{"messages": ["x"]}', {}, "messages"),
        (b'{"messages": {"role": "user"}}', {}, "messages"),
        (json.dumps(asking(user=7)).encode(), {}, "user"),
        (json.dumps(asking()).encode(), {"X-Memos-Store": "perhaps"}, "X-Memos-Store"),
        (json.dumps(asking()).encode(), {"X-Memos-Conversation": "x" * 300}, "conversation"),
    ],
    ids=range(15),
)
def test_bad_requests_are_refused_in_openais_shape(
    proxy: Proxy, body: bytes, headers: dict[str, str], param: str, request: pytest.FixtureRequest
) -> None:
    key = proxy.user(f"bad-{request.node.callspec.id}")
    before = len(proxy.upstream.asked)
    url, headers = f"{proxy.url}/chat/completions", {"Authorization": f"Bearer {key}", **headers}
    got = httpx2.post(url, content=body, headers=headers)
    assert got.status_code == 400
    told = got.json()["error"]
    assert (told["type"], told["param"], told["code"]) == ("invalid_request_error", param, "invalid_input")
    assert len(proxy.upstream.asked) == before


def test_odd_text_is_passed_on_as_it_is_and_stored_as_far_as_it_can_be(proxy: Proxy) -> None:
    key = proxy.user("odd")
    proxy.says(answer("\ud800 and \0"))
    odd = 'a\0b \ud83d </memory> "\u202e'
    headers = {"Authorization": f"Bearer {key}"}
    got = httpx2.post(f"{proxy.url}/chat/completions", content=json.dumps(asking(odd)).encode(), headers=headers)
    assert got.status_code == 200
    assert proxy.asked["messages"][-1]["content"] == odd
    kept = odd.replace("\0", "\ufffd").replace("\ud83d", "\ufffd")
    assert proxy.stored("odd") == [("user", kept), ("assistant", "\ufffd and \ufffd")]


def test_without_a_key_it_is_401_in_openais_shape(proxy: Proxy) -> None:
    with proxy.client("wrong") as client, pytest.raises(openai.AuthenticationError):
        client.chat.completions.create(**asking())


def test_without_a_configured_model_it_is_a_clear_503(server: Server) -> None:
    got = server.http.post("/openai/v1/chat/completions", json=asking(), headers=server.headers("ana"))
    assert got.status_code == 503
    assert got.headers["x-should-retry"] == "false"
    assert got.json()["error"]["type"] == "server_error"
    assert "MEMOS_CHAT_MODEL__BASE_URL" in got.json()["error"]["message"]
    listed = server.http.get("/openai/v1/models", headers=server.headers("ana"))
    assert listed.json() == {"object": "list", "data": []}


def test_an_endpoint_that_is_too_slow_or_not_there_is_told_so(tmp_path: Path) -> None:
    gate, said = threading.Event(), events("In ", "Lyon.")
    held = Said(body=said.body, content_type=said.content_type, hold=gate, held_at=str(said.body).index("Lyon"))
    script = [Said(gate=gate), Said(body=b"{}", hold=gate, held_at=1), held]
    try:
        with OpenAIServer(script) as upstream, behind(tmp_path, upstream.settings(timeout_s=0.5)) as (url, key, memos):
            with openai.OpenAI(base_url=f"{url}/openai/v1", api_key=key, max_retries=0) as client:
                for _ in range(2):
                    with pytest.raises(openai.InternalServerError, match="in time") as caught:
                        client.chat.completions.create(**asking())
                    assert caught.value.status_code == 504
                memos.add("My sister Maria lives in Lyon.", cube="ana")
                with pytest.raises(openai.APIError, match="in time"):
                    list(client.chat.completions.create(stream=True, **asking()))
                upstream.__exit__()
                with pytest.raises(openai.InternalServerError, match="cannot be reached") as caught:
                    client.chat.completions.create(**asking())
                assert caught.value.status_code == 503
            assert [item.memory for item in memos.memories.list(cube="ana")] == ["My sister Maria lives in Lyon."]
    finally:
        gate.set()
