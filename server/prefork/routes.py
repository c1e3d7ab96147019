"""The route table's shape, and finding a route: exact paths by dictionary, variable ones by pattern, both remembered."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import msgspec

from prefork.errors import MethodNotAllowed, NotFound, PreforkError

_VARIABLE = re.compile(r"\{(\w+)\}")
_REMEMBERED = 4096


class Route(msgspec.Struct, frozen=True):
    """One row of the table.

    path: literal but for `{variables}`, which match anything but `/` and `:`.
    endpoint: from the site and the request to a response, or to the call of the model that will make one.
    calls_model: it runs the user's code. off_loop: it takes too long for an event loop. lasts: it may take minutes, and has a
    thread of its own.
    request, response: the wire structs, for the OpenAPI document.
    """

    path: str
    methods: tuple[str, ...]
    endpoint: Callable[..., Any]
    protocol: str
    summary: str
    calls_model: bool = False
    request: type | None = None
    response: type | None = None
    off_loop: bool = False
    lasts: bool = False


class Router:
    """Finds the route of a method and a path. A path's variables are plain strings, already percent-decoded."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._exact: dict[str, list[Route]] = {}
        self._patterns: list[tuple[re.Pattern[str], Route]] = []
        for route in routes:
            if "{" in route.path:
                self._patterns.append((_compile(route.path), route))
            else:
                self._exact.setdefault(route.path, []).append(route)
        # Bounded: a client can make up any number of paths.
        self._at = lru_cache(_REMEMBERED)(self._match)

    def find(self, method: str, path: str) -> tuple[Route | None, dict[str, str]]:
        """The route, or None, and the path's variables; these are shared between requests, not to be written to."""
        routes, params = self._at(path)
        return routes.get(method), params

    def methods(self, path: str) -> list[str]:
        """What the path takes; empty for an unknown one."""
        return sorted(self._at(path)[0])

    def refusal(self, method: str, path: str) -> PreforkError:
        """Why there is no route: 404, or 405 with the methods that there are."""
        allowed = self.methods(path)
        return MethodNotAllowed(method, allowed) if allowed else NotFound(f"Not Found: {path[:200]}")

    def _match(self, path: str) -> tuple[dict[str, Route], dict[str, str]]:
        routes = self._exact.get(path)
        if routes is not None:
            return _by_method(routes), {}
        found: list[Route] = []
        params: dict[str, str] = {}
        for pattern, route in self._patterns:
            match = pattern.fullmatch(path)
            if match:
                found.append(route)
                params = match.groupdict()
        return _by_method(found), params


def _compile(path: str) -> re.Pattern[str]:
    literal = re.escape(path).replace(r"\{", "{").replace(r"\}", "}")
    return re.compile(_VARIABLE.sub(r"(?P<\1>[^/:]+)", literal))


def _by_method(routes: Iterable[Route]) -> dict[str, Route]:
    by_method = {method: route for route in routes for method in route.methods}
    if "GET" in by_method:
        by_method.setdefault("HEAD", by_method["GET"])
    return by_method
