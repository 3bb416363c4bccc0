"""Reads answers out of copies of an endpoint's bytes, whole or streamed, and makes them storable. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from memos.api.openai_proxy.requests import text_of
from memos.core.streaming import DONE, EventData, without_reasoning
from memos.core.types import Json

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_UNFINISHED = ("length", "max_tokens", "content_filter", "error", "abort")
_END = b"data: [DONE]"
_EVENT_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")
_LONGEST_EVENT = 1024 * 1024
_MARKS = {"image_url": "[image]", "input_audio": "[audio]", "file": "[file]"}
_MOST_CALLS = 1000
_MOST_TOKENS = 1_000_000_000


def read_answer(raw: bytes) -> dict[str, Json] | None:
    """Return the finished answer of a body as a message, None if there is none."""
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    choice = _first(body)
    message = choice.get("message")
    if not isinstance(message, dict) or choice.get("finish_reason") in _UNFINISHED or message.get("refusal"):
        return None
    return _answer(_text(message.get("content")), message.get("tool_calls"))


class Copy:
    """A copy of a stream that was passed on; beyond `most` characters it is discarded."""

    def __init__(self, most: int) -> None:
        self._events = EventData()
        self._left = most
        self._rest = b""
        self._text: list[str] = []
        self._calls: dict[int, dict[str, str]] = {}
        self._finish: Json = None
        self._spoilt = False
        self._usage: Json = None
        self._sent = 0
        self.done = False

    def feed(self, chunk: bytes) -> tuple[bytes, bytes]:
        """Take bytes and return those of complete events in two parts; the second begins with the end of the stream.

        An incomplete event is held back, since its reader could do nothing with it.
        """
        try:
            for data in self._events.feed(chunk):
                self._take(data)
        except ValueError:
            self._spoilt = True
        whole = self._rest + chunk
        cut = max(whole.rfind(end) + len(end) if end in whole else 0 for end in _EVENT_ENDS)
        cut = len(whole) if len(whole) - cut > _LONGEST_EVENT else cut
        passed, self._rest = whole[:cut], whole[cut:]
        end = passed.rfind(_END) if self.done else -1
        return (passed, b"") if end < 0 else (passed[:end], passed[end:])

    @property
    def tokens(self) -> int | None:
        """Tokens of prompt and answer as reported, None before that."""
        return tokens_of(self._usage)

    @property
    def characters(self) -> int:
        """Approximate number of characters sent."""
        return self._sent

    def rest(self) -> bytes:
        """Return what was held back, once the stream has ended properly."""
        return self._rest

    def answer(self) -> dict[str, Json] | None:
        """Return the finished answer as a message, None if there is none."""
        ended = self.done or self._finish is not None
        if self._spoilt or not ended or self._finish in _UNFINISHED:
            return None
        calls = [
            {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": call["arguments"]}}
            for _, call in sorted(self._calls.items())
        ]
        return _answer("".join(self._text), calls)

    def _take(self, data: str) -> None:
        if data.strip() == DONE:
            self.done = True
            return
        self._left -= len(data)
        try:
            event = json.loads(data)
        except (ValueError, RecursionError):
            return
        self._usage = event.get("usage") or self._usage if isinstance(event, dict) else self._usage
        delta = _first(event).get("delta")
        self._finish = _first(event).get("finish_reason") or self._finish
        self._spoilt = self._spoilt or self._left < 0 or (isinstance(event, dict) and bool(event.get("error")))
        if not isinstance(delta, dict) or self._spoilt:
            return
        self._spoilt = bool(delta.get("refusal"))
        self._text.append(_text(delta.get("content")))
        self._sent += len(self._text[-1]) + len(_text(delta.get("reasoning_content")))
        calls = delta.get("tool_calls")
        for piece in calls if isinstance(calls, list) else []:
            self._call(piece)

    def _call(self, piece: Json) -> None:
        place = piece.get("index", 0) if isinstance(piece, dict) else None
        if not isinstance(place, int) or not 0 <= place < _MOST_CALLS:
            self._spoilt = True
            return
        call = self._calls.setdefault(place, {"id": "", "name": "", "arguments": ""})
        function = piece.get("function")
        function = function if isinstance(function, dict) else {}
        call["id"] = call["id"] or _text(piece.get("id"))
        call["name"] += _text(function.get("name"))
        call["arguments"] += _text(function.get("arguments"))


def tokens_of(usage: Json) -> int | None:
    """Return the tokens of a usage report, None if it is malformed."""
    counts = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")] if isinstance(usage, dict) else [None]
    fine = [count for count in counts if isinstance(count, int) and 0 <= count <= _MOST_TOKENS]
    return sum(fine) if len(fine) == len(counts) else None


def usage_in(raw: bytes) -> int | None:
    """Return the tokens that an unstreamed answer reports, None if it does not."""
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return tokens_of(body.get("usage")) if isinstance(body, dict) else None


def exchange(
    new: Sequence[dict[str, Any]], answer: dict[str, Json], *, untrusted: bool, images: bool
) -> list[dict[str, Json]]:
    """Return the messages to store of a question and its answer; images and calls too large are replaced by marks."""
    said = [_storable(message, images=images) for message in new]
    # What others than users told may stand in the answer: it must not come back as something trusted.
    said.append({**_storable(answer, images=False), "trust": "untrusted" if untrusted else "trusted"})
    return [message for message in said if message["content"] or message.get("tool_calls") or message["role"] == "tool"]


def _answer(text: str, calls: Json) -> dict[str, Json] | None:
    told = without_reasoning(text).strip()
    if not told and not calls:
        return None
    return {"role": "assistant", "content": told, **({"tool_calls": calls} if calls else {})}


def _storable(message: dict[str, Any], *, images: bool) -> dict[str, Json]:
    """Return a message with the fields that are kept, and text that every store accepts."""
    kept: dict[str, Json] = {"role": message["role"], "content": _clean(_content(message, images=images))}
    calls = message.get("tool_calls")
    if isinstance(calls, list) and calls:
        kept["tool_calls"] = [_clean(call) for call in calls]
    if isinstance(answers := message.get("tool_call_id"), str) and answers.strip():
        kept["tool_call_id"] = _clean(answers)
    if message["role"] == "user" and isinstance(name := message.get("name"), str) and name.strip():
        kept["name"] = _clean(name)
    return kept


def _content(message: dict[str, Any], *, images: bool) -> Json:
    content = message.get("content")
    if not isinstance(content, list):
        return text_of(message).strip()
    told: list[dict[str, Json]] = []
    for part in content:
        kind = str(part.get("type")) if isinstance(part, dict) else ""
        if images and kind == "image_url" and "data:" in str(part.get("image_url")):
            told.append({"type": "image_url", "image_url": part.get("image_url")})
        elif text := _MARKS.get(kind) or text_of({"content": [part]}):
            told.append({"type": "text", "text": text})
    return told if images else "\n".join(part["text"] for part in told).strip()


def _clean(value: Json) -> Json:
    if isinstance(value, str):
        return _UNSTORABLE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_clean(each) for each in value]
    if isinstance(value, dict):
        return {str(_clean(name)): _clean(each) for name, each in value.items()}
    return value


def _first(body: Json) -> dict[str, Any]:
    """Return the first choice, the one that is kept of several."""
    choices = body.get("choices") if isinstance(body, dict) else None
    for choice in choices if isinstance(choices, list) else []:
        if isinstance(choice, dict) and choice.get("index", 0) == 0:
            return choice
    return {}


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""
