"""`/api/v1/chat`: answers with memory over HTTP, at once and as events, each user's from their own."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from memos import MemOS, Settings
from memos.core.ports import ChatReply, ChatRequest
from memos.core.settings import IndexSettings, LimitSettings, TaskSettings
from memos.core.tokens import Tokens
from memos.errors import BackendUnavailable, ModelError
from tests.api.running import running
from tests.fakes import WordEmbedder
from tests.support.scripted_chat import Answer, ScriptedChat


class Chats:
    """A running server whose model says what a test tells it to."""

    def __init__(
        self, memos: MemOS, url: str, model: ScriptedChat, script: list[Callable[[ChatRequest], Answer]]
    ) -> None:
        self.memos, self.url, self.model, self._script = memos, f"{url}/api/v1/chat", model, script
        self.keys: dict[str, str] = {}
        for user in ("ana", "ben"):
            memos.users.create(user)
            self.keys[user] = memos.keys.create(user, "k").secret
        memos.add("My secret is a blue door.", cube="ana", actor="ana")
        memos.add("My secret is a red door.", cube="ben", actor="ben")

    def says(self, answer: Answer | Callable[[ChatRequest], Answer]) -> None:
        self._script[:] = [answer if callable(answer) else lambda _: answer]

    def ask(self, who: str, query: Any = "What is my secret?", **more: Any) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {self.keys[who]}"}
        return httpx2.post(self.url, json={"query": query, **more}, headers=headers, timeout=60)

    def events(self, who: str, **more: Any) -> list[tuple[str, Any]]:
        told = self.ask(who, stream=True, **more).text
        parts = [part.split("\ndata: ") for part in told.split("\n\n") if part]
        return [(name.removeprefix("event: "), json.loads(data)) for name, data in parts]


@pytest.fixture(scope="module")
def chats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chats]:
    script: list[Callable[[ChatRequest], Answer]] = []

    def answers(request: ChatRequest) -> Answer:
        return script[0](request)

    model = ScriptedChat(answers)
    settings = Settings(
        index=IndexSettings(wait_s=30), limits=LimitSettings(min_free_bytes=1_000_000), tasks=TaskSettings(workers=0)
    )
    home: Path = tmp_path_factory.mktemp("chats")
    with (
        MemOS.open(home, settings=settings, embedder=WordEmbedder(), chat_model=model) as memos,
        running(memos) as url,
    ):
        yield Chats(memos, url, model, script)


def test_an_answer_comes_with_what_it_cites_and_what_was_stored(chats: Chats) -> None:
    chats.says("A blue door [m1].")
    got = chats.ask("ana", conversation="c")
    assert got.status_code == 200
    told = got.json()
    assert told["text"] == "A blue door."
    assert [cited["memory"] for cited in told["cited"]] == ["My secret is a blue door."]
    assert told["receipt"]["conversation"] == "c"
    assert len(told["receipt"]["item_ids"]) == 2


def test_events_carry_the_pieces_and_the_same_result(chats: Chats) -> None:
    chats.says("A blue door [m1].")
    *pieces, (last, result) = chats.events("ana", store=False)
    assert {name for name, _ in pieces} == {"text"}
    assert "".join(piece["text"] for _, piece in pieces) == "A blue door."
    assert last == "end"
    assert result["text"] == "A blue door."
    assert result["receipt"] is None


def test_the_prompt_is_shown_without_asking_the_model(chats: Chats) -> None:
    headers = {"Authorization": f"Bearer {chats.keys['ana']}"}
    before = len(chats.model.requests)
    told = httpx2.post(f"{chats.url}/prompt", json={"query": "What is my secret?"}, headers=headers, timeout=60).json()
    assert len(chats.model.requests) == before
    assert told["model"] == "scripted"
    assert told["messages"][-1] == {"role": "user", "content": "What is my secret?"}
    assert "My secret is a blue door." in told["messages"][0]["content"]
    assert "My secret is a blue door." in [shown["memory"] for shown in told["shown"]]
    assert told["prompt_tokens"] > told["memory_tokens"] > 0
    assert httpx2.get(f"{chats.url}/model", headers=headers).json() == {"model": "scripted"}
    for wrong in ({"query": " "}, {"query": "x", "cubes": ["ben"]}):
        assert httpx2.post(f"{chats.url}/prompt", json=wrong, headers=headers, timeout=60).status_code in (400, 404)
    chats.says("A blue door [m1].")
    assert chats.ask("ana", store=False).status_code == 200
    sent = [message.content for message in chats.model.requests[-1].messages]
    assert sent == [message["content"] for message in told["messages"]]


def test_the_tokens_of_chats_are_among_the_numbers_of_the_server(chats: Chats) -> None:
    chats.says(ChatReply("A blue door.", Tokens(30, 12)))
    before = chats.memos.statistics.totals().tokens.get("chat", 0)
    assert chats.ask("ana", store=False).status_code == 200
    assert chats.events("ana", store=False)[-1][0] == "end"
    now = chats.memos.statistics.totals().tokens["chat"]
    assert now - before == 2 * 42
    told = httpx2.get(chats.url.replace("/api/v1/chat", "/metrics"), timeout=60).text
    assert f'memos_model_tokens_total{{purpose="chat"}} {float(now)}' in told
    assert 'memos_model_tokens_total{purpose="proxy"} 0.0' in told


def test_nobody_is_shown_anothers_memory(chats: Chats) -> None:
    chats.says("ok")
    assert chats.ask("ben", store=False).status_code == 200
    assert "red door" in chats.model.requests[-1].messages[0].content
    assert "blue" not in chats.model.requests[-1].messages[0].content
    before = len(chats.model.requests)
    for more in ({"cubes": ["ana"]}, {"store_in": "ana"}, {"user": "ana"}):
        for stream in (False, True):
            got = chats.ask("ben", stream=stream, **more)
            assert got.status_code in (403, 404), more
            assert "blue" not in got.text
    assert len(chats.model.requests) == before


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [(ModelError("useless"), 502, "model_error"), (BackendUnavailable("down"), 503, "backend_unavailable")],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_model_that_fails_at_once_is_a_status(
    chats: Chats, error: Exception, status: int, code: str, stream: bool
) -> None:
    chats.says(error)
    got = chats.ask("ana", stream=stream)
    assert got.status_code == status
    assert got.json()["error"]["code"] == code


def test_a_model_that_fails_in_the_middle_is_an_event_and_nothing_is_stored(tmp_path: Path) -> None:
    class Breaking(ScriptedChat):
        def stream(self, request: ChatRequest) -> Any:
            yield "A blue "
            raise ModelError("cut off")

    settings = Settings(tasks=TaskSettings(workers=0))
    with (
        MemOS.open(tmp_path, settings=settings, embedder=WordEmbedder(), chat_model=Breaking([])) as memos,
        running(memos) as url,
    ):
        chats = Chats(memos, url, Breaking([]), [])
        told = chats.events("ana")
        assert told == [
            ("text", {"text": "A blue"}), ("error", {"error": {"code": "model_error", "message": "cut off"}}),
        ]  # fmt: skip
        assert len(memos.memories.list(cube="ana")) == 1


def test_a_client_that_goes_away_stores_nothing_and_many_slow_answers_hold_up_nothing(chats: Chats) -> None:
    gate, asked = threading.Event(), threading.Semaphore(0)

    def slowly(_: ChatRequest) -> Answer:
        asked.release()
        assert gate.wait(60)
        return "A blue door."

    chats.says(slowly)
    before = len(chats.memos.memories.list(cube="ana"))
    threads = [threading.Thread(target=chats.ask, args=("ana",), kwargs={"store": False}) for _ in range(60)]
    try:
        for thread in threads:
            thread.start()
        assert asked.acquire(timeout=30)
        search = httpx2.post(
            chats.url.replace("/chat", "/search"), json={"query": "secret"}, timeout=30,
            headers={"Authorization": f"Bearer {chats.keys['ana']}"},
        )  # fmt: skip
        assert search.status_code == 200
    finally:
        gate.set()
        for thread in threads:
            thread.join()
    assert len(chats.memos.memories.list(cube="ana")) == before


@pytest.mark.parametrize(
    "more",
    [
        {"query": ""}, {"query": None}, {"query": "a\0"}, {"top_k": 0}, {"top_k": "x"}, {"relevance": 2}, {"cubes": []},
        {"min_relevance": True}, {"min_relevance": 0.2, "relevance": 0.1},
        {"history": [{"role": "nobody", "content": "x"}]}, {"history": "x"}, {"token_budget": -1}, {"max_tokens": 0},
        {"temperature": 3}, {"top_p": 0}, {"filter": {"x": {"y": 1}}}, {"unknown": 1}, {"conversation": ""},
        {"stream": "perhaps"}, {"mode": "finest"}, {"tags": [""]}, {"info": {"x": {"y": 2**60}}},
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("stream", [False, True])
def test_bad_input_is_400_and_names_the_field(chats: Chats, more: dict[str, Any], stream: bool) -> None:
    chats.says("ok")
    got = chats.ask("ana", **{"stream": stream, **more})
    assert got.status_code == 400, got.text
    assert got.json()["error"]["code"] == "invalid_input"


def product(chats: Chats, who: str, path: str, **body: Any) -> httpx2.Response:
    url = chats.url.removesuffix("/api/v1/chat") + f"/product/chat/{path}"
    asked = {"user_id": who, "query": "What is my secret?", **body}
    return httpx2.post(url, json=asked, headers={"Authorization": f"Bearer {chats.keys[who]}"}, timeout=60)


def test_self_hosted_clients_chat_with_each_users_own_memory(chats: Chats) -> None:
    chats.says(lambda request: "blue" if "blue door" in str(request) and "red door" not in str(request) else "other")
    answer = product(chats, "ana", "complete", add_message_on_answer=False).json()
    assert answer == {"code": 200, "message": "ok", "data": {"response": "blue", "reasoning": ""}}
    events = [json.loads(part[6:]) for part in product(chats, "ana", "stream").text.split("\n\n") if part]
    assert [event["type"] for event in events][-2:] == ["reference", "end"]
    assert "".join(event["data"] for event in events if event["type"] == "text") == "blue"
    assert product(chats, "ana", "complete", readable_cube_ids=["ben"]).status_code == 404
    chats.says(BackendUnavailable("The endpoint rests."))
    refused = product(chats, "ana", "complete")
    assert (refused.status_code, refused.json()["code"], refused.json()["data"]) == (503, 503, None)
