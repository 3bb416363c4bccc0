"""Requests of Anthropic's Messages API as requests of chat completions. Pure.

What would change the answer and has no place in chat completions is refused; hints for caches and billing are left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from memos.api.proxy.requests import (
    Completion,
    Message,
    call_message,
    check_only,
    objects_in,
    required_text,
    text_field,
    tool_answer,
)
from memos.core.aliases import unknown_name
from memos.core.types import Json
from memos.errors import InvalidInput

_ENDPOINT = "the model behind this server"
# Fields that are passed on, by their names in chat completions.
_SAME = {"temperature": "temperature", "top_p": "top_p", "top_k": "top_k", "stop_sequences": "stop", "stream": "stream"}
_TRANSLATED = {"max_tokens", "messages", "model", "system", "metadata", "tools", "tool_choice", "thinking"}
_TRANSLATED |= {"output_config", "output_format"}
# Where it is computed, what it costs, what is cached: the answer is the same.
_NO_EFFECT = {"cache_control", "service_tier", "inference_geo", "speed", "user_profile_id", "workspace_id"}
_ONLY: Mapping[str, tuple[Json, ...]] = {
    "container": (),
    "mcp_servers": ([],),
    "diagnostics": (),
    # Earlier thoughts are never sent, so clearing them changes nothing.
    "context_management": ({"edits": []}, {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}),
}
_THOUGHTS = ("thinking", "redacted_thinking")
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
# Claude Code names an account and a session, nobody who has memories, and puts instructions of its own, thousands of
# words, into what the user says.
_REMINDER = ("<system-reminder>", "</system-reminder>")
_CLAUDE_CODE = re.compile(r"user_[0-9a-f]{64}_account_[0-9a-f-]*_session_(?P<session>[0-9a-f-]{36})")


def read_messages(body: Mapping[str, Any]) -> tuple[Completion, str | None]:
    """Return a request as one of chat completions, and the conversation it names. Raises: InvalidInput."""
    known = (*_SAME, *sorted(_TRANSLATED | _NO_EFFECT), *_ONLY)
    for name in body:
        if name not in known:
            raise InvalidInput(str(name)[:128], unknown_name("field", str(name), known))
    check_only(body, _ONLY, _ENDPOINT)
    asked: dict[str, Any] = {theirs: body[name] for name, theirs in _SAME.items() if body.get(name) is not None}
    if asked.get("stream"):
        asked["stream_options"] = {"include_usage": True}
    if tools := [_tool(f"tools[{place}]", each) for place, each in objects_in("tools", body.get("tools"))]:
        asked["tools"] = tools
    asked |= _choice(body.get("tool_choice"))
    asked |= _output(body)
    _thinking(body)
    user, conversation = _who(body.get("metadata"))
    messages = _messages(body)
    own = [_without_reminders(message) for message in messages]
    return Completion(asked, messages, user, _limit(body.get("max_tokens")), own), conversation


def thinks(body: Mapping[str, Any]) -> bool:
    """Return True if a request asks for the model's thoughts."""
    thinking = body.get("thinking")
    if not isinstance(thinking, dict):
        return False
    return thinking.get("type") != "disabled" and thinking.get("display") != "omitted"


def _messages(body: Mapping[str, Any]) -> list[Message]:
    messages: list[Message] = []
    if system := _system("system", body.get("system")):
        messages.append({"role": "system", "content": system})
    said = list(objects_in("messages", body.get("messages")))
    if not said:
        raise InvalidInput("messages", "must be a list of at least one message {role, content}")
    for place, message in said:
        where, role = f"messages[{place}]", message.get("role")
        if role == "user":
            messages += _of_user(where, message.get("content"))
        elif role == "assistant":
            messages.append(_of_assistant(where, message.get("content")))
        elif role == "system":
            messages.append({"role": "system", "content": _system(f"{where}.content", message.get("content"))})
        else:
            raise InvalidInput(f"{where}.role", "must be user or assistant")
    if said[-1][1].get("role") == "assistant":
        raise InvalidInput(
            "messages", f"must end with a user's message: {_ENDPOINT} cannot continue the beginning of an answer"
        )
    return messages


def _without_reminders(message: Message) -> Message:
    content = message["content"]
    if isinstance(content, str):
        return {**message, "content": _without_reminder(content)}
    parts = [
        {**part, "text": _without_reminder(part["text"])} if part["type"] == "text" else part for part in content or ()
    ]
    return {**message, "content": parts} if content else message


def _without_reminder(text: str) -> str:
    told, (begin, end) = "", _REMINDER
    while begin in text:
        before, _, inside = text.partition(begin)
        _, closed, after = inside.partition(end)
        if not closed:
            break
        told, text = told + before, after.lstrip()
    return told + text


def _system(where: str, value: Json) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    texts = []
    for place, block in objects_in(where, value):
        if block.get("type") != "text":
            raise InvalidInput(f"{where}[{place}].type", "must be text")
        texts.append(required_text(f"{where}[{place}].text", block.get("text")))
    return "\n\n".join(texts)


def _of_user(where: str, content: Json) -> Iterator[Message]:
    if isinstance(content, str):
        yield {"role": "user", "content": content}
        return
    parts: list[Json] = []
    for place, block in objects_in(f"{where}.content", content):
        here = f"{where}.content[{place}]"
        if block.get("type") != "tool_result":
            parts += _parts(here, block)
            continue
        result = block.get("content")
        told: Json = result
        if not isinstance(result, str):
            inner = objects_in(f"{here}.content", result)
            told = [part for at, each in inner for part in _parts(f"{here}.content[{at}]", each)]
        if block.get("is_error"):  # which chat completions can say in words alone
            error = {"type": "text", "text": "The tool failed:"}
            told = [error, *told] if isinstance(told, list) else f"{error['text']}\n{told}"
        message, pictures = tool_answer(required_text(f"{here}.tool_use_id", block.get("tool_use_id")), told)
        yield message
        parts += pictures
    if len(parts) == 1 and parts[0]["type"] == "text":
        yield {"role": "user", "content": parts[0]["text"]}
    elif parts:
        yield {"role": "user", "content": parts}


def _of_assistant(where: str, content: Json) -> Message:
    if isinstance(content, str):
        return {"role": "assistant", "content": content}
    texts, calls = [], []
    for place, block in objects_in(f"{where}.content", content):
        here, kind = f"{where}.content[{place}]", block.get("type")
        if kind == "text":
            texts.append(required_text(f"{here}.text", block.get("text")))
        elif kind == "tool_use":
            id_, name = (required_text(f"{here}.{key}", block.get(key)) for key in ("id", "name"))
            calls.append(call_message(id_, name, json.dumps(block.get("input") or {}, ensure_ascii=False)))
        elif kind not in _THOUGHTS:  # which no endpoint takes back
            raise InvalidInput(f"{here}.type", f"must be text, tool_use or thinking for {_ENDPOINT}")
    message: Message = {"role": "assistant", "content": "".join(texts) or None}
    return {**message, "tool_calls": calls} if calls else message


def _parts(where: str, block: Mapping[str, Any]) -> list[Json]:
    """Return a block of a user or a tool as parts of chat completions."""
    kind, source = block.get("type"), block.get("source")
    source = source if isinstance(source, dict) else {}
    if kind == "text":
        return [{"type": "text", "text": required_text(f"{where}.text", block.get("text"))}]
    if kind == "image":
        return [{"type": "image_url", "image_url": {"url": _image(f"{where}.source", source)}}]
    if kind == "document":
        return _document(where, block, source)
    raise InvalidInput(f"{where}.type", f"must be text, image, document or tool_result for {_ENDPOINT}")


def _image(where: str, source: Mapping[str, Any]) -> str:
    if source.get("type") == "base64":
        data = required_text(f"{where}.data", source.get("data"))
        return f"data:{required_text(f'{where}.media_type', source.get('media_type'))};base64,{data}"
    if source.get("type") == "url":
        return required_text(f"{where}.url", source.get("url"))
    raise InvalidInput(f"{where}.type", "must be base64 or url; this server keeps no files for it")


def _document(where: str, block: Mapping[str, Any], source: Mapping[str, Any]) -> list[Json]:
    cited = block.get("citations")
    if isinstance(cited, dict) and cited.get("enabled"):
        raise InvalidInput(f"{where}.citations", f"are not made by {_ENDPOINT}; leave them out")
    about = [text for name in ("title", "context") if isinstance(text := block.get(name), str) and text]
    head: list[Json] = [{"type": "text", "text": "\n".join(about)}] if about else []
    match source.get("type"):
        case "text":
            return [*head, {"type": "text", "text": required_text(f"{where}.source.data", source.get("data"))}]
        case "base64":
            data = required_text(f"{where}.source.data", source.get("data"))
            kind = required_text(f"{where}.source.media_type", source.get("media_type"))
            name = about[0] if block.get("title") else "document"
            file = {"filename": name, "file_data": f"data:{kind};base64,{data}"}
            return [*head, {"type": "file", "file": file}]
        case "content":
            inner = source.get("content")
            if isinstance(inner, str):
                return [*head, {"type": "text", "text": inner}]
            parts = objects_in(f"{where}.source.content", inner)
            return [*head, *(part for at, each in parts for part in _parts(f"{where}.source.content[{at}]", each))]
    raise InvalidInput(f"{where}.source.type", "must be text, base64 or content; this server keeps no files for it")


def _tool(where: str, tool: Mapping[str, Any]) -> Json:
    if tool.get("type") not in (None, "custom"):
        raise InvalidInput(f"{where}.type", f"must be custom: {_ENDPOINT} has no tools of its own")
    if tool.get("defer_loading"):
        raise InvalidInput(f"{where}.defer_loading", f"is not known to {_ENDPOINT}; leave it out")
    if not isinstance(schema := tool.get("input_schema"), dict):
        raise InvalidInput(f"{where}.input_schema", "must be a JSON schema, an object")
    described = {"name": required_text(f"{where}.name", tool.get("name")), "parameters": schema}
    more = {name: tool[name] for name in ("description", "strict") if tool.get(name) is not None}
    return {"type": "function", "function": {**described, **more}}


def _choice(choice: Json) -> dict[str, Json]:
    if choice is None:
        return {}
    kind = choice.get("type") if isinstance(choice, dict) else None
    if kind == "tool":
        name = required_text("tool_choice.name", choice.get("name"))
        told: dict[str, Json] = {"tool_choice": {"type": "function", "function": {"name": name}}}
    elif isinstance(kind, str) and kind in _CHOICES:
        told = {"tool_choice": _CHOICES[kind]}
    else:
        raise InvalidInput("tool_choice.type", "must be auto, any, tool or none")
    return {**told, "parallel_tool_calls": False} if choice.get("disable_parallel_tool_use") else told


def _output(body: Mapping[str, Any]) -> dict[str, Json]:
    config = body.get("output_config")
    config = {} if config is None else config
    if not isinstance(config, dict) or set(config) - {"effort", "format"}:
        raise InvalidInput("output_config", "must be an object with effort and format at most")
    told: dict[str, Json] = {}
    if config.get("effort") is not None:
        told["reasoning_effort"] = config["effort"]
    shape = config.get("format") or body.get("output_format")
    if shape is not None:
        if not isinstance(shape, dict) or shape.get("type") != "json_schema":
            raise InvalidInput("output_config.format.type", "must be json_schema")
        schema = {"name": "answer", "schema": shape.get("schema"), "strict": True}
        told["response_format"] = {"type": "json_schema", "json_schema": schema}
    return told


def _thinking(body: Mapping[str, Any]) -> None:
    thinking = body.get("thinking")
    if thinking is not None and not isinstance(thinking, dict):
        raise InvalidInput("thinking", "must be an object with a type")


def _who(metadata: Json) -> tuple[str | None, str | None]:
    """Return the user that `metadata` names, and the conversation."""
    if metadata is None:
        return None, None
    if not isinstance(metadata, dict):
        raise InvalidInput("metadata", "must be an object")
    user = text_field(metadata, "user_id") or None
    if user is None:
        return None, None
    if found := _CLAUDE_CODE.fullmatch(user):
        return None, found["session"]
    if user.startswith("{"):
        try:
            told = json.loads(user)
        except (ValueError, RecursionError):
            return user, None
        if "device_id" in told and isinstance(told.get("session_id"), str):
            return None, told["session_id"] or None
    return user, None


def _limit(value: Json) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidInput("max_tokens", "is required" if value is None else "must be a whole number from 1")
    return value
