# SPDX-License-Identifier: Apache-2.0
"""Sweeps, released nodes and lost sessions (rules C, X, L-9, L-11, G-14)."""

from __future__ import annotations

import time

import pytest
from kazoo.recipe.lock import Lock

from nodepool.driver.fake.cloud import FakeCloud
from nodepool.launcher import deletion
from tests.scenario.conftest import Launch
from tests.support.local_launcher import fake_provider
from tests.support.pool_znodes import PoolZnodes
from tests.support.session_loss import expire_session
from tests.support.wait import present, wait_for
from tests.support.zookeeper import ZooKeeperServer


@pytest.fixture(autouse=True)
def _sweep_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletion, "SWEEP_SECONDS", 0.2)


@pytest.mark.parametrize("state", ["used", "in-use", "building", "failed", "aborted", "deleting", "deleted"])
def test_unlocked_nodes_go(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud, state: str) -> None:
    """X-1, X-4, X-6: such nodes are removed, also when the cloud does not know them."""
    launch([fake_provider("one", cloud=cloud.name)])
    node_id = znodes.add_node(state, external_id="nobody-knows-me")
    wait_for("it is gone", lambda: znodes.node(node_id) is None)
    assert not znodes.children(f"/nodepool/nodes/{node_id}")


@pytest.mark.parametrize("state", ["hold", "testing", "ready"])
def test_other_states_stay(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud, state: str) -> None:
    """X-1: never touched. The second node shows that the worker came by."""
    launch([fake_provider("one", cloud=cloud.name)])
    stays = znodes.add_node(state)
    goes = znodes.add_node("used")
    wait_for("the other one is gone", lambda: znodes.node(goes) is None)
    assert znodes.node(stays) is not None


def test_locked_node_stays(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud) -> None:
    """X-2, C-7: a node that somebody has locked, and nodes of providers that are not ours, are left alone."""
    launch([fake_provider("one", cloud=cloud.name)])
    node_id = znodes.add_node("ready")
    lock = Lock(znodes.kazoo, f"/nodepool/nodes/{node_id}/lock")
    assert lock.acquire(timeout=5)
    znodes.change_node(node_id, state="in-use")
    foreign = znodes.add_node("used", provider="elsewhere")
    other = znodes.add_node("used")
    wait_for("the other one is gone", lambda: znodes.node(other) is None)
    assert znodes.node(node_id) is not None
    assert znodes.node(foreign) is not None
    lock.release()
    wait_for("now it goes", lambda: znodes.node(node_id) is None)


def test_unused_node_comes_back(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud) -> None:
    """C-9: a ready node whose request is gone is free again and serves the next request."""
    launch([fake_provider("one", cloud=cloud.name)])
    first = znodes.submit(["small"])
    nodes = znodes.fulfilled(first)["nodes"]
    znodes.delete_request(first)
    wait_for("it is free", lambda: (znodes.node(nodes[0]) or {}).get("allocated_to", "x") is None)
    assert znodes.fulfilled(znodes.submit(["small"]))["nodes"] == nodes
    assert cloud.calls["create"] == 1


def test_init_node_of_nobody(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud) -> None:
    """C-10: a node that was never launched goes with its request."""
    launch([fake_provider("one", cloud=cloud.name)])
    node_id = znodes.add_node("init", allocated_to="200-9999999999")
    wait_for("it is gone", lambda: znodes.node(node_id) is None)


def test_lost_request(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud) -> None:
    """C-4, G-14: a request that a dead launcher left `pending` is served by whoever is there."""
    request_id = znodes.submit(["small"], state="pending")
    building = znodes.add_node("building", allocated_to=request_id)
    init = znodes.add_node("init", allocated_to=request_id)
    launch([fake_provider("one", cloud=cloud.name)])
    request = znodes.fulfilled(request_id)
    assert not {building, init} & set(request["nodes"])
    wait_for("the leftovers are gone", lambda: list(znodes.nodes()) == request["nodes"])


def test_pending_request_of_another_launcher(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud) -> None:
    """C-4: while somebody holds its lock a pending request is not lost."""
    request_id = znodes.submit(["small"], state="pending")
    lock = Lock(znodes.kazoo, f"/nodepool/requests-lock/{request_id}")
    assert lock.acquire(timeout=5)
    lost = znodes.submit(["small"], state="pending")
    launch([fake_provider("one", cloud=cloud.name)])
    znodes.fulfilled(lost)
    assert znodes.request_state(request_id) == "pending"
    lock.release()
    znodes.fulfilled(request_id)


def test_ages(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud) -> None:
    """C-5, C-6: ready nodes and held nodes go when they are too old; others stay."""
    old = time.time() - 1000
    launch(
        [fake_provider("one", ("small", "keep"), cloud=cloud.name)],
        labels={"small": {"max-ready-age": 500}},
        max_hold_age=2000,
    )
    goes = [
        znodes.add_node("ready", state_time=old),
        znodes.add_node("hold", state_time=old, hold_expiration=500),
        znodes.add_node("hold", state_time=old - 2000, hold_expiration=10000),
        znodes.add_node("hold", state_time=old - 2000, hold_expiration="no number"),
    ]
    stays = [
        znodes.add_node("ready"),
        znodes.add_node("ready", state_time=old, type=["keep"]),
        znodes.add_node("ready", state_time=old, allocated_to=znodes.submit(["x"], state="fulfilled")),
        znodes.add_node("hold", state_time=old),
    ]
    wait_for("the old ones are gone", lambda: sorted(znodes.nodes()) == sorted(stays))
    assert not set(goes) & set(znodes.nodes())


def test_empty_nodes_and_lock_dirs(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud) -> None:
    """C-2, C-8: what racing locks leave behind is removed, unless somebody is in it, or the request is open."""
    open_id = znodes.submit(["x"], state="fulfilled")
    znodes.create_node(b"")
    znodes.kazoo.create("/nodepool/nodes/0000009999/lock", makepath=True)
    for name in (open_id, "200-0000000097", "200-0000000099"):
        znodes.kazoo.create(f"/nodepool/requests-lock/{name}", makepath=True)
    lock = Lock(znodes.kazoo, "/nodepool/requests-lock/200-0000000098")
    assert lock.acquire(timeout=5)
    launch([fake_provider("one", cloud=cloud.name)])
    wait_for("empty nodes are gone", lambda: znodes.children("/nodepool/nodes") == [])
    left = [open_id, "200-0000000098"]
    wait_for("others are gone", lambda: znodes.children("/nodepool/requests-lock") == left)
    lock.release()


def test_cancelled_while_launching(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud) -> None:
    """L-11: the node of a cancelled request goes to the pool; no lock is left."""
    cloud.set(boot_seconds=0.3)
    launch([fake_provider("one", cloud=cloud.name)])
    request_id = znodes.submit(["small"])
    wait_for("it launches", lambda: znodes.nodes("building"))
    znodes.delete_request(request_id)
    wait_for("the node is free", lambda: len(znodes.free_nodes()) == 1)
    wait_for("no lock directory is left", lambda: not znodes.children("/nodepool/requests-lock"))


def test_session_loss(launch: Launch, znodes: PoolZnodes, zookeeper: ZooKeeperServer, cloud: FakeCloud) -> None:
    """L-9, A-19, C-4: after a lost session the launcher registers again, and its requests are served anew."""
    cloud.set(boot_seconds=1.0)
    launcher = launch([fake_provider("one", cloud=cloud.name)])
    request_id = znodes.submit(["small"])
    wait_for("it launches", lambda: znodes.nodes("building"))
    expire_session(zookeeper.plain_hosts(), present(launcher.nodepool.client.kazoo.client_id))
    znodes.fulfilled(request_id)
    assert len(znodes.pools()) == 1
    znodes.use_and_return(request_id)
    wait_for("one node at most is left", lambda: len(znodes.nodes()) <= len(znodes.free_nodes()))
