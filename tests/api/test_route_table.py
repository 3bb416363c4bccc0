"""A table of routes chooses what the router would choose."""

from __future__ import annotations

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route, Router
from starlette.testclient import TestClient

from memos.api.route_table import RouteTable


async def _told(request: Request) -> PlainTextResponse:
    return PlainTextResponse(f"{request.scope['root_path']} {request['endpoint'].__name__} {request.path_params}")


def _route(path: str, *methods: str) -> Route:
    async def endpoint(request: Request) -> PlainTextResponse:
        return await _told(request)

    endpoint.__name__ = f"{'+'.join(methods)} {path}"
    return Route(path, endpoint, methods=list(methods))


def _application(*, table: bool) -> TestClient:
    inner = Router([_route("/there", "GET"), _route("/{id}", "GET")])
    application = Starlette(
        routes=[
            _route("/items", "GET"),
            _route("/items", "POST"),
            _route("/items/first", "GET"),
            _route("/items/{id}", "GET", "DELETE"),
            _route("/items/last", "GET"),
            _route("/items/{id:path}/history", "GET"),
            _route("/below", "GET"),
            Mount("/below", inner),
            _route("/{kind}/late", "GET"),
        ]
    )
    if table:
        inner.middleware_stack = RouteTable(inner)
        application.router.middleware_stack = RouteTable(application.router)
    return TestClient(application, follow_redirects=False)


@pytest.mark.parametrize(
    "path",
    ["/items", "/items/", "/items/first", "/items/last", "/items/7", "/items/a/b/history", "/items/late", "/x/late",
     "/below", "/below/", "/below/there", "/below/8", "/below/8/9", "/belowthere", "/", "/none", "//items",
     "/items%0A"],
)  # fmt: skip
def test_a_table_chooses_what_the_router_chooses(path: str) -> None:
    for method in ("GET", "HEAD", "POST", "DELETE", "PUT"):
        plain, quick = (_application(table=table).request(method, path) for table in (False, True))
        assert (quick.status_code, quick.text, quick.headers) == (plain.status_code, plain.text, plain.headers), method


def test_routes_that_are_added_later_are_found() -> None:
    application = Starlette(routes=[_route("/one", "GET")])
    application.router.middleware_stack = RouteTable(application.router)
    http = TestClient(application)
    assert http.get("/two").status_code == 404
    application.router.routes.append(_route("/two", "GET"))
    assert http.get("/two").status_code == 200
