# SPDX-License-Identifier: Apache-2.0
"""Bytes of a znode to a JSON object and back (zookeeper.md 1)."""

from __future__ import annotations

import json
import math
from typing import Any

from nodepool.model.record import InvalidRecord


class EmptyRecord(InvalidRecord):
    """The znode has no data: left by a lock on a node that was just deleted (behaviour.md C-8)."""


def encode(data: dict[str, Any]) -> bytes:
    """A JSON object as UTF-8. Numbers that JSON does not know are refused with ValueError."""
    return json.dumps(data, allow_nan=False).encode()


def decode(value: bytes | None) -> dict[str, Any]:
    """The JSON object in a znode.

    Numbers that JSON does not know, like ``Infinity``, become null: a record that has one can be written again.

    :raises EmptyRecord: no data.
    :raises InvalidRecord: not UTF-8, not JSON, or not an object.
    """
    if not value:
        raise EmptyRecord("no data")
    try:
        data = _DECODER.decode(value.decode())
    except (ValueError, RecursionError) as error:
        raise InvalidRecord(f"not JSON: {str(error)[:200]}") from None
    if not isinstance(data, dict):
        raise InvalidRecord(f"a JSON {type(data).__name__}, not an object")
    return data


def _float(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


def _no_number(text: str) -> None:
    return None


_DECODER = json.JSONDecoder(parse_float=_float, parse_constant=_no_number)
