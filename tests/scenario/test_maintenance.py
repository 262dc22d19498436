# SPDX-License-Identifier: Apache-2.0
"""What operators pause and drain, with whole launchers (rules MT)."""

from __future__ import annotations

import socket
import time

from nodepool.driver.fake.cloud import FakeCloud
from nodepool.model.status import Maintenance, Mode
from nodepool.zk.zookeeper import MaintenanceStore
from tests.scenario.conftest import Launch
from tests.scenario.test_requests import fulfilled, use_and_return
from tests.support.command_line import CommandLine
from tests.support.local_launcher import fake_provider
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
    launch: Launch, znodes: PoolZnodes, cloud: FakeCloud, cloud_name: str, store: MaintenanceStore
) -> None:
    """MT-2, MT-4: two launchers, each with both providers; with both paused everything waits, and nothing fails."""
    for _ in range(2):
        launch([fake_provider(name, cloud=cloud_name) for name in ("one", "two")])
    wait_for("all are there", lambda: len(znodes.pools()) == 4)
    store.put(ONE)
    wait_for("all know it", lambda: paused(znodes) == {"one": [True, True], "two": [False, False]})
    for _ in range(6):
        request = fulfilled(znodes, znodes.submit(["small"]))
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
        assert (znodes.node(fulfilled(znodes, request_id)["nodes"][0]) or {})["provider"] == "two"


def test_label(launch: Launch, znodes: PoolZnodes, cloud_name: str, cloud: FakeCloud, store: MaintenanceStore) -> None:
    """MT-5: its ready nodes stay, other labels are served."""
    store.put(Maintenance("label", "small", Mode.PAUSE))
    launcher = launch([fake_provider("one", ("small", "big"), cloud=cloud_name)])
    node_id = znodes.add_node("ready", type=["small"], provider="one", pool="main")
    waiting = znodes.submit(["small"])
    fulfilled(znodes, znodes.submit(["big"]))
    assert launcher.nodepool.cache.maintenance.snapshot()
    assert znodes.request_state(waiting) == "requested"
    store.remove("label", "small")
    assert fulfilled(znodes, waiting)["nodes"] == [node_id]


def test_end_by_itself(
    launch: Launch, znodes: PoolZnodes, cloud_name: str, cloud: FakeCloud, store: MaintenanceStore
) -> None:
    """MT-9: nobody has to do anything, and the record goes."""
    for _ in range(2):
        launch([fake_provider("one", cloud=cloud_name)])
    wait_for("both are there", lambda: len(znodes.pools()) == 2)
    now = time.time()
    store.put(Maintenance("provider", "one", Mode.PAUSE, since=now, until=now + 3))
    wait_for("both know it", lambda: paused(znodes) == {"one": [True, True]})
    request_id = znodes.submit(["small"])
    fulfilled(znodes, request_id)
    wait_for("both go on", lambda: paused(znodes) == {"one": [False, False]})
    wait_for("the record is gone", lambda: not store.read_all())


def test_drained_launcher(
    launch: Launch, znodes: PoolZnodes, cloud_name: str, cloud: FakeCloud, store: MaintenanceStore
) -> None:
    """MT-8: its boot is finished, and it leaves by itself; another launcher takes what is new."""
    drained, other = (launch([fake_provider("one", cloud=cloud_name)]) for _ in range(2))
    wait_for("both are there", lambda: len(znodes.pools()) == 2)
    cloud.set(hang=True)
    requests = [znodes.submit(["small"]) for _ in range(10)]
    wait_for("all are launched", lambda: len(cloud.instances()) == 10)
    assert drained.nodepool.drain("SIGTERM")
    assert not other.nodepool.maintenance.launcher
    wait_for("one pool is paused", lambda: sorted(paused(znodes)["one"]) == [False, True])
    cloud.set(hang=False)
    for request_id in requests:
        fulfilled(znodes, request_id)
    wait_for("it has left", lambda: len(znodes.pools()) == 1)
    wait_for("it has ended", lambda: not drained.running)
    assert drained.nodepool.finished
    assert cloud.calls["create"] == 10
    fulfilled(znodes, znodes.submit(["small"]))
    assert not drained.nodepool.drain("again"), "there is nothing to finish"


def test_record_drains_all_launchers_of_a_host(
    launch: Launch, znodes: PoolZnodes, cloud_name: str, cloud: FakeCloud, store: MaintenanceStore
) -> None:
    """MT-8: those that run end; one that is started later stays, and takes nothing until it is resumed."""
    first = launch([fake_provider("one", cloud=cloud_name)])
    fulfilled(znodes, znodes.submit(["small"]))
    store.put(Maintenance("launcher", socket.gethostname(), Mode.DRAIN, since=1.0))
    wait_for("it has ended", lambda: not first.running)
    assert first.nodepool.finished
    waiting = znodes.submit(["small"])
    second = launch([fake_provider("one", cloud=cloud_name)])
    wait_for("its pool is there", lambda: paused(znodes) == {"one": [True]})
    assert second.running
    assert znodes.request_state(waiting) == "requested"
    store.remove("launcher", socket.gethostname())
    fulfilled(znodes, waiting)
    use_and_return(znodes, waiting)


def test_what_commands_change_is_an_event(
    launch: Launch, znodes: PoolZnodes, cloud: FakeCloud, cloud_name: str
) -> None:
    """OV-4: also a deletion and the pause of an image, which `maintenance` and `status` show."""
    launcher = launch([fake_provider("one", cloud=cloud_name)])
    nodepool = CommandLine(launcher.path)
    (node_id,) = fulfilled(znodes, znodes.submit(["small"]))["nodes"]
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
