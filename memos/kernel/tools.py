"""`MemOS.tools`: tool definitions, earlier calls and results, and success rates."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Any

import sqlalchemy as sa

from memos.core.identities import Right
from memos.core.text.validation import check_name
from memos.core.types import DEFAULT_CUBE, LOCAL_OWNER, AddReceipt, Draft, Item, ItemType, Json, Role
from memos.errors import InvalidInput
from memos.kernel.context import Context, retry_write
from memos.memcube import tools as tool_memories
from memos.memcube.changes import Change
from memos.memcube.ledger import cubes, expiry, items
from memos.memcube.ledger import tools as tool_rows
from memos.reader.arguments import within
from memos.reader.messages import ToolDefinition, read_tools

_MOST = 10_000


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A tool: how often it was called and worked, the newest lesson, when it was used last, how it is defined.

    `success_rate` is of the calls of which it is clear whether they worked; None when it is of none. `schema` is the
    item of its definition.
    """

    tool: Annotated[str, "Its name"]
    description: Annotated[str, "Its description, if it is defined"]
    calls: Annotated[int, "Number of calls"]
    successes: Annotated[int, "Number of successful calls"]
    failures: Annotated[int, "Number of failed calls"]
    success_rate: Annotated[float | None, "Success rate from 0 to 1; null if unknown"]
    lesson: Annotated[str | None, "The newest lesson"]
    last_used: Annotated[datetime | None, "When it was called last"]
    schema: str | None


def remember_tools(
    change: Change, defined: Sequence[ToolDefinition], drafts: Sequence[Draft], receipt: AddReceipt
) -> None:
    """Store in the transaction of an add what it defines and what its calls of tools say."""
    if receipt.replayed:
        return
    for tool in defined:
        _define(change, tool)
    known = set(receipt.duplicates)
    messages = [
        item
        for item, draft in zip(receipt.item_ids, drafts, strict=True)
        if item not in known and (draft.message.tool_calls or draft.message.role is Role.TOOL)
    ]
    if messages:
        stored = tool_memories.refresh(change, messages).stored
        if tool_memories.call_worked(change, stored):
            tool_rows.enqueue(change.connection, change.cube, messages, change.now)


def _define(change: Change, tool: ToolDefinition) -> str:
    info = {"tool": tool.name, "description": tool.description}
    return tool_memories.define(change, tool.name, tool.memory, tool.message, info)


class Tools:
    """Tool definitions and recorded calls."""

    def __init__(self, context: Context) -> None:
        self._context = context

    @retry_write
    def define(self, tools: Json, *, cube: str = DEFAULT_CUBE, actor: str = LOCAL_OWNER) -> tuple[str, ...]:
        """Store definitions of tools in OpenAI's shape; return their items. Raises: InvalidInput, NotFound."""
        scope = self._context.scopes.check([cube], actor, right=Right.WRITE)
        masking = self._context.scopes.masking(scope)
        defined = read_tools(masking.any("tools", tools), self._context.clock.now())
        if not defined:
            raise InvalidInput("tools", "must not be empty; give at least one definition")
        with self._context.change(scope) as change:
            masking.record(change)
            ids = [_define(change, tool) for tool in defined]
        self._context.wait_indexed()
        return tuple(ids)

    def called(
        self, name: str, arguments: Json = None, *, cube: str = DEFAULT_CUBE, actor: str = LOCAL_OWNER
    ) -> Item | None:
        """Return what is known of one call, with its sources; None when it was not made or its outcome is not known.

        `arguments` are an object or JSON text, the order of their keys does not matter. Raises: InvalidInput, NotFound.
        """
        scope = self._context.scopes.check([cube], actor, embeds=False)
        # What was masked when it was stored has to be masked to be found.
        text = _written(self._context.scopes.masking(scope).any("arguments", arguments))
        with self._context.ledger.read() as connection:
            salt = cubes.entity_salt(connection, scope.cubes[0])
            key = tool_memories.key_of(salt, check_name("name", name), text)
            found = tool_rows.with_prefix(connection, scope.cubes[0], key, ItemType.TOOL_TRAJECTORY, 1)
            states = expiry.live(items.current(connection, scope.cubes, found).values(), self._context.clock.now())
            if not states:
                return None
            [state] = states
            return replace(state, sources=items.sources_of(connection, [state.id]).get(state.id, ()))

    def calls(
        self, name: str, *, cube: str = DEFAULT_CUBE, actor: str = LOCAL_OWNER, limit: int = 100
    ) -> tuple[Item, ...]:
        """Return the distinct calls of a tool, the one that changed last first. Raises: InvalidInput, NotFound."""
        scope = self._context.scopes.check([cube], actor, embeds=False)
        name, limit = check_name("name", name), within("limit", limit, 1, _MOST)
        with self._context.ledger.read() as connection:
            states = _of_kind(connection, scope.cubes[0], f"{tool_memories.KEY}{name}:", ItemType.TOOL_TRAJECTORY)
        states = expiry.live(states, self._context.clock.now())
        return tuple(state for state in states if state.info.get("tool") == name)[:limit]

    def list(self, *, cube: str = DEFAULT_CUBE, actor: str = LOCAL_OWNER) -> tuple[ToolUse, ...]:
        """Return the tools of a cube, by name: defined, or of its 10,000 newest distinct calls. Raises: NotFound."""
        scope = self._context.scopes.check([cube], actor, embeds=False)
        with self._context.ledger.read() as connection:
            defined = _of_kind(connection, scope.cubes[0], tool_memories.SCHEMA_KEY, ItemType.TOOL_SCHEMA)
            called = _of_kind(connection, scope.cubes[0], tool_memories.KEY, ItemType.TOOL_TRAJECTORY)
        by_tool: dict[str, list[Item]] = {}
        now = self._context.clock.now()
        schemas = {str(state.info.get("tool")): state for state in expiry.live(defined, now)}
        for state in expiry.live(called, now):
            by_tool.setdefault(str(state.info.get("tool")), []).append(state)
        return tuple(_use(tool, schemas.get(tool), by_tool.get(tool, [])) for tool in sorted({*schemas, *by_tool}))


def _written(arguments: Json) -> str:
    if arguments is None or isinstance(arguments, str):
        return arguments or ""
    if not isinstance(arguments, Mapping | list):
        raise InvalidInput("arguments", f"must be an object or JSON text, not {type(arguments).__name__}")
    try:
        text = json.dumps(arguments, ensure_ascii=False)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput("arguments", "is not JSON; use strings, numbers, lists and objects") from error
    return text


def _of_kind(connection: sa.Connection, cube: str, prefix: str, kind: ItemType) -> list[Item]:
    ids = tool_rows.with_prefix(connection, cube, prefix, kind, _MOST)
    states = items.current(connection, [cube], ids)
    return [states[id_] for id_ in ids if id_ in states]


def _use(tool: str, schema: Item | None, called: Sequence[Item]) -> ToolUse:
    calls, successes, failures = (
        sum(_count(state.info.get(name)) for state in called) for name in ("calls", "successes", "failures")
    )
    taught = [state for state in called if isinstance(state.info.get("lesson"), str)]
    newest = max(taught, key=_last_used, default=None)
    told = "" if schema is None else schema.info.get("description")
    return ToolUse(
        tool=tool,
        description=told if isinstance(told, str) else "",
        calls=calls,
        successes=successes,
        failures=failures,
        success_rate=round(successes / (successes + failures), 3) if successes + failures else None,
        lesson=None if newest is None else str(newest.info["lesson"]),
        last_used=max(map(_last_used, called), default=None),
        schema=None if schema is None else schema.id,
    )


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _last_used(state: Item) -> datetime:
    return state.valid_from or state.said_at or state.created_at
