# SPDX-License-Identifier: Apache-2.0
"""What running launchers send to statsd (reference/metrics 1, 2, 3, 5)."""

from __future__ import annotations

import os
import socket

import pytest

from nodepool.driver.fake.cloud import FakeCloud
from nodepool.launcher import status
from tests.scenario.conftest import Launch
from tests.support.local_launcher import fake_provider
from tests.support.pool_znodes import PoolZnodes
from tests.support.statsd_server import StatsdServer
from tests.support.wait import wait_for


def test_metrics_of_a_launcher(statsd: StatsdServer, launch: Launch, znodes: PoolZnodes, cloud: FakeCloud) -> None:
    """reference/metrics 1, 2, 3, 5: gauges follow the nodes; each launch is counted; limits and internals are there."""
    launch(
        [fake_provider("one", cloud=cloud.name, pool_max_servers=7)],
        tenant_resource_limits=[{"tenant-name": "acme.org", "max-cores": 40}],
    )
    statsd.wait_for("nodepool.nodes.ready:0|g")
    statsd.wait_for("nodepool.provider.one.pool.main.addressable_requests:0|g")
    statsd.wait_for("nodepool.provider.one.max_servers:7|g")
    statsd.wait_for("nodepool.tenant_limits.acme_org.cores:40|g")
    statsd.wait_for("nodepool.tenant_limits.acme_org.instances:inf|g")
    host = socket.gethostname()
    statsd.wait_for(f"nodepool.launcher.{host}.zk.client.connection_queue:0|g")
    statsd.wait_for(f"nodepool.launcher.{host}.zk.node_cache.event_queue:0|g")

    request_id = znodes.submit(["small"])
    wait_for("it is fulfilled", lambda: znodes.request_state(request_id) == "fulfilled")
    statsd.wait_for("nodepool.label.small.nodes.ready:1|g")
    statsd.wait_for("nodepool.provider.one.nodes.ready:1|g")
    statsd.wait_for("nodepool.provider.one.pool.main.addressable_requests:1|g")
    assert "nodepool.launch.ready:1|c" in statsd.lines
    assert "nodepool.launch.provider.one.ready:1|c" in statsd.lines

    statsd.lines.clear()
    request = znodes.request(request_id) or {}
    znodes.change_node(request["nodes"][0], state="used")
    znodes.delete_request(request_id)
    statsd.wait_for("nodepool.provider.one.nodes.ready:0|g")
    statsd.wait_for("nodepool.provider.one.pool.main.addressable_requests:0|g")


def test_one_of_two_launchers_counts(
    statsd: StatsdServer, launch: Launch, znodes: PoolZnodes, cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """reference/metrics 1: node gauges come from one launcher, the winner of an election, then from the other."""
    monkeypatch.setattr(status, "INTERNALS_SECONDS", 1.0)
    first = launch([fake_provider("one", cloud=cloud.name)])
    statsd.wait_for("nodepool.nodes.ready:0|g")
    launch([fake_provider("two", cloud=cloud.name)])
    statsd.wait_for("nodepool.provider.two.nodes.ready:0|g")
    statsd.wait_for("nodepool.provider.two.max_servers:inf|g")
    election = "/nodepool/elections/stats"
    (leader,) = znodes.children(election)
    identifier = znodes.kazoo.get(f"{election}/{leader}")[0].decode()
    assert identifier == f"{socket.gethostname()}-{os.getpid()}"

    first.stop()
    wait_for("another one leads", lambda: znodes.children(election) not in ([], [leader]))
    statsd.drain()
    statsd.lines.clear()
    request_id = znodes.submit(["small"])
    wait_for("it is fulfilled", lambda: znodes.request_state(request_id) == "fulfilled")
    statsd.wait_for("nodepool.provider.two.nodes.ready:1|g")
