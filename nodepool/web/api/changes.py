# SPDX-License-Identifier: Apache-2.0
"""How OpenAPI describes the changes of `nodepool.web.writes`, which exist only with ``webapp.auth``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from nodepool.model.maintenance import MODES, Mode
from nodepool.web.actions import MOST_TEXT
from nodepool.web.api import schemas

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
_NODE: Final = {"id": schemas.TEXT}
_SUBJECT: Final = {"kind": {"enum": list(MODES)}, "name": schemas.TEXT}
_IMAGE: Final = {"name": schemas.TEXT, "what": {"enum": ["build", "pause", "unpause"]}}


def paths() -> dict[str, Any]:
    """Each path -> its methods."""
    of_node = schemas.thing({"id": schemas.TEXT, "state": schemas.TEXT})
    waits = schemas.thing({"id": schemas.TEXT, "pending": {"enum": ["hold", "delete"]}})
    withdrawn = schemas.thing({"id": schemas.TEXT, "pending": {"type": "null"}})
    begun = schemas.thing(
        {
            "kind": schemas.TEXT,
            "name": schemas.TEXT,
            "mode": schemas.TEXT,
            "reason": schemas.TEXT,
            "by": schemas.TEXT,
            "since": schemas.MOMENT,
            "until": schemas.OPTIONAL_MOMENT,
            "automatic": schemas.FLAG,
        }
    )
    ended = schemas.thing({"kind": schemas.TEXT, "name": schemas.TEXT, "mode": {"type": "null"}})
    reason: dict[str, schemas.Schema] = {"reason": _REASON}
    free: dict[str, schemas.Schema] = {"when_free": _WHEN_FREE}
    until: dict[str, schemas.Schema] = {**reason, "until": _UNTIL}
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
            "post": _change("change_image", "Build, pause or unpause an image", _IMAGE, reason, schemas.thing(_IMAGE))
        },
    }


def _change(
    operation: str,
    summary: str,
    path: Mapping[str, schemas.Schema],
    body: Mapping[str, schemas.Schema],
    answer: schemas.Schema,
    later: schemas.Schema | None = None,
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
