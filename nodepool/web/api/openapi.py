# SPDX-License-Identifier: Apache-2.0
"""The description of the API as OpenAPI 3.1, made from what the routes are made from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from nodepool.web.api import changes, schemas
from nodepool.web.api.resource import NAME
from nodepool.web.problem import MEDIA_TYPE

if TYPE_CHECKING:
    from nodepool.web.api.resource import ApiResource

_PROBLEM: Final = schemas.thing(
    {"type": schemas.TEXT, "title": schemas.TEXT, "status": schemas.COUNT, "detail": schemas.TEXT}
)
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
            "200": {"description": "the stream", "content": {"text/event-stream": {"schema": schemas.TEXT}}},
            "503": {"$ref": "#/components/responses/Problem"},
        },
    }
}


def document(resources: Iterable[ApiResource], version: str, *, with_changes: bool) -> dict[str, Any]:
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
        "paths": {**paths, "/events/stream": _STREAM, **(changes.paths() if with_changes else {})},
        "components": {
            "securitySchemes": dict(changes.SECURITY_SCHEMES) if with_changes else {},
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
        parameters.insert(0, {"name": NAME, "in": "path", "required": True, "schema": schemas.TEXT})
    responses: dict[str, Any] = {
        "200": {
            "description": "the answer",
            "headers": {"ETag": {"schema": schemas.TEXT}},
            "content": {"application/json": {"schema": schemas.whole(resource.schema)}},
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
