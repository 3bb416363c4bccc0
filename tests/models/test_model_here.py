"""A model in this process behind the routes that OpenAI's client speaks, and behind `/api/v1/chat`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from memos import MemOS, Settings
from memos.api.serving import first_key
from memos.core.settings import ActivationSettings, ChatSettings, IndexSettings, LimitSettings, TaskSettings
from tests.api.running import running
from tests.fakes import WordEmbedder
from tests.support import tiny_models  # skips without the extra `local`

kv_buffer = pytest.importorskip("memos.backends.local.kv_buffer", reason="needs the extra `local`: make setup-local")

SYSTEM = "You are a patient beekeeper who answers in few words and never guesses what nobody told. " * 4


@dataclass(frozen=True)
class Served:
    memos: MemOS
    url: str
    key: str

    def client(self) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/openai/v1", api_key=self.key, max_retries=0)

    def post(self, path: str, *, timeout_s: float = 60, **body: Any) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        return httpx2.post(f"{self.url}{path}", content=json.dumps(body), headers=headers, timeout=timeout_s)

    def completion(self, **body: Any) -> httpx2.Response:
        return self.post("/openai/v1/chat/completions", **{"messages": asked(), "max_tokens": 8, **body})


def asked(text: Any = "Where are the bees?") -> list[dict[str, Any]]:
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    model = tiny_models.saved(tmp_path_factory.mktemp("model"))
    config = tiny_models.transformers.GenerationConfig.from_pretrained(model)
    config.eos_token_id = list(range(1, 256, 3))
    config.save_pretrained(model)
    settings = Settings(
        index=IndexSettings(wait_s=30),
        limits=LimitSettings(min_free_bytes=1_000_000),
        tasks=TaskSettings(workers=0),
        chat_model=ChatSettings(model=f"local:{model}", max_tokens=8),
    )
    home: Path = tmp_path_factory.mktemp("here")
    with MemOS.open(home, settings=settings, embedder=WordEmbedder()) as memos:
        key = first_key(memos)
        assert key is not None
        with running(memos) as url:
            yield Served(memos, url, key)


def ended(ask: Callable[[], httpx2.Response]) -> dict[str, Any]:
    """Return the first answer that the random model ends by itself."""
    for place in range(60):
        tiny_models.torch.manual_seed(place)
        got = ask()
        if (
            got.status_code == 200
            and got.json().get("choices", [{"finish_reason": "stop"}])[0]["finish_reason"] == "stop"
        ):
            return got.json()
    raise AssertionError("no answer came to its end")


def test_the_official_client_is_answered(served: Served) -> None:
    with served.client() as client:
        first = client.chat.completions.create(model="any", messages=asked(), max_tokens=2)  # type: ignore[arg-type]
        again = client.chat.completions.create(model="any", messages=asked(), max_tokens=2)  # type: ignore[arg-type]
    assert first.choices[0].message.content == again.choices[0].message.content
    assert first.usage is not None
    assert first.usage.completion_tokens == 2
    assert first.choices[0].finish_reason == "length"


def test_what_was_cached_is_told_in_usage_and_in_v1(served: Served) -> None:
    mine = "You are a lighthouse keeper. " * 20
    messages = [{"role": "system", "content": mine}, {"role": "user", "content": "Is there a storm?"}]
    served.completion(messages=messages)
    told = ended(lambda: served.completion(messages=messages, temperature=1.0, max_tokens=40))
    assert told["usage"]["prompt_tokens_details"]["cached_tokens"] >= 512
    chatted = ended(
        lambda: served.post(
            "/api/v1/chat", query="Storm?", system_prompt=mine, max_tokens=40, store=False, temperature=1
        )
    )
    assert chatted["activation"]["cached_tokens"] % 64 == 0
    assert chatted["activation"]["prompt_tokens"] == chatted["prompt_tokens"]


def test_a_stream_says_the_same(served: Served) -> None:
    whole = served.completion(max_tokens=2).json()["choices"][0]["message"]["content"]
    with served.client() as client:
        pieces = list(
            client.chat.completions.create(
                model="any", messages=asked(), max_tokens=2, stream=True, stream_options={"include_usage": True}
            )  # type: ignore[call-overload]
        )
    assert "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices) == whole
    assert [piece.choices[0].finish_reason for piece in pieces if piece.choices][-1] == "length"
    assert pieces[-1].usage.completion_tokens == 2


def test_many_streams_with_one_beginning_and_no_room_to_keep_it_all_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute = kv_buffer.KvBuffer.compute

    def slow(self: kv_buffer.KvBuffer, ids: Sequence[int]) -> None:
        time.sleep(0.005)
        compute(self, ids)

    monkeypatch.setattr(kv_buffer.KvBuffer, "compute", slow)
    model = tiny_models.saved(tmp_path / "model")
    settings = Settings(
        limits=LimitSettings(min_free_bytes=1_000_000),
        tasks=TaskSettings(workers=0),
        chat_model=ChatSettings(model=f"local:{model}", max_tokens=4),
        activation=ActivationSettings(host_bytes=100_000, disk_bytes=0),
    )
    with MemOS.open(tmp_path / "home", settings=settings, embedder=WordEmbedder()) as memos:
        key = first_key(memos)
        assert key is not None
        with running(memos) as url, ThreadPoolExecutor(12) as pool:
            here = Served(memos, url, key)
            asking = [
                pool.submit(here.post, "/api/v1/chat", query=f"Question {n}?", system_prompt=SYSTEM, stream=True)
                for n in range(12)
            ]
            assert [each.result().status_code for each in asking] == [200] * 12


LONG = "Which of them were busy on the " + "".join(f"{day}. day, and the " for day in range(180))


def slow_steps(monkeypatch: pytest.MonkeyPatch, pause_s: float = 0.1) -> list[int]:
    """Make every step of every model slower; return a list that grows with each."""
    steps, compute = list[int](), kv_buffer.KvBuffer.compute

    def slow(self: kv_buffer.KvBuffer, ids: Sequence[int]) -> None:
        steps.append(len(ids))
        time.sleep(pause_s)
        compute(self, ids)

    monkeypatch.setattr(kv_buffer.KvBuffer, "compute", slow)
    return steps


def made_at_last(steps: list[int]) -> int:
    """Return how many steps were made when no more are made."""
    made = -1
    while len(steps) != made:
        made = len(steps)
        time.sleep(0.6)
    return made


@pytest.mark.parametrize(
    ("path", "body"),
    [("/openai/v1/chat/completions", {"messages": asked(LONG)}), ("/api/v1/chat", {"query": LONG, "store": False})],
)
def test_who_hangs_up_while_the_prompt_is_read_stops_the_reading(
    served: Served, path: str, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = slow_steps(monkeypatch)
    headers = {"Authorization": f"Bearer {served.key}"}
    with httpx2.stream("POST", f"{served.url}{path}", json=body | {"stream": True}, headers=headers) as answer:
        assert answer.status_code == 200
    assert 0 < made_at_last(steps) < 40  # of some 50


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/openai/v1/chat/completions", {"messages": asked(LONG)}),
        ("/api/v1/chat", {"query": LONG}),
        ("/product/chat/complete", {"query": LONG, "user_id": "ann"}),
        (
            "/api/openmem/v1/chat",
            {"query": LONG, "user_id": "ann", "conversation_id": "one", "add_message_on_answer": False},
        ),
    ],
)
def test_who_hangs_up_on_an_answer_that_is_no_stream_stops_it_too(
    served: Served, path: str, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = served.memos.memories.list(limit=1)
    steps = slow_steps(monkeypatch)
    with pytest.raises(httpx2.ReadTimeout):
        served.post(path, timeout_s=1.5, **body)
    assert 0 < made_at_last(steps) < 40  # of some 50
    assert served.memos.memories.list(limit=1) == before


def test_what_openmem_stores_is_finished_for_who_asks_again(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = slow_steps(monkeypatch, 0.02)
    body = {"query": LONG, "user_id": "ann", "conversation_id": "one", "max_tokens": 40, "temperature": 1.0}
    tiny_models.torch.manual_seed(1)
    with pytest.raises(httpx2.ReadTimeout):
        served.post("/api/openmem/v1/chat", timeout_s=0.5, **body)
    assert made_at_last(steps) > 45


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 2), ("tools", [{"type": "function", "function": {"name": "f"}}]), ("stop", ["x"]), ("logprobs", True),
        ("response_format", {"type": "json_object"}), ("max_tokens", "many"), ("temperature", "hot"),
        ("temperature", 9), ("top_p", 0), ("max_tokens", 0), ("max_tokens", True),
        ("messages", [{"role": "tool", "content": "x"}]), ("messages", [{"content": "x"}]),
        ("messages", asked([{"type": "image_url", "image_url": {"url": "data:,"}}])),
    ],
)  # fmt: skip
def test_what_it_cannot_do_is_refused_by_name(served: Served, field: str, value: object) -> None:
    refused = served.completion(**{field: value})
    assert refused.status_code == 400, refused.text
    assert refused.json()["error"]["type"] == "invalid_request_error"
    assert field in refused.json()["error"]["message"]


def test_a_prompt_beyond_its_context_is_refused(served: Served) -> None:
    refused = served.completion(messages=asked("bees " * 2000), stream=True)
    assert refused.status_code == 400
    assert "4,096" in refused.json()["error"]["message"]


def test_the_least_temperature_is_none(served: Served) -> None:
    for temperature in (1e-50, 1e-320, 1e-40, 0):
        assert served.completion(temperature=temperature).status_code == 200


def test_odd_text_comes_through(served: Served) -> None:
    for text in ("", "\0", "\ud800", "<|start|>system", "蜂🐝" * 50):
        assert served.completion(messages=asked(text)).status_code == 200
