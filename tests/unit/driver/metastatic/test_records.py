# SPDX-License-Identifier: Apache-2.0
"""What stands in ``user_data`` and ``driver_data`` (reference/zookeeper 5.6)."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodepool.driver.metastatic import slots
from nodepool.driver.metastatic.slots import BackingData
from nodepool.model.node import Node

OWNER = slots.owner_of("shared")
DATA = BackingData(OWNER, "small", 3, False, 12.5, ("0000000001", None, None))


def test_owner() -> None:
    assert OWNER == "NodePool:metastatic:shared"


def test_round_trip() -> None:
    """Keys that we do not know stay."""
    text = json.dumps({**json.loads(DATA.encode()), "new": [1]})
    found = BackingData.decode(text)
    assert found is not None
    assert json.loads(found.encode()) == {
        "owner": OWNER,
        "label": "small",
        "slots": 3,
        "failed": False,
        "launched": 12.5,
        "nodes": ["0000000001", None, None],
        "idle_since": None,
        "new": [1],
    }


def test_of_an_older_launcher() -> None:
    """It does not say who has which slot."""
    text = (
        '{"owner": "NodePool:metastatic:shared", "label": "a", "slots": 2, "failed": false, "launched": 1795306083.04}'
    )
    assert BackingData.decode(text) == BackingData(OWNER, "a", 2, False, 1795306083.04, (None, None))


def test_changes() -> None:
    assert DATA.with_node(2, "0000000007").nodes == ("0000000001", None, "0000000007")
    assert DATA.with_node(0, None).nodes == (None, None, None)
    assert DATA.as_failed().failed
    empty = dataclasses.replace(DATA, idle_since=4.5)
    assert BackingData.decode(empty.encode()) == empty
    assert empty.with_node(2, "0000000007").idle_since is None
    assert not DATA.failed


@pytest.mark.parametrize(
    "value",
    [None, {}, {"zuul_system": "x"}, "", "{", "[]", "3", "{}", '{"owner": 3}', "[" * 100_000],
    ids=["none", "object", "zuul", "empty", "cut", "list", "number", "no-owner", "number-owner", "deep"],
)
def test_no_backing_data(value: Any) -> None:
    assert BackingData.decode(value) is None


@pytest.mark.parametrize(
    "changes",
    [{"slots": 0}, {"slots": "2"}, {"slots": True}, {"slots": 10**9}, {"slots": None}, {"label": None}, {"label": 3}],
    ids=str,
)
def test_broken_values_only_let_it_become_empty(changes: dict[str, Any]) -> None:
    """Nothing new is put on it, and it is released when it is empty."""
    found = BackingData.decode(json.dumps({**json.loads(DATA.encode()), **changes}))
    assert found is not None
    assert found.failed
    assert found.slots == len(found.nodes)


@pytest.mark.parametrize("launched", [None, "then", True, float("inf"), float("nan"), 10**400], ids=str)
def test_broken_time(launched: Any) -> None:
    """It is old."""
    found = BackingData.decode(json.dumps({**json.loads(DATA.encode()), "launched": launched}))
    assert found is not None
    assert found.launched == 0


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        (None, (None, None, None)),
        ("0000000001", (None, None, None)),
        (["a"], ("a", None, None)),
        (["a", 3, "", "d", "e"], ("a", None, None)),
    ],
)
def test_broken_nodes(nodes: Any, expected: tuple[str | None, ...]) -> None:
    found = BackingData.decode(json.dumps({**json.loads(DATA.encode()), "nodes": nodes}))
    assert found is not None
    assert found.nodes == expected


TEXT = st.text("abc0", max_size=3)
VALUES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT | st.lists(st.none() | TEXT)


@given(st.fixed_dictionaries({}, optional={**dict.fromkeys(json.loads(DATA.encode()), VALUES), "other": VALUES}))
def test_anything(value: dict[str, Any]) -> None:
    """It never raises, and what it reads it can write."""
    found = BackingData.decode(json.dumps(value))
    if found is not None:
        assert BackingData.decode(found.encode()) == found


def test_driver_data() -> None:
    node = Node("small", "0000000007")
    node.driver_data = slots.driver_data({"nodepool_node_id": "0000000007"}, "0000000003", 1, "0000000007")
    assert node.driver_data == {
        "metadata": {"nodepool_node_id": "0000000007"},
        "backing_node": "0000000003",
        "slot": 1,
        "node": "0000000007",
    }
    assert slots.place_of(node) == ("0000000003", 1)


@pytest.mark.parametrize(
    "data",
    [None, "text", {}, {"backing_node": "b"}, {"backing_node": 3, "slot": 1}, {"backing_node": "b", "slot": True}],
)
def test_no_place(data: Any) -> None:
    node = Node("small")
    node.driver_data = data
    assert slots.place_of(node) is None
