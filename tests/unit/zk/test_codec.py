# SPDX-License-Identifier: Apache-2.0
"""nodepool.zk.paths: bytes of a znode to a JSON object and back (reference/zookeeper 1)."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodepool.model.record import InvalidRecord
from nodepool.zk.paths import MAX_DEPTH, EmptyRecord, decode, encode

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)
OBJECTS = st.dictionaries(st.text(), VALUES, max_size=6)


@given(OBJECTS)
def test_round_trip(data: dict[str, Any]) -> None:
    assert decode(encode(data)) == data


@given(st.binary())
def test_any_bytes(value: bytes) -> None:
    """Whatever somebody stored: an object or InvalidRecord, nothing else."""
    try:
        data = decode(value)
    except InvalidRecord:
        return
    assert decode(encode(data)) == data


@pytest.mark.parametrize("value", [b"", None])
def test_no_data(value: bytes | None) -> None:
    """C-8"""
    with pytest.raises(EmptyRecord):
        decode(value)


@pytest.mark.parametrize(
    "value",
    [
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b"1",
        b"\xff\xfe{}",
        "{}".encode("utf-16"),
        b'{"a": 1} x',
        b"[" * 100_000,
        b'{"a": ' + b"1" * 5000 + b"}",
    ],
)
def test_garbage(value: bytes) -> None:
    with pytest.raises(InvalidRecord):
        decode(value)


def test_text_that_is_not_ascii() -> None:
    assert decode('{"comment": "grüße ✓"}'.encode()) == {"comment": "grüße ✓"}
    assert decode(encode({"comment": "grüße ✓"})) == {"comment": "grüße ✓"}


def test_numbers_that_are_none() -> None:
    """Older releases wrote Infinity for limits without a bound; such a record must be readable and writable."""
    data = decode(b'{"resources": {"cores": Infinity, "ram": -Infinity, "instances": NaN, "volumes": 1e999, "x": 1.5}}')
    assert data == {"resources": {"cores": None, "ram": None, "instances": None, "volumes": None, "x": 1.5}}
    assert decode(encode(data)) == data


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
def test_never_written(number: float) -> None:
    """reference/zookeeper 5.1: never emit non-finite numbers."""
    with pytest.raises(ValueError):
        encode({"resources": {"cores": number}})


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"b": ', b"}")], ids=["lists", "objects"])
def test_depth(opening: bytes, closing: bytes) -> None:
    """A record that was read can be copied and written from any stack; what is too deep for that is refused."""

    def nested(levels: int) -> bytes:
        return b'{"a": ' + opening * (levels - 1) + b"1" + closing * (levels - 1) + b"}"

    found = decode(nested(MAX_DEPTH))
    assert decode(encode(copy.deepcopy(found))) == found
    for levels in (MAX_DEPTH + 1, 300, 900):
        with pytest.raises(InvalidRecord):
            decode(nested(levels))


def test_many_brackets_that_are_not_nested() -> None:
    data = {"a": [{"b": "[{" * 100}] * 100}
    assert decode(encode(data)) == data
