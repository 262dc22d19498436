# SPDX-License-Identifier: Apache-2.0
"""JSON of whatever other programs stored."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.web.answers import to_json


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (float("nan"), "null"),
        ("\ud800", '"\\ud800"'),
        ({"a": {1: float("inf"), "b": "\ud800"}}, '{"a":{"1":null,"b":"\\ud800"}}'),
        (2**70, str(2**70)),
    ],
)
def test_odd_values(value: object, text: str) -> None:
    """WP-26: of other programs."""
    assert to_json({"x": value}).replace(b" ", b"") == b'{"x":' + text.encode() + b"}"


def test_deep_values() -> None:
    """WP-26: they are cut."""
    value: Any = []
    for _ in range(900):
        value = [value]
    assert b'"..."' in to_json({"x": value})
