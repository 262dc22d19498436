# SPDX-License-Identifier: Apache-2.0
"""Patches of objects: merge patches (RFC 7386) and JSON patches (RFC 6902).

A strategic merge patch is taken as a merge patch: the real one merges some lists that this one replaces.
"""

from __future__ import annotations

import copy
from typing import Any

from simulators.kubernetes.errors import Refused

Json = dict[str, Any]
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"


def apply_patch(before: Json, content_type: str, patch: Any) -> Json:
    """The object with the patch; the given one stays as it is.

    :raises Refused: 415, a patch of another kind; 400 or 422, one that cannot be applied.
    """
    kind = content_type.partition(";")[0].strip()
    if kind in (MERGE, STRATEGIC):
        if not isinstance(patch, dict):
            raise Refused(400, "a merge patch is an object")
        merged: Json = _merged(copy.deepcopy(before), patch)
        return merged
    if kind == JSON_PATCH:
        if not isinstance(patch, list):
            raise Refused(400, "a JSON patch is a list")
        content = copy.deepcopy(before)
        for step in patch:
            _apply_step(content, step)
        return content
    text = f"the body of the request was in an unknown format - accepted media types include: {JSON_PATCH}, {MERGE}"
    raise Refused(415, text)


def _merged(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    result = target if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = _merged(result.get(name), value)
    return result


def _apply_step(content: Json, step: Json) -> None:
    path = [part.replace("~1", "/").replace("~0", "~") for part in str(step.get("path", "")).split("/")[1:]]
    operation = step.get("op")
    try:
        place: Any = content
        for part in path[:-1]:
            place = place[int(part)] if isinstance(place, list) else place[part]
        last: Any = path[-1]
        if isinstance(place, list):
            last = len(place) if last == "-" else int(last)
        if operation == "remove":
            del place[last]
        elif operation in ("add", "replace"):
            if operation == "replace":
                place[last]
            if isinstance(place, list) and operation == "add":
                place.insert(last, step["value"])
            else:
                place[last] = step["value"]
        elif operation == "test":
            if place[last] != step["value"]:
                raise KeyError(last)
        else:
            raise Refused(422, f"the server rejected our request due to an error in our request: {operation}")
    except (KeyError, IndexError, ValueError, TypeError):
        text = f"the server rejected our request due to an error in our request: {operation} {step.get('path')}"
        raise Refused(422, text) from None
