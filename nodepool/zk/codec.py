# SPDX-License-Identifier: Apache-2.0
"""Bytes of a znode to a JSON object and back (zookeeper.md 1)."""

from __future__ import annotations

import json
from typing import Any

from nodepool.model.record import InvalidRecord


class EmptyRecord(InvalidRecord):
    """The znode has no data: left by a lock on a node that was just deleted (behaviour.md C-8)."""


def encode(data: dict[str, Any]) -> bytes:
    """A JSON object as UTF-8. Numbers that JSON does not know are refused with ValueError."""
    return json.dumps(data, allow_nan=False).encode()


def decode(value: bytes | None) -> dict[str, Any]:
    """The JSON object in a znode.

    :raises EmptyRecord: no data.
    :raises InvalidRecord: not UTF-8, not JSON, or not an object.
    """
    if not value:
        raise EmptyRecord("no data")
    try:
        data = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise InvalidRecord(f"not JSON: {str(error)[:200]}") from None
    if not isinstance(data, dict):
        raise InvalidRecord(f"a JSON {type(data).__name__}, not an object")
    return data
