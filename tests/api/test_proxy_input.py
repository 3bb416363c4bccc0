"""Whatever clients and endpoints send, the proxies refuse it by name or answer: nothing else is ever raised."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from memos.api.proxy.answers import Answer
from memos.api.proxy.anthropic import Told as Message
from memos.api.proxy.anthropic_requests import read_messages
from memos.api.proxy.exchanges import said_in
from memos.api.proxy.requests import Completion, read_completion
from memos.api.proxy.responses import Told as Response
from memos.api.proxy.responses_requests import messages_of, read_response
from memos.core.clock import SystemClock
from memos.core.types import Json
from memos.errors import InvalidInput, ModelError
from memos.kernel.chat.results import Recalled

TRIES = 400
ODD: list[Any] = [
    None, True, False, 0, -1, 2**70, 1.5, "", "x", [], {}, [None], [{}], {"a": None}, [[]], "\ud800", {"type": "text"},
    {"type": []}, [1, "a"],
]  # fmt: skip
FUNCTION = {"name": "f", "arguments": "{}"}
COMPLETION = {
    "n": 1, "user": "x", "messages": [
        {"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {"url": "u"}}]},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": FUNCTION}]},
        {"role": "tool", "content": "x", "tool_call_id": "1"},
    ],
}  # fmt: skip
MESSAGES = {
    "model": "m", "max_tokens": 5, "system": [{"type": "text", "text": "a"}], "stream": True, "stop_sequences": ["x"],
    "metadata": {"user_id": '{"device_id": "d", "session_id": "s"}'}, "thinking": {"type": "enabled"},
    "tools": [{"name": "f", "input_schema": {}}], "tool_choice": {"type": "tool", "name": "f"},
    "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": {}}},
    "messages": [
        {"role": "user", "content": [
            {"type": "text", "text": "x"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A"}},
            {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "x"}]}},
        ]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "1", "is_error": True, "content": [{"type": "text", "text": "x"}]},
        ]},
    ],
}  # fmt: skip
RESPONSE = {
    "model": "m", "instructions": "x", "max_output_tokens": 5, "user": "u", "conversation": {"id": "c"},
    "tools": [{"type": "function", "name": "f", "parameters": {}}], "metadata": {"a": "b"}, "top_logprobs": 2,
    "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
    "text": {"format": {"type": "json_schema", "name": "n", "schema": {}}}, "reasoning": {"effort": "low"},
    "input": [
        {"role": "developer", "content": "x"},
        {"role": "user", "content": [
            {"type": "input_text", "text": "x"}, {"type": "input_image", "image_url": "u"},
            {"type": "input_file", "file_data": "d"}, {"type": "input_audio", "input_audio": {}},
        ]},
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": [{"type": "input_image", "image_url": "u"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "x"}]},
    ],
}  # fmt: skip
SAID = {"content": "x", "reasoning_content": "r", "tool_calls": [{"id": "1", "index": 0, "function": FUNCTION}]}
USAGE = {"prompt_tokens": 1, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 1}}
ANSWER = {
    "model": "m", "usage": USAGE,
    "choices": [{"index": 0, "message": SAID, "finish_reason": "stop", "logprobs": {"content": [{}]}}],
}  # fmt: skip
EVENT = {"model": "m", "choices": [{"index": 0, "delta": SAID, "finish_reason": None}], "usage": None}


def places(value: Json, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if way:
        yield way
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield from places(each, (*way, key))


def changed(value: Json, chance: random.Random) -> Json:
    """Return a value in which a few parts are missing or something else."""
    value = copy.deepcopy(value)
    for _ in range(chance.randint(1, 3)):
        *way, last = chance.choice(list(places(value)))
        inner = value
        for key in way:
            inner = inner[key]
        if chance.random() < 0.2:
            del inner[last]
        else:
            inner[last] = copy.deepcopy(chance.choice(ODD))
        if not list(places(value)):
            break
    return value


def use(completion: Completion) -> None:
    assert isinstance(completion.question, str)
    assert completion.texts is not None
    assert completion.longest_answer(5) > 0
    said_in(completion.new, {"role": "assistant", "content": "x"}, Recalled("", 0, (), untrusted=False), images=True)


def as_response(body: Json) -> None:
    request = read_response(body)
    own = messages_of(body.get("input"), lambda _: {"type": "reasoning"})
    use(request.completion(own, own))


@pytest.mark.parametrize(
    ("read", "body"),
    [
        (lambda body: use(read_completion(json.dumps(body).encode())), COMPLETION),
        (lambda body: use(read_messages(body)[0]), MESSAGES),
        (as_response, RESPONSE),
    ],
    ids=["completions", "messages", "responses"],
)
def test_a_request_is_read_or_refused(read: Callable[[Json], None], body: Json) -> None:
    read(body)
    chance, refused = random.Random(7), 0
    for _ in range(TRIES):
        try:
            read(changed(body, chance))
        except InvalidInput:
            refused += 1
    assert 0 < refused < TRIES


def told(*, stream: bool) -> list[Message | Response]:
    question = [{"role": "user", "content": "x"}]
    asked = read_response({"input": "x", "stream": stream})
    return [
        Message(Completion({"stream": stream}, question), thinks=True, model="m"),
        Response(asked, question, [], "m", SystemClock()),
    ]


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_is_told_or_refused(stream: bool) -> None:
    chance = random.Random(7)
    for _ in range(TRIES):
        for dialect in told(stream=stream):
            events = [changed(EVENT, chance) for _ in range(2)]
            if stream:
                sent = b"".join(dialect.feed(f"data: {json.dumps(event)}\n\n".encode()) for event in events)
                sent += dialect.feed(b"data: [DONE]\n\n") + dialect.held() + dialect.end()
                assert sent.count(b"event: message_stop") + sent.count(b"event: error") <= 1
            else:
                raw = json.dumps(changed(ANSWER, chance)).encode()
                dialect.answer.read(raw)
                with suppress(ModelError):
                    json.loads(dialect.whole(raw)[0])
            dialect.note(inputs=1, whole=True)
            assert isinstance(dialect.answer, Answer)
            dialect.answer.message()
