"""The MCP server: its tools, prompts and resources, and how errors look. Knows no transport and no key."""

from __future__ import annotations

import difflib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from types import MappingProxyType
from typing import Annotated, Any

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ResourceError, ToolError
from mcp.server.mcpserver.tools import Tool
from mcp.server.stdio import stdio_server
from mcp_types import CallToolResult, InputRequiredResult, Prompt, ToolAnnotations
from mcp_types import Tool as ListedTool
from pydantic import Field, ValidationError

from memos.api.mcp import extra_tools, tools
from memos.api.mcp.context import ContextResolver, context_middleware, current_context
from memos.api.mcp.greeting import INSTRUCTIONS, NAME, Wire
from memos.api.wording import message_of, reason_of
from memos.core.aliases import ALIASES, resolve_aliases, unknown_name
from memos.core.text.rendering import quoted
from memos.core.text.validation import MAX_MESSAGE_BYTES
from memos.core.types import Json
from memos.errors import InvalidInput, MemosError, shown
from memos.version import __version__

_HOW = (
    "Store each fact, preference, decision or instruction as one self-contained sentence with add_memory; write dates "
    "in full and leave out secrets and what holds only for today. Then say in one line what you stored."
)


def remember(
    what: Annotated[str, Field(description="What to remember; default: what is important in this conversation")] = "",
) -> str:
    """Store something, or what matters in this conversation, in long-term memory."""
    return f"Remember this: {what}\n\n{_HOW}" if what else f"Remember what matters in our conversation. {_HOW}"


def recall(about: Annotated[str, Field(description="What to look for")]) -> str:
    """Tell what is remembered about something."""
    return (
        f"What do you remember about this: {about}\n\n"
        "Call search_memories with the full question, again with other words if that finds little. Answer from what "
        "it finds alone, with the dates it gives, and say so if nothing relevant is known."
    )


def what_do_you_know() -> str:
    """Tell what is remembered about the user."""
    return (
        "What do you know about me? Call get_user_context, and search_memories where it leaves gaps. List what is "
        "known by topic, with dates, and ask whether anything is wrong; use correct_memory for what I correct."
    )


PROMPTS: Mapping[str, Callable[..., str]] = MappingProxyType(
    {"remember": remember, "recall": recall, "what-do-you-know-about-me": what_do_you_know}
)
"""The prompts by name."""


_EVERYDAY = frozenset(tool.__name__ for tool in (*tools.READ_TOOLS, *tools.WRITE_TOOLS, *tools.DESTRUCTIVE_TOOLS))


_REMEDIES = {"cube": "List the readable cubes with list_cubes.", "item": "Find ids with search_memories."}


# Tools have shorter words for memories, and act for the user of the connection alone.
_ALIASES = {
    **ALIASES,
    "id": ("ids", "about"),
    "ids": ("about",),
    "infer": ("fine",),
    "memory_id": ("id", "ids", "about"),
}


class _Tool(Tool):
    async def run(self, arguments: dict[str, Any], context: Context[Any, Any], convert_result: bool = False) -> Any:
        if current_context().read_only and not _only_reads(self):
            raise ToolError(f"{self.name} is not available: this connection is read-only.")
        known = self.parameters.get("properties", {})
        try:
            arguments = resolve_aliases(arguments, known, _ALIASES)
        except InvalidInput as error:
            raise ToolError(str(error)) from None
        if "cubes" in known and isinstance(arguments.get("cubes"), str):
            arguments["cubes"] = [arguments["cubes"]]
        unknown = sorted(arguments.keys() - known.keys())
        if unknown:
            raise ToolError(str(InvalidInput(shown(unknown[0]), unknown_name("argument", unknown[0], list(known)))))
        try:
            self.fn_metadata.validate_arguments(arguments)
        except ValidationError as error:
            problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
            where = ".".join(str(part) for part in problem["loc"]) or "arguments"
            raise ToolError(str(InvalidInput(where, reason_of(problem)))) from None
        try:
            return await super().run(arguments, context, convert_result)
        except ToolError as error:
            if isinstance(error.__cause__, ToolError):
                raise error.__cause__ from None
            raise


class _Server(MCPServer[Any]):
    """A server that shows each client the tools and prompts it can use; the others answer when they are called."""

    async def run_over(self, wire: Wire) -> None:
        """Answer the messages of a wire until it ends."""
        lines: Any = wire
        file: Any = anyio.AsyncFile(lines)
        async with stdio_server(file, file) as (read, write):
            await self._lowlevel_server.run(read, write, self._lowlevel_server.create_initialization_options())

    async def list_tools(self) -> list[ListedTool]:
        context = current_context()
        return [
            tool
            for tool in await super().list_tools()
            if (context.all_tools or tool.name in _EVERYDAY) and (_only_reads(tool) or not context.read_only)
        ]

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        if name == "add_memory" and "user_input" in arguments:
            name = extra_tools.add_exchange.__name__  # the tool of MemoryOS, until version 0.1
        known = {tool.name for tool in await super().list_tools()}
        if name not in known and (close := difflib.get_close_matches(name, sorted(known), 1)):
            raise ToolError(f"Unknown tool: {shown(name)}; did you mean `{close[0]}`?")
        return await super().call_tool(name, arguments, context)

    async def list_prompts(self) -> list[Prompt]:
        read_only = current_context().read_only
        return [prompt for prompt in await super().list_prompts() if not (read_only and prompt.name == "remember")]


def create(resolver: ContextResolver) -> _Server:
    made = [
        *_tools((*tools.READ_TOOLS, *extra_tools.READ_TOOLS), read_only=True),
        *_tools((*tools.WRITE_TOOLS, *extra_tools.WRITE_TOOLS), read_only=False),
        *_tools((*tools.DESTRUCTIVE_TOOLS, *extra_tools.DESTRUCTIVE_TOOLS), read_only=False, destructive=True),
    ]
    root, quiet = logging.getLogger(), logging.NullHandler()
    root.addHandler(quiet)  # with a handler there, the SDK leaves the program's logging as it is
    try:
        server = _Server(
            NAME,
            instructions=INSTRUCTIONS,
            version=__version__,
            tools=made,
            middleware=[context_middleware(resolver)],
        )
    finally:
        root.removeHandler(quiet)
    for name, prompt in PROMPTS.items():
        server.prompt(name)(prompt)
    for uri, read, described in (
        ("memory://{id}", _memory, "One memory with its sources, by its id"),
        ("memoryos://status", _status, "Status of the memory: readiness, current user and background tasks"),
        ("memoryos://config", _config, "Settings in effect, without keys, passwords and addresses"),
    ):
        server.resource(uri, name=read.__name__.strip("_"), mime_type="application/json", description=described)(
            _with_errors_as(read, ResourceError)
        )
    return server


def _tools(functions: Sequence[Callable[..., Any]], *, read_only: bool, destructive: bool = False) -> list[Tool]:
    hints = ToolAnnotations(read_only_hint=read_only, destructive_hint=destructive, open_world_hint=False)
    made = [_Tool.from_function(_with_errors_as(function, ToolError), annotations=hints) for function in functions]
    for tool in made:
        tool.parameters["additionalProperties"] = False
    return made


def _only_reads(tool: Tool | ListedTool) -> bool:
    return tool.annotations is not None and bool(tool.annotations.read_only_hint)


def _with_errors_as(function: Callable[..., Any], kind: type[Exception]) -> Callable[..., Any]:
    @wraps(function)
    def told(*given: Any, **named: Any) -> Any:
        try:
            return function(*given, **named)
        except MemosError as error:
            raise kind(message_of(error, _REMEDIES)) from error

    return told


def _memory(id: str) -> str:
    context = current_context()
    item = context.memos.get(id, actor=context.actor)
    sources = [
        {"conversation": each.conversation, "speaker": each.speaker, "at": each.at.isoformat(), "trust": each.trust}
        for each in item.sources
    ]
    memory = extra_tools.Memory(**extra_tools.fields_of(item, item.sources)).model_dump(mode="json")
    return _json({**memory, "memory": quoted(item, item.memory), "sources": sources})


def _status() -> str:
    context = current_context()
    context.memos.maintenance.check_ready()
    cubes = context.memos.cubes.list(actor=context.actor)
    tasks = context.memos.tasks.counts(actor=context.actor)
    return _json(
        {
            "status": "ok",
            "version": __version__,
            "user": context.actor,
            "cube": context.home,
            "cubes": len(cubes),
            "memories": sum(cube.items for cube in cubes),
            "tasks": {str(state): tasks[state] for state in tasks},
        }
    )


def _config() -> str:
    """Return settings, each listed by name: a new one may be a secret."""
    from memos.reader.messages import MAX_MESSAGES  # noqa: PLC0415 - loads the ledger
    from memos.search.question import MAX_QUERY_CHARS, MAX_TOP_K  # noqa: PLC0415 - see above

    settings = current_context().memos.settings
    return _json(
        {
            "version": __version__,
            "time_zone": settings.time_zone,
            "retention_days": settings.retention_days,
            "mask_secrets": settings.mask_secrets,
            "limits": {
                **settings.limits.model_dump(mode="json"),
                "message_bytes": MAX_MESSAGE_BYTES,
                "messages_per_add": MAX_MESSAGES,
                "query_chars": MAX_QUERY_CHARS,
                "top_k": MAX_TOP_K,
            },
            "heat": settings.heat.model_dump(mode="json"),
        }
    )


def _json(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)
