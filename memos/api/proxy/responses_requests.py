"""Requests of OpenAI's Responses API as requests of chat completions. Pure.

What would change the answer and has no place in chat completions is refused; fields that this module does not know are
passed on to the endpoint as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from memos.api.proxy.requests import (
    HEADS,
    Completion,
    Message,
    call_message,
    check_only,
    objects_in,
    required_text,
    text_field,
    text_of,
    tool_answer,
)
from memos.core.types import Json
from memos.errors import InvalidInput

Resolve = Callable[[str], Json]
"""Returns the stored item that an `item_reference` names. Raises: InvalidInput."""

_ENDPOINT = "the model behind this server"
# What is translated, and what changes nothing: what to include of tools that are not there, how a stream is padded.
_OWN = {
    "conversation", "include", "input", "instructions", "max_output_tokens", "max_tool_calls", "metadata", "model",
    "previous_response_id", "reasoning", "store", "stream_options", "text", "tool_choice", "tools", "top_logprobs",
}  # fmt: skip
_ONLY: Mapping[str, tuple[Json, ...]] = {
    "background": (False,),
    "context_management": ([],),
    "moderation": (),
    "prompt": (),
    "truncation": ("disabled",),
}
_LOGPROBS = "message.output_text.logprobs"
_TEXTS = ("input_text", "output_text", "text", "summary_text")
_MOST_PAIRS, _KEY_CHARS, _VALUE_CHARS = 16, 64, 512


@dataclass(frozen=True, slots=True)
class ResponseRequest:
    """A request of the Responses API; `asked` is what of it goes into a request of chat completions."""

    body: dict[str, Any]
    asked: dict[str, Any]
    user: str | None
    previous: str | None
    conversation: str | None
    metadata: dict[str, str]

    @property
    def store(self) -> bool:
        return self.body.get("store") is not False

    def completion(self, messages: list[Message], own: list[Message]) -> Completion:
        """Return it as a request of chat completions with these messages, of which its `own` are new."""
        instructions = text_field(self.body, "instructions")
        first: list[Message] = [{"role": "system", "content": instructions}] if instructions else []
        limit = self.body.get("max_output_tokens")
        return Completion(self.asked, _one_head([*first, *messages]), self.user, limit, own)


def read_response(body: dict[str, Any]) -> ResponseRequest:
    """Read everything but the input. Raises: InvalidInput."""
    check_only(body, _ONLY, _ENDPOINT)
    for name in ("store", "stream"):
        if not isinstance(body.get(name), bool | None):
            raise InvalidInput(name, "must be true or false")
    limit = body.get("max_output_tokens")
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise InvalidInput("max_output_tokens", "must be a whole number from 1")
    asked = {name: value for name, value in body.items() if name not in _OWN | set(_ONLY) and value is not None}
    if asked.get("stream"):
        asked["stream_options"] = {"include_usage": True}
    if tools := [_tool(f"tools[{place}]", each) for place, each in objects_in("tools", body.get("tools"))]:
        asked["tools"] = tools
    asked |= _choice(body.get("tool_choice")) | _shape(body.get("text")) | _effort(body.get("reasoning"))
    included = body.get("include") or []
    if body.get("top_logprobs") is not None or (isinstance(included, list) and _LOGPROBS in included):
        asked |= {"logprobs": True, "top_logprobs": body.get("top_logprobs") or 0}
    previous, conversation = text_field(body, "previous_response_id"), _conversation(body.get("conversation"))
    if previous is not None and conversation is not None:
        raise InvalidInput("previous_response_id", "cannot be used with `conversation`; leave one of them out")
    user = text_field(body, "user") or None
    return ResponseRequest(body, asked, user, previous, conversation, _metadata(body.get("metadata")))


def messages_of(given: Json, resolve: Resolve) -> list[Message]:
    """Return an input as messages of chat completions. Raises: InvalidInput."""
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    if not isinstance(given, list) or not given:
        raise InvalidInput("input", "must be text or a list of at least one item")
    messages: list[Message] = []
    pictures: list[Json] = []
    for place, sent in objects_in("input", given):
        where, item = f"input[{place}]", sent
        if sent.get("type") == "item_reference":
            item = resolve(required_text(f"{where}.id", sent.get("id")))
        kind = item.get("type") or "message"
        if pictures and kind != "function_call_output":  # behind all answers of tools
            messages.append({"role": "user", "content": pictures})
            pictures = []
        if kind == "message":
            messages.append(_message(where, item))
        elif kind == "function_call":
            _add_call(messages, where, item)
        elif kind == "function_call_output":
            output = item.get("output")
            told = output if isinstance(output, str) else list(_parts(f"{where}.output", output))
            message, more = tool_answer(required_text(f"{where}.call_id", item.get("call_id")), told)
            messages.append(message)
            pictures += more
        elif kind != "reasoning":  # which no endpoint takes back
            raise InvalidInput(f"{where}.type", f"must be message, function_call or its output for {_ENDPOINT}")
    if pictures:
        messages.append({"role": "user", "content": pictures})
    if not messages:
        raise InvalidInput("input", "has no message")
    return messages


def _message(where: str, item: Mapping[str, Any]) -> Message:
    role, content = item.get("role"), item.get("content")
    if role not in ("user", "assistant", *HEADS):
        raise InvalidInput(f"{where}.role", "must be user, assistant, system or developer")
    parts = content if isinstance(content, str) else list(_parts(f"{where}.content", content))
    if role == "user":
        one = parts[0]["text"] if len(parts) == 1 and isinstance(parts, list) and parts[0]["type"] == "text" else parts
        return {"role": "user", "content": one}
    if isinstance(parts, list) and any(part["type"] != "text" for part in parts):
        raise InvalidInput(f"{where}.content", "must be text, as it is no user's message")
    text = parts if isinstance(parts, str) else "".join(part["text"] for part in parts)
    return {"role": "assistant" if role == "assistant" else "system", "content": text}


def _parts(where: str, content: Json) -> Iterator[dict[str, Any]]:
    for place, part in objects_in(where, content):
        here, kind = f"{where}[{place}]", part.get("type")
        if kind in _TEXTS:
            yield {"type": "text", "text": required_text(f"{here}.text", part.get("text"))}
        elif kind == "refusal":
            yield {"type": "text", "text": required_text(f"{here}.refusal", part.get("refusal"))}
        elif kind == "input_image" and part.get("image_url") is not None:
            image = {"url": required_text(f"{here}.image_url", part["image_url"])}
            detail = part.get("detail")
            yield {"type": "image_url", "image_url": image if detail is None else {**image, "detail": detail}}
        elif kind == "input_file" and part.get("file_data") is not None:
            data = required_text(f"{here}.file_data", part["file_data"])
            yield {"type": "file", "file": {"filename": part.get("filename") or "file", "file_data": data}}
        elif kind == "input_audio":
            yield {"type": "input_audio", "input_audio": part.get("input_audio")}
        elif kind in ("input_image", "input_file"):
            raise InvalidInput(here, "must have its data in it: this server keeps and fetches no files for the model")
        else:
            raise InvalidInput(f"{here}.type", "must be input_text, input_image, input_file or input_audio")


def _add_call(messages: list[Message], where: str, item: Mapping[str, Any]) -> None:
    id_, name, arguments = (required_text(f"{where}.{key}", item.get(key)) for key in ("call_id", "name", "arguments"))
    if not (messages and messages[-1]["role"] == "assistant"):
        messages.append({"role": "assistant", "content": None})
    messages[-1].setdefault("tool_calls", []).append(call_message(id_, name, arguments))


def _one_head(messages: list[Message]) -> list[Message]:
    """Join the instructions at the beginning: templates of many models take one system message."""
    end = next((place for place, each in enumerate(messages) if each["role"] != "system"), len(messages))
    if end < 2:
        return messages
    return [{"role": "system", "content": "\n\n".join(map(text_of, messages[:end]))}, *messages[end:]]


def _tool(where: str, tool: Mapping[str, Any]) -> Json:
    if tool.get("type") != "function":
        raise InvalidInput(f"{where}.type", f"must be function: {_ENDPOINT} has no tools of its own")
    if tool.get("defer_loading"):
        raise InvalidInput(f"{where}.defer_loading", f"is not known to {_ENDPOINT}; leave it out")
    more = {name: tool[name] for name in ("description", "parameters", "strict") if tool.get(name) is not None}
    return {"type": "function", "function": {"name": required_text(f"{where}.name", tool.get("name")), **more}}


def _choice(choice: Json) -> dict[str, Json]:
    if choice is None or isinstance(choice, str):
        return {} if choice is None else {"tool_choice": choice}
    kind = choice.get("type") if isinstance(choice, dict) else None
    if kind == "function":
        return {"tool_choice": _named("tool_choice", choice)}
    if kind == "allowed_tools":
        where = "tool_choice.tools"
        tools = [_named(f"{where}[{place}]", each) for place, each in objects_in(where, choice.get("tools"))]
        return {"tool_choice": {"type": kind, "allowed_tools": {"mode": choice.get("mode"), "tools": tools}}}
    raise InvalidInput("tool_choice", f"must be auto, none, required, a function or allowed_tools for {_ENDPOINT}")


def _named(where: str, tool: Mapping[str, Any]) -> Json:
    if tool.get("type") != "function":
        raise InvalidInput(f"{where}.type", f"must be function: {_ENDPOINT} has no tools of its own")
    return {"type": "function", "function": {"name": required_text(f"{where}.name", tool.get("name"))}}


def _shape(text: Json) -> dict[str, Json]:
    if text is None:
        return {}
    if not isinstance(text, dict):
        raise InvalidInput("text", "must be an object with format and verbosity")
    told: dict[str, Json] = {} if text.get("verbosity") is None else {"verbosity": text["verbosity"]}
    shape = text.get("format") or {"type": "text"}
    kind = shape.get("type") if isinstance(shape, dict) else None
    if kind == "json_schema":
        named = {
            name: shape[name] for name in ("name", "description", "schema", "strict") if shape.get(name) is not None
        }
        return {**told, "response_format": {"type": kind, "json_schema": named}}
    if kind == "json_object":
        return {**told, "response_format": {"type": kind}}
    if kind != "text":
        raise InvalidInput("text.format.type", "must be text, json_object or json_schema")
    return told


def _effort(reasoning: Json) -> dict[str, Json]:
    if reasoning is None:
        return {}
    if not isinstance(reasoning, dict):
        raise InvalidInput("reasoning", "must be an object with an effort")
    if reasoning.get("mode") not in (None, "standard"):
        raise InvalidInput("reasoning.mode", f"must be standard for {_ENDPOINT}")
    return {} if reasoning.get("effort") is None else {"reasoning_effort": reasoning["effort"]}


def _conversation(value: Json) -> str | None:
    if isinstance(value, dict):
        value = value.get("id")
    if value is not None and not isinstance(value, str):
        raise InvalidInput("conversation", "must be an id, or an object with one")
    return value or None


def _metadata(value: Json) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict) or len(value) > _MOST_PAIRS:
        raise InvalidInput("metadata", f"must be an object of at most {_MOST_PAIRS} pairs")
    for name, text in value.items():
        if not 0 < len(name) <= _KEY_CHARS or not isinstance(text, str) or len(text) > _VALUE_CHARS:
            raise InvalidInput(
                "metadata", f"must have names of 1 to {_KEY_CHARS} characters and texts of at most {_VALUE_CHARS}"
            )
    return value
