"""Messages and errors of the protocol: memory goes into a request, and what is stored comes out of an answer. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from starlette.responses import JSONResponse, Response

from memos.api.wording import message_of
from memos.core.kv_cache import Prefix, salt_of
from memos.core.settings import ChatSettings
from memos.core.streaming import DONE, EventData, without_reasoning
from memos.core.types import Json, Trust
from memos.errors import BackendUnavailable, InvalidInput, MemosError
from memos.kernel.chat.results import Recalled

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
}


def error_response(error: MemosError, status: int) -> Response:
    """Return an error in OpenAI's envelope, marked as not worth a retry if it is permanent."""
    told = JSONResponse(problem(error, status), status)
    if isinstance(error, BackendUnavailable) and error.permanent:
        told.headers["x-should-retry"] = "false"
    return told


def problem(error: MemosError, status: int) -> dict[str, Json]:
    return {
        "error": {
            "message": message_of(error),
            "type": _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error"),
            "param": error.field if isinstance(error, InvalidInput) else None,
            "code": error.code,
        }
    }


_HEADS = ("system", "developer")
_MOST_TOKENS, _MOST_ANSWERS = 1_000_000_000, 1_000
_Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Completion:
    body: dict[str, Any]
    messages: list[_Message]

    @property
    def user(self) -> str | None:
        user = self.body.get("user")
        if user is not None and not isinstance(user, str):
            raise InvalidInput("user", "must be text")
        return user or None

    @property
    def question(self) -> str:
        return next((text_of(each) for each in reversed(self.messages) if each.get("role") == "user"), "")

    @property
    def texts(self) -> frozenset[str]:
        return frozenset(filter(None, map(text_of, self.messages)))

    @property
    def has_history(self) -> bool:
        return any(each.get("role") == "assistant" for each in self.messages)

    @property
    def new(self) -> list[_Message]:
        """Messages of users and tools since the last answer; clients send all others again."""
        last = max((place for place, each in enumerate(self.messages) if each.get("role") == "assistant"), default=-1)
        return [each for each in self.messages[last + 1 :] if each.get("role") in ("user", "tool")]

    def longest_answer(self, usual: int) -> int:
        wanted = [self.body.get(name) for name in ("max_completion_tokens", "max_tokens")]
        limits = [limit for limit in wanted if isinstance(limit, int) and 0 < limit < _MOST_TOKENS]
        answers = self.body.get("n")
        return max(limits, default=usual) * (answers if isinstance(answers, int) and 0 < answers < _MOST_ANSWERS else 1)

    def forwarded(self, model: str, recalled: Recalled, cube: str, settings: ChatSettings) -> tuple[bytes, Prefix]:
        """Return the request for the endpoint, and what its prompt has in common with others about the cube."""
        messages, part = self.messages, recalled.prefix
        if part is not None:
            messages = _with(messages, part.section)
        head = text_of(messages[0]) if messages[0].get("role") in _HEADS else ""
        prefix = Prefix(cube, len(head))
        if part is not None:
            begin = head.index(part.section)
            prefix = Prefix(cube, begin + part.stable, tuple((begin + char, id_) for char, id_ in part.starts))
        if recalled.section:
            messages = _with(messages, recalled.section)
        body = {**self.body, "model": model, "messages": messages}
        if settings.prefix_cache == "salt":
            body["cache_salt"] = salt_of(cube, settings.api_key)
        # ASCII escapes preserve lone surrogates.
        return json.dumps(body, allow_nan=False).encode(), prefix


def read(raw: bytes) -> Completion:
    try:
        body = json.loads(raw, parse_constant=_refuse)
        json.dumps(body, allow_nan=False)  # 1e999 is read as infinity
    except (ValueError, RecursionError) as error:  # also a number of 5,000 digits
        raise InvalidInput("body", "is not valid JSON") from error
    if not isinstance(body, dict):
        raise InvalidInput("body", "must be an object")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(each, dict) for each in messages):
        raise InvalidInput("messages", "must be a list of at least one message {role, content}")
    return Completion(body, messages)


def text_of(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "\n".join(_part_text(part) for part in content if _part_text(part)) if isinstance(content, list) else ""


def _part_text(part: Json) -> str:
    text = part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None
    return text if isinstance(text, str) else ""


def _with(messages: list[_Message], section: str) -> list[_Message]:
    """Append the section to an existing message: templates of many models take no second system message."""
    if messages[0].get("role") in _HEADS:
        return [_behind(messages[0], section), *messages[1:]]
    return [{"role": "system", "content": section}, *messages]


def _behind(message: _Message, section: str) -> _Message:
    content = message.get("content")
    if isinstance(content, list):
        return {**message, "content": [*content, {"type": "text", "text": section}]}
    return {**message, "content": f"{content}\n\n{section}" if isinstance(content, str) and content else section}


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_UNFINISHED = ("length", "max_tokens", "content_filter", "error", "abort")
_END = b"data: [DONE]"
_EVENT_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")
_LONGEST_EVENT = 1024 * 1024
_MARKS = {"image_url": "[image]", "input_audio": "[audio]", "file": "[file]"}
_MOST_CALLS = 1000
_MOST_COUNTED = 1_000_000_000


def read_answer(raw: bytes) -> dict[str, Json] | None:
    choice = _first(_parsed(raw))
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
        return tokens_of(self._usage)

    @property
    def characters(self) -> int:
        return self._sent

    def rest(self) -> bytes:
        return self._rest

    def answer(self) -> dict[str, Json] | None:
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
    counts = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")] if isinstance(usage, dict) else [None]
    fine = [count for count in counts if isinstance(count, int) and 0 <= count <= _MOST_COUNTED]
    return sum(fine) if len(fine) == len(counts) else None


def usage_in(raw: bytes) -> int | None:
    body = _parsed(raw)
    return tokens_of(body.get("usage")) if isinstance(body, dict) else None


def _parsed(raw: bytes | str) -> Json:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None


def exchange(
    new: Sequence[dict[str, Any]], answer: dict[str, Json], recalled: Recalled, *, images: bool
) -> list[dict[str, Json]]:
    """Return the messages to store of a question and its answer; images and calls too large are replaced by marks."""
    said = [_storable(message, images=images) for message in new]
    # The answer may repeat untrusted text, so it must not be stored as trusted.
    trust = str(Trust.UNTRUSTED if recalled.untrusted else Trust.TRUSTED)
    said.append({**_storable(answer, images=False), "trust": trust, "recalled": list(recalled.ids)})
    return [message for message in said if message["content"] or message.get("tool_calls") or message["role"] == "tool"]


def _answer(text: str, calls: Json) -> dict[str, Json] | None:
    told = without_reasoning(text).strip()
    if not told and not calls:
        return None
    return {"role": "assistant", "content": told, **({"tool_calls": calls} if calls else {})}


def _storable(message: dict[str, Any], *, images: bool) -> dict[str, Json]:
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
