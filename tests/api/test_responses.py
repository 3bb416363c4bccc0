"""OpenAI's Responses API against the proxy: answers with memory, stored as messages, continued by their ids."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from PIL import Image
from pydantic import BaseModel

from memos.api.proxy import openai as openai_routes
from memos.core.text.rendering import MEMORY_NOTICE
from memos.core.types import Json
from tests.api.conftest import Server
from tests.api.proxying import Proxy, behind, inside, proxied
from tests.support.scripted_chat import ScriptedChat
from tests.support.servers.openai_server import OpenAIServer, Said, answer, counted, error, events

TOOL: Any = {
    "type": "function",
    "name": "weather",
    "description": "Tells the weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": False,
}
CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Lyon"}'}}
PIECES = [
    {"index": 0, "id": "c1", "type": "function", "function": {"name": "weather", "arguments": ""}},
    {"index": 0, "function": {"arguments": '{"city": '}},
    {"index": 0, "function": {"arguments": '"Lyon"}'}},
]


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    with proxied(tmp_path_factory.mktemp("responses")) as running:
        yield running


def asking(said: Any = "Where does Maria live?", **more: Any) -> dict[str, Any]:
    return {"model": "gpt-5", "input": said, **more}


def post(proxy: Proxy, key: str, body: Json, **headers: str) -> httpx2.Response:
    headers = {"Authorization": f"Bearer {key}", **headers}
    return httpx2.post(f"{proxy.url}/responses", json=body, headers=headers, timeout=60)


def picture() -> str:
    file = BytesIO()
    Image.new("RGB", (3, 3)).save(file, "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def said_to(proxy: Proxy) -> list[tuple[str, Any]]:
    """Return the messages that reached the endpoint, without what was recalled."""
    told = [(each["role"], each["content"]) for each in proxy.asked["messages"]]
    return [(role, text) for role, text in told if not (isinstance(text, str) and text.startswith(MEMORY_NOTICE))]


def test_the_official_client_gets_memory_and_its_response_is_stored(proxy: Proxy) -> None:
    key = proxy.user("plain", "My sister Maria lives in Lyon.")
    usage = {**counted(7, 2), "prompt_tokens_details": {"cached_tokens": 3}}
    proxy.says(answer("In Lyon.", usage=usage))
    with proxy.client(key) as client:
        got = client.responses.create(
            **asking(instructions="Be brief.", temperature=0.5, metadata={"subject": "family"}),
            extra_body={"seed": 7},
        )
        assert (got.output_text, got.status, got.model) == ("In Lyon.", "completed", "m")
        assert got.usage is not None
        assert (got.usage.input_tokens, got.usage.output_tokens, got.usage.total_tokens) == (7, 2, 9)
        assert got.usage.input_tokens_details.cached_tokens == 3
        assert client.responses.retrieve(got.id) == got
        [item] = client.responses.input_items.list(got.id)
        assert item.to_dict()["content"] == [{"type": "input_text", "text": "Where does Maria live?"}]
    system, user = proxy.asked["messages"]
    assert system["content"].startswith("Be brief.\n\n" + MEMORY_NOTICE)
    assert "My sister Maria lives in Lyon." in system["content"]
    assert user == {"role": "user", "content": "Where does Maria live?"}
    sent = {name: value for name, value in proxy.asked.items() if name != "messages"}
    assert sent == {"model": "m", "temperature": 0.5, "seed": 7}
    assert proxy.stored("plain")[1:] == [("user", "Where does Maria live?"), ("assistant", "In Lyon.")]
    found = proxy.memos.memories.list(cube="plain", filter={"info.subject": "family"})
    assert len(found) == 2


def test_it_streams_events_and_stores_the_response_before_the_last(proxy: Proxy) -> None:
    key = proxy.user("streamed")
    hold = threading.Event()
    said = events("In ", "Lyon.", usage=counted(7, 2))
    proxy.says(Said(body=said.body, content_type=said.content_type, hold=hold, held_at=str(said.body).index("Lyon")))
    with proxy.client(key) as client:
        seen: list[Any] = []
        for event in client.responses.create(stream=True, **asking()):
            seen.append(event)
            if event.type == "response.output_text.delta" and event.delta == "In ":
                assert proxy.stored("streamed") == []
                hold.set()
            if event.type == "response.completed":
                assert proxy.stored("streamed")[-1] == ("assistant", "In Lyon.")
        assert [event.type.removeprefix("response.") for event in seen] == [
            "created", "in_progress", "output_item.added", "content_part.added", "output_text.delta",
            "output_text.delta", "output_text.done", "content_part.done", "output_item.done", "completed",
        ]  # fmt: skip
        assert [event.sequence_number for event in seen] == list(range(10))
        assert seen[-1].response.usage.total_tokens == 9
        assert client.responses.retrieve(seen[0].response.id) == seen[-1].response
        proxy.says(events("In Lyon."))
        with client.responses.stream(**asking()) as stream:
            assert stream.get_final_response().output_text == "In Lyon."
    assert proxy.asked["stream_options"] == {"include_usage": True}


def test_the_asynchronous_client_does_too(proxy: Proxy) -> None:
    key = proxy.user("async")
    proxy.says(events("In Lyon."))

    async def ask() -> str:
        async with (
            openai.AsyncOpenAI(base_url=proxy.url, api_key=key) as client,
            client.responses.stream(**asking()) as stream,
        ):
            return (await stream.get_final_response()).output_text

    assert asyncio.run(ask()) == "In Lyon."
    assert proxy.stored("async")[-1] == ("assistant", "In Lyon.")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("way", ["previous", "resent", "referred"])
def test_a_tool_is_called_and_its_output_answered(proxy: Proxy, stream: bool, way: str) -> None:
    user = f"tools-{stream}-{way}"
    key = proxy.user(user)

    def ask(client: openai.OpenAI, given: Any, **more: Any) -> Any:
        more = {"tools": [TOOL], "tool_choice": {"type": "function", "name": "weather"}, **more}
        if not stream:
            return client.responses.create(**asking(given), **more)
        with client.responses.stream(**asking(given), **more) as going:
            return going.get_final_response()

    with proxy.client(key, default_headers={"X-Memos-Conversation": "w"}) as client:
        first = events("Let me look.", calls=PIECES, finish="tool_calls")
        proxy.says(first if stream else answer("Let me look.", tool_calls=[CALL], finish="tool_calls"))
        question: Any = [
            {"role": "developer", "content": "Be exact."}, {"role": "user", "content": "How is the weather in Lyon?"}
        ]  # fmt: skip
        got = ask(client, question)
        _, call = got.output
        assert (call.type, call.call_id, call.name, call.arguments) == (
            "function_call", "c1", "weather", '{"city": "Lyon"}',
        )  # fmt: skip
        stored = client.responses.retrieve(got.id)
        assert [item.id for item in stored.output] == [item.id for item in got.output]
        assert stored.output[1].to_dict().items() <= call.to_dict().items()
        assert proxy.asked["tools"][0]["function"]["name"] == "weather"
        assert proxy.asked["tool_choice"] == {"type": "function", "function": {"name": "weather"}}
        output = {"type": "function_call_output", "call_id": "c1", "output": "18 degrees"}
        proxy.says(events("It is warm.") if stream else answer("It is warm."))
        if way == "previous":
            last = ask(client, [output], previous_response_id=got.id)
        elif way == "resent":
            last = ask(client, [*question, *got.output, output])
        else:
            references = [{"type": "item_reference", "id": item.id} for item in got.output]
            last = ask(client, [*question, *references, output])
        assert last.output_text == "It is warm."
        talk, head = proxy.asked["messages"][1:], proxy.asked["messages"][0]["content"]
        ask(client, "Thanks.", previous_response_id=last.id)
        thanks = [{"role": "assistant", "content": "It is warm."}, {"role": "user", "content": "Thanks."}]
        assert proxy.asked["messages"][1:] == [*talk, *thanks]
    assert head.startswith("Be exact.")
    assert "Let me look" not in head  # which the model sees anyway
    assert talk == [
        {"role": "user", "content": "How is the weather in Lyon?"},
        {"role": "assistant", "content": "Let me look.", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "18 degrees"},
    ]
    assert proxy.stored(user) == [
        ("user", "How is the weather in Lyon?"), ("assistant", 'Let me look.\nweather({"city": "Lyon"})'),
        ("tool", "18 degrees"), ("assistant", "It is warm."), ("user", "Thanks."), ("assistant", "It is warm."),
    ]  # fmt: skip
    assert {"tool_schema", "tool_trajectory"} <= {str(item.type) for item in proxy.memos.memories.list(cube=user)}


def test_a_response_is_continued_by_its_id_and_branches_stay_apart(proxy: Proxy) -> None:
    key = proxy.user("chain")
    with proxy.client(key) as client:
        proxy.says(answer("Hello Ana."))
        first = client.responses.create(**asking("My name is Ana.", instructions="Be brief."))
        proxy.says(answer("Ana."))
        second = client.responses.create(**asking("What is my name?"), previous_response_id=first.id)
        assert second.previous_response_id == first.id
        # Instructions are not carried over, as with OpenAI.
        assert said_to(proxy) == [
            ("user", "My name is Ana."), ("assistant", "Hello Ana."), ("user", "What is my name?"),
        ]  # fmt: skip
        client.responses.create(**asking("Spell it."), previous_response_id=second.id)
        assert said_to(proxy)[3:] == [("assistant", "Ana."), ("user", "Spell it.")]
        client.responses.create(**asking("Say it."), previous_response_id=first.id)
        assert said_to(proxy)[2:] == [("user", "Say it.")]
        listed = client.responses.input_items.list(second.id, order="asc", limit=2)
        texts = [item.to_dict()["content"][0]["text"] for item in listed]  # all pages
        assert texts == ["My name is Ana.", "Hello Ana.", "What is my name?"]
        newest = client.responses.input_items.list(second.id).data
        assert [item.to_dict()["content"][0]["text"] for item in newest] == texts[::-1]
    conversations = {item.conversation for item in proxy.memos.memories.list(cube="chain")}
    assert conversations == {first.id}


def test_an_erased_or_corrected_exchange_is_gone_from_what_continues(proxy: Proxy) -> None:
    key = proxy.user("erased")
    proxy.says(answer("Ok."))
    with proxy.client(key) as client:
        first = client.responses.create(**asking("The door is blue."))
        second = client.responses.create(**asking("The roof is red."), previous_response_id=first.id)
        client.responses.delete(first.id)
        for call in (client.responses.retrieve, client.responses.delete, client.responses.input_items.list):
            with pytest.raises(openai.NotFoundError):
                call(first.id)
        client.responses.create(**asking("And now?"), previous_response_id=second.id)
        assert said_to(proxy) == [("user", "The roof is red."), ("assistant", "Ok."), ("user", "And now?")]
        with pytest.raises(openai.BadRequestError, match="previous_response_id"):
            client.responses.create(**asking("And now?"), previous_response_id=first.id)
        assert "door" not in json.dumps(proxy.stored("erased"))
        [roof] = [item for item in proxy.memos.memories.list(cube="erased") if "roof" in item.memory]
        proxy.memos.erase(roof.id, cube="erased", actor="erased", wait=False)
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(second.id)


def test_a_conversation_brings_its_messages_and_gets_new_ones(proxy: Proxy) -> None:
    key = proxy.user("talk")
    proxy.memos.add(
        [{"role": "user", "content": "My name is Ana."}, {"role": "assistant", "content": "Hello."}],
        cube="talk", actor="talk", conversation="monday",
    )  # fmt: skip
    proxy.says(answer("Ana."))
    with proxy.client(key) as client:
        got = client.responses.create(**asking("What is my name?"), conversation="monday")
        assert got.conversation is not None
        assert got.conversation.id == "monday"
        assert said_to(proxy) == [("user", "My name is Ana."), ("assistant", "Hello."), ("user", "What is my name?")]
        given: Any = [{"role": "developer", "content": "Shout."}, {"role": "user", "content": "Again?"}]
        client.responses.create(**asking(given), conversation={"id": "monday"})
        client.responses.create(**asking("Thanks."), conversation="monday")
        assert said_to(proxy)[4:] == [
            ("system", "Shout."), ("user", "Again?"), ("assistant", "Ana."), ("user", "Thanks."),
        ]  # fmt: skip
        with pytest.raises(openai.BadRequestError, match="cannot be used with"):
            client.responses.create(**asking("x"), conversation="monday", previous_response_id=got.id)
    assert {item.conversation for item in proxy.memos.memories.list(cube="talk")} == {"monday"}


def test_images_reach_the_model_again_when_a_response_is_continued(proxy: Proxy) -> None:
    key = proxy.user("images")
    url, there = picture(), "https://pictures.example.org/maria.png"
    parts: Any = [
        {"type": "input_text", "text": "What is this?"},
        {"type": "input_image", "image_url": url, "detail": "low"},
        {"type": "input_image", "image_url": there},
    ]
    proxy.says(answer("A dot."))
    with proxy.client(key) as client:
        got = client.responses.create(**asking([{"role": "user", "content": parts}]))
        assert proxy.asked["messages"][0]["content"] == [
            {"type": "text", "text": "What is this?"},
            {"type": "image_url", "image_url": {"url": url, "detail": "low"}},
            {"type": "image_url", "image_url": {"url": there}},
        ]
        client.responses.create(**asking("And its colour?"), previous_response_id=got.id)
        _, content = said_to(proxy)[0]
        assert [part["image_url"]["url"] for part in content[1:]] == [url, there]
        [item] = client.responses.input_items.list(got.id)
        assert [part["type"] for part in item.to_dict()["content"]] == ["input_text", "input_image", "input_image"]
    assert proxy.stored("images")[0][1].startswith("What is this?\n[image")


@pytest.mark.parametrize(
    "given",
    [
        [{"role": "user", "content": [{"type": "input_file", "filename": "a.pdf", "file_data": "data:,x"}]}],
        [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}}]}],
        [{"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,AA=="}]}],
        [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}],
    ],
    ids=["file", "audio", "damaged image", "history"],
)
def test_what_is_not_stored_whole_can_be_retrieved_and_not_continued(
    proxy: Proxy, given: Any, request: pytest.FixtureRequest
) -> None:
    key = proxy.user(f"part-{request.node.callspec.id}")
    proxy.says(answer("Ok."))
    with proxy.client(key) as client:
        got = client.responses.create(**asking(given))
        assert client.responses.retrieve(got.id).output_text == "Ok."
        with pytest.raises(openai.BadRequestError, match="were not stored"):
            client.responses.create(**asking("And?"), previous_response_id=got.id)


@pytest.mark.parametrize(
    ("store", "header", "kept", "retrieved"),
    [(None, None, 2, True), (False, None, 0, False), (True, "false", 0, False), (False, "true", 2, False)],
)
def test_what_store_says_holds_and_the_header_decides_about_memory(
    proxy: Proxy, store: bool | None, header: str | None, kept: int, retrieved: bool
) -> None:
    user = f"store-{store}-{header}"
    key = proxy.user(user)
    proxy.says(answer("Ok."))
    headers = {} if header is None else {"X-Memos-Store": header}
    got = post(proxy, key, asking(**({} if store is None else {"store": store})), **headers).json()
    assert len(proxy.stored(user)) == kept
    assert got["store"] is retrieved
    with proxy.client(key) as client:
        if retrieved:
            assert client.responses.retrieve(got["id"]).id == got["id"]
        else:
            with pytest.raises(openai.NotFoundError):
                client.responses.retrieve(got["id"])


def test_users_are_apart_in_all_that_is_stored(proxy: Proxy) -> None:
    ana, ben = proxy.user("r-ana", "My secret is a blue door."), proxy.user("r-ben", "My secret is a red door.")
    proxy.says(answer("ok"))
    with proxy.client(ana) as client:
        mine = client.responses.create(**asking("What is my secret?"))
        assert "blue door" in json.dumps(proxy.asked)
    with proxy.client(ben) as client:
        client.responses.create(**asking("What is my secret?"))
        assert "red door" in json.dumps(proxy.asked)
        before = len(proxy.upstream.asked)
        for call in (client.responses.retrieve, client.responses.delete, client.responses.input_items.list):
            with pytest.raises(openai.NotFoundError):
                call(mine.id)
        with pytest.raises(openai.BadRequestError):
            client.responses.create(**asking("And?"), previous_response_id=mine.id)
        with pytest.raises(openai.BadRequestError, match="not stored"):
            client.responses.create(**asking([{"type": "item_reference", "id": mine.output[0].id}]))
        with pytest.raises((openai.PermissionDeniedError, openai.NotFoundError)):
            client.responses.create(**asking("What is my secret?"), user="r-ana")
        assert len(proxy.upstream.asked) == before
    admin = proxy.memos.keys.create("admin", "proxy").secret
    with proxy.client(admin) as client:
        theirs = client.responses.create(**asking("What is my secret?"), user="r-ben")
        assert "red door" in json.dumps(proxy.asked)
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(theirs.id)
        assert client.responses.retrieve(theirs.id, extra_headers={"X-Memos-User": "r-ben"}).id == theirs.id


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_is_cut_off_is_incomplete_and_not_stored(proxy: Proxy, stream: bool) -> None:
    user = f"cut-{stream}"
    key = proxy.user(user)
    proxy.says(events("cut", finish="length") if stream else answer("cut", finish="length"))
    with proxy.client(key) as client:
        if stream:
            *_, last = client.responses.create(stream=True, **asking())
            assert last.type == "response.incomplete"
            got = last.response
        else:
            got = client.responses.create(**asking(), max_output_tokens=5)
            assert proxy.asked["max_tokens"] == 5
        assert got.status == "incomplete"
        assert got.incomplete_details is not None
        assert got.incomplete_details.reason == "max_output_tokens"
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(got.id)
    assert proxy.stored(user) == []


@pytest.mark.parametrize("stream", [False, True])
def test_refusals_and_thoughts_are_items_of_their_own(proxy: Proxy, stream: bool) -> None:
    key = proxy.user(f"items-{stream}")
    delta = {"index": 0, "delta": {"reasoning_content": "Hm."}, "finish_reason": None}
    refusal = {"index": 0, "delta": {"refusal": "No."}, "finish_reason": "stop"}
    body = "".join(f"data: {json.dumps({'choices': [choice]})}\n\n" for choice in (delta, refusal)) + "data: [DONE]\n\n"
    proxy.says(
        Said(body=body, content_type="text/event-stream")
        if stream
        else answer(None, refusal="No.", reasoning_content="Hm.")
    )
    with proxy.client(key) as client:
        if stream:
            with client.responses.stream(**asking()) as going:
                got: Any = going.get_final_response()
        else:
            got = client.responses.create(**asking())
    thought, message = got.output
    assert thought.content[0].text == "Hm."
    assert message.content[0].refusal == "No."
    assert proxy.stored(f"items-{stream}") == []


def test_an_answer_in_a_shape_is_asked_for_as_chat_completions_do(proxy: Proxy) -> None:
    class Place(BaseModel):
        city: str

    key = proxy.user("shape")
    proxy.says(answer('{"city": "Lyon"}'))
    with proxy.client(key) as client:
        got = client.responses.parse(**asking(), text_format=Place, reasoning={"effort": "low"})
        assert got.output_parsed == Place(city="Lyon")
    assert proxy.asked["response_format"]["json_schema"]["name"] == "Place"
    assert proxy.asked["reasoning_effort"] == "low"


def test_log_probabilities_come_through(proxy: Proxy) -> None:
    key = proxy.user("logprobs")
    word = {"token": "Lyon", "logprob": -0.5, "bytes": [76], "top_logprobs": []}
    choice = {"index": 0, "message": {"content": "Lyon"}, "finish_reason": "stop", "logprobs": {"content": [word]}}
    proxy.says(Said(body={"choices": [choice]}))
    with proxy.client(key) as client:
        got: Any = client.responses.create(**asking(), include=["message.output_text.logprobs"], top_logprobs=2)
    assert got.output[0].content[0].logprobs[0].logprob == -0.5
    assert (proxy.asked["logprobs"], proxy.asked["top_logprobs"]) == (True, 2)


@pytest.mark.parametrize(
    "said", [error(429, "slow down", headers={"Retry-After": "7"}), error(500, "broke"), error(400, "no such field")]
)
def test_failures_of_the_endpoint_come_through(proxy: Proxy, said: Said) -> None:
    user = f"failure-{said.status}"
    key = proxy.user(user)
    proxy.says(said)
    got = post(proxy, key, asking())
    assert (got.status_code, got.json()) == (said.status, said.body)
    assert got.headers.get("retry-after") == said.headers.get("Retry-After")
    assert proxy.stored(user) == []


@pytest.mark.parametrize(
    "said",
    [
        Said(body=b'data: {"error": {"message": "broke"}}\n\n', content_type="text/event-stream"),
        events("no end", finish=None, done=False),
        events(calls=[*PIECES, {"index": 1, "function": {"name": "f"}}, PIECES[1]], finish="tool_calls"),
    ],
    ids=range(3),
)
def test_a_stream_that_is_not_completed_fails_and_is_not_remembered(
    proxy: Proxy, said: Said, request: pytest.FixtureRequest
) -> None:
    user = f"broken-{request.node.callspec.id}"
    key = proxy.user(user)
    proxy.says(said)
    kinds = []
    with proxy.client(key) as client, pytest.raises(openai.APIError):
        for event in client.responses.create(stream=True, **asking()):
            kinds.append(event.type)
    assert kinds[-1] == "response.failed"
    assert proxy.stored(user) == []


def test_a_stream_that_breaks_ends_with_an_error_and_is_not_remembered(proxy: Proxy) -> None:
    key = proxy.user("lost")
    said = events("In ", "Lyon.")
    proxy.says(Said(body=said.body, content_type=said.content_type, cut=len(str(said.body)) - 200))
    with proxy.client(key) as client, pytest.raises(openai.APIError, match="connection was lost"):
        list(client.responses.create(stream=True, **asking()))
    assert proxy.stored("lost") == []


def test_a_client_that_goes_away_lets_the_endpoint_go_and_nothing_is_remembered(proxy: Proxy) -> None:
    key = proxy.user("gone")
    hold, left = threading.Event(), threading.Event()
    said = events("In ", "Lyon.")
    first = str(said.body).index("Lyon")
    proxy.says(Said(body=said.body, content_type=said.content_type, hold=hold, held_at=first, left=left))
    with proxy.client(key) as client, client.responses.create(stream=True, **asking()) as stream:
        assert next(event.delta for event in stream if event.type == "response.output_text.delta") == "In "
    assert left.wait(30)
    assert proxy.stored("gone") == []


def test_an_endpoint_that_is_too_slow_is_told_so(tmp_path: Path) -> None:
    gate = threading.Event()
    try:
        with (
            OpenAIServer([Said(gate=gate)]) as upstream,
            behind(tmp_path, upstream.settings(timeout_s=0.3)) as (url, key, _),
            openai.OpenAI(base_url=f"{url}/openai/v1", api_key=key, max_retries=0) as client,
            pytest.raises(openai.InternalServerError, match="in time") as caught,
        ):
            client.responses.create(**asking())
        assert caught.value.status_code == 504
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


def test_a_key_that_may_only_read_can_retrieve_and_not_delete(proxy: Proxy) -> None:
    key = proxy.user("reader")
    proxy.says(answer("Ok."))
    with proxy.client(key) as client:
        got = client.responses.create(**asking())
    with proxy.client(proxy.memos.keys.create("reader", "r", rights=["read"]).secret) as client:
        assert client.responses.retrieve(got.id).id == got.id
        for call in (lambda: client.responses.delete(got.id), lambda: client.responses.create(**asking())):
            with pytest.raises(openai.PermissionDeniedError):
                call()
        assert client.responses.create(**asking(), store=False).output_text == "Ok."


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": ["x"]}, "input[0]"),
        ({"input": [{"type": "reasoning", "summary": []}]}, "input"),
        ({"input": [{"role": "tool", "content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "input[0].content[0].text"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]}, "input[0].content[0]"),
        (
            {"input": [{"role": "assistant", "content": [{"type": "input_image", "image_url": "u"}]}]},
            "input[0].content",
        ),
        ({"input": [{"type": "computer_call"}]}, "input[0].type"),
        ({"input": [{"type": "item_reference", "id": "msg_nobody"}]}, "input"),
        ({"input": [{"type": "function_call_output", "output": "x"}]}, "input[0].call_id"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tool_choice": {"type": "web_search"}}, "tool_choice"),
        ({"tool_choice": {"type": "allowed_tools", "tools": [{"type": "mcp"}]}}, "tool_choice.tools[0].type"),
        ({"text": {"format": {"type": "grammar"}}}, "text.format.type"),
        ({"background": True}, "background"),
        ({"truncation": "auto"}, "truncation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"reasoning": {"mode": "pro"}}, "reasoning.mode"),
        ({"metadata": {"a": 7}}, "metadata"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"store": "yes"}, "store"),
        ({"user": 7}, "user"),
        ({"previous_response_id": "resp_nobody"}, "previous_response_id"),
        ({"conversation": 7}, "conversation"),
    ],
    ids=range(25),
)
def test_what_cannot_be_translated_is_refused_by_name(
    proxy: Proxy, change: dict[str, Any], named: str, request: pytest.FixtureRequest
) -> None:
    key = proxy.user(f"bad-{request.node.callspec.id}")
    before = len(proxy.upstream.asked)
    got = post(proxy, key, asking(**change))
    told = got.json()["error"]
    assert (got.status_code, told["type"], told["param"]) == (400, "invalid_request_error", named)
    assert len(proxy.upstream.asked) == before


def test_secrets_are_masked_in_what_is_stored_and_not_in_the_answer(proxy: Proxy) -> None:
    key = proxy.user("masked")
    secret = "ghp_" + "a1B2" * 9
    proxy.says(answer(f"It is {secret}."))
    with proxy.client(key) as client:
        got = client.responses.create(**asking(f"My token is {secret}", instructions=f"Use {secret}."))
        assert secret in got.output_text
        assert secret not in client.responses.retrieve(got.id).to_json()
    assert secret not in json.dumps(proxy.stored("masked"))


def test_without_a_configured_model_it_is_a_clear_503(server: Server) -> None:
    got = server.http.post("/openai/v1/responses", json=asking(), headers=server.headers("ana"))
    assert got.status_code == 503
    assert got.headers["x-should-retry"] == "false"
    assert "MEMOS_CHAT_MODEL__BASE_URL" in got.json()["error"]["message"]


def test_a_model_in_this_process_answers_too(tmp_path: Path) -> None:
    model = ScriptedChat(["In Lyon.", "Yes.", "Yes."])
    with inside(tmp_path, openai_routes, model) as (key, http):
        headers = {"Authorization": f"Bearer {key}"}
        got = http.post("/responses", json=asking(instructions="Be brief."), headers=headers).json()
        assert got["output"][0]["content"][0]["text"] == "In Lyon."
        assert "My sister Maria lives in Lyon." in model.requests[0].messages[0].content
        more = asking("Sure?", previous_response_id=got["id"], stream=True)
        streamed = http.post("/responses", json=more, headers=headers).text
        assert "event: response.completed" in streamed
        assert [message.content for message in model.requests[1].messages[-3:]] == [
            "Where does Maria live?", "In Lyon.", "Sure?",
        ]  # fmt: skip
        refused = http.post("/responses", json=asking(tools=[TOOL]), headers=headers)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "tools")
