# SPDX-License-Identifier: Apache-2.0
"""Which nodes a request gets (rules A-10, A-12, N, Q-9, X-5)."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.driver.fake.cloud import FakeCloud
from nodepool.launcher.pool import view
from nodepool.runtime import worker
from tests.scenario.conftest import Launch
from tests.support.command_line import CommandLine
from tests.support.local_launcher import fake_provider
from tests.support.pool_znodes import REQUESTS, PoolZnodes
from tests.support.wait import holds_for, present, wait_for


def test_states_on_the_way(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud) -> None:
    """A-12, N-6: `pending` and locked before there is a node; then `building`, locked, with all that is known.

    L-3: that is also its instance, while it boots.
    """
    cloud.set(hang=True)
    launch([fake_provider("one", cloud=cloud.name, pool_node_attributes={"executor-zone": "z"})])
    request_id = znodes.submit(["small"])

    def building() -> dict[str, Any] | None:
        node = next(iter(znodes.nodes().values()), None)
        if node is not None:
            assert znodes.request_state(request_id) == "pending"
        return node if node and node["state"] == "building" else None

    node = present(wait_for("it is building", building))
    assert znodes.request_lockers(request_id)
    assert znodes.node_lockers(next(iter(znodes.nodes())))
    assert (node["allocated_to"], node["tenant_name"], node["requestor"]) == (request_id, "tenant", "test")
    assert (node["type"], node["provider"], node["pool"]) == (["small"], "one", "main")
    assert node["launcher"] == znodes.pools()[0]["id"]
    assert node["attributes"] == {"executor-zone": "z"}
    assert node["resources"]["cores"] == 1
    (made,) = wait_for("it is made", cloud.instances)
    wait_for(
        "its instance is known", lambda: [n["external_id"] for n in znodes.nodes("building").values()] == [made.id]
    )
    cloud.set(hang=False)
    znodes.fulfilled(request_id)


def test_ready_nodes_first(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud) -> None:
    """N-1, N-2, N-4, N-5: ready ones are used, each once, and only what is missing is launched."""
    # Before the launcher: else a request may be read before a node that was made a moment ago.
    ready = [znodes.add_node("ready", type=["small", "big"]), znodes.add_node("ready")]
    znodes.add_node("ready", pool="other")
    znodes.add_node("ready", provider="elsewhere")
    launch([fake_provider("one", ("small", "big"), cloud=cloud.name)])
    request = znodes.fulfilled(znodes.submit(["big", "small", "small"]))
    assert request["nodes"][0] == ready[0]
    assert ready[1] in request["nodes"][1:]
    assert cloud.calls["create"] == 1
    new = znodes.fulfilled(znodes.submit(["small"], reuse=False))
    assert new["nodes"][0] not in ready
    assert cloud.calls["create"] == 2


def test_one_zone(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud) -> None:
    """N-7: new nodes follow the zone of a reused one; otherwise one zone is picked for all."""
    launch([fake_provider("one", cloud=cloud.name, pool_availability_zones=["a", "b", "c"])])
    znodes.add_node("ready", az="c")
    wait_for("it is free", lambda: znodes.free_nodes())
    for _ in range(3):
        request = znodes.fulfilled(znodes.submit(["small", "small", "small"]))
        zones = [(znodes.node(node_id) or {})["az"] for node_id in request["nodes"]]
        assert len(set(zones)) == 1
    assert [node["az"] for node in znodes.nodes().values()].count("c") >= 3


def test_half_gathered(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud) -> None:
    """N-9: what a paused request has it keeps, and the rest follows."""
    launch([fake_provider("one", cloud=cloud.name, pool_max_servers=2)])
    first = znodes.submit(["small"])
    znodes.fulfilled(first)
    second = znodes.submit(["small", "small"])
    wait_for("one of two is there", lambda: len(znodes.nodes("ready")) == 2)
    kept = next(node_id for node_id, node in znodes.nodes().items() if node["allocated_to"] == second)
    znodes.use_and_return(first)
    assert kept in znodes.fulfilled(second)["nodes"]
    assert cloud.peak == 2


def test_max_concurrency(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud) -> None:
    """A-10: no more launches at once in a provider, over all its pools; those that wait are `requested`."""
    section = fake_provider("one", ("a",), cloud=cloud.name, max_concurrency=1)
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
    znodes.fulfilled(first, *waiting)


def test_relief_is_rare(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """Q-8, Q-9: one idle node goes for the requests that wait, and no other one for the next five minutes."""
    monkeypatch.setattr(view, "EVICTION_SECONDS", 1000.0)
    launch([fake_provider("one", ("idle", "wanted"), cloud=cloud.name, pool_max_servers=3)])
    idle = [znodes.add_node("ready", type=["idle"], state_time=1000.0 + number) for number in range(3)]
    wait_for("they are free", lambda: len(znodes.free_nodes()) == 3)
    first, second = znodes.submit(["wanted"]), znodes.submit(["wanted"])
    znodes.fulfilled(first)
    assert idle[0] not in znodes.nodes()
    wait_for("the second one waits", lambda: znodes.request_state(second) == "pending")
    znodes.use_and_return(first)
    holds_for(
        "the idle ones stay",
        lambda: set(idle[1:]) <= set(znodes.nodes("ready")),
        until=lambda: znodes.request_state(second) == "fulfilled",
    )


def test_cloud_that_does_not_delete(
    launch: Launch, znodes: PoolZnodes, cloud: FakeCloud, caplog: pytest.LogCaptureFixture
) -> None:
    """X-5: unlocked and `deleting` between the attempts; gone when the cloud works again."""
    launch([fake_provider("one", cloud=cloud.name)])
    request_id = znodes.submit(["small"])
    [node_id] = znodes.fulfilled(request_id)["nodes"]
    cloud.set(down=True)
    znodes.use_and_return(request_id)
    wait_for("it was tried", lambda: "Deletion failed" in caplog.text)
    wait_for("it is unlocked", lambda: not znodes.node_lockers(node_id))
    assert (znodes.node(node_id) or {})["state"] == "deleting"
    cloud.set(down=False)
    wait_for("nothing is left", lambda: not znodes.nodes() and not cloud.instances())


def test_many_refusals(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud) -> None:
    """A-6, A-15: hundreds of requests that nobody can serve fail at once, all of them."""
    launch([fake_provider("one", cloud=cloud.name)])
    requests = [znodes.submit(["unknown"]) for _ in range(450)]
    wait_for(
        "all have failed", lambda: all(znodes.request_state(request_id) == "failed" for request_id in requests), 25.0
    )
    assert len(znodes.children(REQUESTS)) == 450


# -- nodes that are kept ready (rules M)


def test_two_launchers_do_not_overshoot(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud) -> None:
    """M-4, M-6: together they make what is missing, no more; no request is left."""
    for _ in range(2):
        launch([fake_provider("one", cloud=cloud.name)], labels={"small": {"min-ready": 5}})
    wait_for("five are ready", lambda: len(znodes.free_nodes()) == 5)
    wait_for("no request is left", lambda: not znodes.children(REQUESTS))
    assert cloud.peak == 5


def test_no_room(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """Q-7, M-7, M-8: at quota they neither pause the pool nor push anybody out: they wait, and that is no failure."""
    monkeypatch.setattr(worker, "REPORT_PACE_SECONDS", 0.1)
    launcher = launch(
        [fake_provider("one", cloud=cloud.name, pool_max_servers=2), fake_provider("lab", ("other",))],
        labels={"small": {"min-ready": 5}},
    )
    nodepool = CommandLine(launcher.path)
    wait_for("two are ready", lambda: len(znodes.free_nodes()) == 2)
    cause = "min-ready: 3 more ready nodes wait in one/main: quota: 2 of 2 instances of pool main in use."
    wait_for("the full pool is the cause", lambda: cause in nodepool("explain", "small").out)
    assert {pool["paused"] for pool in znodes.pools()} == {False}
    assert "(0 wait now, 3 more for min-ready)" in nodepool("status").out, "no job waits"
    znodes.fulfilled(znodes.submit(["small"]))
    assert [event for event in launcher.nodepool.events.last(100) if event.what == "failed"] == []
    # Those that were served are deleted in their own time.
    wait_for("the others wait", lambda: {znodes.request_state(name) for name in _fillers(znodes)} == {"requested"})
    launcher.settings["labels"] = [
        {**label, "min-ready": 1} if label["name"] == "small" else label for label in launcher.settings["labels"]
    ]
    launcher.write(launcher.settings)
    wait_for("what is not missing any more is withdrawn", lambda: not _fillers(znodes))


def _fillers(znodes: PoolZnodes) -> list[str]:
    return [request_id for request_id in znodes.children(REQUESTS) if request_id.startswith("900-")]


def test_wedge_relief(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud) -> None:
    """Q-8: an unused ready node of another label makes room for a request that waits."""
    launch(
        [fake_provider("one", ("idle", "wanted"), cloud=cloud.name, pool_max_servers=1)],
        labels={"idle": {"min-ready": 1}},
    )
    wait_for("one is ready", lambda: len(znodes.free_nodes()) == 1)
    znodes.fulfilled(znodes.submit(["wanted"]))
    assert cloud.peak == 1


def test_failure(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud) -> None:
    """M-4, OV-4: why there is no node is an event of the label."""
    cloud.set(fail_launches=1000)
    launcher = launch(
        [fake_provider("one", cloud=cloud.name, launch_retries=1)], labels={"small": {"min-ready": 1}}
    ).nodepool

    def told() -> list[str]:
        return [event.text for event in launcher.events.last(100) if event.subject == "label small"]

    wait_for("the label tells of it", told)
    assert told()[0].startswith("no more ready node of small: every pool declined it")
