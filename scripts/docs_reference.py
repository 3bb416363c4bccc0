"""Write the generated parts of the reference, from the code, as Markdown.

`scripts/docs_site.py` puts them in place of `<!-- generated: NAME -->` in the pages when the site is built.
`python scripts/docs_reference.py NAME` prints one.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, cast

import typer

from memos import MemOS, errors
from memos.api.client import MemOSClient, values
from memos.api.families import STATUSES
from memos.api.mcp import server as mcp_server
from memos.api.v1.routes import create as create_rest
from memos.cli.tree import Command, Commands, Group
from memos.kernel import memos as kernel
from memos.memcube.ledger import schema

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))


def python() -> str:
    """Return `MemOS` for mkdocstrings."""
    return f"## `MemOS`\n\n{_autodoc('memos.kernel.memos.MemOS', ['open', 'close'])}\n"


def services() -> str:
    """Return the services of `MemOS` by their names, for mkdocstrings."""
    parts = []
    for attribute, kind in sorted(_services()):
        parts.append(f"## `memos.{attribute}`\n\n{_autodoc(f'{kind.__module__}.{kind.__qualname__}', heading=False)}\n")
    return "\n".join(parts)


def returned() -> str:
    """Return the values that calls return, for mkdocstrings."""
    kinds = [getattr(values, name) for name in sorted(values.__all__)]
    kinds = [kind for kind in kinds if inspect.isclass(kind) and kind.__doc__ and kind.__module__.startswith("memos.")]
    return "\n\n".join(_autodoc(f"{kind.__module__}.{kind.__qualname__}") for kind in kinds)


def _services() -> Iterator[tuple[str, type]]:
    """Yield the public attributes of `MemOS` that are services, read from its constructor."""
    tree = ast.parse(inspect.getsource(MemOS))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign):
            continue
        targets, made = node.targets[0], node.value
        pairs = [(targets, made)]
        if isinstance(targets, ast.Tuple) and isinstance(made, ast.Tuple):
            pairs = list(zip(targets.elts, made.elts, strict=True))
        for target, value in pairs:
            if (
                isinstance(target, ast.Attribute)
                and not target.attr.startswith("_")
                and isinstance(value, ast.Call)
                and isinstance(value.func, ast.Name)
                and inspect.isclass(kind := getattr(kernel, value.func.id, None))
            ):
                yield target.attr, cast(type, kind)


def _autodoc(path: str, members: list[str] | None = None, *, heading: bool = True) -> str:
    lines = [f"::: {path}", "    options:", f"      show_root_heading: {str(heading).lower()}"]
    if members:
        lines += [f"      members: {members}"]
    return "\n".join(lines)


def clients() -> str:
    """Return the methods of `MemOSClient` by part; those of `AsyncMemOSClient` are the same, as coroutines."""
    client = MemOSClient("key")
    parts = ["## `client`", *_methods(client)]
    for name, holder in vars(client).items():
        if not name.startswith("_"):
            parts += [f"## `client.{name}`", inspect.getdoc(holder) or "", *_methods(holder)]
    return "\n\n".join(parts)


def _methods(holder: object) -> Iterator[str]:
    for name, method in inspect.getmembers(holder, inspect.ismethod):
        if not name.startswith("_"):
            signature = re.sub(r"'|memos\.[a-z_.]+\.|typing\.", "", str(inspect.signature(method)))
            yield f"### `{name}`"
            yield f"```text\n{name}{signature}\n```"
            yield _plain((inspect.getdoc(method) or "").partition("\n\n")[0])


def rest() -> str:
    """Return every route of `/api/v1` from its OpenAPI document, by tag."""
    document = create_rest(cast(MemOS, None), None).openapi()
    schemas = document["components"]["schemas"]
    tags: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            [tag] = operation.get("tags", ["other"])[:1]
            tags.setdefault(tag, []).append(_operation(method, path, operation, schemas))
    return "\n\n".join(f"## {tag}\n\n" + "\n\n".join(routes) for tag, routes in sorted(tags.items()))


def _operation(method: str, path: str, operation: Mapping[str, Any], schemas: Mapping[str, Any]) -> str:
    parts = [f"### `{method.upper()} {path}`", _plain(operation["description"])]
    rows = [
        (each["name"], f"{each['in']}: {_kind(each['schema'])}", each.get("required"), each.get("description", ""))
        for each in operation.get("parameters", ())
    ]
    for body in operation.get("requestBody", {}).get("content", {}).values():
        name = _reference(body["schema"])
        shape = schemas.get(name, {})
        needed = shape.get("required", ())
        rows += [
            (field, f"body: {_kind(about)}", field in needed, about.get("description", ""))
            for field, about in shape.get("properties", {}).items()
        ]
    if rows:
        table = ["| parameter | where and what | |", "|---|---|---|"]
        for name, where, required, about in rows:
            table.append(f"| `{name}`{' (required)' if required else ''} | {_cell(where)} | {_cell(about)} |")
        parts.append("\n".join(table))
    answers = [
        f"{status} {_kind(content['schema'])}" if content.get("schema") else status
        for status, answer in operation["responses"].items()
        if status.startswith("2")
        for content in answer.get("content", {"": {}}).values()
    ]
    parts.append(f"Returns: {', '.join(f'`{answer}`' for answer in answers)}")
    return "\n\n".join(parts)


def _reference(schema: Mapping[str, Any]) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]


def _kind(schema: Mapping[str, Any]) -> str:
    """Return a JSON schema in a few words."""
    if "$ref" in schema:
        return _reference(schema)
    if options := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(dict.fromkeys(_kind(each) for each in options))
    if "enum" in schema:
        return " or ".join(str(each) for each in schema["enum"])
    if "const" in schema:
        return str(schema["const"])
    kind = str(schema.get("type", "any"))
    if kind == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    return str(schema.get("format", kind)) if kind == "string" else kind


def mcp() -> str:
    """Return every MCP tool with its arguments: first the everyday ones, then those of `--all-tools`."""
    server = mcp_server.create(cast(Any, None))
    found = {tool.name: tool for tool in server._tool_manager.list_tools()}
    groups = {
        "Everyday tools": [name for name in found if name in mcp_server._EVERYDAY],
        "With `--all-tools`": [name for name in found if name not in mcp_server._EVERYDAY],
    }
    parts = []
    for title, names in groups.items():
        parts.append(f"## {title}")
        for name in names:
            tool = found[name]
            parts += [f"### `{name}`", _plain(tool.description or "")]
            shape, needed = tool.parameters.get("properties", {}), tool.parameters.get("required", ())
            if shape:
                table = ["| argument | type | |", "|---|---|---|"]
                for field, about in shape.items():
                    mark = " (required)" if field in needed else ""
                    table.append(f"| `{field}`{mark} | {_cell(_kind(about))} | {_cell(about.get('description', ''))} |")
                parts.append("\n".join(table))
    return "\n\n".join(parts)


def commands() -> str:
    """Return every command with its help, arguments and options."""
    root = Commands(name="memos")
    context = typer.Context(root, info_name="memos")
    return "\n\n".join(_commands(root, context, root.panels, "memos"))


def _commands(group: Commands, context: typer.Context, panels: Mapping[str, Any], path: str) -> Iterator[str]:
    for title, entries in panels.items():
        if path == "memos":
            yield f"## {title}"
        for word, entry in entries.items():
            command = group.get_command(context, word)
            inner = typer.Context(command, info_name=word, parent=context)
            if isinstance(entry, Group):
                yield f"### `{path} {word}`"
                yield _plain(entry.help)
                if entry.own is not None:
                    yield _command(command, inner, entry.own)
                yield from _commands(command, inner, command.panels, f"{path} {word}")
            else:
                yield f"{'###' if path == 'memos' else '####'} `{path} {word}`"
                yield _command(command, inner, entry)


def _command(command: Any, context: typer.Context, entry: Command) -> str:
    parts = [_plain(" ".join(each for each in (entry.help, entry.more) if each))]
    if entry.example:
        parts.append(f"```console\n$ {entry.example}\n```")
    rows = [found for each in command.get_params(context) if (found := each.get_help_record(context))]
    rows = [row for row in rows if "--help" not in row[0]]
    if rows:
        table = ["| | |", "|---|---|"]
        table += [f"| `{name.replace('|', chr(92) + '|')}` | {_cell(about)} |" for name, about in rows]
        parts.append("\n".join(table))
    return "\n\n".join(parts)


def errors_() -> str:
    """Return the error tree with exit codes and statuses over HTTP."""
    lines = ["| error | code | HTTP status | exit code | when |", "|---|---|---|---|---|"]
    kinds = [each for each in vars(errors).values() if inspect.isclass(each) and issubclass(each, errors.MemosError)]
    for kind in kinds:
        status = next((status for base, status in STATUSES.items() if issubclass(kind, base)), 500)
        about = (inspect.getdoc(kind) or "").partition("\n\n")[0]
        indent = "&emsp;" * (len(kind.__mro__) - len(errors.MemosError.__mro__))
        lines.append(f"| {indent}`{kind.__name__}` | `{kind.code}` | {status} | {kind.exit_code} | {_cell(about)} |")
    return "\n".join(lines)


def tables() -> str:
    """Return the columns of each table of the ledger, which are those of the rows in cube files and backups."""
    parts = []
    for name, table in sorted(schema.metadata.tables.items()):
        columns = ", ".join(f"`{column.name}`" for column in table.columns)
        keys = ", ".join(f"`{column.name}`" for column in table.primary_key)
        parts.append(f"| `{name}` | {keys} | {columns} |")
    return "\n".join(["| table | primary key | columns |", "|---|---|---|", *parts])


def _plain(text: str) -> str:
    """Return a docstring as Markdown: paragraphs on lines of their own, nothing read as HTML."""
    return re.sub(r"<(?=[a-zA-Z/])", "&lt;", inspect.cleandoc(text))


def _cell(text: str) -> str:
    return _plain(text).replace("\n", " ").replace("|", "\\|")


PARTS: dict[str, Callable[[], str]] = {
    "python": python,
    "services": services,
    "returned": returned,
    "clients": clients,
    "rest": rest,
    "mcp": mcp,
    "commands": commands,
    "errors": errors_,
    "tables": tables,
}


@cache
def part(name: str) -> str:
    """Return one generated part."""
    return PARTS[name]()


if __name__ == "__main__":
    print(part(sys.argv[1]))
