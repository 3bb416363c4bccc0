"""Messages in the shapes that programs have them in, as our own, for every surface (docs/reference/messages.md).

OpenAI chat completions and Responses items, Anthropic content blocks, LangChain messages, `(role, text)` pairs, and
objects of these libraries' packages, none of which is imported. What is not recognised stays as it is: its reader
refuses it after secrets were masked, so that no error shows them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any

from memos.core.aliases import resolve_aliases
from memos.core.types import Json, Role
from memos.errors import InvalidInput

FIELDS = frozenset(
    {
        "role",
        "content",
        "name",
        "chat_time",
        "message_id",
        "tool_calls",
        "tool_call_id",
        "trust",
        "info",
        "duration_s",
        "duration_ms",
        "recalled",
        "cited",
    }
)
"""The fields of a message."""

MESSAGE_ALIASES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        **dict.fromkeys(("created_at", "timestamp", "create_time", "created", "time"), ("chat_time",)),
        **dict.fromkeys(("id", "uuid"), ("message_id",)),
        "metadata": ("info",),
        "speaker": ("name",),
        "text": ("content",),
    }
)
"""Other programs' words for fields of a message."""

ROLES: Mapping[str, Role] = MappingProxyType(
    {
        **{str(role): role for role in Role},
        **dict.fromkeys(("ai", "bot", "chatbot", "model"), Role.ASSISTANT),
        "human": Role.USER,
        "developer": Role.SYSTEM,
        "function": Role.TOOL,
    }
)
"""Our role for each word for one, in small letters."""

# What a provider says of how an answer came about. Nobody said it.
_ENVELOPE = frozenset(
    {
        "status",
        "phase",
        "model",
        "usage",
        "stop_reason",
        "stop_sequence",
        "stop_details",
        "container",
        "diagnostics",
        "annotations",
        "logprobs",
        "reasoning",
        "reasoning_content",
        "additional_kwargs",
        "response_metadata",
        "usage_metadata",
        "invalid_tool_calls",
        "tool_call_chunks",
        "chunk_position",
        "example",
        "artifact",
    }
)
_LANGCHAIN_ROLES = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool", "function": "tool"}
_CALLS = ("function_call", "custom_tool_call", "mcp_call")
_OUTPUTS = ("function_call_output", "custom_tool_call_output")
_ITEMS_LEFT_OUT = re.compile(
    r"reasoning|item_reference|compaction(?:_trigger)?|program|additional_tools|configuration_update|remove|"
    r"mcp_\w+|\w+_call|\w+_output"
)
_PARTS_LEFT_OUT = re.compile(r"(?:redacted_)?thinking|reasoning\w*|server_tool_use|container_upload|\w+_tool_result")
_TOOL_USES = ("tool_use", "mcp_tool_use", "tool_call", "invalid_tool_call")
_TOOL_RESULTS = ("tool_result", "mcp_tool_result")
_FOREIGN_IMAGE = ("base64", "source_type", "url", "file_id", "image_url", "source")
_MOST_ID = 2**63
_SIMPLE = (str, bytes, int, float, Mapping, list, tuple)


@dataclass(frozen=True, slots=True)
class Shaped:
    """Messages in our shape, with the place of each in what was given; `left_out` counts reasoning and the like."""

    messages: Json
    places: tuple[int, ...] = ()
    left_out: int = 0
    single: bool = False
    """One message was given, not a list."""

    @property
    def given(self) -> Json:
        """The messages, or the one message if one was given by itself: what a repeated request is known by."""
        return self.messages[0] if self.single and len(self.messages) == 1 else self.messages


def shape_messages(raw: Json) -> Shaped:
    """Return text, a message, or messages of any known shape as messages in our shape; what is neither as it is.

    A message becomes several where it holds results of tools, and none where it holds nothing that anybody said.

    Raises:
        InvalidInput: An object cannot be read.
    """
    if isinstance(raw, Shaped):
        return raw
    raw = as_mapping("messages", raw)
    single = isinstance(raw, str | Mapping)
    if not single and (not isinstance(raw, Sequence) or isinstance(raw, bytes)):
        return Shaped(raw)
    messages: list[Json] = []
    places: list[int] = []
    left_out = 0
    for place, entry in enumerate([raw] if single else raw):
        found, silent = shape_message(entry, f"messages[{place}]")
        messages += found
        places += [place] * len(found)
        left_out += silent
    return Shaped(messages, tuple(places), left_out, single)


def shape_message(raw: Json, where: str = "message") -> tuple[list[Json], int]:
    """Return one message, of any known shape, as messages in our shape, and how much was left out of it."""
    raw = as_mapping(where, raw)
    if isinstance(raw, list | tuple) and len(raw) == 2 and isinstance(raw[0], str):
        raw = {"role": raw[0], "content": raw[1]}
    if not isinstance(raw, Mapping) or _is_ours(raw):
        return [raw], 0
    kind = raw.get("type")
    if isinstance(kind, str) and raw.keys().isdisjoint(("role", "data", "lc")):
        found = _of_item(kind, raw)
        if found is not None:
            return found, not found
    message = _renamed(_unwrapped(raw))
    calls = _calls(message.get("tool_calls"), where)
    parts, used, results, left_out = _parts(message.get("content"), where)
    if calls or used:
        message["tool_calls"] = calls or used
    if "content" in message:
        message["content"] = parts
    told = [_result(message, each, where) for each in results]
    silent = (results or left_out) and not parts and not message.get("tool_calls")
    return [*told, *([] if silent else [message])], left_out


def as_mapping(where: str, value: Json) -> Json:
    """Return a Pydantic model or a dataclass as a mapping, anything else as it is. Raises: InvalidInput."""
    if value is None or isinstance(value, (*_SIMPLE, type)):
        return value
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        try:
            told = dump()
        except Exception as error:  # code of the object
            reason = f"model_dump() of this {type(value).__name__} failed ({type(error).__name__}); give a mapping"
            raise InvalidInput(where, reason) from error
        return told if isinstance(told, Mapping) else value
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return value


def role_of(given: Json) -> Json:
    """Return our word for a role; one that is not known as it is."""
    given = given.value if isinstance(given, Enum) else given
    return str(ROLES.get(given.casefold(), given)) if isinstance(given, str) else given


def is_langchain(value: Json) -> bool:
    """Return True for a message as LangChain's `message_to_dict` or `dumpd` write it."""
    return isinstance(value, Mapping) and _wrapped(value) is not None


def text_part(text: Json) -> Json:
    """Return a part of a content that is text."""
    return {"type": "text", "text": text}


def file_part(name: Json = None) -> Json:
    """Return a part that names a file."""
    return {"type": "file", "file": {"filename": name} if isinstance(name, str) and name.strip() else {}}


def tool_call(name: Json, arguments: Json, call_id: Json) -> Json:
    """Return a call of a tool in OpenAI's shape."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _is_ours(raw: Mapping[str, Json]) -> bool:
    return (
        raw.keys() <= FIELDS
        and isinstance(raw.get("content"), str | None)
        and not raw.get("tool_calls")
        and isinstance(raw.get("role", "user"), str)
        and raw.get("role", "user") in set(Role)
    )


def _wrapped(raw: Mapping[str, Json]) -> tuple[str, Mapping[str, Json]] | None:
    """Return the type and the fields of a serialised LangChain message."""
    kind, inner = raw.get("type"), raw.get("data")
    if "lc" in raw:
        path, inner = raw.get("id"), raw.get("kwargs")
        kind = path[-1] if isinstance(path, list | tuple) and path else None
    if not isinstance(kind, str) or not isinstance(inner, Mapping):
        return None
    return re.sub(r"message(chunk)?$", "", kind.casefold()), inner


def _unwrapped(raw: Mapping[str, Json]) -> dict[str, Json]:
    """Return a LangChain message, serialised or not, with the role of its type; any other message as it is."""
    kind, inner = raw.get("type"), raw
    wrapped = _wrapped(raw)
    if wrapped is not None:
        kind, inner = wrapped
    elif ("role" in raw and kind != "chat") or not isinstance(kind, str):
        return {name: value for name, value in raw.items() if name != "type" or value != "message"}
    else:
        kind = re.sub(r"message(chunk)?$", "", kind.casefold())
    role = inner.get("role") if kind == "chat" else _LANGCHAIN_ROLES.get(kind)
    if role is None:
        return dict(raw)
    told = {**{name: value for name, value in inner.items() if name != "type"}, "role": role}
    extra = inner.get("additional_kwargs")
    extra = extra if isinstance(extra, Mapping) else {}
    calls, broken = inner.get("tool_calls"), inner.get("invalid_tool_calls")
    if isinstance(calls, list | None) and isinstance(broken, list) and broken:
        told["tool_calls"] = [*(calls or []), *broken]
    elif not calls:
        told |= {name: extra[name] for name in ("tool_calls", "function_call") if name in extra}
    return told


def _renamed(message: dict[str, Json]) -> dict[str, Json]:
    """Return a message with our names of its fields, without a provider's envelope and without empty foreign fields."""
    older, refusal, audio = (message.pop(name, None) for name in ("function_call", "refusal", "audio"))
    if isinstance(older := as_mapping("function_call", older), Mapping) and not message.get("tool_calls"):
        message["tool_calls"] = [tool_call(older.get("name"), older.get("arguments") or "", None)]
    if not message.get("content"):
        transcript = audio.get("transcript") if isinstance(audio, Mapping) else None
        message |= {"content": refusal or transcript} if refusal or transcript else {}
    for alias in ("id", "uuid"):
        number = message.get(alias)
        if isinstance(number, int) and not isinstance(number, bool) and abs(number) < _MOST_ID:
            message[alias] = str(number)
    kept = {
        name: value
        for name, value in message.items()
        if name in FIELDS or (name not in _ENVELOPE and value is not None)
    }
    if "content" in kept and "text" in kept and not kept["content"]:
        del kept["content"]
    with suppress(InvalidInput):  # two words for one field: refused where it is read
        kept = resolve_aliases(kept, FIELDS, MESSAGE_ALIASES)
    if "role" in kept:
        kept["role"] = role_of(kept["role"])
    return kept


def _of_item(kind: str, item: Mapping[str, Json]) -> list[Json] | None:
    """Return an item of OpenAI's Responses that is no message, None for what is none."""
    common = {name: item[name] for name in (*FIELDS, *MESSAGE_ALIASES) if name in item and name not in ("name", "text")}
    call_id = item.get("call_id") or item.get("id")
    found: list[Json] = []
    if kind in _CALLS:
        arguments = item.get("arguments") if item.get("arguments") is not None else item.get("input")
        call = tool_call(item.get("name"), arguments, call_id)
        found.append(_renamed({**common, "role": "assistant", "content": None, "tool_calls": [call]}))
    output = item.get("output") or item.get("error")
    if kind in _OUTPUTS or (kind == "mcp_call" and output):
        message = _renamed({**common, "role": "tool"})
        if kind == "mcp_call" and isinstance(message.get("message_id"), str):
            message["message_id"] += ":output"
        message["content"], *_ = _parts(output, kind)
        found.append({**message, "tool_call_id": call_id})
    return found if found or _ITEMS_LEFT_OUT.fullmatch(kind) else None


def _calls(raw: Json, where: str) -> Json:
    """Return tool calls of OpenAI's and LangChain's shapes in OpenAI's."""
    if not isinstance(raw, list | tuple) or not raw:
        return raw
    return [_call(as_mapping(f"{where}.tool_calls", each)) for each in raw]


def _call(raw: Json) -> Json:
    if not isinstance(raw, Mapping) or "function" in raw:
        return raw
    custom = raw.get("custom")
    if isinstance(custom, Mapping):
        return tool_call(custom.get("name"), custom.get("input"), raw.get("id"))
    if "args" in raw or "input" in raw:
        return tool_call(raw.get("name"), raw.get("args", raw.get("input")) or "", raw.get("id"))
    return raw


def _parts(content: Json, where: str) -> tuple[Json, list[Json], list[Mapping[str, Any]], int]:
    """Return the parts of a content in our shape, its tool calls and tool results, and how many parts were left out."""
    if isinstance(content, tuple):
        content = list(content)
    if not isinstance(content, list):
        return content, [], [], 0
    parts: list[Json] = []
    calls: list[Json] = []
    results: list[Mapping[str, Any]] = []
    left_out = 0
    for place, given in enumerate(content):
        part = as_mapping(f"{where}.content[{place}]", given)
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind in _TOOL_USES:
            calls.append(_call(part))
        elif kind in _TOOL_RESULTS:
            results.append(part)
        elif isinstance(kind, str) and _PARTS_LEFT_OUT.fullmatch(kind):
            left_out += 1
        else:
            parts += _part(part)
    return parts, calls, results, left_out


def _part(part: Json) -> list[Json]:
    if isinstance(part, str):
        return [text_part(part)]
    if not isinstance(part, Mapping):
        return [part]
    match part.get("type"):
        case "text" | "file" if "text" in part or isinstance(part.get("file"), Mapping):
            return [part]
        case "input_text" | "output_text" | "summary_text":
            return [text_part(part.get("text"))]
        case "refusal":
            return [text_part(part.get("refusal"))]
        case "image" | "input_image":
            return [_image(part)]
        case "input_audio" | "audio" | "video":
            inner = part.get("input_audio")
            kind = inner.get("format") if isinstance(inner, Mapping) else None
            return [file_part(part.get("filename") or (f"audio.{kind}" if isinstance(kind, str) else None))]
        case "document":
            return _document(part)
        case "file" | "input_file":
            data = {"file_data": part["file_data"]} if part.get("file_data") is not None else {}
            named = file_part(part.get("filename") or part.get("name"))
            return [{**named, "file": {**named["file"], **data}}]
        case "search_result":
            told = [part.get("title"), part.get("source")]
            inner, *_ = _parts(part.get("content"), "search_result")
            return [text_part("\n".join(each for each in told if isinstance(each, str))), *(inner or [])]
    return [part]


def _image(part: Mapping[str, Json]) -> Json:
    """Return an image of Anthropic's, OpenAI's Responses' or LangChain's shape as a part with bytes or an address."""
    source = part.get("source")
    held = source if isinstance(source, Mapping) else part
    data, kind = held.get("data") or held.get("base64"), held.get("media_type") or held.get("mime_type")
    url = held.get("url") or held.get("image_url")
    if part.get("type") == "image" and held is part and part.keys().isdisjoint(_FOREIGN_IMAGE):
        return part
    if isinstance(data, str):
        url = f"data:{kind or ''};base64,{data}"
    url = url.get("url") if isinstance(url, Mapping) else url
    kept = {name: part[name] for name in ("name", "caption") if name in part}
    return {"type": "image_url", "image_url": {} if url is None else {"url": url}, **kept}


def _document(part: Mapping[str, Json]) -> list[Json]:
    """Return the text of an Anthropic document, or its name where it holds a file."""
    source, title = part.get("source"), part.get("title")
    if isinstance(source, Mapping) and source.get("type") == "text":
        return [text_part(text) for text in (title, source.get("data")) if isinstance(text, str)]
    if isinstance(source, Mapping) and source.get("type") == "content":
        inner, *_ = _parts(source.get("content"), "document")
        return inner if isinstance(inner, list) else [text_part(inner)]
    return [file_part(title)]


def _result(message: Mapping[str, Json], result: Mapping[str, Any], where: str) -> Json:
    """Return a tool's result inside a message as a message of the tool."""
    content, *_ = _parts(result.get("content"), where)
    told: dict[str, Json] = {name: message[name] for name in ("chat_time", "info", "trust") if name in message}
    told |= {"role": str(Role.TOOL), "content": content, "tool_call_id": result.get("tool_use_id")}
    if isinstance(message.get("message_id"), str):
        told["message_id"] = f"{message['message_id']}:{result.get('tool_use_id')}"
    return told
