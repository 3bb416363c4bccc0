"""Unusual strings in every field of every route: after everything is erased, no file and no row has any of them.

It says nothing of what was answered: most fields refuse a string of that kind, and then it must not have been kept.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.openapi.utils import get_openapi
from starlette.routing import Mount
from starlette.testclient import TestClient

from memos import MemOS, Settings
from memos.api.app import create_app
from memos.core.settings import IndexSettings, LimitSettings
from memos.memcube.scan import Scan, Texts
from tests.api.test_tenants import LEFT_OUT, PLAIN
from tests.fakes import WordEmbedder

USER = "zq-user"
MARK = "zqxjvkw"
SIGNS = "abcdefghijkmnpqrstuvwxyz"
# Routes that end what the others need, run for long, or ask a model or a disk elsewhere.
SKIPPED = (
    "/stream", "/follow", "/wait", "/imports", "/load", "/inspect", "/train", "/warm", "/chat", "/backups", "/events",
    "/users/{identity}", "/limits", "/erasures/verify",
)  # fmt: skip


def _documents(app: Any, prefix: str = "") -> Iterator[tuple[str, dict[str, Any], str, str, dict[str, Any]]]:
    """Yield prefix, document, path, method and operation of every documented route, mounted ones too."""
    for route in app.routes:
        if isinstance(route, Mount) and hasattr(route.app, "routes") and hasattr(route.app, "openapi"):
            document = get_openapi(title="-", version="-", routes=route.app.routes)
            for path, methods in document["paths"].items():
                for method, operation in methods.items():
                    yield prefix + route.path, document, path, method.upper(), operation
            yield from _documents(route.app, prefix + route.path)


def _shape(document: dict[str, Any], schema: dict[str, Any], text: str) -> Any:
    """Return a value of a schema with a text in it, None if there is no place for one."""
    while "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    for choice in schema.get("anyOf", ()):
        if (value := _shape(document, choice, text)) is not None:
            return value
    match schema.get("type"):
        case "string":
            return text
        case "array":
            inner = _shape(document, schema.get("items", {}), text)
            return None if inner is None else [inner]
        case "object" if "properties" not in schema:
            return {text: text}
    return None


def _fields(
    document: dict[str, Any], operation: dict[str, Any]
) -> tuple[list[dict[str, Any]], dict[str, Any], set[str]]:
    """Return the parameters in path and query, and the properties of the body with the names of required ones."""
    parameters = [each for each in operation.get("parameters", ()) if each["in"] in ("path", "query")]
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    schema = content.get("schema", {})
    while "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return parameters, schema.get("properties", {}), set(schema.get("required", ()))


class Walk:
    """Sends strings, each another, and remembers them."""

    def __init__(self, memos: MemOS, http: TestClient) -> None:
        self.memos, self.http = memos, http
        self.stored = 0
        self._seed = random.Random(46)
        memos.users.create(USER, admin=True)
        self.headers = {"Authorization": f"Bearer {memos.keys.create(USER, 'zq-key-of-the-walk').secret}"}

    def text(self) -> str:
        return MARK + "".join(self._seed.choices(SIGNS, k=12)) + self._seed.choice(["", "ß", " Ünïg", '"\\'])

    def values(self) -> dict[str, Any]:
        """Return values with which requests succeed, made new where a request may have removed them."""
        mine = {"cube": USER, "actor": USER}
        item, seen = self.memos.add([f"{self.text()} said {self.text()}.", "yes"], conversation="talk", **mine).item_ids
        return {
            "user": USER,
            "user_id": USER,
            "cube": USER,
            "cubes": [USER],
            "identity": USER,
            "item": item,
            "item_ids": [item],
            "newer": item,
            "older": seen,
            "mem_cube_id": USER,
            "memory_id": item,
            "id": self.text(),
            "conversation": "talk",
            "conversation_id": "talk",
            "subject": USER,
            "about": item,
        }

    def run(self) -> None:
        routes = list(_documents(self.http.app))
        for prefix, document, path, method, operation in routes:
            whole = prefix + path
            if method == "DELETE" or any(word in whole for word in SKIPPED) or "forget" in whole:
                continue
            parameters, properties, _ = _fields(document, operation)
            values = PLAIN | self.values()
            for name in [*properties, *(each["name"] for each in parameters)]:
                self._send(document, method, whole, operation, name, values)
                assert not self.memos.users.get(USER).disabled, (method, whole, name)

    def _send(
        self,
        document: dict[str, Any],
        method: str,
        path: str,
        operation: dict[str, Any],
        odd: str,
        values: dict[str, Any],
    ) -> None:
        parameters, properties, required = _fields(document, operation)
        query: dict[str, Any] = {}
        for each in parameters:
            value = self.text() if each["name"] == odd else values.get(each["name"], "x")
            if each["in"] == "path":
                path = path.replace("{" + each["name"] + "}", str(value))
            elif each.get("required") or each["name"] == odd or each["name"] in ("user", "cube"):
                query[each["name"]] = value
        body = {name: values[name] for name in properties if name in values and name not in LEFT_OUT}
        body |= {name: "x" for name in required if name not in body}
        if odd in properties:
            shaped = _shape(document, properties[odd], self.text())
            if shaped is not None:
                body[odd] = shaped
        answer = self.http.request(method, path, params=query, headers=self.headers, json=body if properties else None)
        assert answer.status_code != 500, f"{method} {path} {odd}: {answer.text}"
        self.stored += answer.status_code < 300


def _kept(home: Path) -> set[bytes]:
    """Return the strings that the files of an installation have as they are."""
    every = b"".join(path.read_bytes().strip(b"\0") for path in home.rglob("*") if path.is_file())
    return set(re.findall(MARK.encode() + rb"[a-z]{12}", every))


@pytest.mark.heavy
def test_no_string_of_any_field_of_any_route_is_left_after_everything_is_erased(tmp_path: Path) -> None:
    settings = Settings(index=IndexSettings(wait_s=30), limits=LimitSettings(min_free_bytes=1_000_000))
    with MemOS.open(tmp_path, settings=settings, embedder=WordEmbedder()) as memos:
        app = create_app(memos, local_token="local-token")
        with TestClient(app, raise_server_exceptions=False) as http:
            walk = Walk(memos, http)
            walk.run()
        assert walk.stored > 200
        assert len(_kept(tmp_path)) > 200
        for identity in memos.users.list(limit=10_000):
            preview = memos.subjects.preview(identity.id)
            memos.subjects.forget(identity.id, expected=preview.goes, wait=False)
        for cube in memos.cubes.list():
            memos.cubes.drop(cube.id)
        # Every string begins with these letters, so that one needle finds all of them in every encoding.
        left = Scan(Texts([MARK]))
        with memos.ledger.read() as connection:
            left.ledger(connection)
        left.folder(tmp_path)
        assert {(trace.place, trace.encoding) for trace in left.traces.values()} == set()
        assert not left.unread
