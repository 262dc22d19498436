# SPDX-License-Identifier: Apache-2.0
"""The routes of ``/api/v1``, made from the resources; errors are problems (RFC 9457)."""

from __future__ import annotations

import json
import secrets
import zlib
from typing import TYPE_CHECKING, Final

from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from nodepool.web.answers import ApiProblem, problem_response, to_json
from nodepool.web.api import openapi
from nodepool.web.api.resources import (
    event_resources,
    host_resources,
    image_resources,
    label_resources,
    launcher_resources,
    node_resources,
    provider_resources,
    request_resources,
    summary_resources,
    tenant_resources,
)
from nodepool.web.query import parse

if TYPE_CHECKING:
    from starlette.requests import Request

    from nodepool.web.api.resource import ApiResource
    from nodepool.web.site import Site
    from nodepool.web.snapshot import WebSnapshot

ROOT: Final = "/api/v1"
#: An answer with the same ETag is at most so old: ages grow, and what somebody waits for becomes late.
TAG_SECONDS: Final = 10


def all_resources(zuul_url: str | None = None) -> list[ApiResource]:
    """In the order of their description.

    :param zuul_url: where Zuul's pages are, for links.
    """
    return [
        *summary_resources(),
        *request_resources(zuul_url),
        *node_resources(),
        *provider_resources(),
        *host_resources(),
        *label_resources(),
        *launcher_resources(),
        *tenant_resources(),
        *image_resources(),
        *event_resources(),
    ]


def routes(site: Site) -> list[BaseRoute]:
    """Of all resources, and their description as OpenAPI."""
    # Other processes count their snapshots on their own.
    boot = secrets.token_hex(4)
    resources = all_resources(site.zuul_url)
    # "/nodes/{name}/explain" goes before what takes names with a slash.
    ordered = sorted(resources, key=lambda resource: ":path" in resource.path)
    document = openapi.document(resources, site.version, with_changes=site.access is not None)
    described = json.dumps(document).encode()

    def description(_request: Request) -> Response:
        return Response(described, headers={"Cache-Control": "no-cache"}, media_type="application/json")

    return [
        Route(f"{ROOT}/openapi.json", description),
        *(_route(site, resource, boot) for resource in ordered),
    ]


def _route(site: Site, resource: ApiResource, boot: str) -> Route:
    def endpoint(request: Request) -> Response:
        try:
            query = parse(request.scope["query_string"], resource.parameters, request.path_params)
            snapshot = site.snapshots.latest()
            headers = {"ETag": _tag(request, snapshot, boot), "Cache-Control": "no-cache"}
            if _has(request, headers["ETag"]):
                return Response(status_code=304, headers=headers)
            answer = {
                "now": snapshot.observed.now,
                "complete": snapshot.complete,
                **resource.answer(snapshot, query),
            }
        except ApiProblem as problem:
            return problem_response(problem.status, problem.detail)
        return Response(to_json(answer), headers=headers, media_type="application/json")

    return Route(ROOT + resource.path, endpoint)


def _tag(request: Request, snapshot: WebSnapshot, boot: str) -> str:
    """Of the answer: what is asked for, and of which content."""
    asked = zlib.crc32(request.scope["path"].encode("utf-8", "replace") + b"?" + request.scope["query_string"])
    return f'W/"{boot}-{snapshot.number}-{int(snapshot.observed.now // TAG_SECONDS)}-{asked:x}"'


def _has(request: Request, tag: str) -> bool:
    """Does the client have this answer already (If-None-Match)?"""
    given = request.headers.get("if-none-match", "")
    return given.strip() == "*" or tag.removeprefix("W/") in (
        one.strip().removeprefix("W/") for one in given.split(",")
    )
