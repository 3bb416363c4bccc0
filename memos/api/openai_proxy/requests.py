"""Reads chat completion requests and inserts a memory section; every other field stays as it is. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NoReturn

from memos.core.kv_cache import Prefix, salt_of
from memos.core.settings import ChatSettings
from memos.core.types import Json
from memos.errors import InvalidInput
from memos.kernel.chat.results import Recalled

_HEADS = ("system", "developer")
_MOST_TOKENS, _MOST_ANSWERS = 1_000_000_000, 1_000
_Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Completion:
    """A chat completion request as it came in."""

    body: dict[str, Any]
    messages: list[_Message]

    @property
    def user(self) -> str | None:
        """The user the request names, if any. Raises: InvalidInput."""
        user = self.body.get("user")
        if user is not None and not isinstance(user, str):
            raise InvalidInput("user", "must be text")
        return user or None

    @property
    def question(self) -> str:
        """Text of the last user message, "" if there is none."""
        return next((text_of(each) for each in reversed(self.messages) if each.get("role") == "user"), "")

    @property
    def texts(self) -> frozenset[str]:
        """Texts that the model sees in this request anyway."""
        return frozenset(filter(None, map(text_of, self.messages)))

    @property
    def has_history(self) -> bool:
        """True if the client sends earlier turns itself."""
        return any(each.get("role") == "assistant" for each in self.messages)

    @property
    def new(self) -> list[_Message]:
        """Messages of users and tools since the last answer; clients send all others again."""
        last = max((place for place, each in enumerate(self.messages) if each.get("role") == "assistant"), default=-1)
        return [each for each in self.messages[last + 1 :] if each.get("role") in ("user", "tool")]

    def longest_answer(self, usual: int) -> int:
        """Return how many tokens the answer may have."""
        wanted = [self.body.get(name) for name in ("max_completion_tokens", "max_tokens")]
        limits = [limit for limit in wanted if isinstance(limit, int) and 0 < limit < _MOST_TOKENS]
        answers = self.body.get("n")
        return max(limits, default=usual) * (answers if isinstance(answers, int) and 0 < answers < _MOST_ANSWERS else 1)

    def forwarded(self, model: str, recalled: Recalled, cube: str, settings: ChatSettings) -> tuple[bytes, Prefix]:
        """Return the request for the endpoint, with its model and the recalled memories, and its prompt prefix.

        The prefix is what the prompt has in common with other requests about the cube.
        """
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
        # ASCII escapes keep lone surrogates as they came.
        return json.dumps(body, allow_nan=False).encode(), prefix


def read(raw: bytes) -> Completion:
    """Return the request of a body. Raises: InvalidInput."""
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


def text_of(message: _Message) -> str:
    """Return the text of a message."""
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
