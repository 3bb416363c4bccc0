"""Messages of agents that call tools, for tests."""

from __future__ import annotations

import json
from typing import Any

from memos import MemOS
from memos.core.types import Item


def call(*calls: tuple[str, str, Any], text: str | None = None, **more: Any) -> dict[str, Any]:
    """Return an assistant's message with calls, each (id, tool, arguments)."""
    made = [
        {
            "id": id_,
            "type": "function",
            "function": {"name": name, "arguments": args if isinstance(args, str) else json.dumps(args)},
        }
        for id_, name, args in calls
    ]
    return {"role": "assistant", "content": text, "tool_calls": made, **more}


def result(id_: str, text: str, **more: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id_, "content": text, **more}


def user(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": text, **more}


def definition(name: str = "search_flights", description: str = "Finds flights.", **parameters: str) -> dict[str, Any]:
    properties = {parameter: {"type": kind} for parameter, kind in parameters.items()}
    schema = {"type": "object", "properties": properties, "required": list(parameters)[:1]}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


def of_type(memos: MemOS, kind: str, **where: Any) -> list[Item]:
    return memos.memories.list(filter={"type": kind}, limit=1000, **where)


def trajectories(memos: MemOS, **where: Any) -> list[Item]:
    return of_type(memos, "tool_trajectory", **where)


def skills(memos: MemOS, **where: Any) -> list[Item]:
    return [item for item in of_type(memos, "skill", **where) if "skill" in item.info]


def idle(memos: MemOS) -> None:
    memos.tasks.wait(timeout_s=60)
