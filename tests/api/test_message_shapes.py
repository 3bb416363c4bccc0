"""Messages of other programs on every surface: the same ones, sent each way, are stored alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel
from starlette.testclient import TestClient

from memos import MemOS, Settings
from memos.api.app import create_app
from memos.api.client import MemOSClient
from memos.api.local.client import served
from memos.api.local.sharing import in_background
from memos.api.serving import first_key
from memos.core.settings import IndexSettings, LimitSettings
from memos.errors import InvalidInput
from tests.fakes import WordEmbedder


class HumanMessage(BaseModel):
    """A message as LangChain has it."""

    content: str
    type: str = "human"
    id: str | None = None
    additional_kwargs: dict[str, Any] = {}


MESSAGES = [
    HumanMessage(content="How many hives are there?", id="run-1"),
    {"role": "assistant", "model": "claude", "content": [
        {"type": "thinking", "thinking": "count"}, {"type": "tool_use", "id": "c1", "name": "count", "input": {}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "seven"}]},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Seven hives."}]},
    ("human", "And in May?"),
    {"role": "human", "content": "It was three.", "created_at": "2026-05-01T08:00:00Z", "metadata": {"mood": "good"}},
]  # fmt: skip
STORED = [
    ("user", "How many hives are there?"),
    ("assistant", "count()"),
    ("tool", "seven"),
    ("assistant", "Seven hives."),
    ("user", "And in May?"),
    ("user", "It was three."),
]


class Surfaces(NamedTuple):
    """One installation, in this process and through a server."""

    memos: MemOS
    remote: MemOS
    client: MemOSClient
    http: TestClient
    headers: dict[str, str]


@pytest.fixture(scope="module")
def surfaces(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Surfaces]:
    settings = Settings(index=IndexSettings(wait_s=30), limits=LimitSettings(min_free_bytes=1_000_000))
    home: Path = tmp_path_factory.mktemp("shapes")
    with MemOS.open(home, settings=settings, embedder=WordEmbedder()) as memos:
        key = str(first_key(memos))
        make = lambda token, stopping: create_app(memos, local_token=token, stopping=stopping)  # noqa: E731
        with in_background(home, make) as found, TestClient(create_app(memos)) as http:
            remote = served(home)
            assert remote is not None
            with remote, MemOSClient(api_key=key, base_url=found.url) as client:
                yield Surfaces(memos, remote, client, http, {"Authorization": f"Bearer {key}"})


def post(surfaces: Surfaces, path: str, body: dict[str, Any]) -> None:
    plain = [entry.model_dump() if isinstance(entry, BaseModel) else entry for entry in MESSAGES]
    answer = surfaces.http.post(path, json={"messages": plain, **body}, headers=surfaces.headers)
    assert answer.status_code < 300, answer.text


WAYS: dict[str, Callable[[Surfaces, str], Any]] = {
    "python": lambda at, name: at.memos.add(MESSAGES, conversation=name),
    "local": lambda at, name: at.remote.add(MESSAGES, conversation=name),
    "client": lambda at, name: at.client.memories.add(MESSAGES, cube="default", conversation=name),
    "rest": lambda at, name: post(at, "/api/v1/memories", {"cube": "default", "conversation": name}),
    "openmem client": lambda at, name: at.client.add_message(MESSAGES, user_id="bea", conversation_id=name),
    "openmem": lambda at, name: post(at, "/api/openmem/v1/add/message", {"user_id": "bea", "conversation_id": name}),
    "product": lambda at, name: post(at, "/product/add", {"user_id": "bea", "session_id": name}),
}


@pytest.mark.parametrize("way", WAYS)
def test_messages_of_other_programs_are_stored_alike(surfaces: Surfaces, way: str) -> None:
    WAYS[way](surfaces, way)
    cubes = [cube.id for cube in surfaces.memos.cubes.list()]
    found = [
        item
        for cube in cubes
        for item in surfaces.memos.memories.list(cube=cube, filter={"conversation": way, "type": "message"})
    ]
    found.sort(key=lambda item: item.position or 0)
    assert [(item.role, item.memory) for item in found] == STORED
    assert (str(found[-1].said_at), found[-1].info["mood"]) == ("2026-05-01 08:00:00+00:00", "good")


def test_a_chat_takes_them_as_its_history(surfaces: Surfaces) -> None:
    body = {"query": "How many?", "cubes": ["default"], "history": [["human", "hi"], {"type": "nothing"}]}
    answer = surfaces.http.post("/api/v1/chat/prompt", json=body, headers=surfaces.headers)
    assert answer.json()["error"]["message"].startswith("history[1].type: unknown field")


def test_an_error_names_the_message_that_was_given(surfaces: Surfaces) -> None:
    with pytest.raises(InvalidInput, match=r"messages\[6\]\.contnet: unknown field; did you mean `content`\?"):
        surfaces.memos.add([*MESSAGES, {"role": "user", "contnet": "x"}])
    token = "ghp_" + "a1B2" * 9
    receipt = surfaces.memos.add([*MESSAGES[1:3], {"role": "user", "content": f"the token is {token}"}])
    assert [each.where for each in receipt.masked] == ["messages[2].content"]
