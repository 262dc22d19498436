# SPDX-License-Identifier: Apache-2.0
"""nodepool.listing.nodes: which nodes and requests are shown."""

from __future__ import annotations

import pytest

from nodepool.listing.nodes import Filter, names_in, states_in
from nodepool.model import states
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest

NOW = 10_000.0


def node() -> Node:
    made = Node(["gpu-large", "debian"], "0000000001")
    made.state, made.state_time, made.allocated_to = states.READY, NOW - 600, "200-0000000001"
    made.provider, made.pool, made.tenant_name = "cloud", "main", "t1"
    return made


def request() -> NodeRequest:
    made = NodeRequest("200-0000000001")
    made.node_types, made.created_time = ["gpu-large"], NOW - 600
    made.requestor_data = {"tenant_name": "t1"}
    return made


@pytest.mark.parametrize(
    "wanted",
    [
        Filter(),
        Filter(states=["ready", "hold"]),
        Filter(states=["allocated"]),
        Filter(labels=["debian"]),
        Filter(labels=["arm", "gpu-*"]),
        Filter(providers=["cl*"]),
        Filter(pools=["main"]),
        Filter(pools=["cloud/main"]),
        Filter(tenants=["t1"]),
        Filter(older_than=599.0),
        Filter(["ready"], ["gpu-large"], ["cloud"], ["main"], ["t1"], 5.0),
    ],
)
def test_nodes_that_are_shown(wanted: Filter) -> None:
    assert wanted.node(node(), NOW)


@pytest.mark.parametrize(
    "wanted",
    [
        Filter(states=["in-use"]),
        Filter(labels=["gpu"]),
        Filter(providers=["Cloud"]),
        Filter(pools=["cloud/other"]),
        Filter(tenants=["t2"]),
        Filter(older_than=600.0),
        Filter(["ready"], ["gpu-large"], ["elsewhere"]),
    ],
)
def test_nodes_that_are_not_shown(wanted: Filter) -> None:
    assert not wanted.node(node(), NOW)


def test_what_is_not_known_is_not_what_is_wanted() -> None:
    plain = Node(["debian"], "0000000002")
    assert Filter().node(plain, NOW)
    for wanted in (Filter(providers=["*"]), Filter(tenants=["*"]), Filter(older_than=0.0)):
        assert not wanted.node(plain, NOW)


@pytest.mark.parametrize(
    ("wanted", "is_shown"),
    [
        (Filter(), True),
        (Filter(states=["requested"]), True),
        (Filter(states=["failed"]), False),
        (Filter(labels=["gpu-*"]), True),
        (Filter(labels=["arm"]), False),
        (Filter(tenants=["t1"]), True),
        (Filter(tenants=["t2"]), False),
        (Filter(providers=["*"]), False),
        (Filter(older_than=300.0), True),
        (Filter(older_than=900.0), False),
    ],
)
def test_requests(wanted: Filter, is_shown: bool) -> None:
    assert wanted.request(request(), NOW) is is_shown


def test_written_lists() -> None:
    assert names_in(" a, b,,c*") == ["a", "b", "c*"]
    assert states_in("ready,hold", states.NODE_STATES) == ["ready", "hold"]
    with pytest.raises(ValueError, match="there is no state 'redy', did you mean 'ready'"):
        states_in("redy", states.NODE_STATES)
