# SPDX-License-Identifier: Apache-2.0
"""Which function serves which method and path."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from simulators.base.messages import Answer, Request

Handler = Callable[[Request, list[str]], Answer]


@dataclass(frozen=True)
class Route:
    """One operation.

    :param name: as counters and error rules call it, after the service's name and a dot: ``list_servers``.
    :param parts: of the path; None takes anything and hands it to the handler.
    :param open: works without a token.
    """

    name: str
    parts: tuple[str | None, ...]
    handler: Handler
    open: bool

    def match(self, parts: list[str]) -> list[str] | None:
        """The values of the variable parts, None when the path is another one."""
        values = []
        for own, given in zip(self.parts, parts, strict=True):
            if own is None:
                values.append(given)
            elif own != given:
                return None
        return values


class Routes:
    """The operations of one service."""

    def __init__(self) -> None:
        self._routes: dict[tuple[str, int], list[Route]] = {}

    def route(self, method: str, template: str, name: str, handler: Handler, open: bool = False) -> None:
        """Adds an operation. ``template``: the path below the service's prefix, with ``{}`` for variable parts."""
        parts = tuple(None if part == "{}" else part for part in template.split("/")) if template else ()
        self._routes.setdefault((method, len(parts)), []).append(Route(name, parts, handler, open))

    def find(self, method: str, parts: list[str]) -> tuple[Route, list[str]] | None:
        """The operation and the values for its handler."""
        for route in self._routes.get((method, len(parts)), ()):
            values = route.match(parts)
            if values is not None:
                return route, values
        return None
