"""Reads definitions of tools in OpenAI's shape; refuses what is malformed. Knows no ledger."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from memos.core.settings import LimitSettings
from memos.core.text.validation import check_name, check_text
from memos.core.types import Json, Message
from memos.errors import InvalidInput
from memos.reader.messages import read_messages

MOST_TOOLS = 512
"""Definitions one call takes."""

_MOST_BYTES = 65_536
_TOLD_CHARS = 1_000
_SHAPE = "must look like {'type': 'function', 'function': {'name', 'description', 'parameters'}}"


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """One tool: its definition as a message of JSON, and what memory says of it."""

    name: str
    description: str
    memory: str
    message: Message


def read_tools(raw: Json, now: datetime, limits: LimitSettings) -> list[ToolDefinition]:
    """Return definitions in order, the last one of each name. Raises: InvalidInput naming the tool and field."""
    if raw is None:
        return []
    if isinstance(raw, str | bytes | Mapping) or not isinstance(raw, Sequence):
        raise InvalidInput("tools", f"must be a list of definitions, not {type(raw).__name__}")
    if len(raw) > MOST_TOOLS:
        raise InvalidInput("tools", f"has {len(raw):,} definitions, at most {MOST_TOOLS} are taken; add them in parts")
    read = [_tool(f"tools[{place}]", entry, now, limits) for place, entry in enumerate(raw)]
    return list({tool.name: tool for tool in read}.values())


def _tool(where: str, raw: Json, now: datetime, limits: LimitSettings) -> ToolDefinition:
    if not isinstance(raw, Mapping) or not isinstance(raw.get("function"), Mapping):
        raise InvalidInput(where, _SHAPE)
    if raw.get("type", "function") != "function":
        raise InvalidInput(f"{where}.type", "is unknown; use function")
    check_name(f"{where}.function.name", raw["function"].get("name"))
    try:
        text = json.dumps(raw["function"], ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(where, "cannot be kept as JSON; use text, numbers, lists and objects") from error
    check_text(where, text, _MOST_BYTES)
    # What holds for the text of any message holds for this one.
    [message] = read_messages(
        [{"role": "system", "content": text, "trust": "untrusted"}], ZoneInfo("UTC"), now, limits
    )  # fmt: skip
    function = _function(where, message.text)
    name = check_name(f"{where}.function.name", function.get("name"))
    description = function.get("description") or ""
    told = check_text(f"{where}.function.description", description, _MOST_BYTES).strip()
    memory = check_text(where, f"{name}({_parameters(where, function)}): {told or 'a tool'}", _MOST_BYTES)
    return ToolDefinition(name, told[:_TOLD_CHARS], memory, message)


def _function(where: str, text: str) -> Mapping[str, Json]:
    try:
        function = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(where, "cannot be kept as JSON; use text, numbers, lists and objects") from error
    if not isinstance(function, Mapping):
        raise InvalidInput(where, _SHAPE)
    return function


def _parameters(where: str, function: Mapping[str, Json]) -> str:
    """Return parameters as people write them: `from: string, date?: string`."""
    parameters = function.get("parameters")
    if parameters is None:
        return ""
    if not isinstance(parameters, Mapping):
        raise InvalidInput(f"{where}.function.parameters", "must be a JSON schema, an object")
    properties = parameters.get("properties", {})
    required = parameters.get("required", [])
    if not isinstance(properties, Mapping) or not isinstance(required, Sequence):
        raise InvalidInput(f"{where}.function.parameters", "must be a JSON schema with properties and required")
    return ", ".join(
        f"{name}{'' if name in required else '?'}: {_type(schema)}" for name, schema in properties.items()
    )  # fmt: skip


def _type(schema: Json) -> str:
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    return kind if isinstance(kind, str) else "any"
