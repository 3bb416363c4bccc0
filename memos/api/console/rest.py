"""The client that pages use: requests to `/api/v1` in this process, with the rights of who is signed in."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import Any
from urllib.parse import quote

import httpx2
from starlette.responses import Response
from starlette.routing import Mount, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memos.core.types import Json, Status

API = "/api/v1"


class RestError(Exception):
    """An answer of `/api/v1` that is an error."""

    def __init__(self, status: int, code: str, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.field = status, code, message, field


def part(text: str) -> str:
    """Return a text as one part of a path; one of dots alone would be a step upwards."""
    return text.replace(".", "%2E") if text in (".", "..") else quote(text, safe="")


class Rest:
    """Sends requests to `/api/v1`. Parameters that are None or empty are left out.

    Raises: RestError, from every method, for an answer that is an error.
    """

    def __init__(self, api: ASGIApp, secret: str, address: str) -> None:
        self._api, self._secret = api, secret
        # The address of the browser: failed sign-ins of one must not make others wait.
        transport = httpx2.ASGITransport(api, client=(address, 0))  # nothing is ever connected to
        self._client = httpx2.AsyncClient(
            transport=transport,
            base_url="http://console",
            headers={"Authorization": f"Bearer {secret}"},
            timeout=None,
            trust_env=False,
        )

    async def get(self, path: str, **params: Json) -> Any:
        return await self.send("GET", path, params)

    async def post(self, path: str, body: Any = None, **params: Json) -> Any:
        return await self.send("POST", path, params, body)

    async def put(self, path: str, body: Any = None, **params: Json) -> Any:
        return await self.send("PUT", path, params, body)

    async def patch(self, path: str, body: Any = None, **params: Json) -> Any:
        return await self.send("PATCH", path, params, body)

    async def delete(self, path: str, **params: Json) -> Any:
        return await self.send("DELETE", path, params)

    async def send(self, method: str, path: str, params: Mapping[str, Any], body: Any = None) -> Any:
        """Return the JSON of an answer, None if it has no content."""
        given = {name: value for name, value in params.items() if value not in (None, "", [])}
        # Written here: the client refuses what JSON from outside may contain, such as NaN, which the API can tell of.
        content = None if body is None else json.dumps(body).encode()
        headers = None if body is None else {"Content-Type": "application/json"}
        answer = await self._client.request(method, API + path, params=given, content=content, headers=headers)
        if answer.is_success:
            return answer.json() if answer.content else None
        raise _error_of(answer.status_code, answer.content)

    def download(self, path: str, body: Any, refused: Callable[[RestError], Response]) -> Response:
        """Return what a POST answers, sent on block by block; `refused` makes the answer of an error."""
        return _Download(self._api, self._secret, path, json.dumps(body).encode(), refused)


class _Download(Response):
    def __init__(
        self, api: ASGIApp, secret: str, path: str, body: bytes, refused: Callable[[RestError], Response]
    ) -> None:
        super().__init__()
        self._api, self._path, self._sent, self._refused = api, path, body, refused
        self._given = [
            (b"authorization", f"Bearer {secret}".encode()),
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        cookies = [header for header in self.raw_headers if header[0] == b"set-cookie"]
        waiting = [self._sent]
        failed, told = 0, b""

        async def ask() -> Message:
            if waiting:
                return {"type": "http.request", "body": waiting.pop(), "more_body": False}
            while (message := await receive())["type"] != "http.disconnect":
                pass  # the browser's own request has nothing to add
            return message

        async def pass_on(message: Message) -> None:
            nonlocal failed, told
            if message["type"] == "http.response.start" and message["status"] >= 400:
                failed = message["status"]
            elif failed:
                told += message.get("body", b"")
            elif message["type"] == "http.response.start":
                await send({**message, "headers": [*message["headers"], *cookies]})
            else:
                await send(message)

        inner = {**inner_scope(scope, self._path, self._given), "method": "POST", "query_string": b""}
        await self._api(inner, ask, pass_on)
        if failed:
            await self._refused(_error_of(failed, told))(scope, receive, send)


def inner_scope(scope: Scope, path: str, headers: list[tuple[bytes, bytes]]) -> MutableMapping[str, Any]:
    """Return the scope of a request to a path of `/api/v1` in place of one to the console."""
    inner: MutableMapping[str, Any] = {
        **scope,
        "path": API + path,
        "raw_path": (API + quote(path)).encode(),
        "root_path": "",
        "app_root_path": "",
        "headers": headers,
        "state": {},
    }
    for name in ("path_params", "endpoint", "router", "route"):
        inner.pop(name, None)
    return inner


def _error_of(status: int, content: bytes) -> RestError:
    try:
        error = json.loads(content)["error"]
        return RestError(status, error["code"], error["message"], error.get("field"))
    except (ValueError, KeyError, TypeError):
        return RestError(status, "refused", f"The server answered {status}.")


async def memories_of(rest: Rest, cube: str, ids: Iterable[str], *, deleted: bool = False) -> list[dict[str, Any]]:
    """Return a cube's memories by id with their standings, in the order of the ids; with `deleted` also those."""
    wanted = list(dict.fromkeys(ids))
    if not wanted:
        return []
    condition: dict[str, Any] = {"id": {"in": wanted}}
    if deleted:
        condition["status"] = {"in": [str(status) for status in Status]}
    listed, standings = await asyncio.gather(
        rest.get("/memories", cube=cube, filter=json.dumps(condition), limit=1_000),
        rest.get("/memories/standings", cube=cube, id=wanted),
    )
    found = {each["id"]: each for each in _joined(listed, standings)}
    return [found[id_] for id_ in wanted if id_ in found]


async def with_standings(rest: Rest, cube: str, items: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return memories of a cube with `standing`, `replaced_by` and `since`, as every page shows them."""
    if not items:
        return []
    return _joined(items, await rest.get("/memories/standings", cube=cube, id=[item["id"] for item in items]))


def _joined(items: Iterable[dict[str, Any]], standings: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    found = {each["item"]: each for each in standings}
    unknown = {"standing": "current", "replaced_by": None, "since": None}
    return [{**item, **{name: found.get(item["id"], unknown)[name] for name in unknown}} for item in items]


def api_router(api: ASGIApp) -> Router:
    """Return a router that has the application of `/api/v1` at its usual path."""
    return Router([Mount(API, app=api)], redirect_slashes=False)
