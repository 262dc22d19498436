# SPDX-License-Identifier: Apache-2.0
"""The stats worker: who sends what, and when (reference/metrics 1, 2, 5)."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from nodepool.launcher.status import StatsWorker
from nodepool.metrics.registry import Metric, MetricKind, Registry
from nodepool.metrics.reports import Gauges
from nodepool.metrics.statsd import StatsdSink, get_client
from nodepool.model.component import PoolComponent
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest
from tests.support.statsd_server import StatsdServer

OWN = Metric("own", MetricKind.GAUGE, (), "Of the launcher.", lambda: ["own"])
LIMIT = Metric("limit", MetricKind.GAUGE, (), "Of the launcher.", lambda: ["limit"])


class System:
    """What the worker asks: can be changed by a test."""

    def __init__(self, server: StatsdServer) -> None:
        client = get_client(server.environ)
        assert client is not None
        self.client = client
        self.now = 1000.0
        self.leader = True
        self.asked = 0
        self.nodes: list[Node] = []
        self.requests: list[NodeRequest] = []
        self.pools: list[PoolComponent] = []
        self.broken = False
        #: Gauges that raise when they are asked for.
        self.failing: set[Metric] = set()
        self.worker = StatsWorker(
            client,
            Registry([StatsdSink(lambda: client)]),
            is_leader=self._is_leader,
            nodes=self._nodes,
            requests=lambda: self.requests,
            pools=lambda: self.pools,
            limits=lambda: self._gauge(LIMIT, 3),
            internals=lambda: self._gauge(OWN, 7),
            clock=lambda: self.now,
        )

    def _is_leader(self) -> bool:
        self.asked += 1
        return self.leader

    def _gauge(self, metric: Metric, value: float) -> Gauges:
        if metric in self.failing:
            raise RuntimeError("broken on purpose")
        return {metric.series(): value}

    def _nodes(self) -> list[Node]:
        if self.broken:
            raise RuntimeError("broken on purpose")
        return self.nodes

    def add_ready_node(self) -> None:
        node = Node("small")
        node.state = "ready"
        self.nodes.append(node)
        self.worker.changed("0000000001")


@pytest.fixture
def server() -> Iterator[StatsdServer]:
    with StatsdServer() as running:
        yield running


@pytest.fixture
def system(server: StatsdServer) -> Iterator[System]:
    made = System(server)
    yield made
    made.client.close()


def test_first_pass_sends_everything(server: StatsdServer, system: System) -> None:
    """The leader sends node gauges at once, without waiting for a change."""
    assert system.worker.run_once() == 1
    lines = server.drain()
    assert "own:7|g" in lines
    assert "nodepool.nodes.ready:0|g" in lines


def test_no_change_sends_nothing(server: StatsdServer, system: System) -> None:
    """reference/metrics 1: changes of the caches are the trigger."""
    system.worker.run_once()
    server.drain()
    system.now += 5
    system.worker.run_once()
    assert server.drain() == ["limit:3|g"]


def test_at_most_once_a_second(server: StatsdServer, system: System) -> None:
    """reference/metrics 1: many changes within a second make one set of gauges."""
    system.worker.run_once()
    server.drain()
    system.now += 0.5
    system.add_ready_node()
    system.add_ready_node()
    system.worker.run_once()
    assert server.drain() == []
    system.now += 0.5
    system.worker.run_once()
    assert "nodepool.nodes.ready:2|g" in server.drain()


def test_internals_every_ten_seconds(server: StatsdServer, system: System) -> None:
    """reference/metrics 5: internals every 10 s, by every launcher, leader or not."""
    system.leader = False
    sent = []
    for _ in range(5):
        system.worker.run_once()
        sent.append(server.drain())
        system.now += 5
    assert sent == [["limit:3|g", "own:7|g"], ["limit:3|g"]] * 2 + [["limit:3|g", "own:7|g"]]


def test_limits_every_second(server: StatsdServer, system: System) -> None:
    """reference/metrics 2: limits about every second, by every launcher, leader or not."""
    system.leader = False
    sent = []
    for _ in range(5):
        assert 0.5 <= system.worker.run_once() <= 1
        sent.append(server.drain())
        system.now += 0.5
    assert ["limit:3|g" in lines for lines in sent] == [True, False, True, False, True]


def test_only_the_leader_sends_node_gauges(server: StatsdServer, system: System) -> None:
    """reference/metrics 1: who does not lead sends none, and does not bother ZooKeeper at each change."""
    system.leader = False
    for _ in range(10):
        system.add_ready_node()
        system.worker.run_once()
        system.now += 1
    assert not [line for line in server.drain() if line.startswith("nodepool.nodes")]
    assert system.asked == 1


def test_takes_over(server: StatsdServer, system: System) -> None:
    """Another launcher takes over within 10 s, and sends all gauges then."""
    system.leader = False
    system.worker.run_once()
    server.drain()
    system.leader = True
    system.now += 10
    system.worker.run_once()
    assert "nodepool.nodes.ready:0|g" in server.drain()


def test_leadership_lost(server: StatsdServer, system: System) -> None:
    """With the session the leadership is lost; gauges of before are forgotten."""
    system.add_ready_node()
    system.worker.run_once()
    server.drain()
    system.leader = False
    system.nodes.clear()
    system.now += 5
    system.worker.changed()
    system.worker.run_once()
    assert server.drain() == ["limit:3|g"]
    system.leader = True
    system.now += 10
    system.worker.run_once()
    assert "nodepool.label.small.nodes.ready:0|g" not in server.drain()


def test_gone_label_falls_to_zero(server: StatsdServer, system: System) -> None:
    """reference/metrics 1: a count that falls to zero is reported, once."""
    system.add_ready_node()
    system.worker.run_once()
    system.nodes.clear()
    server.drain()
    for expected in (True, False):
        system.now += 1
        system.worker.changed()
        system.worker.run_once()
        assert ("nodepool.label.small.nodes.ready:0|g" in server.drain()) is expected


def test_refresh(server: StatsdServer, system: System) -> None:
    """A lost datagram or a restarted statsd server is made up for within a minute."""
    system.worker.run_once()
    server.drain()
    system.now += 60
    system.worker.run_once()
    assert "nodepool.nodes.ready:0|g" in server.drain()


def test_emit_once(server: StatsdServer, system: System) -> None:
    """A single pass for tests and shutdown: no election, no clock."""
    system.leader = False
    system.add_ready_node()
    system.worker.emit_once()
    assert "nodepool.nodes.ready:1|g" in server.drain()


def test_thread_wakes_on_change(server: StatsdServer, system: System) -> None:
    """The thread sends soon after a change and ends when told to."""
    system.worker.start()
    try:
        server.wait_for("nodepool.nodes.ready:0|g")
        system.now += 1
        system.add_ready_node()
        server.wait_for("nodepool.nodes.ready:1|g")
    finally:
        system.worker.stop()
        system.worker.join()


def test_thread_survives_an_error(server: StatsdServer, system: System, caplog: pytest.LogCaptureFixture) -> None:
    """An exception in a pass is logged and the thread goes on."""
    system.broken = True
    with caplog.at_level(logging.ERROR):
        system.worker.start()
        try:
            server.wait_for("own:7|g")
            system.broken = False
            system.now += 10
            system.worker.changed()
            server.wait_for("nodepool.nodes.ready:0|g")
        finally:
            system.worker.stop()
            system.worker.join()
    assert {record.name for record in caplog.records} <= {"nodepool.StatsWorker"}


@pytest.mark.parametrize(("failing", "others"), [(LIMIT, "own:7|g"), (OWN, "limit:3|g")])
def test_each_group_is_on_its_own(
    server: StatsdServer, system: System, failing: Metric, others: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A mistake in one group of gauges, e.g. for a pool of a strange driver, must not end the others."""
    system.failing.add(failing)
    system.worker.run_once()
    lines = server.drain()
    assert others in lines
    assert "nodepool.nodes.ready:0|g" in lines
    assert "broken on purpose" in caplog.text
