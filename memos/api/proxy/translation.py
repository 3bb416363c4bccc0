"""Words the endpoint's answer in the form of another API: block by block as it streams, or whole."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from memos.api.proxy.answers import Answer, Call, Delta, read_events
from memos.api.wording import message_of
from memos.core.streaming import EventData
from memos.core.text.validation import MAX_MESSAGE_BYTES
from memos.core.types import Json
from memos.errors import BackendUnavailable, InvalidAnswer

Kind = Literal["reasoning", "text", "refusal", "call"]

_CUT_OFF = "The language model's endpoint ended its answer before it was complete."
_MIXED = "The language model's endpoint mixed the pieces of several calls of tools."
_NO_ANSWER = "The language model's endpoint gave no chat completion; its operator must check the address."


@dataclass(slots=True)
class Block:
    """One after another they make an answer; `text` of a call are its arguments."""

    kind: Kind
    index: int
    call: Call
    text: str = ""
    logprobs: list[Json] = field(default_factory=list)


class Translation(ABC):
    """The dialect of an API whose answers are not those of chat completions; with `reasoning` it shows thoughts."""

    def __init__(self, *, streams: bool, reasoning: bool) -> None:
        self.answer = Answer(MAX_MESSAGE_BYTES)
        self.streams = streams
        self.blocks: list[Block] = []
        self._reasoning = reasoning
        self._events = EventData()
        self._open: tuple[Kind, int] | None = None
        self._called: set[int] = set()
        self._begun = False
        self._over = False

    @abstractmethod
    def begun(self) -> bytes:
        """Return the first events of a stream."""

    @abstractmethod
    def block_begun(self, block: Block) -> bytes:
        """Return the events that begin a block."""

    @abstractmethod
    def block_more(self, block: Block, piece: str, logprobs: list[Json]) -> bytes:
        """Return the event that adds a piece to a block."""

    @abstractmethod
    def block_ended(self, block: Block) -> bytes:
        """Return the events that end a block."""

    @abstractmethod
    def completed(self) -> bytes:
        """Return the last events of a complete stream."""

    @abstractmethod
    def failed(self, message: str) -> bytes:
        """Return the last events of a stream that failed."""

    @abstractmethod
    def body(self) -> dict[str, Json]:
        """Return the whole answer."""

    @abstractmethod
    def failure(self, raw: bytes, status: int) -> tuple[bytes, Mapping[str, str]]:
        """Return the body of what the endpoint refused, and headers to replace."""

    def problem(self) -> str | None:
        """Return why a complete answer cannot be worded, None if it can."""
        return None

    def note(self, *, inputs: int, whole: bool) -> Json:
        return None

    def feed(self, chunk: bytes) -> bytes:
        told = self._first()
        for delta in read_events(self._events, self.answer, chunk):
            told += self._taken(delta)
        if self.answer.ended and not self._over and (problem := self.problem()) is not None:
            self._spoil(problem)
        return told + (self._last() if self.answer.error else b"")

    def held(self) -> bytes:
        return self._last()

    def end(self) -> bytes:
        return self._first() + self._last()

    def broken(self, error: BackendUnavailable) -> bytes:
        if self._over:
            return b""
        self._over = True
        return self.failed(message_of(error))

    def whole(self, raw: bytes) -> tuple[bytes, Mapping[str, str]]:
        told = self.answer
        problem = (told.error or _NO_ANSWER) if told.spoilt else self.problem()
        if problem is not None:
            raise InvalidAnswer(problem)
        calls = [(place, call, call.arguments) for place, call in enumerate(told.calls)]
        events = self._first() + self._taken(Delta(told.text, told.reasoning, told.refusal, calls, told.logprobs))
        if self.streams:  # the endpoint does not stream, though it was asked to
            return events + self._last(), {"content-type": "text/event-stream; charset=utf-8"}
        return json.dumps(self.body()).encode(), {"content-type": "application/json"}

    def _first(self) -> bytes:
        if self._begun:
            return b""
        self._begun = True
        return self.begun()

    def _taken(self, delta: Delta) -> bytes:
        return b"" if self._over else b"".join(self._pieces(delta))

    def _pieces(self, delta: Delta) -> Iterator[bytes]:
        if delta.reasoning and self._reasoning:
            yield self._add("reasoning", 0, delta.reasoning)
        if delta.text:
            yield self._add("text", 0, delta.text, logprobs=delta.logprobs)
        if delta.refusal:
            yield self._add("refusal", 0, delta.refusal)
        for place, call, piece in delta.calls:
            if place in self._called and self._open != ("call", place):
                self._spoil(_MIXED)
                return
            self._called.add(place)
            yield self._add("call", place, piece, call)

    def _add(
        self, kind: Kind, place: int, piece: str, call: Call | None = None, logprobs: list[Json] | None = None
    ) -> bytes:
        told = b""
        if self._open != (kind, place):
            told = self._end_block()
            self._open = kind, place
            self.blocks.append(Block(kind, len(self.blocks), call or Call()))
            told += self.block_begun(self.blocks[-1])
        block = self.blocks[-1]
        block.text += piece
        block.logprobs += logprobs or []
        return told + (self.block_more(block, piece, logprobs or []) if piece else b"")

    def _end_block(self) -> bytes:
        if self._open is None:
            return b""
        self._open = None
        return self.block_ended(self.blocks[-1])

    def _last(self) -> bytes:
        if self._over:
            return b""
        self._over = True
        if self.answer.error or not self.answer.ended:
            return self.failed(self.answer.error or _CUT_OFF)
        return self._end_block() + self.completed()

    def _spoil(self, message: str) -> None:
        self.answer.spoilt, self.answer.error = True, message


def event(data: dict[str, Json]) -> bytes:
    """Return a server-sent event that has the name of its type."""
    return f"event: {data['type']}\ndata: {json.dumps(data)}\n\n".encode()
