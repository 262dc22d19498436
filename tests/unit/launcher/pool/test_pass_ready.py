# SPDX-License-Identifier: Apache-2.0
"""Requests that ready nodes serve at once (rules A, N, ADR 2), by single passes of the worker."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
from kazoo.recipe.lock import Lock

from nodepool.driver.fake.cloud import FakeCloud
from nodepool.driver.fake.handler import FakeRequestHandler
from nodepool.launcher.pool.desk import LOCKED_RETRY_SECONDS
from nodepool.launcher.pool.worker import PoolWorker
from nodepool.model.node import Node
from tests.support.local_launcher import fake_provider
from tests.support.pool_znodes import PoolZnodes
from tests.support.still_launcher import StillLauncher
from tests.support.wait import wait_for
from tests.unit.launcher.conftest import Still


@pytest.fixture
def launcher(still: Still, cloud_name: str, cloud: FakeCloud) -> StillLauncher:
    """With room for two nodes."""
    return still([fake_provider("one", ("small", "big"), cloud=cloud_name, pool_max_servers=2)])


@pytest.fixture
def worker(launcher: StillLauncher) -> PoolWorker:
    return launcher.worker()


def add_ready(launcher: StillLauncher, znodes: PoolZnodes, *labels: str, **fields: Any) -> str:
    node_id = znodes.add_node("ready", type=list(labels or ["small"]), **fields)
    wait_for("the node is known", lambda: launcher.nodepool.cache.nodes.get(node_id))
    return node_id


def submit(launcher: StillLauncher, znodes: PoolZnodes, *labels: str, **fields: Any) -> str:
    request_id = znodes.submit(list(labels or ["small"]), **fields)
    wait_for("the request is known", lambda: launcher.nodepool.cache.requests.get(request_id))
    return request_id


def test_one_pass(launcher: StillLauncher, worker: PoolWorker, znodes: PoolZnodes) -> None:
    """N-2, N-3, N-8, L-12: fulfilled by one pass, nodes allocated, no lock and no directory left."""
    nodes = [add_ready(launcher, znodes, "big"), add_ready(launcher, znodes)]
    request_id = submit(launcher, znodes, "small", "big")
    worker.run_once()
    request = znodes.request(request_id)
    assert request is not None
    assert request["state"] == "fulfilled"
    assert request["nodes"] == nodes[::-1]
    for node_id in nodes:
        node = znodes.node(node_id)
        assert node is not None
        assert (node["allocated_to"], node["tenant_name"], node["requestor"]) == (request_id, "tenant", "test")
        assert znodes.node_lockers(node_id) == []
    assert znodes.children("/nodepool/requests-lock") == []


def test_no_reuse(launcher: StillLauncher, worker: PoolWorker, znodes: PoolZnodes) -> None:
    """N-4: a request that wants a new node gets no old one."""
    old = add_ready(launcher, znodes)
    request_id = submit(launcher, znodes, reuse=False)
    launcher.passes(worker, "it is served", lambda: znodes.request_state(request_id) == "fulfilled")
    assert (znodes.request(request_id) or {})["nodes"] != [old]


def test_nodes_of_one_zone(launcher: StillLauncher, worker: PoolWorker, znodes: PoolZnodes) -> None:
    """N-7: all nodes of a request share a zone."""
    add_ready(launcher, znodes, az="a")
    zone_b = [add_ready(launcher, znodes, az="b") for _ in range(2)]
    request_id = submit(launcher, znodes, "small", "small")
    worker.run_once()
    assert sorted((znodes.request(request_id) or {})["nodes"]) == zone_b


def test_locked_node(launcher: StillLauncher, worker: PoolWorker, znodes: PoolZnodes) -> None:
    """N-2: a node that somebody has locked, as far as the cache knows or not, is not handed out."""
    locked, free = add_ready(launcher, znodes, state_time=1.0), add_ready(launcher, znodes, state_time=2.0)
    launcher.settle()
    worker.run_once()
    lock = Lock(znodes.kazoo, f"/nodepool/nodes/{locked}/lock")
    request_id = submit(launcher, znodes)
    assert lock.acquire(timeout=5)
    launcher.passes(worker, "it is served", lambda: znodes.request_state(request_id) == "fulfilled")
    assert (znodes.request(request_id) or {})["nodes"] == [free]
    other = submit(launcher, znodes)
    launcher.passes(worker, "the next one waits", lambda: worker.desk.paused)
    lock.release()
    launcher.passes(worker, "the released one serves", lambda: znodes.request_state(other) == "fulfilled")
    assert (znodes.request(other) or {})["nodes"] == [locked]


def test_held_request(launcher: StillLauncher, worker: PoolWorker, znodes: PoolZnodes) -> None:
    """A-11: looked at again soon, without a busy loop; its node stays free meanwhile."""
    node_id = add_ready(launcher, znodes)
    held = submit(launcher, znodes)
    lock = Lock(znodes.kazoo, f"/nodepool/requests-lock/{held}")
    assert lock.acquire(timeout=5)
    wait = worker.run_once()
    assert wait is not None
    assert 0 < wait <= LOCKED_RETRY_SECONDS
    assert node_id in worker.free_nodes.ready
    lock.release()
    launcher.passes(worker, "it is served", lambda: znodes.request_state(held) == "fulfilled")
    assert held in launcher.nodepool.deletion.current.lingering_lock_dirs
    znodes.delete_request(held)
    deletion = launcher.nodepool.deletion.current
    launcher.passes(deletion, "its directory goes with it", lambda: not znodes.children("/nodepool/requests-lock"))


class Check:
    """Replaces the check of ready nodes by futures of the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.futures: dict[str, Future[bool]] = {}
        monkeypatch.setattr(FakeRequestHandler, "startReusableNodeCheck", lambda handler, node: self.start(node))

    def start(self, node: Node) -> Future[bool]:
        return self.futures.setdefault(node.key, Future())


def test_check_holds_up_nobody(
    launcher: StillLauncher, worker: PoolWorker, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S-9: while one node is checked another request gets another node."""
    check = Check(monkeypatch)
    nodes = [add_ready(launcher, znodes) for _ in range(2)]
    requests = [submit(launcher, znodes) for _ in range(2)]
    worker.run_once()
    assert sorted(check.futures) == nodes
    check.futures[nodes[1]].set_result(True)
    launcher.passes(
        worker, "one is served", lambda: [znodes.request_state(i) for i in requests].count("fulfilled") == 1
    )
    check.futures[nodes[0]].set_result(True)
    launcher.passes(
        worker, "both are served", lambda: [znodes.request_state(i) for i in requests].count("fulfilled") == 2
    )


@pytest.mark.parametrize("how", ["refused", "error", "cancelled", "raises"])
def test_check_that_fails(
    launcher: StillLauncher, worker: PoolWorker, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """N-2, S-9: the request goes on with another node; the pool is not wedged, whatever the driver does."""
    check = Check(monkeypatch)
    bad = add_ready(launcher, znodes)
    future = check.futures[bad] = Future()
    if how == "refused":
        future.set_result(False)
    elif how == "error":
        future.set_exception(RuntimeError("no way"))
    elif how == "cancelled":
        future.cancel()
    else:
        monkeypatch.setattr(check, "start", lambda node: check.futures[node.key] if node.id != bad else 1 / 0)
    request_id = submit(launcher, znodes)
    launcher.passes(worker, "it is served", lambda: znodes.request_state(request_id) == "fulfilled")
    assert (znodes.request(request_id) or {})["nodes"] != [bad]
    assert not worker.fast_path.busy
    assert bad not in worker.free_nodes.ready


def test_error_in_a_notification(
    launcher: StillLauncher, worker: PoolWorker, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver's error after the fact does not disturb the others of the pass."""
    monkeypatch.setattr(FakeRequestHandler, "nodeReusedNotification", lambda handler, node: 1 / 0)
    for _ in range(2):
        add_ready(launcher, znodes)
    requests = [submit(launcher, znodes) for _ in range(2)]
    worker.run_once()
    assert [znodes.request_state(request_id) for request_id in requests] == ["fulfilled", "fulfilled"]


def test_cancelled_meanwhile(
    launcher: StillLauncher, worker: PoolWorker, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L-11: the node of a request that vanished during the check stays free."""
    check = Check(monkeypatch)
    node_id = add_ready(launcher, znodes)
    request_id = submit(launcher, znodes)
    worker.run_once()
    znodes.delete_request(request_id)
    launcher.settle()
    check.futures[node_id].set_result(True)
    launcher.passes(worker, "the node is free", lambda: node_id in worker.free_nodes.ready)
    assert not worker.fast_path.busy
    assert (znodes.node(node_id) or {}).get("allocated_to") is None


def test_conflicts_do_not_make_a_busy_loop(
    launcher: StillLauncher, worker: PoolWorker, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache that is wrong for a while costs some attempts, not a processor."""
    node_id = add_ready(launcher, znodes)
    launcher.settle()
    cached = launcher.nodepool.cache.nodes.get(node_id)
    assert cached is not None
    cached.version = 99
    submit(launcher, znodes)
    worker.run_once()
    waits = [worker.run_once() for _ in range(3)]
    assert all(wait is not None and wait > 0.05 for wait in waits)
