# SPDX-License-Identifier: Apache-2.0
"""Which function serves which method and path, and the base of all services."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlencode

from nodepool.testing.openstack.cloud import Cloud
from nodepool.testing.openstack.messages import Answer, ApiError, Request, json_answer

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


class Service:
    """One OpenStack service below its prefix.

    :cvar name: first part of the path and of operation names.
    """

    name = ""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
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

    def available(self) -> bool:
        """False: the cloud has no such service."""
        return True

    def error(self, error: ApiError) -> Answer:
        """An error in the service's shape; this is Nova's and Cinder's."""
        names = {
            400: "badRequest",
            401: "unauthorized",
            403: "forbidden",
            404: "itemNotFound",
            409: "conflictingRequest",
        }
        names |= {413: "overLimit", 429: "tooManyRequests", 500: "computeFault", 503: "serviceUnavailable"}
        content = {names.get(error.status, "error"): {"code": error.status, "message": error.message}}
        answer = json_answer(content, error.status)
        answer.headers |= error.headers
        return answer


def base_url(request: Request) -> str:
    """Scheme and authority that the client used, for links."""
    return f"http://{request.headers.get('host', '127.0.0.1')}"


def next_link(request: Request, marker: str | None) -> str:
    """The address of the next page; "" when there is none."""
    if marker is None:
        return ""
    return f"{base_url(request)}{request.path}?{urlencode(request.query | {'marker': [marker]}, doseq=True)}"
