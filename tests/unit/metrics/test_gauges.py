# SPDX-License-Identifier: Apache-2.0
"""Gauges are pure values (reference/metrics 1, 2, 5)."""

from __future__ import annotations

import math

from nodepool.metrics import reports
from nodepool.metrics.statsd import statsd_names
from nodepool.model import states
from nodepool.model.component import PoolComponent
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest


def by_name(values: reports.Gauges) -> dict[str, float]:
    """Gauges by their statsd names, of which each has one."""
    return {name: value for series, value in values.items() for name in statsd_names(series)}


def make_node(state: str, labels: list[str], provider: str | None = "p1") -> Node:
    node = Node(labels)
    node.state = state
    node.provider = provider
    return node


def make_pool(provider: str, name: str, *labels: str) -> PoolComponent:
    pool = PoolComponent("host", "1")
    pool.provider_name = provider
    pool.name = name
    pool.supported_labels = list(labels)
    return pool


def make_request(*labels: str, state: str = states.REQUESTED) -> NodeRequest:
    request = NodeRequest()
    request.node_types = list(labels)
    request.state = state
    return request


def test_known_names_start_from_zero() -> None:
    """reference/metrics 1: all 11 states of the system, of the registered labels and providers, without any node."""
    values = by_name(reports.node_gauges([], [make_pool("p1", "main", "small", "large")]))
    assert set(values.values()) == {0}
    assert len(values) == 11 * 4
    every = [
        "building",
        "testing",
        "ready",
        "in-use",
        "used",
        "hold",
        "deleting",
        "failed",
        "init",
        "aborted",
        "deleted",
    ]
    for state in every:
        assert f"nodepool.nodes.{state}" in values
        assert f"nodepool.label.small.nodes.{state}" in values
        assert f"nodepool.label.large.nodes.{state}" in values
        assert f"nodepool.provider.p1.nodes.{state}" in values


def test_nodes_are_counted() -> None:
    """reference/metrics 1: a node counts once in total, once for its provider and once for each label it has."""
    nodes = [
        make_node(states.READY, ["small", "any"]),
        make_node(states.READY, ["small", "small"]),
        make_node(states.IN_USE, ["large"], provider="p2"),
        make_node(states.DELETING, [], provider=None),
    ]
    values = {name: value for name, value in by_name(reports.node_gauges(nodes, [])).items() if value}
    assert values == {
        "nodepool.nodes.ready": 2,
        "nodepool.nodes.in-use": 1,
        "nodepool.nodes.deleting": 1,
        "nodepool.label.small.nodes.ready": 2,
        "nodepool.label.any.nodes.ready": 1,
        "nodepool.label.large.nodes.in-use": 1,
        "nodepool.provider.p1.nodes.ready": 2,
        "nodepool.provider.p2.nodes.in-use": 1,
    }


def test_names_from_strangers_stay_one_line() -> None:
    """A label that somebody wrote into ZooKeeper cannot add a metric of its own."""
    values = by_name(reports.node_gauges([make_node(states.READY, ["a\nnodepool.fake:1|g"])], []))
    assert not [name for name in values if "\n" in name or "|" in name]


def test_user_text_keeps_its_dots() -> None:
    """reference/metrics: labels, providers and pools are inserted as they are."""
    values = by_name(reports.node_gauges([], [make_pool("eu.west", "main", "debian-12.5")]))
    assert "nodepool.label.debian-12.5.nodes.ready" in values
    assert "nodepool.provider.eu.west.nodes.ready" in values


def test_addressable_requests() -> None:
    """reference/metrics 1: requests in any state, if the pool supports all their labels."""
    pools = [make_pool("p1", "main", "small"), make_pool("p1", "big", "small", "large"), make_pool("p2", "main")]
    requests = [
        make_request("small"),
        make_request("small", "small", state=states.FULFILLED),
        make_request("small", "large", state=states.PENDING),
        make_request("unknown"),
    ]
    assert by_name(reports.request_gauges(requests, pools)) == {
        "nodepool.provider.p1.pool.main.addressable_requests": 2,
        "nodepool.provider.p1.pool.big.addressable_requests": 3,
        "nodepool.provider.p2.pool.main.addressable_requests": 0,
    }


def test_pools_of_two_launchers_are_one() -> None:
    """Two launchers with the same pool do not count a request twice."""
    pools = [make_pool("p1", "main", "small"), make_pool("p1", "main", "small", "large")]
    values = by_name(reports.request_gauges([make_request("small"), make_request("large")], pools))
    assert values == {"nodepool.provider.p1.pool.main.addressable_requests": 2}


def test_limits() -> None:
    """reference/metrics 2: the sum over pools; three tenant limits always, others when configured; names normalised."""
    values = by_name(
        reports.limit_gauges(
            {"p1": [10, 5], "p2": [10, math.inf], "p3": []}, {"acme.org": {"instances": 5, "volume-gb": 80, "L-1:x": 3}}
        )
    )
    assert values == {
        "nodepool.provider.p1.max_servers": 15,
        "nodepool.provider.p2.max_servers": math.inf,
        "nodepool.provider.p3.max_servers": 0,
        "nodepool.tenant_limits.acme_org.cores": math.inf,
        "nodepool.tenant_limits.acme_org.instances": 5,
        "nodepool.tenant_limits.acme_org.ram": math.inf,
        "nodepool.tenant_limits.acme_org.volume-gb": 80,
        "nodepool.tenant_limits.acme_org.L-1_x": 3,
    }


def test_internals() -> None:
    """reference/metrics 5: seven gauges."""
    values = by_name(reports.internal_gauges("nl01", 3, {"node": (1, 2), "request": (0, 0), "image": (0, 0)}))
    assert values == {
        "nodepool.launcher.nl01.zk.client.connection_queue": 3,
        "nodepool.launcher.nl01.zk.node_cache.event_queue": 1,
        "nodepool.launcher.nl01.zk.node_cache.playback_queue": 2,
        "nodepool.launcher.nl01.zk.request_cache.event_queue": 0,
        "nodepool.launcher.nl01.zk.request_cache.playback_queue": 0,
        "nodepool.launcher.nl01.zk.image_cache.event_queue": 0,
        "nodepool.launcher.nl01.zk.image_cache.playback_queue": 0,
    }
