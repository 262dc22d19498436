# SPDX-License-Identifier: Apache-2.0
"""The routes of ``/api/v1``, made from the resources; errors are problems (RFC 9457).

Then the description of the API as OpenAPI, with the changes that it offers.
"""

from __future__ import annotations

import json
import secrets
import zlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from nodepool.model.maintenance import MODES, Mode
from nodepool.web.answers import MEDIA_TYPE, ApiProblem, parse, problem_response, to_json
from nodepool.web.api.resource import COUNT, FLAG, MOMENT, NAME, OPTIONAL_MOMENT, TEXT, Schema, thing, whole
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
from nodepool.web.changes import MOST_TEXT

if TYPE_CHECKING:
    from starlette.requests import Request

    from nodepool.web.api.resource import ApiResource
    from nodepool.web.snapshot import SnapshotMaker, WebSnapshot

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


def routes(
    snapshots: SnapshotMaker, version: str, zuul_url: str | None = None, *, with_changes: bool = False
) -> list[BaseRoute]:
    """Of all resources, and their description as OpenAPI.

    :param version: of this release. ``zuul_url``: where Zuul's pages are, for links.
    :param with_changes: can anything be changed here?
    """
    # Other processes count their snapshots on their own.
    boot = secrets.token_hex(4)
    resources = all_resources(zuul_url)
    # "/nodes/{name}/explain" goes before what takes names with a slash.
    ordered = sorted(resources, key=lambda resource: ":path" in resource.path)
    document = api_description(resources, version, with_changes=with_changes)
    described = json.dumps(document).encode()

    def description(_request: Request) -> Response:
        return Response(described, headers={"Cache-Control": "no-cache"}, media_type="application/json")

    return [
        Route(f"{ROOT}/openapi.json", description),
        *(_route(snapshots, resource, boot) for resource in ordered),
    ]


def _route(snapshots: SnapshotMaker, resource: ApiResource, boot: str) -> Route:
    def endpoint(request: Request) -> Response:
        try:
            query = parse(request.scope["query_string"], resource.parameters, request.path_params)
            snapshot = snapshots.latest()
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


# The description of the API as OpenAPI 3.1, made from what the routes are made from.

_PROBLEM: Final = thing({"type": TEXT, "title": TEXT, "status": COUNT, "detail": TEXT})
_STREAM: Final = {
    "get": {
        "summary": "Server-Sent Events: at once which records changed, and what happened",
        "operationId": "events_stream",
        "parameters": [
            {
                "name": "Last-Event-ID",
                "in": "header",
                "description": "id of the last event that was received: what came since then comes first",
                "schema": {"type": "string"},
            }
        ],
        "responses": {
            "200": {"description": "the stream", "content": {"text/event-stream": {"schema": TEXT}}},
            "503": {"$ref": "#/components/responses/Problem"},
        },
    }
}


def api_description(resources: Iterable[ApiResource], version: str, *, with_changes: bool) -> dict[str, Any]:
    """The document.

    :param version: of this release.
    :param with_changes: can anything be changed here?
    """
    paths: dict[str, Any] = {resource.path.replace(":path}", "}"): {"get": _get(resource)} for resource in resources}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Nodepool",
            "version": version,
            "description": "What launchers and builders tell, read from ZooKeeper. Times are seconds since the epoch.",
        },
        # Relative to this document, so that a reverse proxy may put the site below a prefix.
        "servers": [{"url": "."}],
        "paths": {**paths, "/events/stream": _STREAM, **(change_paths() if with_changes else {})},
        "components": {
            "securitySchemes": dict(SECURITY_SCHEMES) if with_changes else {},
            "schemas": {"Problem": _PROBLEM},
            "responses": {
                "Problem": {
                    "description": "an error (RFC 9457)",
                    "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
                }
            },
        },
    }


def _get(resource: ApiResource) -> Mapping[str, Any]:
    parameters: list[dict[str, Any]] = [
        {"name": one.name, "in": "query", "description": one.description, "schema": dict(one.schema)}
        for one in resource.parameters
    ]
    if resource.has_name:
        parameters.insert(0, {"name": NAME, "in": "path", "required": True, "schema": TEXT})
    responses: dict[str, Any] = {
        "200": {
            "description": "the answer",
            "headers": {"ETag": {"schema": TEXT}},
            "content": {"application/json": {"schema": whole(resource.schema)}},
        },
        "304": {"description": "the same as what the client has (If-None-Match)"},
        "400": {"$ref": "#/components/responses/Problem"},
    }
    if resource.has_name:
        responses["404"] = {"$ref": "#/components/responses/Problem"}
    return {
        "summary": resource.summary,
        "operationId": resource.path.strip("/").replace(":path", "").replace("/", "_").replace(f"{{{NAME}}}", "one"),
        "parameters": parameters,
        "responses": responses,
    }


# How OpenAPI describes the changes of `nodepool.web.writes`, which exist only with ``webapp.auth``.

#: Name of the way to log in.
BEARER: Final = "bearer"
SECURITY_SCHEMES: Final[Mapping[str, Any]] = {
    BEARER: {"type": "http", "scheme": "bearer", "bearerFormat": "JWT", "description": "a token of an operator"}
}
_REASON: Final = {"type": "string", "maxLength": MOST_TEXT, "description": "why, for everybody who asks"}
_UNTIL: Final = {
    "type": ["number", "string"],
    "description": "when it ends: seconds since the epoch, or a duration such as `8h`; without it somebody ends it",
}
_MODE: Final = {"enum": [mode.value for mode in Mode], "default": Mode.PAUSE.value}
_NODE: Final = {"id": TEXT}
_SUBJECT: Final = {"kind": {"enum": list(MODES)}, "name": TEXT}
_IMAGE: Final = {"name": TEXT, "what": {"enum": ["build", "pause", "unpause"]}}


def change_paths() -> dict[str, Any]:
    """Each path -> its methods."""
    of_node = thing({"id": TEXT, "state": TEXT})
    begun = thing(
        {
            "kind": TEXT,
            "name": TEXT,
            "mode": TEXT,
            "reason": TEXT,
            "by": TEXT,
            "since": MOMENT,
            "until": OPTIONAL_MOMENT,
            "automatic": FLAG,
        }
    )
    ended = thing({"kind": TEXT, "name": TEXT, "mode": {"type": "null"}})
    reason: dict[str, Schema] = {"reason": _REASON}
    until: dict[str, Schema] = {**reason, "until": _UNTIL}
    return {
        "/nodes/{id}/hold": {"post": _change("hold_node", "Keep a node", _NODE, until, of_node)},
        "/nodes/{id}/delete": {"post": _change("delete_node", "Delete a node", _NODE, reason, of_node)},
        "/maintenance/{kind}/{name}": {
            "put": _change(
                "begin_maintenance",
                "Pause, drain or quarantine a subject",
                _SUBJECT,
                {**until, "mode": _MODE},
                begun,
            ),
            "delete": _change("end_maintenance", "End that", _SUBJECT, {}, ended),
        },
        "/images/{name}/{what}": {
            "post": _change("change_image", "Build, pause or unpause an image", _IMAGE, reason, thing(_IMAGE))
        },
    }


def _change(
    operation: str,
    summary: str,
    path: Mapping[str, Schema],
    body: Mapping[str, Schema],
    answer: Schema,
) -> dict[str, Any]:
    """How a change is described.

    :param path: names in the path. :param body: fields of what is sent; empty = nothing needs to be sent.
    """
    described: dict[str, Any] = {
        "summary": summary,
        "operationId": operation,
        "security": [{BEARER: []}],
        "parameters": [{"name": name, "in": "path", "required": True, "schema": path[name]} for name in path],
        "responses": {
            "200": {"description": "it is done", "content": {"application/json": {"schema": answer}}},
            "default": {"$ref": "#/components/responses/Problem"},
        },
    }
    if body:
        schema = {"type": "object", "properties": dict(body), "required": ["reason"]}
        described["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return described
