"""A chat model behind a vLLM server, which answers with the adapter of a request's cube where that may answer now."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Protocol

from memos.backends.openai.chat import OpenAIChat
from memos.backends.openai.responses import NoSuchModel
from memos.backends.openai.vllm import VllmAdapters
from memos.core.ports import ChatReply, ChatRequest
from memos.core.recipes import LentAdapter


class NamedLending(Protocol):
    """Says which adapter answers for a cube, where nobody can see the model itself."""

    def serving_named(self, cube: str, model: str, about: Sequence[str]) -> LentAdapter | None:
        """Return the adapter of a cube that may answer now on the model of this name."""
        ...

    def may_answer(self, id_: str) -> bool:
        """Say whether an adapter may answer now."""
        ...


class VllmChat:
    """A `ChatModel`. Thread-safe; adapters are those that were trained on the model called `base` here.

    Whether the server has that model, nobody can see. What it does not take is answered without an adapter.
    """

    def __init__(self, chat: OpenAIChat, adapters: VllmAdapters, lending: NamedLending, base: str) -> None:
        self._chat, self._adapters, self._lending, self._base = chat, adapters, lending, base

    @property
    def name(self) -> str:
        """The model's name at its endpoint."""
        return self._chat.name

    @property
    def in_steps(self) -> bool:
        """It does not."""
        return self._chat.in_steps

    def complete(self, request: ChatRequest) -> ChatReply:
        """Return the model's answer. Raises: as `OpenAIChat.complete`."""
        for adapter, asked in self._ways(request):
            try:
                return _by(adapter, self._chat.complete(asked))
            except NoSuchModel:
                if adapter is None:
                    raise
                self._adapters.lost(adapter)
        raise AssertionError("the last way is the model itself")

    def stream(self, request: ChatRequest) -> Generator[str | ChatReply, None, None]:
        """Yield the model's answer. Raises: as `OpenAIChat.stream`."""
        for adapter, asked in self._ways(request):
            try:
                with closing(self._chat.stream(asked)) as pieces:
                    for piece in pieces:
                        yield _by(adapter, piece) if isinstance(piece, ChatReply) else piece
                return
            except NoSuchModel:  # which comes before any piece
                if adapter is None:
                    raise
                self._adapters.lost(adapter)

    def close(self) -> None:
        """Take no further calls; safe to call twice. What the server has stays there."""
        self._chat.close()

    def __repr__(self) -> str:
        return f"VllmChat({self.name!r})"

    def _ways(self, request: ChatRequest) -> Iterator[tuple[LentAdapter | None, ChatRequest]]:
        """Yield how to ask: with the adapter, once more where the server had lost it, and without."""
        for _ in range(2):
            prefix = request.prefix
            if prefix is None:
                break
            adapter = self._lending.serving_named(prefix.cube, self._base, prefix.about)
            if adapter is None or (name := self._adapters.put(adapter, self._lending.may_answer)) is None:
                break
            yield adapter, replace(request, model=name)
        yield None, request


def _by(adapter: LentAdapter | None, reply: ChatReply) -> ChatReply:
    return reply if adapter is None else replace(reply, adapter=adapter.id)
