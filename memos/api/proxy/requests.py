"""Requests of chat completions, in which form every API's reach the endpoint: memory goes into them. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from memos.core.kv_cache import Prefix, salt_of
from memos.core.settings import ChatSettings
from memos.core.types import Json
from memos.errors import InvalidInput
from memos.kernel.chat.results import Recalled

Message = dict[str, Any]

HEADS = ("system", "developer")
"""Roles of messages that tell a model what to do."""

LIMITS = ("max_tokens", "max_completion_tokens")
"""Names of the most tokens of an answer; endpoints take the first, the second, or both."""

_MOST_TOKENS, _MOST_ANSWERS = 1_000_000_000, 1_000


@dataclass(frozen=True, slots=True)
class Completion:
    """A request of chat completions; `user` is whom it names, None for the owner of the key.

    `limit` is the most tokens of the answer where the client did not choose by which name the endpoint is told. `own`
    are the messages that are recalled for and stored, where they are not those that the model reads.
    """

    body: dict[str, Any]
    messages: list[Message]
    user: str | None = None
    limit: int | None = None
    own: list[Message] | None = None

    @property
    def question(self) -> str:
        """The last words of the user; pictures of a tool's answer may come behind them."""
        sent = [*self.messages, *(self.own or ())]
        said = (text_of(each) for each in reversed(sent) if each.get("role") == "user")
        return next(filter(str.strip, said), "")

    @property
    def texts(self) -> frozenset[str]:
        """The texts of the messages, as they are stored: calls of tools are lines behind the words."""
        return frozenset(filter(None, map(_stored_text, [*self.messages, *(self.own or ())])))

    @property
    def has_history(self) -> bool:
        return any(each.get("role") == "assistant" for each in self.messages)

    @property
    def new(self) -> list[Message]:
        """Messages of users and tools since the last answer; clients send all others again."""
        sent = self.messages if self.own is None else self.own
        return [each for each in since_answer(sent) if each.get("role") in ("user", "tool")]

    def longest_answer(self, usual: int) -> int:
        wanted = [self.limit, *(self.body.get(name) for name in LIMITS)]
        limits = [limit for limit in wanted if isinstance(limit, int) and 0 < limit < _MOST_TOKENS]
        answers = self.body.get("n")
        return max(limits, default=usual) * (answers if isinstance(answers, int) and 0 < answers < _MOST_ANSWERS else 1)

    def forwarded(
        self, recalled: Recalled, cube: str, settings: ChatSettings, limit: str = LIMITS[0]
    ) -> tuple[bytes, Prefix]:
        """Return the request for the endpoint, and what its prompt has in common with others about the cube."""
        messages, part = self.messages, recalled.prefix
        if part is not None:
            messages = _with(messages, part.section)
        head = text_of(messages[0]) if messages[0].get("role") in HEADS else ""
        prefix = Prefix(cube, len(head))
        if part is not None:
            begin = head.index(part.section)
            prefix = Prefix(cube, begin + part.stable, tuple((begin + char, id_) for char, id_ in part.starts))
        if recalled.section:
            messages = _with(messages, recalled.section)
        # The configured model, whatever the request names.
        body = {**self.body, "model": str(settings.model), "messages": messages}
        if self.limit is not None:
            body[limit] = self.limit
        if settings.prefix_cache == "salt":
            body["cache_salt"] = salt_of(cube, settings.api_key)
        # ASCII escapes preserve lone surrogates.
        return json.dumps(body, allow_nan=False).encode(), prefix


def since_answer(messages: list[Message]) -> list[Message]:
    """Return the messages since the last answer."""
    last = max((place for place, each in enumerate(messages) if each.get("role") == "assistant"), default=-1)
    return messages[last + 1 :]


def read_body(raw: bytes) -> dict[str, Any]:
    """Return the JSON object of a request. Raises: InvalidInput."""
    try:
        body = json.loads(raw, parse_constant=_refuse)
        json.dumps(body, allow_nan=False)  # 1e999 is read as infinity
    except (ValueError, RecursionError) as error:  # also a number of 5,000 digits
        raise InvalidInput("body", "is not valid JSON") from error
    if not isinstance(body, dict):
        raise InvalidInput("body", "must be an object")
    return body


def read_completion(raw: bytes) -> Completion:
    """Return a request of chat completions. Raises: InvalidInput."""
    body = read_body(raw)
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(each, dict) for each in messages):
        raise InvalidInput("messages", "must be a list of at least one message {role, content}")
    return Completion(body, messages, text_field(body, "user") or None)


def text_field(body: Mapping[str, Any], name: str) -> str | None:
    """Return a field that is text or missing. Raises: InvalidInput."""
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidInput(name, "must be text")
    return value


def required_text(where: str, value: Json) -> str:
    """Return a value that has to be text. Raises: InvalidInput."""
    if not isinstance(value, str):
        raise InvalidInput(where, "is required" if value is None else "must be text")
    return value


def objects_in(where: str, value: Json) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of a list, which may be missing, with their places. Raises: InvalidInput."""
    if not isinstance(value, list | None):
        raise InvalidInput(where, "must be a list")
    for place, each in enumerate(value or ()):
        if not isinstance(each, dict):
            raise InvalidInput(f"{where}[{place}]", "must be an object")
        yield place, each


def check_only(body: Mapping[str, Any], fine: Mapping[str, tuple[Json, ...]], where: str) -> None:
    """Refuse fields that would change the answer and cannot be translated, unless they have a value of `fine`.

    Raises: InvalidInput.
    """
    for name, values in fine.items():
        if (value := body.get(name)) is not None and value not in values:
            raise InvalidInput(name, f"cannot be translated for {where}; leave it out")


def text_of(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "\n".join(_part_text(part) for part in content if _part_text(part)) if isinstance(content, list) else ""


def _stored_text(message: Message) -> str:
    calls = message.get("tool_calls")
    functions = [call.get("function") for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    lines = [f"{each.get('name')}({each.get('arguments')})" for each in functions if isinstance(each, dict)]
    return "\n".join(filter(None, [text_of(message).strip() if lines else text_of(message), *lines]))


def _part_text(part: Json) -> str:
    text = part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None
    return text if isinstance(text, str) else ""


def call_message(id_: str, name: str, arguments: str) -> dict[str, Json]:
    """Return a call of a tool as a message of chat completions has it."""
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}


def tool_answer(call: str, content: Json) -> tuple[Message, list[Json]]:
    """Return the message of a tool's answer, and its pictures, which belong into a user's message behind it.

    Chat completions take text alone from a tool.
    """
    if not isinstance(content, list):
        return {"role": "tool", "tool_call_id": call, "content": content or ""}, []
    pictures = [part for part in content if part["type"] != "text"]
    text = text_of({"content": content}) or ("[see the next message]" if pictures else "")
    return {"role": "tool", "tool_call_id": call, "content": text}, pictures


def _with(messages: list[Message], section: str) -> list[Message]:
    """Append the section to an existing message: templates of many models take no second system message."""
    if messages[0].get("role") in HEADS:
        return [_behind(messages[0], section), *messages[1:]]
    return [{"role": "system", "content": section}, *messages]


def _behind(message: Message, section: str) -> Message:
    content = message.get("content")
    if isinstance(content, list):
        return {**message, "content": [*content, {"type": "text", "text": section}]}
    return {**message, "content": f"{content}\n\n{section}" if isinstance(content, str) and content else section}


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
