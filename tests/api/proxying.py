"""A running server in front of a chat endpoint that says what a test tells it to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import openai
from starlette.testclient import TestClient

from memos import MemOS, Settings
from memos.api.proxy.upstream import Upstream
from memos.api.serving import first_key
from memos.core.ports import ChatModel, Vector
from memos.core.settings import ChatSettings, IndexSettings, LimitSettings, RecallSettings, TaskSettings
from memos.core.types import Json
from memos.errors import ModelError
from tests.api.running import running
from tests.fakes import WordEmbedder
from tests.support.servers.openai_server import Asked, OpenAIServer, Said

CAP = 200
"""The most tokens of what is recalled."""


class Embedder(WordEmbedder):
    """Embeds words, and no question while it is `away`."""

    away = False

    def embed_query(self, text: str) -> Vector:
        if self.away:
            raise ModelError("The embedder fails.")
        return super().embed_query(text)


class Proxy:
    """A running server; every test has users of its own."""

    def __init__(
        self, memos: MemOS, root: str, upstream: OpenAIServer, script: list[Callable[[Asked], Said]], embedder: Embedder
    ) -> None:
        self.memos, self.root, self.upstream, self._script = memos, root, upstream, script
        self.url, self.embedder = f"{root}/openai/v1", embedder

    def says(self, *said: Said) -> None:
        """Let the endpoint give these answers, the last one again and again."""
        left = list(said)
        self._script[:] = [lambda _: left.pop(0) if len(left) > 1 else left[0]]

    def user(self, name: str, *memories: str) -> str:
        """Make a user; return its key."""
        self.memos.users.create(name)
        for memory in memories:
            self.memos.add(memory, cube=name, actor=name)
        return self.memos.keys.create(name, "test").secret

    def client(self, key: str, **more: Any) -> openai.OpenAI:
        return openai.OpenAI(base_url=self.url, api_key=key, **{"max_retries": 0, **more})

    def anthropic(self, key: str, **more: Any) -> anthropic.Anthropic:
        return anthropic.Anthropic(base_url=f"{self.root}/anthropic", api_key=key, **{"max_retries": 0, **more})

    def post(self, key: str, body: Json, headers: dict[str, str] | None = None, **more: Any) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {key}", **(headers or {})}
        return httpx2.post(f"{self.url}/chat/completions", json=body, headers=headers, timeout=60, **more)

    @property
    def asked(self) -> dict[str, Any]:
        """The last request that reached the endpoint."""
        return self.upstream.asked[-1].body

    def stored(self, user: str) -> list[tuple[str, str]]:
        return [(str(item.role), item.memory) for item in self.memos.memories.list(cube=user) if item.type == "message"]


@contextmanager
def proxied(home: Path, **model: Any) -> Iterator[Proxy]:
    """Yield a server over a new installation; `model` are settings of its chat model."""
    script: list[Callable[[Asked], Said]] = []
    embedder = Embedder()

    def answers(asked: Asked) -> Said:
        return script[0](asked)

    with OpenAIServer(answers) as upstream:
        settings = Settings(
            index=IndexSettings(wait_s=30),
            limits=LimitSettings(min_free_bytes=1_000_000),
            tasks=TaskSettings(workers=0),
            recall=RecallSettings(tokens=CAP),
            chat_model=upstream.settings(**{"timeout_s": 20, **model}),
        )
        with MemOS.open(home, settings=settings, embedder=embedder) as memos:
            assert first_key(memos)
            with running(memos) as root:
                yield Proxy(memos, root, upstream, script, embedder)


@contextmanager
def inside(home: Path, group: Any, model: ChatModel) -> Iterator[tuple[str, TestClient]]:
    """Yield a user's key and a client of a group of routes in front of a model in this process."""
    settings = Settings(chat_model=ChatSettings(model="local:scripted"), tasks=TaskSettings(workers=0))
    upstream = Upstream(settings.chat_model, lambda: model)
    with (
        MemOS.open(home, settings=settings, embedder=WordEmbedder()) as memos,
        TestClient(group.create(memos, None, upstream)) as http,
    ):
        memos.users.create("ana")
        memos.add("My sister Maria lives in Lyon.", cube="ana", actor="ana")
        yield memos.keys.create("ana", "k").secret, http


@contextmanager
def behind(home: Path, model: ChatSettings) -> Iterator[tuple[str, str, MemOS]]:
    """Yield the address of a server with a chat model, a user's key, and the installation."""
    settings = Settings(chat_model=model, tasks=TaskSettings(workers=0))
    with MemOS.open(home, settings=settings, embedder=WordEmbedder()) as memos, running(memos) as url:
        memos.users.create("ana")
        yield url, memos.keys.create("ana", "k").secret, memos
