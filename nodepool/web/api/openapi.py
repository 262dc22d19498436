# SPDX-License-Identifier: Apache-2.0
"""The description of the API as OpenAPI 3.1, made from what the routes are made from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from nodepool.model.maintenance import MODES, Mode
from nodepool.web.answers import MEDIA_TYPE
from nodepool.web.api.resource import COUNT, FLAG, MOMENT, NAME, OPTIONAL_MOMENT, TEXT, Schema, thing, whole
from nodepool.web.changes import MOST_TEXT

if TYPE_CHECKING:
    from nodepool.web.api.resource import ApiResource

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
_WHEN_FREE: Final = {
    "type": "boolean",
    "default": False,
    "description": "if somebody has the lock of the node: make the change as soon as it is free, within 24 hours",
}
_MODE: Final = {"enum": [mode.value for mode in Mode], "default": Mode.PAUSE.value}
_NODE: Final = {"id": TEXT}
_SUBJECT: Final = {"kind": {"enum": list(MODES)}, "name": TEXT}
_IMAGE: Final = {"name": TEXT, "what": {"enum": ["build", "pause", "unpause"]}}


def change_paths() -> dict[str, Any]:
    """Each path -> its methods."""
    of_node = thing({"id": TEXT, "state": TEXT})
    waits = thing({"id": TEXT, "pending": {"enum": ["hold", "delete"]}})
    withdrawn = thing({"id": TEXT, "pending": {"type": "null"}})
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
    free: dict[str, Schema] = {"when_free": _WHEN_FREE}
    until: dict[str, Schema] = {**reason, "until": _UNTIL}
    return {
        "/nodes/{id}/hold": {"post": _change("hold_node", "Keep a node", _NODE, {**until, **free}, of_node, waits)},
        "/nodes/{id}/delete": {
            "post": _change("delete_node", "Delete a node", _NODE, {**reason, **free}, of_node, waits)
        },
        "/nodes/{id}/pending": {
            "delete": _change("withdraw_change", "Give up a change that waits", _NODE, {}, withdrawn)
        },
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
    later: Schema | None = None,
) -> dict[str, Any]:
    """How a change is described.

    :param path: names in the path. :param body: fields of what is sent; empty = nothing needs to be sent.
    :param later: what is answered when the change waits; None = it never does.
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
    if later is not None:
        content = {"application/json": {"schema": later}}
        described["responses"]["202"] = {"description": "it waits for the lock of the node", "content": content}
    if body:
        schema = {"type": "object", "properties": dict(body), "required": ["reason"]}
        described["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return described
