# SPDX-License-Identifier: Apache-2.0
"""Acceptance and service order of requests (rules A, N, Q)."""

from __future__ import annotations

import json
import logging
from functools import partial

import pytest

from nodepool.driver.fake.cloud import FakeCloud
from nodepool.zk.paths import MOST_BYTES
from tests.scenario.conftest import Launch
from tests.support.local_launcher import fake_provider
from tests.support.pool_znodes import PoolZnodes
from tests.support.wait import present, wait_for


def test_launch_and_delete(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud) -> None:
    """N-6, N-8, L-12, X-3: nodes are launched in the order of the labels, and deleted when used."""
    launch([fake_provider("one", ("small", "big"), cloud=cloud.name)])
    request_id = znodes.submit(["big", "small", "big"])
    request = znodes.fulfilled(request_id)
    nodes = [znodes.node(node_id) for node_id in request["nodes"]]
    assert [node and node["type"] for node in nodes] == [["big"], ["small"], ["big"]]
    assert all(node and node["allocated_to"] == request_id and node["state"] == "ready" for node in nodes)
    assert not any(znodes.node_lockers(node_id) for node_id in request["nodes"])
    assert not znodes.request_lockers(request_id)
    znodes.use_and_return(request_id)
    wait_for("nothing is left", lambda: not znodes.nodes() and not cloud.instances())


@pytest.mark.parametrize("way", ["launched", "ready", "declined"])
def test_too_large(
    launch: Launch, znodes: PoolZnodes, cloud: FakeCloud, caplog: pytest.LogCaptureFixture, way: str
) -> None:
    """A-23: ZooKeeper ends the connection over which too much comes. Others are served behind it."""
    caplog.set_level(logging.INFO)
    if way == "ready":
        znodes.add_node("ready", provider="one")
    launch([fake_provider("one", cloud=cloud.name)])
    data = {"build_set_uuid": "abc", "x": "y" * (MOST_BYTES - 500)}
    request_id = znodes.submit(["unknown" if way == "declined" else "small"], "100", requestor_data=data)
    other = "" if way == "ready" else znodes.submit(["small"])
    wait_for("it has failed", lambda: znodes.request_state(request_id) == "failed")
    # As long as it has the ready node, another request gets one of its own.
    other = other or znodes.submit(["small"])
    assert present(znodes.request(request_id))["requestor_data"] == {"build_set_uuid": "abc"}
    znodes.fulfilled(other)
    assert not znodes.request_lockers(request_id)
    assert (cloud.calls["create"], len(znodes.nodes())) == (0 if way == "ready" else 1, 1)
    assert "request.too-large" in {getattr(record, "code", None) for record in caplog.records}
    assert "suspended" not in caplog.text


def test_too_large_together(
    launch: Launch, znodes: PoolZnodes, cloud: FakeCloud, caplog: pytest.LogCaptureFixture
) -> None:
    """N-2, X-1: what does not fit into one write is written in several; what cannot be written any more is deleted."""
    ready = [znodes.add_node("ready", provider="one", comment="x" * 600_000) for _ in range(2)]
    launch([fake_provider("one", cloud=cloud.name)])
    request = znodes.fulfilled(znodes.submit(["small", "small"]))
    assert sorted(request["nodes"]) == sorted(ready)
    node = present(znodes.node(ready[0]))
    znodes.change_node(ready[0], state="used", comment="x" * (MOST_BYTES + 600_200 - len(json.dumps(node)) - 300))
    wait_for("it is deleted", lambda: sorted(znodes.nodes()) == [ready[1]])
    assert cloud.calls["create"] == 0
    assert "suspended" not in caplog.text


def test_pause_and_go_on(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud) -> None:
    """Q-8, Q-10, A-9: at quota a request waits `pending`, the pool says so, and it is served when room is there."""
    launch([fake_provider("one", cloud=cloud.name, pool_max_servers=1)])
    first = znodes.submit(["small"])
    znodes.fulfilled(first)
    second = znodes.submit(["small"])
    wait_for("the pool is paused", lambda: [pool["paused"] for pool in znodes.pools()] == [True])
    assert znodes.request_state(second) == "pending"
    third = znodes.submit(["small"], priority="100")
    znodes.use_and_return(first)
    znodes.fulfilled(second)
    assert znodes.request_state(third) in ("requested", "pending")
    znodes.use_and_return(second)
    znodes.fulfilled(third)
    assert cloud.peak == 1
    wait_for("the pool goes on", lambda: [pool["paused"] for pool in znodes.pools()] == [False])


def test_paused_request_is_cancelled(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud) -> None:
    """Q-13: nothing is launched for a paused request that is gone."""
    launch([fake_provider("one", cloud=cloud.name, pool_max_servers=1)])
    first = znodes.submit(["small"])
    znodes.fulfilled(first)
    second = znodes.submit(["small"])
    wait_for("it waits", lambda: znodes.request_state(second) == "pending")
    znodes.delete_request(second)
    wait_for("the pool goes on", lambda: [pool["paused"] for pool in znodes.pools()] == [False])
    znodes.use_and_return(first)
    wait_for("nothing is left", lambda: not znodes.nodes() and not cloud.instances())
    assert cloud.calls["create"] == 1


def test_declined_while_paused(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud) -> None:
    """A-9, A-13: a request that can never fit fails even though the pool is paused."""
    launch([fake_provider("one", cloud=cloud.name, pool_max_servers=1)])
    znodes.fulfilled(znodes.submit(["small"]))
    waiting = znodes.submit(["small"])
    wait_for("it waits", lambda: znodes.request_state(waiting) == "pending")
    impossible = znodes.submit(["small", "small"])
    wait_for("it fails", lambda: znodes.request_state(impossible) == "failed")
    unknown = znodes.submit(["nobody-has-this"])
    wait_for("it fails", lambda: znodes.request_state(unknown) == "failed")


def test_quota_error_of_the_cloud(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud) -> None:
    """L-7: a quota error aborts the node; the request is not declined and gets another one later."""
    cloud.set(quota_errors=1)
    launch([fake_provider("one", cloud=cloud.name)])
    request = znodes.fulfilled(znodes.submit(["small"]))
    assert request["declined_by"] == []
    wait_for("the aborted node is gone", lambda: list(znodes.nodes()) == request["nodes"])


def test_other_pool_takes_over(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud) -> None:
    """A-4, L-6: the pool with the better priority tries first; after its failure another one serves."""
    cloud.set(fail_launches=1000)
    launch(
        [
            fake_provider("preferred", cloud=cloud.name, priority=10, launch_retries=1),
            fake_provider("other", cloud=f"{cloud.name}-other", priority=20),
        ]
    )
    request = znodes.fulfilled(znodes.submit(["small"]))
    assert present(znodes.node(request["nodes"][0]))["provider"] == "other"
    assert ["preferred" in pool_id for pool_id in request["declined_by"]] == [True]
    FakeCloud.forget(f"{cloud.name}-other")


def test_wanted_provider(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud) -> None:
    """A-3: a request that names a provider is left to it; a name that nobody has is ignored."""
    launch([fake_provider("one", cloud=cloud.name), fake_provider("two", cloud=cloud.name)])
    for _ in range(3):
        request = znodes.fulfilled(znodes.submit(["small"], provider="two"))
        assert present(znodes.node(request["nodes"][0]))["provider"] == "two"
    znodes.fulfilled(znodes.submit(["small"], provider="nobody"))


def test_disabled_pool_declines(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud) -> None:
    """A-21, A-22: what nobody but a disabled pool could serve fails instead of hanging."""
    launch(
        [
            fake_provider("one", ("a",), cloud=cloud.name, pool_max_servers=0),
            fake_provider("two", ("b",), cloud=cloud.name, max_concurrency=0),
        ]
    )
    requests = [znodes.submit(["a"]), znodes.submit(["b"])]
    wait_for("both fail", lambda: [znodes.request_state(i) for i in requests] == ["failed", "failed"])


def test_tenant_limit(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud) -> None:
    """A-8, Q-15, Q-16: a tenant at its limit waits, others do not."""
    launch(
        [fake_provider("one", cloud=cloud.name)],
        tenant_resource_limits=[{"tenant-name": "poor", "max-servers": 1}],
    )
    first = znodes.submit(["small"], tenant_name="poor")
    znodes.fulfilled(first)
    second = znodes.submit(["small"], tenant_name="poor")
    znodes.fulfilled(znodes.submit(["small"], tenant_name="rich"))
    znodes.fulfilled(znodes.submit(["small"]))
    assert znodes.request_state(second) == "requested"
    znodes.use_and_return(first)
    znodes.fulfilled(second)


def test_fair_shares(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud) -> None:
    """FS-1, FS-2, FS-6: a tenant that comes late gets what comes free until both have their part."""
    launch(
        [fake_provider("one", cloud=cloud.name, pool_max_servers=6)],
        tenant_shares=[
            {"tenant-name": "flood", "weight": 2},
            {"tenant-name": "kept", "guaranteed": {"max-servers": 1}},
        ],
    )
    flood = [znodes.submit(["small"], tenant_name="flood") for _ in range(12)]
    for request in flood[:6]:
        znodes.fulfilled(request)
    late = [znodes.submit(["small"], tenant_name=name) for name in ("late", "late", "late", "kept", "kept")]

    def served() -> list[str]:
        return [request for request in (*flood, *late) if znodes.request_state(request) == "fulfilled"]

    expected = set(flood[:6])
    # The request that waits at the head of the pool has its room; then the guarantee, then the smallest shares.
    for gone, come in zip(flood, (late[3], late[0], late[1], flood[6]), strict=False):
        znodes.use_and_return(gone)
        expected = expected - {gone} | {come}
        wait_for(f"{come} is served", partial(lambda wanted: set(served()) == wanted, expected))
