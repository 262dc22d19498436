# SPDX-License-Identifier: Apache-2.0
"""What operators pause and drain, with whole launchers (rules MT)."""

from __future__ import annotations

import socket
import time
from typing import Any

from nodepool.driver.fake.cloud import FakeCloud
from nodepool.model.status import Maintenance, Mode
from nodepool.zk.zookeeper import MaintenanceStore
from tests.scenario.conftest import Launch
from tests.scenario.test_metastatic import shared
from tests.support.command_line import CommandLine
from tests.support.local_launcher import LocalLauncher, fake_provider
from tests.support.pool_znodes import PoolZnodes
from tests.support.wait import wait_for

ONE = Maintenance("provider", "one", Mode.PAUSE, "network", "alice@desk")
TWO = Maintenance("provider", "two", Mode.PAUSE)


def paused(znodes: PoolZnodes) -> dict[str, list[bool]]:
    """Provider -> what each of its pools says."""
    found: dict[str, list[bool]] = {}
    for pool in znodes.pools():
        found.setdefault(pool["provider_name"], []).append(pool["paused"])
    return found


def test_requests_go_elsewhere_or_wait(
    launch: Launch, znodes: PoolZnodes, cloud: FakeCloud, store: MaintenanceStore
) -> None:
    """MT-2, MT-4: two launchers, each with both providers; with both paused everything waits, and nothing fails."""
    for _ in range(2):
        launch([fake_provider(name, cloud=cloud.name) for name in ("one", "two")])
    wait_for("all are there", lambda: len(znodes.pools()) == 4)
    store.put(ONE)
    wait_for("all know it", lambda: paused(znodes) == {"one": [True, True], "two": [False, False]})
    for _ in range(6):
        request = znodes.fulfilled(znodes.submit(["small"]))
        assert (znodes.node(request["nodes"][0]) or {})["provider"] == "two"
    store.put(TWO)
    wait_for("all know it", lambda: paused(znodes) == {"one": [True, True], "two": [True, True]})
    created = cloud.calls["create"]
    waiting = [znodes.submit(["small"]) for _ in range(6)]
    unknown = znodes.submit(["unknown"])
    wait_for("what nobody has fails", lambda: znodes.request_state(unknown) == "failed")
    assert {znodes.request_state(request_id) for request_id in waiting} == {"requested"}
    assert cloud.calls["create"] == created
    store.remove("provider", "two")
    for request_id in waiting:
        assert (znodes.node(znodes.fulfilled(request_id)["nodes"][0]) or {})["provider"] == "two"


def test_label(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud, store: MaintenanceStore) -> None:
    """MT-5: its ready nodes stay, other labels are served."""
    store.put(Maintenance("label", "small", Mode.PAUSE))
    launcher = launch([fake_provider("one", ("small", "big"), cloud=cloud.name)])
    node_id = znodes.add_node("ready", type=["small"], provider="one", pool="main")
    waiting = znodes.submit(["small"])
    znodes.fulfilled(znodes.submit(["big"]))
    assert launcher.nodepool.cache.maintenance.snapshot()
    assert znodes.request_state(waiting) == "requested"
    store.remove("label", "small")
    assert znodes.fulfilled(waiting)["nodes"] == [node_id]


def test_end_by_itself(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud, store: MaintenanceStore) -> None:
    """MT-9: nobody has to do anything, and the record goes."""
    for _ in range(2):
        launch([fake_provider("one", cloud=cloud.name)])
    wait_for("both are there", lambda: len(znodes.pools()) == 2)
    now = time.time()
    store.put(Maintenance("provider", "one", Mode.PAUSE, since=now, until=now + 3))
    wait_for("both know it", lambda: paused(znodes) == {"one": [True, True]})
    request_id = znodes.submit(["small"])
    znodes.fulfilled(request_id)
    wait_for("both go on", lambda: paused(znodes) == {"one": [False, False]})
    wait_for("the record is gone", lambda: not store.read_all())


def test_drained_launcher(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud, store: MaintenanceStore) -> None:
    """MT-8: its boot is finished, and it leaves by itself; another launcher takes what is new."""
    drained, other = (launch([fake_provider("one", cloud=cloud.name)]) for _ in range(2))
    wait_for("both are there", lambda: len(znodes.pools()) == 2)
    cloud.set(hang=True)
    requests = [znodes.submit(["small"]) for _ in range(10)]
    wait_for("all are launched", lambda: len(cloud.instances()) == 10)
    assert drained.nodepool.drain("SIGTERM")
    assert not other.nodepool.maintenance.launcher
    wait_for("one pool is paused", lambda: sorted(paused(znodes)["one"]) == [False, True])
    cloud.set(hang=False)
    znodes.fulfilled(*requests)
    wait_for("it has left", lambda: len(znodes.pools()) == 1)
    wait_for("it has ended", lambda: not drained.running)
    assert drained.nodepool.finished
    assert cloud.calls["create"] == 10
    znodes.fulfilled(znodes.submit(["small"]))
    assert not drained.nodepool.drain("again"), "there is nothing to finish"


def test_record_drains_all_launchers_of_a_host(
    launch: Launch, znodes: PoolZnodes, cloud: FakeCloud, store: MaintenanceStore
) -> None:
    """MT-8: those that run end; one that is started later stays, and takes nothing until it is resumed."""
    first = launch([fake_provider("one", cloud=cloud.name)])
    znodes.fulfilled(znodes.submit(["small"]))
    store.put(Maintenance("launcher", socket.gethostname(), Mode.DRAIN, since=1.0))
    wait_for("it has ended", lambda: not first.running)
    assert first.nodepool.finished
    waiting = znodes.submit(["small"])
    second = launch([fake_provider("one", cloud=cloud.name)])
    wait_for("its pool is there", lambda: paused(znodes) == {"one": [True]})
    assert second.running
    assert znodes.request_state(waiting) == "requested"
    store.remove("launcher", socket.gethostname())
    znodes.fulfilled(waiting)
    znodes.use_and_return(waiting)


def test_what_commands_change_is_an_event(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud) -> None:
    """OV-4: also a deletion and the pause of an image, which `maintenance` and `status` show."""
    launcher = launch([fake_provider("one", cloud=cloud.name)])
    nodepool = CommandLine(launcher.path)
    (node_id,) = znodes.fulfilled(znodes.submit(["small"]))["nodes"]
    znodes.kazoo.create("/nodepool/images/debian/builds/b1", b'{"state": "ready", "state_time": 5}', makepath=True)
    assert nodepool("delete", node_id).status == 0
    assert nodepool("image-pause", "debian").status == 0

    def events() -> set[tuple[str, str]]:
        return {(event.subject, event.what) for event in launcher.nodepool.events.last(100)}

    wait_for(
        "both are known", lambda: {(f"node {node_id}", "changed"), ("image debian", "maintenance began")} <= events()
    )
    assert "image" in nodepool("maintenance").out
    assert "image debian is paused: it is not built" in " ".join(nodepool("status").out.split())
    assert nodepool("image-unpause", "debian").status == 0
    wait_for("its end is known", lambda: ("image debian", "maintenance ended") in events())
    assert "debian" not in nodepool("maintenance").out


# -- metastatic providers whose backing providers are out of service (T-13, T-14, MT-11)


PAUSE = Maintenance("provider", "cloud", Mode.PAUSE, "network", "alice@desk")


def backing_cloud(cloud: FakeCloud, **settings: Any) -> dict[str, Any]:
    return fake_provider("cloud", ("big",), cloud=cloud.name, **settings)


def reason(launcher: LocalLauncher, request_id: str) -> str:
    """Code of what the metastatic pool says of a request."""
    worker = launcher.nodepool.pool_threads.get("shared", "main")
    told = None if worker is None else worker.desk.explain(request_id)
    return "" if told is None else told.reason.code.value


def small_waits_for_room(znodes: PoolZnodes) -> str:
    """A request whose node waits for a backing node for which its cloud, of one machine, has no room now."""
    znodes.fulfilled(znodes.submit(["big"]))
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


def test_it_waits_and_says_why(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud, store: MaintenanceStore) -> None:
    """T-13, MT-11: no launch begins, so none can time out; `explain` names who paused what; then it is served."""
    host = {"name": "127.4.2.1", "labels": ["host"], "host-key-checking": False}
    static = {"name": "lab", "driver": "static", "pools": [{"name": "main", "nodes": [host]}]}
    labels = ({"name": "small"}, {"name": "tiny", "backing-label": "host"})
    sections = [backing_cloud(cloud), static, shared(*labels)]
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
    znodes.fulfilled(znodes.submit(["tiny"]))
    command = CommandLine(launcher.path)
    text = "which is not made now: provider cloud is paused by alice@desk: network"
    wait_for("explain says why", lambda: text in command("explain", request_id).out)
    told = command("explain", request_id).out
    assert "backing.held" in told
    assert "nodepool resume provider cloud" in told
    assert (znodes.request_state(request_id), cloud.calls["create"]) == ("requested", created)
    store.remove("provider", "cloud")
    znodes.fulfilled(request_id)
    znodes.use_and_return(request_id)


def test_a_launch_that_has_begun_is_given_back(
    launch: Launch, znodes: PoolZnodes, cloud: FakeCloud, store: MaintenanceStore
) -> None:
    """T-13, MT-6: it waited for room in the cloud that is paused now; nobody had begun its backing node."""
    launcher = launch([backing_cloud(cloud, pool_max_servers=1), shared()])
    request_id = small_waits_for_room(znodes)
    store.put(PAUSE)
    wait_for("it waits", lambda: reason(launcher, request_id) == "backing.held")
    wait_for("it is given back", lambda: znodes.request_state(request_id) == "requested")
    wait_for("its node is gone", lambda: not znodes.nodes("building"))
    wait_for("no backing request is left", lambda: len(znodes.children("/nodepool/requests")) == 2)
    (holder,) = [other for other in znodes.children("/nodepool/requests") if other != request_id]
    znodes.use_and_return(holder)
    store.remove("provider", "cloud")
    znodes.fulfilled(request_id)


def test_it_goes_elsewhere(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud, store: MaintenanceStore) -> None:
    """MT-11: a pool of worse priority serves it meanwhile."""
    other = fake_provider("other", ("small",), cloud=cloud.name, pool_priority=200)
    launcher = launch([backing_cloud(cloud), shared(), other])
    store.put(PAUSE)
    wait_for(
        "the pools say so",
        lambda: (
            {pool["provider_name"]: pool["paused"] for pool in znodes.pools()}
            == {"cloud": True, "shared": True, "other": False}
        ),
    )
    request = znodes.fulfilled(znodes.submit(["small"]))
    assert (znodes.node(request["nodes"][0]) or {})["provider"] == "other"
    store.remove("provider", "cloud")
    wait_for("the pools say so", lambda: not any(pool["paused"] for pool in znodes.pools()))
    assert launcher.nodepool.ready.is_set()


def test_another_launcher_takes_over_from_a_drained_one(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud) -> None:
    """MT-6, MT-8: both have the metastatic provider, none is asked twice, and nothing is left."""
    sections = [backing_cloud(cloud, pool_max_servers=1), shared()]
    drained = launch(sections)
    request_id = small_waits_for_room(znodes)
    launch(sections)
    wait_for("both are there", lambda: len(znodes.pools()) == 4)
    assert drained.nodepool.drain("SIGTERM")
    wait_for("it has ended", lambda: not drained.running)
    wait_for("the other one has it", lambda: znodes.request_state(request_id) == "pending")
    holders = [other for other in znodes.children("/nodepool/requests") if znodes.request_state(other) == "fulfilled"]
    znodes.use_and_return(*holders)
    znodes.fulfilled(request_id)
    znodes.use_and_return(request_id)
    wait_for("no request is left", lambda: not znodes.children("/nodepool/requests"))


def test_a_drain_finishes_what_was_begun(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud) -> None:
    """MT-6, MT-8: its backing node boots already: both are finished before the launcher ends."""
    drained = launch([backing_cloud(cloud), shared()])
    cloud.set(hang=True)
    request_id = znodes.submit(["small"])
    wait_for("the backing node is built", cloud.instances)
    assert drained.nodepool.drain("SIGTERM")
    wait_for("the pools know it", lambda: all(pool["paused"] for pool in znodes.pools()))
    cloud.set(hang=False)
    znodes.fulfilled(request_id)
    wait_for("it has ended", lambda: not drained.running)
    assert cloud.calls["create"] == 1
