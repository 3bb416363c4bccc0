"""Finds every route of an application, mounted ones too, with what each takes, as the OpenAPI documents tell it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import iter_route_contexts
from starlette.routing import Mount


@dataclass(frozen=True)
class Found:
    """One route; `told` is False when no document says what it takes."""

    method: str
    path: str
    told: bool = True
    in_path: frozenset[str] = frozenset()
    query: frozenset[str] = frozenset()
    body: dict[str, bool] = field(default_factory=dict)
    """Fields by whether they are required."""
    media: str | None = None

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def every_route(app: Any, prefix: str = "") -> Iterator[Found]:
    """Yield the routes of an application and of what is mounted in it; one that is no FastAPI as one without a tale."""
    told: dict[tuple[str, str], Found] = {}
    if isinstance(app, FastAPI):
        document = get_openapi(title="-", version="-", routes=app.routes)
        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                told[path, method.upper()] = _found(document, prefix + path, method.upper(), operation)
    seen: set[tuple[str, str]] = set()
    for route in iter_route_contexts(app.routes):
        original = getattr(route, "original_route", route)
        if isinstance(original, Mount):
            inner = original.app if hasattr(original.app, "routes") else None
            if inner is None:
                yield Found("MOUNT", prefix + original.path, told=False)
            else:
                yield from every_route(inner, prefix + original.path)
            continue
        path = getattr(route, "path_format", None) or original.path_format
        named = getattr(route, "methods", None) or original.methods or {"ANY"}  # none: all of them
        for method in sorted(set(named) - {"HEAD", "OPTIONS"}):
            seen.add((path, method))
            yield told.get((path, method)) or Found(method, prefix + path, told=False)
    assert set(told) <= seen, set(told) - seen


def _found(document: dict[str, Any], path: str, method: str, operation: dict[str, Any]) -> Found:
    where: dict[str, set[str]] = {"path": set(), "query": set(), "header": set(), "cookie": set()}
    for parameter in operation.get("parameters", ()):
        where[parameter["in"]].add(parameter["name"])
    fields, media = {}, None
    for media, content in operation.get("requestBody", {}).get("content", {}).items():  # noqa: B007 - the last one
        schema = _resolved(document, content.get("schema", {}))
        fields = {name: name in schema.get("required", ()) for name in schema.get("properties", {})}
    return Found(method, path, True, frozenset(where["path"]), frozenset(where["query"]), fields, media)


def _resolved(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema
