# SPDX-License-Identifier: Apache-2.0
"""Which nodes a request gets (rules A-10, A-12, N, Q-9, X-5)."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.driver.fake.cloud import FakeCloud
from nodepool.launcher import deletion
from nodepool.launcher.pool import view
from tests.scenario.conftest import Launch
from tests.scenario.test_requests import fulfilled, use_and_return
from tests.support.local_launcher import fake_provider
from tests.support.pool_znodes import REQUESTS, PoolZnodes
from tests.support.wait import holds_for, wait_for


def test_states_on_the_way(launch: Launch, znodes: PoolZnodes, cloud_name: str, cloud: FakeCloud) -> None:
    """A-12, N-6: `pending` and locked before there is a node; then `building`, locked, with all that is known."""
    cloud.set(hang=True)
    launch([fake_provider("one", cloud=cloud_name, pool_node_attributes={"executor-zone": "z"})])
    request_id = znodes.submit(["small"])

    def building() -> dict[str, Any] | None:
        node = next(iter(znodes.nodes().values()), None)
        if node is not None:
            assert znodes.request_state(request_id) == "pending"
        return node if node and node["state"] == "building" else None

    node = wait_for("it is building", building)
    assert node is not None
    assert znodes.request_lockers(request_id)
    assert znodes.node_lockers(next(iter(znodes.nodes())))
    assert (node["allocated_to"], node["tenant_name"], node["requestor"]) == (request_id, "tenant", "test")
    assert (node["type"], node["provider"], node["pool"]) == (["small"], "one", "main")
    assert node["launcher"] == znodes.pools()[0]["id"]
    assert node["attributes"] == {"executor-zone": "z"}
    assert node["resources"]["cores"] == 1
    cloud.set(hang=False)
    fulfilled(znodes, request_id)


def test_ready_nodes_first(launch: Launch, znodes: PoolZnodes, cloud_name: str, cloud: FakeCloud) -> None:
    """N-1, N-2, N-4, N-5: ready ones are used, each once, and only what is missing is launched."""
    # Before the launcher: else a request may be read before a node that was made a moment ago.
    ready = [znodes.add_node("ready", type=["small", "big"]), znodes.add_node("ready")]
    znodes.add_node("ready", pool="other")
    znodes.add_node("ready", provider="elsewhere")
    launch([fake_provider("one", ("small", "big"), cloud=cloud_name)])
    request = fulfilled(znodes, znodes.submit(["big", "small", "small"]))
    assert request["nodes"][0] == ready[0]
    assert ready[1] in request["nodes"][1:]
    assert cloud.calls["create"] == 1
    new = fulfilled(znodes, znodes.submit(["small"], reuse=False))
    assert new["nodes"][0] not in ready
    assert cloud.calls["create"] == 2


def test_one_zone(launch: Launch, znodes: PoolZnodes, cloud_name: str, cloud: FakeCloud) -> None:
    """N-7: new nodes follow the zone of a reused one; otherwise one zone is picked for all."""
    launch([fake_provider("one", cloud=cloud_name, pool_availability_zones=["a", "b", "c"])])
    znodes.add_node("ready", az="c")
    wait_for("it is free", lambda: znodes.free_nodes())
    for _ in range(3):
        request = fulfilled(znodes, znodes.submit(["small", "small", "small"]))
        zones = [(znodes.node(node_id) or {})["az"] for node_id in request["nodes"]]
        assert len(set(zones)) == 1
    assert [node["az"] for node in znodes.nodes().values()].count("c") >= 3


def test_half_gathered(launch: Launch, znodes: PoolZnodes, cloud_name: str, cloud: FakeCloud) -> None:
    """N-9: what a paused request has it keeps, and the rest follows."""
    launch([fake_provider("one", cloud=cloud_name, pool_max_servers=2)])
    first = znodes.submit(["small"])
    fulfilled(znodes, first)
    second = znodes.submit(["small", "small"])
    wait_for("one of two is there", lambda: len(znodes.nodes("ready")) == 2)
    kept = next(node_id for node_id, node in znodes.nodes().items() if node["allocated_to"] == second)
    use_and_return(znodes, first)
    assert kept in fulfilled(znodes, second)["nodes"]
    assert cloud.peak == 2


def test_max_concurrency(launch: Launch, znodes: PoolZnodes, cloud_name: str, cloud: FakeCloud) -> None:
    """A-10: no more launches at once in a provider, over all its pools; those that wait are `requested`."""
    section = fake_provider("one", ("a",), cloud=cloud_name, max_concurrency=1)
    section["pools"].append({"name": "second", "labels": [{"name": "b"}]})
    launch([section])
    cloud.set(hang=True)
    first = znodes.submit(["a"])
    wait_for("it launches", lambda: znodes.nodes("building"))
    waiting = [znodes.submit(["a"]), znodes.submit(["b"])]
    impossible = znodes.submit(["unknown"])
    wait_for("the pools have seen them", lambda: znodes.request_state(impossible) == "failed")
    assert [znodes.request_state(request_id) for request_id in waiting] == ["requested", "requested"]
    cloud.set(hang=False)
    for request_id in (first, *waiting):
        fulfilled(znodes, request_id)


def test_relief_is_rare(
    launch: Launch, znodes: PoolZnodes, cloud_name: str, cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Q-8, Q-9: one idle node goes for the requests that wait, and no other one for the next five minutes."""
    monkeypatch.setattr(view, "EVICTION_SECONDS", 1000.0)
    launch([fake_provider("one", ("idle", "wanted"), cloud=cloud_name, pool_max_servers=3)])
    idle = [znodes.add_node("ready", type=["idle"], state_time=1000.0 + number) for number in range(3)]
    wait_for("they are free", lambda: len(znodes.free_nodes()) == 3)
    first, second = znodes.submit(["wanted"]), znodes.submit(["wanted"])
    fulfilled(znodes, first)
    assert idle[0] not in znodes.nodes()
    wait_for("the second one waits", lambda: znodes.request_state(second) == "pending")
    use_and_return(znodes, first)
    holds_for(
        "the idle ones stay",
        lambda: set(idle[1:]) <= set(znodes.nodes("ready")),
        until=lambda: znodes.request_state(second) == "fulfilled",
    )


def test_cloud_that_does_not_delete(
    launch: Launch, znodes: PoolZnodes, cloud_name: str, cloud: FakeCloud, caplog: pytest.LogCaptureFixture
) -> None:
    """X-5: unlocked and `deleting` between the attempts; gone when the cloud works again."""
    launch([fake_provider("one", cloud=cloud_name)])
    request_id = znodes.submit(["small"])
    [node_id] = fulfilled(znodes, request_id)["nodes"]
    cloud.set(down=True)
    use_and_return(znodes, request_id)
    wait_for("it was tried", lambda: "Deletion failed" in caplog.text)
    wait_for("it is unlocked", lambda: not znodes.node_lockers(node_id))
    assert (znodes.node(node_id) or {})["state"] == "deleting"
    cloud.set(down=False)
    wait_for("nothing is left", lambda: not znodes.nodes() and not cloud.instances())


def test_machine_without_a_node(
    launch: Launch, znodes: PoolZnodes, cloud_name: str, cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C-3, D-2, D-4, F-4: found by the sweeps and removed; machines of others stay."""
    monkeypatch.setattr(deletion, "SWEEP_SECONDS", 0.2)
    launch([fake_provider("one", cloud=cloud_name)])
    foreign = cloud.create("somebody's", metadata={}, resources={})
    request_id = znodes.submit(["small"])
    [node_id] = fulfilled(znodes, request_id)["nodes"]
    znodes.kazoo.delete(f"/nodepool/nodes/{node_id}", recursive=True)
    wait_for("only the other one is left", lambda: [found.id for found in cloud.instances()] == [foreign.id])


def test_many_refusals(launch: Launch, znodes: PoolZnodes, cloud_name: str, cloud: FakeCloud) -> None:
    """A-6, A-15: hundreds of requests that nobody can serve fail at once, all of them."""
    launch([fake_provider("one", cloud=cloud_name)])
    requests = [znodes.submit(["unknown"]) for _ in range(450)]
    wait_for(
        "all have failed", lambda: all(znodes.request_state(request_id) == "failed" for request_id in requests), 25.0
    )
    assert len(znodes.children(REQUESTS)) == 450
