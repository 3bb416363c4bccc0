"""What the chat endpoint answers: a whole chat completion, or a stream of its pieces. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from memos.api.proxy.requests import call_message
from memos.core.clock import new_id
from memos.core.streaming import DONE, EventData, without_reasoning
from memos.core.types import Json

UNFINISHED = ("length", "max_tokens", "content_filter", "error", "abort")
"""Reasons for an end at which the answer was not complete."""

_END = b"data: [DONE]"
_EVENT_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")
_LONGEST_EVENT = 1024 * 1024
_MOST_CALLS = 1000
_MOST_COUNTED = 1_000_000_000


@dataclass(slots=True)
class Call:
    """A call of a tool; `arguments` is the text the model wrote."""

    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(slots=True)
class Delta:
    """What an event of a stream adds to an answer; `calls` are their places, the calls so far, and more arguments."""

    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    calls: list[tuple[int, Call, str]] = field(default_factory=list)
    logprobs: list[Json] = field(default_factory=list)


class Answer:
    """The first choice of an answer, whole or as far as it came; beyond `most` characters it is not kept.

    `spoilt` says that it is not to be stored, `error` what the endpoint says went wrong in the middle of a stream.
    """

    def __init__(self, most: int) -> None:
        self._left = most
        self._text: list[str] = []
        self._calls: dict[int, Call] = {}
        self.reasoning = ""
        self.refusal = ""
        self.logprobs: list[Json] = []
        self.model: str | None = None
        self.finish: str | None = None
        self.stopped_by: str | None = None
        self.usage: Json = None
        self.error: str | None = None
        self.characters = 0
        self.spoilt = False
        self.done = False

    def read(self, raw: bytes) -> None:
        """Take an answer that is no stream; one that is none of chat completions is spoilt."""
        body = _parsed(raw)
        self._head(body)
        message = _first(body).get("message")
        if isinstance(message, dict):
            calls = message.get("tool_calls")
            placed = enumerate(calls if isinstance(calls, list) else [])
            calls = [{**call, "index": place} for place, call in placed if isinstance(call, dict)]
            self._add({**message, "tool_calls": calls}, _first(body))
        self.spoilt = self.spoilt or not isinstance(message, dict)
        self.done = True

    def take(self, data: str) -> Delta:
        """Take the data of one event of a stream."""
        if data.strip() == DONE:
            self.done = True
            return Delta()
        self._left -= len(data)
        event = _parsed(data)
        self._head(event)
        self.spoilt = self.spoilt or self._left < 0
        delta = _first(event).get("delta")
        return self._add(delta, _first(event)) if isinstance(delta, dict) and not self.spoilt else Delta()

    @property
    def text(self) -> str:
        return "".join(self._text)

    @property
    def calls(self) -> list[Call]:
        return [call for _, call in sorted(self._calls.items())]

    @property
    def ended(self) -> bool:
        return self.done or self.finish is not None

    @property
    def tokens(self) -> int | None:
        return tokens_of(self.usage)

    def message(self) -> dict[str, Json] | None:
        """Return the message to store, None unless the answer is complete and says something."""
        if self.spoilt or not self.ended or self.finish in UNFINISHED or self.refusal:
            return None
        told = without_reasoning(self.text).strip()
        calls = [call_message(call.id, call.name, call.arguments) for call in self.calls]
        if not told and not calls:
            return None
        return {"role": "assistant", "content": told, **({"tool_calls": calls} if calls else {})}

    def _head(self, body: Json) -> None:
        if not isinstance(body, dict):
            return
        self.usage = body.get("usage") or self.usage
        self.model = _text(body.get("model")) or self.model
        if error := body.get("error"):
            self.spoilt = True
            told = error.get("message") if isinstance(error, dict) else error
            self.error = _text(told) or "The model's endpoint broke off the answer."
        choice = _first(body)
        self.finish = _text(choice.get("finish_reason")) or self.finish
        self.stopped_by = _text(choice.get("stop_reason")) or self.stopped_by

    def _add(self, said: dict[str, Any], choice: dict[str, Any]) -> Delta:
        found = choice.get("logprobs")
        logprobs = found.get("content") if isinstance(found, dict) else None
        delta = Delta(
            _text(said.get("content")),
            _text(said.get("reasoning_content")) or _text(said.get("reasoning")),
            _text(said.get("refusal")),
            logprobs=logprobs if isinstance(logprobs, list) else [],
        )
        self._text.append(delta.text)
        self.reasoning += delta.reasoning
        self.refusal += delta.refusal
        self.logprobs += delta.logprobs
        self.characters += len(delta.text) + len(delta.reasoning)
        calls = said.get("tool_calls")
        for piece in calls if isinstance(calls, list) else []:
            place = piece.get("index", 0) if isinstance(piece, dict) else None
            if not isinstance(place, int) or not 0 <= place < _MOST_CALLS:
                self.spoilt = True
                break
            more = _call(piece)
            # Some endpoints give no id, and the tool's answer needs one.
            call = self._calls.setdefault(place, Call(more.id or f"call_{new_id().replace('-', '')}"))
            call.name += more.name
            call.arguments += more.arguments
            delta.calls.append((place, call, more.arguments))
        return delta


def _call(piece: dict[str, Any]) -> Call:
    function = piece.get("function") or piece.get("custom")
    function = function if isinstance(function, dict) else {}
    arguments = function.get("arguments", function.get("input"))
    if isinstance(arguments, dict):  # some endpoints write them out
        arguments = json.dumps(arguments, ensure_ascii=False)
    return Call(_text(piece.get("id")), _text(function.get("name")), _text(arguments))


class Passage:
    """Passes a stream on byte by byte, in complete events, and holds its end back until it is asked for.

    An incomplete event is held back too, since its reader could do nothing with it.
    """

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self._events = EventData()
        self._rest = b""
        self._end = b""

    def feed(self, chunk: bytes) -> bytes:
        """Return what can be passed on."""
        try:
            for data in self._events.feed(chunk):
                self.answer.take(data)
        except ValueError:
            self.answer.spoilt = True
        whole = self._rest + chunk
        cut = max(whole.rfind(end) + len(end) if end in whole else 0 for end in _EVENT_ENDS)
        cut = len(whole) if len(whole) - cut > _LONGEST_EVENT else cut
        passed, self._rest = whole[:cut], whole[cut:]
        if not self.answer.done:
            return passed
        end = max(0, passed.rfind(_END)) if not self._end else 0
        self._end += passed[end:]
        return passed[:end]

    def held(self) -> bytes:
        """Return the end of the stream as far as it came."""
        end, self._end = self._end, b""
        return end

    def end(self) -> bytes:
        """Return the incomplete event at the end."""
        return self._rest


def read_events(events: EventData, answer: Answer, chunk: bytes) -> Iterator[Delta]:
    """Yield what a piece of a stream adds to an answer, for those who word it anew."""
    try:
        for data in events.feed(chunk):
            yield answer.take(data)
    except ValueError:
        answer.spoilt, answer.error = True, "The model's endpoint sent an event that is too long."


def tokens_of(usage: Json) -> int | None:
    counts = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")] if isinstance(usage, dict) else [None]
    fine = [count for count in counts if isinstance(count, int) and 0 <= count <= _MOST_COUNTED]
    return sum(fine) if len(fine) == len(counts) else None


def counted(usage: Json, *names: str) -> int:
    """Return a count from a report of usage by the way to it, 0 if it is not told."""
    value = usage
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, int) and 0 <= value <= _MOST_COUNTED else 0


def _parsed(raw: bytes | str) -> Json:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None


def _first(body: Json) -> dict[str, Any]:
    """Return the first choice, the one that is kept of several."""
    choices = body.get("choices") if isinstance(body, dict) else None
    for choice in choices if isinstance(choices, list) else []:
        if isinstance(choice, dict) and choice.get("index", 0) == 0:
            return choice
    return {}


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""
