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

from nodepool.model.status import MODES, Mode
from nodepool.web.answers import to_json
from nodepool.web.api.resources import OPENAPI, TEXT, ApiResource, Schema, all_resources, item, thing, whole
from nodepool.web.query import parse

if TYPE_CHECKING:
    from starlette.requests import Request

    from nodepool.web.snapshot import SnapshotMaker, WebSnapshot

ROOT: Final = "/api/v1"
#: An answer with the same ETag is at most so old: ages grow, and what is waited for becomes late.
TAG_SECONDS: Final = 10


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
        query = parse(request.scope["query_string"], request.path_params, resource.parameters)
        snapshot = snapshots.latest()
        headers = {"ETag": _tag(request, snapshot, boot), "Cache-Control": "no-cache"}
        if _has(request, headers["ETag"]):
            return Response(status_code=304, headers=headers)
        answer = {"now": snapshot.observed.now, "complete": snapshot.complete, **resource.answer(snapshot, query)}
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

_IS_PROBLEM: Final = {"$ref": "#/components/responses/Problem"}


def api_description(resources: Iterable[ApiResource], version: str, *, with_changes: bool) -> dict[str, Any]:
    """The document.

    :param version: of this release.
    :param with_changes: can anything be changed here?
    """
    document = OPENAPI["document"]
    paths = {resource.path.replace(":path}", "}"): {"get": _get(resource)} for resource in resources}
    more = change_paths() if with_changes else {}
    schemes = OPENAPI["securitySchemes"] if with_changes else {}
    return {
        **document,
        "info": {**document["info"], "version": version},
        # Relative to this document, so that a reverse proxy may put the site below a prefix.
        "servers": [{"url": "."}],
        "paths": {**paths, **document["paths"], **more},
        "components": {"securitySchemes": schemes, **document["components"]},
    }


def _get(resource: ApiResource) -> Mapping[str, Any]:
    parameters = [
        {"name": one.name, "in": "query", "description": one.description, "schema": dict(one.schema)}
        for one in resource.parameters
    ]
    answer: dict[str, Any] = {"headers": {"ETag": {"schema": TEXT}}, "content": _json(whole(resource.schema))}
    return {
        "summary": resource.summary,
        "operationId": resource.path.strip("/").replace(":path", "").replace("/", "_").replace("{name}", "one"),
        "parameters": [*_in_path({"name": TEXT} if resource.has_name else {}), *parameters],
        "responses": {
            "200": {"description": "the answer", **answer},
            "304": {"description": "the same as what the client has (If-None-Match)"},
            "400": _IS_PROBLEM,
            **({"404": _IS_PROBLEM} if resource.has_name else {}),
        },
    }


def _json(schema: Schema) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _in_path(names: Mapping[str, Schema]) -> list[dict[str, Any]]:
    return [{"name": name, "in": "path", "required": True, "schema": schema} for name, schema in names.items()]


# How OpenAPI describes the changes of `nodepool.web.changes`, which exist only with ``webapp.auth``.

_MODE: Final = {"enum": [mode.value for mode in Mode], "default": Mode.PAUSE.value}
_NODE: Final = {"id": TEXT}
_SUBJECT: Final = {"kind": {"enum": list(MODES)}, "name": TEXT}
_IMAGE: Final = {"name": TEXT, "what": {"enum": ["build", "pause", "unpause"]}}


def change_paths() -> dict[str, Any]:
    """Each path -> its methods."""
    of_node, reason = item("ChangedNode"), item("Reason")
    until = {**reason, **item("Until")}
    begun, ended = item("Maintenance"), item("EndedMaintenance")
    begin = "Pause, drain or quarantine a subject"
    return {
        "/nodes/{id}/hold": {"post": _change("hold_node", "Keep a node", _NODE, until, of_node)},
        "/nodes/{id}/delete": {"post": _change("delete_node", "Delete a node", _NODE, reason, of_node)},
        "/maintenance/{kind}/{name}": {
            "put": _change("begin_maintenance", begin, _SUBJECT, {**until, "mode": _MODE}, begun),
            "delete": _change("end_maintenance", "End that", _SUBJECT, {}, ended),
        },
        "/images/{name}/{what}": {
            "post": _change("change_image", "Build, pause or unpause an image", _IMAGE, reason, _IMAGE)
        },
    }


def _change(
    operation: str,
    summary: str,
    path: Mapping[str, Schema],
    body: Mapping[str, Schema],
    answer: Mapping[str, Schema],
) -> dict[str, Any]:
    """How a change is described.

    :param path: names in the path. :param body: fields of what is sent; empty = nothing needs to be sent.
    :param answer: fields of the answer.
    """
    sent = {"type": "object", "properties": dict(body), "required": ["reason"]}
    return {
        "summary": summary,
        "operationId": operation,
        "security": [{"bearer": []}],
        "parameters": _in_path(path),
        "responses": {"200": {"description": "it is done", "content": _json(thing(answer))}, "default": _IS_PROBLEM},
        **({"requestBody": {"required": True, "content": _json(sent)}} if body else {}),
    }
