# SPDX-License-Identifier: Apache-2.0
"""The pool worker by its single pass (rules A, L, Q, G-6, G-7)."""

from __future__ import annotations

from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss

from nodepool.driver.fake.cloud import FakeCloud
from nodepool.driver.fake.provider import FakeRequestHandler
from nodepool.exceptions import ZKConnectionError
from nodepool.launcher.pool import worker as pool_worker
from nodepool.launcher.pool.worker import PoolWorker
from nodepool.model.node import Node
from nodepool.zk.locks import ZkLock
from nodepool.zk.nodes import NodeStore
from nodepool.zk.request_store import RequestStore
from tests.support.local_launcher import fake_provider
from tests.support.pool_znodes import POOLS, PoolZnodes
from tests.support.session_loss import expire_session
from tests.support.still_launcher import StillLauncher
from tests.support.wait import wait_for
from tests.support.zookeeper import ZooKeeperServer
from tests.unit.launcher.conftest import Still

pytestmark = pytest.mark.usefixtures("cloud")


def fulfil(launcher: StillLauncher, worker: PoolWorker, znodes: PoolZnodes, request_id: str) -> dict[str, Any]:
    state = lambda: znodes.request_state(request_id) == "fulfilled"  # noqa: E731
    launcher.passes(worker, f"{request_id} is fulfilled", state)
    request = znodes.request(request_id)
    assert request is not None
    return request


def test_other_pools_of_the_launcher_come_first(still: Still, znodes: PoolZnodes, cloud_name: str) -> None:
    """A-15, A-17: a pool that is there first does not decline, and fail, what its sibling will serve in a moment."""
    launcher = still([fake_provider("one", ("a",), cloud=cloud_name), fake_provider("two", ("b",), cloud=cloud_name)])
    first, second = launcher.nodepool.pool_threads.current()
    request_id = znodes.submit(["b" if first.provider_name == "one" else "a"])
    first.run_once()
    wait_for("it sees itself", lambda: any(pool.id == first.launcher_id for pool in first.context.registered_pools()))
    launcher.settle()
    assert first.run_once() == 0.1
    assert "declined_by" not in (znodes.request(request_id) or {})
    fulfil(launcher, second, znodes, request_id)


def test_other_pools_are_not_waited_for_long(
    still: Still, znodes: PoolZnodes, cloud_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A-17: a sibling that does not register does not stop the others."""
    monkeypatch.setattr(pool_worker, "SIBLINGS_SECONDS", 0.0)
    launcher = still([fake_provider("one", ("a",), cloud=cloud_name), fake_provider("two", ("b",), cloud=cloud_name)])
    worker = launcher.nodepool.pool_threads.get("one", "main")
    assert worker is not None
    fulfil(launcher, worker, znodes, znodes.submit(["a"]))


def test_connection_lost_while_gathering(
    still: Still, znodes: PoolZnodes, cloud_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-8, A-19: a request whose nodes could not be made yet is not fulfilled without them; it goes on."""
    launcher = still([fake_provider("one", cloud=cloud_name)])
    worker = launcher.worker()
    request_id = znodes.submit(["small", "small"])
    create, troubles = NodeStore.create, [True, False, True]

    def shaky(store: NodeStore, node: Node, under: ZkLock | None = None) -> None:
        if troubles and troubles.pop():
            raise ZKConnectionError("away for a moment")
        create(store, node, under)

    monkeypatch.setattr(NodeStore, "create", shaky)
    launcher.settle()
    for _ in range(2):
        with pytest.raises(ZKConnectionError):
            worker.run_once()
        assert znodes.request_state(request_id) == "pending"
    request = fulfil(launcher, worker, znodes, request_id)
    assert len(set(request["nodes"])) == 2


def test_retiring_pool_finishes_its_launches(
    still: Still, znodes: PoolZnodes, cloud_name: str, cloud: FakeCloud
) -> None:
    """G-6, L-17: the pool unregisters at once; a launch that runs still ends in a fulfilled request."""
    launcher = still([fake_provider("one", cloud=cloud_name)])
    worker = launcher.worker()
    cloud.set(hang=True)
    request_id = znodes.submit(["small"])
    launcher.passes(worker, "it launches", lambda: znodes.nodes("building"))
    waiting = znodes.submit(["small"])
    worker.retire()
    launcher.settle()
    worker.run_once()
    assert znodes.pools() == []
    assert znodes.request_state(request_id) == "pending"
    assert not worker.stopping
    cloud.set(hang=False)
    fulfil(launcher, worker, znodes, request_id)
    launcher.passes(worker, "it ends", lambda: worker.stopping)
    assert znodes.request_state(waiting) == "requested"
    assert not znodes.request_lockers(request_id)


def test_retiring_pool_gives_back_what_waits(still: Still, znodes: PoolZnodes, cloud_name: str) -> None:
    """G-6, Q-12: a paused request goes back to `requested` with its locks free."""
    launcher = still([fake_provider("one", cloud=cloud_name, pool_max_servers=2)])
    worker = launcher.worker()
    fulfil(launcher, worker, znodes, znodes.submit(["small"]))
    waiting = znodes.submit(["small", "small"])
    launcher.passes(worker, "it waits", lambda: worker.desk.paused and not worker.own_launches())
    worker.retire()
    launcher.passes(worker, "it ends", lambda: worker.stopping)
    request = znodes.request(waiting)
    assert request is not None
    assert (request["state"], request["declined_by"], request["nodes"]) == ("requested", [], [])
    assert not znodes.request_lockers(waiting)
    assert all(not znodes.node_lockers(node_id) for node_id in znodes.nodes())


def test_launching_and_waiting_pool_retires(
    still: Still, znodes: PoolZnodes, cloud_name: str, cloud: FakeCloud
) -> None:
    """G-6: nodes of a half gathered set are let go when their launch has ended, not before."""
    launcher = still([fake_provider("one", cloud=cloud_name, pool_max_servers=2)])
    worker = launcher.worker()
    fulfil(launcher, worker, znodes, znodes.submit(["small"]))
    cloud.set(hang=True)
    waiting = znodes.submit(["small", "small"])
    launcher.passes(worker, "it waits", lambda: worker.desk.paused and worker.own_launches())
    [building] = znodes.nodes("building")
    worker.retire()
    worker.run_once()
    assert znodes.node_lockers(building)
    assert not worker.desk.paused
    cloud.set(hang=False)
    launcher.passes(worker, "it ends", lambda: worker.stopping)
    assert znodes.request_state(waiting) == "requested"
    node = znodes.node(building)
    assert node is not None
    assert (node["state"], node["allocated_to"]) == ("ready", None)
    assert not znodes.node_lockers(building)


def test_one_poll_error_affects_nobody_else(
    still: Still, znodes: PoolZnodes, cloud_name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A-19: it is tried again."""
    launcher = still([fake_provider("one", cloud=cloud_name)])
    worker = launcher.worker()
    bad, good = znodes.submit(["small"]), znodes.submit(["small"])
    complete = FakeRequestHandler.launchesComplete

    def flaky(handler: FakeRequestHandler) -> bool:
        if handler.request.id == bad:
            raise RuntimeError("no way")
        return complete(handler)

    with monkeypatch.context() as patch:
        patch.setattr(FakeRequestHandler, "launchesComplete", flaky)
        fulfil(launcher, worker, znodes, good)
        assert znodes.request_state(bad) == "pending"
        assert "Error while polling" in caplog.text
    fulfil(launcher, worker, znodes, bad)


def test_session_loss_drops_handlers(
    still: Still, znodes: PoolZnodes, cloud_name: str, cloud: FakeCloud, zookeeper: ZooKeeperServer
) -> None:
    """A-19, L-9: with the session its locks are gone, and with them the right to serve."""
    launcher = still([fake_provider("one", cloud=cloud_name)])
    worker = launcher.worker()
    cloud.set(hang=True)
    request_id = znodes.submit(["small"])
    launcher.passes(worker, "it launches", lambda: worker.own_launches())
    session = launcher.nodepool.client.kazoo.client_id
    assert session is not None
    epoch = launcher.nodepool.client.session_epoch
    expire_session(zookeeper.plain_hosts(), session)
    wait_for("a new session", lambda: launcher.nodepool.client.session_epoch > epoch)
    wait_for("it is connected", lambda: launcher.nodepool.client.connected and launcher.nodepool.cache.ready)
    launcher.passes(worker, "it is registered again", lambda: znodes.pools())
    assert worker.handlers == []
    launcher.settle()
    launcher.nodepool.cleanup.current.reset_lost_requests()
    cloud.set(hang=False)
    fulfil(launcher, worker, znodes, request_id)


def test_end_of_launches_wakes_siblings(still: Still, znodes: PoolZnodes, cloud_name: str, cloud: FakeCloud) -> None:
    """A-10: another pool that waits for ``max-concurrency`` goes on when launches end, not half a minute later."""
    section = fake_provider("one", ("a",), cloud=cloud_name, max_concurrency=2, launch_retries=1)
    section["pools"].append({"name": "second", "labels": [{"name": "b"}]})
    launcher = still([section])
    first, second = launcher.worker("one", "main"), launcher.worker("one", "second")
    cloud.set(hang=True)
    busy = znodes.submit(["a", "a"])
    launcher.passes(first, "it launches", lambda: first.own_launches() == 2)
    waiting = znodes.submit(["b"])
    launcher.settle()
    second.run_once()
    assert znodes.request_state(waiting) == "requested"
    assert "max-concurrency" in str(second.desk.snapshot().kinds)
    launcher.settle()
    second.run_once()
    second._event.clear()
    # One of the two launches fails to find its instance and is over; the request itself goes on.
    cloud.delete(cloud.instances()[0].id)
    launcher.passes(first, "one launch is over", lambda: second._event.is_set())
    cloud.set(hang=False)
    fulfil(launcher, second, znodes, waiting)
    launcher.passes(first, "the first is over too", lambda: znodes.request_state(busy) != "pending")


def test_node_that_goes(still: Still, znodes: PoolZnodes, cloud_name: str) -> None:
    """Q-2: it makes room for what waits. A pool where nothing waits sleeps on."""
    launcher = still([fake_provider("one", ("a",), cloud=cloud_name, pool_max_servers=1)])
    worker = launcher.worker("one", "main")
    fulfil(launcher, worker, znodes, znodes.submit(["a"]))
    launcher.settle()
    worker.run_once()
    worker._event.clear()
    worker.node_gone("0000000009")
    assert not worker._event.is_set()
    znodes.submit(["a"])
    launcher.settle()
    worker.run_once()
    worker._event.clear()
    worker.node_gone("0000000009")
    assert worker._event.is_set()


def test_refused_node(still: Still, znodes: PoolZnodes, cloud_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-2: a ready node that the driver refuses does not keep a request waiting, nor the worker busy."""
    monkeypatch.setattr(FakeRequestHandler, "checkReusableNode", lambda _self, _node: False)
    launcher = still([fake_provider("one", cloud=cloud_name)])
    worker = launcher.worker()
    refused = znodes.add_node("ready")
    launcher.passes(worker, "the node is known", lambda: refused in worker.free_nodes.ready)
    request = fulfil(launcher, worker, znodes, znodes.submit(["small"]))
    assert request["nodes"] != [refused]
    launcher.settle()
    worker.run_once()
    wait = worker.run_once()
    assert wait is not None
    assert wait > 1.0
    assert refused not in worker.free_nodes.ready


def test_stop_frees_what_waits(
    still: Still, znodes: PoolZnodes, cloud_name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Intake ends, paused requests are free, the pool is unregistered, whatever goes wrong before."""
    launcher = still([fake_provider("one", cloud=cloud_name, pool_max_servers=1)])
    worker = launcher.worker()
    fulfil(launcher, worker, znodes, znodes.submit(["small"]))
    waiting = znodes.submit(["small"])
    launcher.passes(worker, "it waits", lambda: worker.desk.paused)
    with monkeypatch.context() as patch:
        patch.setattr(FakeRequestHandler, "give_back", lambda handler: 1 / 0)
        worker.on_stop()
    assert "is left as it is" in caplog.text
    assert znodes.pools() == []
    assert znodes.request_state(waiting) == "pending"
    worker.on_stop()
    assert znodes.request_state(waiting) == "requested"


def test_entry_that_somebody_removed(still: Still, znodes: PoolZnodes, cloud_name: str) -> None:
    """A-17: a pool that is not registered serves nobody; it would never be, because its session goes on."""
    launcher = still([fake_provider("one", cloud=cloud_name)])
    worker = launcher.worker()
    launcher.passes(worker, "it is registered", lambda: bool(znodes.pools()))
    for name in znodes.children(POOLS):
        znodes.kazoo.delete(f"{POOLS}/{name}")
    wait_for("it is seen", lambda: not worker.context.registered_pools())
    request_id = znodes.submit(["small"])
    launcher.passes(worker, "it serves again", lambda: znodes.request_state(request_id) == "fulfilled")
    assert len(znodes.pools()) == 1


def test_stop_hands_over_what_is_launched(still: Still, znodes: PoolZnodes, cloud_name: str, cloud: FakeCloud) -> None:
    """G-14: others serve it at once. What is made for its node is not known yet: that stays locked."""
    launcher = still([fake_provider("one", cloud=cloud_name)])
    worker = launcher.worker()
    cloud.set(hang=True)
    request_id, gone = znodes.submit(["small"]), znodes.submit(["small"])
    launcher.passes(worker, "they are launched", lambda: worker.own_launches() == 2)
    znodes.delete_request(gone)
    worker.on_stop()
    assert (znodes.request_state(request_id), znodes.request_lockers(request_id)) == ("requested", [])
    assert len(nodes := znodes.nodes("building")) == 2
    assert all(znodes.node_lockers(node_id) for node_id in nodes)
    assert znodes.pools() == []


def half_launched(
    launcher: StillLauncher, worker: PoolWorker, znodes: PoolZnodes, cloud: FakeCloud
) -> tuple[str, str, str]:
    """A request, its ready node, and its node whose launch hangs."""
    ready = znodes.add_node("ready", provider="one", pool="main", type=["small"])
    cloud.set(hang=True)
    request_id = znodes.submit(["small", "small"])
    launcher.passes(worker, "one is launched, one is taken", lambda: len(znodes.nodes("building")) == 1)
    wait_for("its instance is known", lambda: any(node["external_id"] for node in znodes.nodes("building").values()))
    (building,) = znodes.nodes("building")
    assert (znodes.node(ready) or {})["allocated_to"] == request_id
    return request_id, ready, building


def test_stop_frees_what_is_ready(still: Still, znodes: PoolZnodes, cloud_name: str, cloud: FakeCloud) -> None:
    """G-14: whoever serves the request finds its ready nodes free. A launch that ends later makes none for nobody."""
    launcher = still([fake_provider("one", cloud=cloud_name)])
    worker = launcher.worker()
    request_id, ready, building = half_launched(launcher, worker, znodes, cloud)
    worker.on_stop()
    assert (znodes.request_state(request_id), znodes.request_lockers(request_id)) == ("requested", [])
    assert list(znodes.free_nodes()) == [ready]
    assert znodes.node_lockers(ready) == []
    cloud.set(hang=False)
    wait_for("the launch ended", lambda: worker.own_launches() == 0)
    assert (znodes.node(building) or {})["state"] == "building"
    assert znodes.node_lockers(building)


def test_launch_that_ends_at_the_stop(
    still: Still, znodes: PoolZnodes, cloud_name: str, cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G-14, L-12: a launch ends after the look at it and before the request is handed on: it is fulfilled."""
    launcher = still([fake_provider("one", cloud=cloud_name)])
    worker = launcher.worker()
    request_id, _, _ = half_launched(launcher, worker, znodes, cloud)
    finish = RequestStore.finish

    def late(store: RequestStore, *arguments: Any, **settings: Any) -> None:
        cloud.set(hang=False)
        wait_for("both are ready", lambda: len(znodes.nodes("ready")) == 2 and worker.own_launches() == 0)
        finish(store, *arguments, **settings)

    monkeypatch.setattr(RequestStore, "finish", late)
    worker.on_stop()
    assert (znodes.request_state(request_id), znodes.request_lockers(request_id)) == ("fulfilled", [])
    assert not any(znodes.node_lockers(node_id) for node_id in znodes.nodes())


def test_node_that_was_deleted_at_the_stop(still: Still, znodes: PoolZnodes, cloud_name: str, cloud: FakeCloud) -> None:
    """G-14: a node in launch that somebody removed keeps neither the request nor its ready nodes."""
    launcher = still([fake_provider("one", cloud=cloud_name)])
    worker = launcher.worker()
    request_id, ready, building = half_launched(launcher, worker, znodes, cloud)
    znodes.vanish(building)
    worker.on_stop()
    assert (znodes.request_state(request_id), znodes.request_lockers(request_id)) == ("requested", [])
    assert list(znodes.free_nodes()) == [ready]
    assert znodes.node_lockers(ready) == []


def test_stop_takes_what_is_ready(still: Still, znodes: PoolZnodes, cloud_name: str) -> None:
    """L-12: a launch that ended after the last pass was not in vain. A request that is gone is no trouble."""
    launcher = still([fake_provider("one", cloud=cloud_name)])
    worker = launcher.worker()
    request_id, gone = znodes.submit(["small"]), znodes.submit(["small"])
    launcher.settle()
    worker.run_once()
    wait_for("both are ready", lambda: len(znodes.nodes("ready")) == 2 and worker.own_launches() == 0)
    znodes.delete_request(gone)
    worker.on_stop()
    assert (znodes.request_state(request_id), znodes.request_state(gone)) == ("fulfilled", None)
    assert not any(znodes.node_lockers(node_id) for node_id in znodes.nodes("ready"))


def test_busy_passes_end(still: Still, znodes: PoolZnodes, cloud_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A-18: a pass takes some requests, then running ones are looked at, and it goes on at once."""
    monkeypatch.setattr("nodepool.launcher.pool.intake.MAX_LAUNCHED", 2)
    launcher = still([fake_provider("one", cloud=cloud_name)])
    worker = launcher.worker()
    requests = [znodes.submit(["small"]) for _ in range(5)]
    launcher.knows_requests(5)
    assert worker.run_once() == 0.0
    assert [znodes.request_state(i) for i in requests].count("requested") == 3
    for request_id in requests:
        fulfil(launcher, worker, znodes, request_id)


def test_order_of_service(still: Still, znodes: PoolZnodes, cloud_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A-1: priority, then relative priority, then age."""
    monkeypatch.setattr("nodepool.launcher.pool.intake.MAX_LAUNCHED", 1)
    launcher = still([fake_provider("one", cloud=cloud_name)])
    worker = launcher.worker()
    expected = [
        znodes.submit(["small"], priority="300"),
        znodes.submit(["small"], priority="200", relative_priority=2),
        znodes.submit(["small"], priority="200", relative_priority=1),
        znodes.submit(["small"], priority="200", relative_priority=1),
        znodes.submit(["small"], priority="100", relative_priority=9),
    ]
    expected = [expected[i] for i in (4, 2, 3, 1, 0)]
    launcher.knows_requests(5)
    taken: list[str] = []
    for _ in expected:
        worker.run_once()
        taken += [i for i in expected if i not in taken and znodes.request_state(i) != "requested"]
    assert taken == expected


def test_retiring_pool_unregisters_in_the_end(
    still: Still, znodes: PoolZnodes, cloud_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G-6: a registered pool that serves nobody would keep requests from failing; a lost connection is no excuse."""
    launcher = still([fake_provider("one", cloud=cloud_name)])
    worker = launcher.worker()
    worker.retire()

    def away(path: str) -> None:
        raise ConnectionLoss

    with monkeypatch.context() as patch:
        patch.setattr(launcher.nodepool.client.kazoo, "delete", away)
        with pytest.raises(ZKConnectionError):
            worker.run_once()
        assert not worker.stopping
    assert len(znodes.pools()) == 1
    worker.run_once()
    assert znodes.pools() == []
    assert worker.stopping
