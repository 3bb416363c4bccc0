"""`RouteTable`: finds the route of a path at once, where a router asks one route after the other."""

from __future__ import annotations

from starlette.routing import BaseRoute, Match, Router
from starlette.types import Receive, Scope, Send

_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


class RouteTable:
    """Hands a request to the route that its router would choose: the first one that fits.

    Routes of fixed paths are in a mapping, the others in a list for each first part of a path. A request that no route
    takes goes to the router, which knows how to refuse it.
    """

    def __init__(self, router: Router) -> None:
        self._router = router
        self._size = 0
        self._fixed: dict[tuple[str, str], BaseRoute] = {}
        self._below: dict[str, list[BaseRoute]] = {}
        self._anywhere: list[BaseRoute] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            if self._size != len(self._router.routes):
                self._build()
            path = scope["path"].removeprefix(scope.get("root_path", ""))
            fixed = self._fixed.get((scope["method"], path))
            for route in self._below.get(_first_part(path), self._anywhere) if fixed is None else (fixed,):
                match, child_scope = route.matches(scope)
                if match == Match.FULL:
                    scope.setdefault("router", self._router)
                    scope.update(child_scope)
                    await route.handle(scope, receive, send)
                    return
        await self._router.app(scope, receive, send)

    def _build(self) -> None:
        routes = list(self._router.routes)
        parts = [_first_part(_pattern_of(route)) for route in routes]
        self._below = {
            part: [route for route, its in zip(routes, parts, strict=True) if its in {part, ""}]
            for part in set(parts) - {""}
        }
        self._anywhere = [route for route, its in zip(routes, parts, strict=True) if not its]
        self._fixed = {}
        for route in routes:
            path = _pattern_of(route)
            for method in () if "{" in path else _METHODS:
                scope: Scope = {"type": "http", "method": method, "path": path, "root_path": "", "path_params": {}}
                chosen = next((each for each in routes if each.matches(scope)[0] == Match.FULL), None)
                if chosen is not None:
                    self._fixed[method, path] = chosen
        self._size = len(routes)


def _pattern_of(route: BaseRoute) -> str:
    return str(getattr(route, "path", ""))


def _first_part(path: str) -> str:
    """Return the first part of a path, "" if it may be any."""
    part = path.removeprefix("/").partition("/")[0]
    return "" if "{" in part else part
