# SPDX-License-Identifier: Apache-2.0
"""Metastatic providers whose backing providers are out of service, in whole launchers (T-13, T-14, MT-11)."""

from __future__ import annotations

from typing import Any

from nodepool.driver.fake.cloud import FakeCloud
from nodepool.model.status import Maintenance, Mode
from nodepool.zk.zookeeper import MaintenanceStore
from tests.scenario.conftest import Launch
from tests.scenario.test_metastatic import shared
from tests.scenario.test_requests import fulfilled, use_and_return
from tests.support.command_line import CommandLine
from tests.support.local_launcher import LocalLauncher, fake_provider
from tests.support.pool_znodes import PoolZnodes
from tests.support.wait import wait_for

PAUSE = Maintenance("provider", "cloud", Mode.PAUSE, "network", "alice@desk")


def backing_cloud(cloud_name: str, **settings: Any) -> dict[str, Any]:
    return fake_provider("cloud", ("big",), cloud=cloud_name, **settings)


def reason(launcher: LocalLauncher, request_id: str) -> str:
    """Code of what the metastatic pool says of a request."""
    worker = launcher.nodepool.pool_threads.get("shared", "main")
    told = None if worker is None else worker.desk.explain(request_id)
    return "" if told is None else told.reason.code.value


def small_waits_for_room(znodes: PoolZnodes) -> str:
    """A request whose node waits for a backing node for which its cloud, of one machine, has no room now."""
    fulfilled(znodes, znodes.submit(["big"]))
    request_id = znodes.submit(["small"])
    wait_for(
        "the backing request waits for room",
        lambda: (
            any(
                znodes.request_state(other) == "pending" and other.startswith("100-")
                for other in znodes.children("/nodepool/requests")
            )
            and len(znodes.nodes("building")) == 1
        ),
    )
    return request_id


def test_it_waits_and_says_why(
    launch: Launch, znodes: PoolZnodes, cloud: FakeCloud, cloud_name: str, store: MaintenanceStore
) -> None:
    """T-13, MT-11: no launch begins, so none can time out; `explain` names who paused what; then it is served."""
    host = {"name": "127.4.2.1", "labels": ["host"], "host-key-checking": False}
    static = {"name": "lab", "driver": "static", "pools": [{"name": "main", "nodes": [host]}]}
    labels = ({"name": "small"}, {"name": "tiny", "backing-label": "host"})
    sections = [backing_cloud(cloud_name), static, shared(*labels)]
    launcher = launch(sections, labels={"small": {"min-ready": 2}, "big": {}})
    wait_for("min-ready is there", lambda: len(znodes.free_nodes()) == 3)
    store.put(PAUSE)
    wait_for(
        "the pool knows it", lambda: all(pool["paused"] for pool in znodes.pools() if pool["provider_name"] != "lab")
    )
    for node_id in znodes.free_nodes():
        if (znodes.node(node_id) or {})["type"] == ["small"]:
            znodes.change_node(node_id, state="used")
    wait_for("all small nodes have gone", lambda: znodes.nodes().keys() == znodes.free_nodes().keys())
    created = cloud.calls["create"]
    request_id = znodes.submit(["small"])
    wait_for("it waits", lambda: reason(launcher, request_id) == "backing.held")
    fulfilled(znodes, znodes.submit(["tiny"]))
    command = CommandLine(launcher.path)
    text = "which nobody makes now: provider cloud is paused by alice@desk: network"
    wait_for("explain says why", lambda: text in command("explain", request_id).out)
    told = command("explain", request_id).out
    assert "backing.held" in told
    assert "nodepool resume provider cloud" in told
    assert (znodes.request_state(request_id), cloud.calls["create"]) == ("requested", created)
    store.remove("provider", "cloud")
    fulfilled(znodes, request_id)
    use_and_return(znodes, request_id)


def test_a_launch_that_has_begun_is_given_back(
    launch: Launch, znodes: PoolZnodes, cloud: FakeCloud, cloud_name: str, store: MaintenanceStore
) -> None:
    """T-13, MT-6: it waited for room in the cloud that is paused now; nobody had begun its backing node."""
    launcher = launch([backing_cloud(cloud_name, pool_max_servers=1), shared()])
    request_id = small_waits_for_room(znodes)
    store.put(PAUSE)
    wait_for("it waits", lambda: reason(launcher, request_id) == "backing.held")
    wait_for("it is given back", lambda: znodes.request_state(request_id) == "requested")
    wait_for("its node is gone", lambda: not znodes.nodes("building"))
    wait_for("no backing request is left", lambda: len(znodes.children("/nodepool/requests")) == 2)
    (holder,) = [other for other in znodes.children("/nodepool/requests") if other != request_id]
    use_and_return(znodes, holder)
    store.remove("provider", "cloud")
    fulfilled(znodes, request_id)


def test_it_goes_elsewhere(
    launch: Launch, znodes: PoolZnodes, cloud: FakeCloud, cloud_name: str, store: MaintenanceStore
) -> None:
    """MT-11: a pool of worse priority serves it meanwhile."""
    other = fake_provider("other", ("small",), cloud=cloud_name, pool_priority=200)
    launcher = launch([backing_cloud(cloud_name), shared(), other])
    store.put(PAUSE)
    wait_for(
        "the pools say so",
        lambda: (
            {pool["provider_name"]: pool["paused"] for pool in znodes.pools()}
            == {"cloud": True, "shared": True, "other": False}
        ),
    )
    request = fulfilled(znodes, znodes.submit(["small"]))
    assert (znodes.node(request["nodes"][0]) or {})["provider"] == "other"
    store.remove("provider", "cloud")
    wait_for("the pools say so", lambda: not any(pool["paused"] for pool in znodes.pools()))
    assert launcher.nodepool.ready.is_set()


def test_a_drain_does_not_wait_for_itself(
    launch: Launch, znodes: PoolZnodes, cloud: FakeCloud, cloud_name: str
) -> None:
    """MT-6, MT-8: only this launcher could launch the backing node; it ends, and the next one serves the request."""
    sections = [backing_cloud(cloud_name, pool_max_servers=1), shared()]
    drained = launch(sections)
    request_id = small_waits_for_room(znodes)
    assert drained.nodepool.drain("SIGTERM")
    wait_for("it has ended", lambda: not drained.running)
    assert drained.nodepool.finished
    assert znodes.request_state(request_id) == "requested"
    (holder,) = [other for other in znodes.children("/nodepool/requests") if other != request_id]
    use_and_return(znodes, holder)
    launch(sections)
    fulfilled(znodes, request_id)


def test_another_launcher_takes_over_from_a_drained_one(
    launch: Launch, znodes: PoolZnodes, cloud: FakeCloud, cloud_name: str
) -> None:
    """MT-6, MT-8: both have the metastatic provider, none is asked twice, and nothing is left."""
    sections = [backing_cloud(cloud_name, pool_max_servers=1), shared()]
    drained = launch(sections)
    request_id = small_waits_for_room(znodes)
    launch(sections)
    wait_for("both are there", lambda: len(znodes.pools()) == 4)
    assert drained.nodepool.drain("SIGTERM")
    wait_for("it has ended", lambda: not drained.running)
    wait_for("the other one has it", lambda: znodes.request_state(request_id) == "pending")
    holders = [other for other in znodes.children("/nodepool/requests") if znodes.request_state(other) == "fulfilled"]
    for holder in holders:
        use_and_return(znodes, holder)
    fulfilled(znodes, request_id)
    use_and_return(znodes, request_id)
    wait_for("no request is left", lambda: not znodes.children("/nodepool/requests"))


def test_a_drain_finishes_what_was_begun(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud, cloud_name: str) -> None:
    """MT-6, MT-8: its backing node boots already: both are finished before the launcher ends."""
    drained = launch([backing_cloud(cloud_name), shared()])
    cloud.set(hang=True)
    request_id = znodes.submit(["small"])
    wait_for("the backing node is built", cloud.instances)
    assert drained.nodepool.drain("SIGTERM")
    wait_for("the pools know it", lambda: all(pool["paused"] for pool in znodes.pools()))
    cloud.set(hang=False)
    fulfilled(znodes, request_id)
    wait_for("it has ended", lambda: not drained.running)
    assert cloud.calls["create"] == 1
