# SPDX-License-Identifier: Apache-2.0
"""`to_json`: a JSON text, whatever other programs stored."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from nodepool import fast_json

#: Levels of values that other programs stored; what is deeper is cut off.
_MAX_DEPTH: Final = 50


def to_json(value: Mapping[str, Any]) -> bytes:
    """A JSON text, whatever other programs stored."""
    try:
        return fast_json.dumps(value)
    except ValueError:
        return json.dumps(_plain(value, _MAX_DEPTH), sort_keys=True).encode()


def _plain(value: Any, depth: int) -> Any:
    """The same without what JSON does not know."""
    if isinstance(value, dict):
        return {str(key): _plain(one, depth - 1) for key, one in value.items()} if depth else "..."
    if isinstance(value, (list, tuple)):
        return [_plain(one, depth - 1) for one in value] if depth else "..."
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value
