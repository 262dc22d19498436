# SPDX-License-Identifier: Apache-2.0
"""Static hosts by the passes of their provider: registration, return, quarantine, and what requests may have (S)."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from nodepool.driver.framework.keyscan import ScanFailed
from nodepool.driver.static.checks import HostChecker, HostKeysMissing, Quarantines, host_checks
from nodepool.driver.static.provider import StaticProvider, StaticRegistry
from nodepool.exceptions import ZKConflict, ZKConnectionError
from nodepool.model import states
from nodepool.model.node import Node
from nodepool.model.reasons import ReasonCode, reason_of
from nodepool.model.request import NodeRequest
from nodepool.plan.static import HostFacts, HostId, HostSpec, new_node
from nodepool.plan.triage import RequestKind
from nodepool.testing.pool_worker import PoolWorkerStandIn
from tests.support.failing_zk import FailingZooKeeper
from tests.support.tables import driver_table
from tests.support.wait import wait_for
from tests.unit.driver.static.conftest import OFF, Hosts, Lab, load

TWO = {"max-parallel-jobs": 2}
AWAY = ZKConnectionError("away")
CONFLICT = ZKConflict("NotEmpty")


def spec(name: str = "127.0.0.1", port: int = 22, **more: Any) -> HostSpec:
    return HostSpec(HostId(name, "zuul", port), "main", ("small",), **more)


# -- checks --


def test_hosts_that_are_down_do_not_stop_others(lab: Lab, hosts: Hosts, caplog: pytest.LogCaptureFixture) -> None:
    """S-4: each host has its own back-off, which is logged once."""
    hosts.down = {"h2", "h3"}
    provider = lab.provider(*({"name": name} for name in ("h1", "h2", "h3", "h4")))
    waits = []
    for _ in range(8):
        waits.append(lab.settle(provider))
        assert sorted(lab.nodes("hostname")) == ["h1", "h4"]
        lab.clock.now += waits[-1]
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
    lab.settle(provider)
    lab.clock.now += 59
    assert provider.run_once() == 1
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 2


def test_checks_of_a_host_are_joined(hosts: Hosts, caplog: pytest.LogCaptureFixture) -> None:
    """S-1, S-8, S-13: one slow host delays no other; slots that are released together cost one check, which began
    after each of them was released. What runs at the end ends, and nothing waits for ever.
    """
    checker = HostChecker("test", 4)
    try:
        first = checker.check(spec("slow"))
        wait_for("it has begun", lambda: hosts.started)
        later = [checker.check(spec("slow")) for _ in range(5)]
        assert checker.check(spec("quick")).result(30)
        hosts.go_on.set()
        assert first.result(30).host_keys == ("ssh-rsa 2",)
        assert len({future.result(30).host_keys for future in later}) == 1
        assert hosts.started.count("slow") == 2
        # S-4: an error is that of all who asked, and the host can be checked again afterwards.
        hosts.down = {"slow"}
        with pytest.raises(ScanFailed, match="no answer"):
            checker.check(spec("slow")).result(30)
        # S-9: an error of other work counts as `otherwise`.
        assert checker.submit(lambda: bool(1 / 0), True).result(30) is True
        assert "ZeroDivisionError" in caplog.text
        hosts.down = set()
        hosts.go_on.clear()
        running = [checker.check(spec(f"slow{number}")) for number in range(4)]
        wait_for("they have begun", lambda: len(hosts.started) == 8)
        waiting, queued = checker.check(spec("slow0")), checker.submit(lambda: True, False)
        checker.stop()
        assert waiting.cancelled()
        assert checker.check(spec("h1")).cancelled()
        hosts.go_on.set()
        assert all(future.result(30).host_keys for future in running)
        assert queued.result(30) is checker.submit(lambda: True, False).result(30) is False
    finally:
        checker.stop()
        checker.join()


@pytest.mark.parametrize(("host", "error", "text", "remedy"), driver_table("static", "checks"))
def test_preflight(hosts: Hosts, host: dict[str, Any], error: list[Any] | None, text: str, remedy: str) -> None:
    """``nodepool check``: cause and remedy; a host that does not answer keeps no other from being shown."""
    if error is not None:
        kinds = {"ScanFailed": ScanFailed, "HostKeysMissing": HostKeysMissing}
        hosts.down, hosts.errors = {"h1"}, {"h1": kinds[error[0]](error[1])}
    looked_at = spec(**host)
    found, other = host_checks("lab", [looked_at, spec("h2")], limit=2.0)
    assert (found.subject, found.ok) == (f"host {looked_at.id}", not remedy)
    assert text in found.text
    assert remedy in found.remedy
    assert other.ok
    assert list(host_checks("lab", [])) == []


# -- passes --


@pytest.mark.parametrize(
    ("host", "trouble", "left"),
    [
        # In one write.
        ({}, None, ("0000000001", states.READY)),
        (OFF, None, ("0000000001", states.READY)),
        # The node ends unlocked and `deleting`, for the next try.
        ({}, AWAY, ("0000000000", states.DELETING)),
        ({}, "idle", ("0000000000", states.DELETING)),
        ({}, "stop", ("0000000000", states.DELETING)),
        # Another client waits for the lock: the node is only removed, and the next pass registers the slot.
        ({}, CONFLICT, None),
        # S-4: the node goes, and the host is tried again after a second.
        ({}, "down", None),
    ],
)
def test_released_host(lab: Lab, hosts: Hosts, host: dict[str, Any], trouble: Any, left: Any) -> None:
    """S-8, S-13: after a new scan the node is replaced, and nothing stays locked. Without a check the framework writes
    the successor together with the removal.
    """
    provider = lab.provider(host, settled=True)
    (node,) = lab.zk.all_nodes()
    new = provider.replacementFor(node)
    assert (new is not None) is (host == OFF)
    assert new is None or (new.id, new.state, new.slot) == (None, states.READY, 0)
    if isinstance(trouble, Exception):
        answers: list[BaseException | None] = [trouble]
        lab.zk.fail["replaceNode"] = lambda: answers.pop() if answers else None
    elif trouble == "down":
        hosts.down = {"127.0.0.1"}
    elif trouble is not None:
        getattr(provider, trouble)()
        assert provider.replacementFor(node) is None
    lab.zk.calls.clear()
    task = provider.startNodeCleanup(lab.used(node))
    task.join(30)
    assert not task.is_alive()
    assert lab.zk.calls.count("replaceNode") == (0 if trouble in ("idle", "stop") else 2 if trouble is CONFLICT else 1)
    assert lab.nodes("id", "state") == ([left] if left else [])
    assert not any(lab.zk.isNodeLocked(found) for found in lab.zk.all_nodes())
    if trouble != "stop":
        lab.settle(provider)
    assert len(lab.zk.all_nodes()) == (0 if trouble == "down" else 1)


def test_in_a_command(lab: Lab, hosts: Hosts) -> None:
    """S-13: `nodepool delete --now` starts the provider only to recycle one node: nothing else is registered."""
    lab.provider(OFF, settled=True)
    (node,) = lab.zk.all_nodes()
    provider = StaticProvider(load(OFF, {**OFF, "name": "127.0.0.2"}))
    lab.providers.append(provider)
    lab.zk.cache = None  # type: ignore[assignment]
    provider.start(lab.zk)
    assert provider.replacementFor(node) is None
    provider.startNodeCleanup(lab.used(node)).join(30)
    assert lab.nodes("id", "hostname") == [("0000000001", "127.0.0.1")]


# -- writes --

SLOTS = {spec().id: spec(slots=2)}
FOUND = {spec().id: HostFacts()}


class Store:
    """A registry, its ZooKeeper, and nodes of its two slots."""

    def __init__(self, cache: bool = True) -> None:
        self.zk = FailingZooKeeper()
        self.idle = threading.Event()
        if not cache:
            self.zk.cache = None  # type: ignore[assignment]
        log = logging.getLogger("test")
        self.registry = StaticRegistry(self.zk, "lab", SLOTS, Quarantines(self.zk, SLOTS), self.idle, log)

    def add(self, slot: int | None = 0, provider: str = "lab", locked: bool = False) -> Node:
        node = self.zk.add(new_node(provider, SLOTS[spec().id], slot or 0, HostFacts()))
        if slot is None:
            self.zk.change(node.key, slot=None)
            node = self.zk.all_nodes()[-1]
        if locked:
            self.zk.take(node)
        return node


@pytest.mark.parametrize(
    ("slots", "seen", "made"),
    [
        ([], None, [0, 1]),
        ([1], None, [0]),
        ([0, 1], None, []),
        # The cache does not know them yet, or not that another launcher gave one its slot.
        ([0, 1], [], []),
        ([1], [None], [0]),
    ],
)
def test_registers_only_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, slots: list[int], seen: list[None] | None, made: list[int]
) -> None:
    """S-10, S-4: nodes of this provider count, in any state, those of others do not; only hosts that answered."""
    store = Store()
    for slot in slots:
        store.add(slot)
    store.add(0, "elsewhere")
    if seen is not None:
        known = [store.zk.all_nodes()[number].copy() for number in range(len(seen))]
        for node in known:
            node.slot = None
        monkeypatch.setattr(store.zk, "nodeIterator", lambda cached=True: iter(known))
    assert store.registry.register({}) == 0
    assert store.registry.register(FOUND) == len(made)
    assert sorted(node.slot or 0 for node in store.zk.all_nodes() if node.provider == "lab") == [
        *sorted({*slots, *made})
    ]


@pytest.mark.parametrize("how", ["taken", "locked", "idle", "breaks off"])
def test_node_that_is_not_free(how: str) -> None:
    """S-6, S-7, S-13, S-17: every write is fenced by the version that the decision was made on."""
    store = Store()
    node = store.add()
    if how == "taken":
        store.zk.change(node.key, allocated_to="200-0000000001")
    elif how == "locked":
        store.zk.take(node.copy())
    elif how == "idle":
        store.idle.set()
        assert store.registry.register(FOUND) == 0
    else:
        store.zk.fail["deleteNode"] = AWAY
        with pytest.raises(ZKConnectionError):
            store.registry.deregister(node, "test")
        (left,) = store.zk.all_nodes()
        assert (left.state, store.zk.isNodeLocked(left)) == (states.DELETING, False)
        return
    assert not store.registry.update(node, {"type": ["big"]})
    assert not store.registry.hold(node, "test")
    assert not store.registry.deregister(node, "test")
    (left,) = store.zk.all_nodes()
    assert (left.state, left.type, store.zk.isNodeLocked(left)) == (states.READY, ["small"], how == "locked")


# -- requests --


def test_tenants_of_hosts(lab: Lab, hosts: Hosts) -> None:
    """A-24: a host is for its tenants; what all hosts together could not serve for the tenant is declined."""
    provider = lab.provider({**OFF, "allowed-tenants": ["a"]}, {**OFF, "name": "127.0.0.2"}, settled=True)
    worker, pool = PoolWorkerStandIn(lab.zk, provider, "main"), provider.provider.pools["main"]
    for node in lab.zk.all_nodes():
        worker.ready_nodes.put(node, pool.tenantsOfNode(node))
    for tenant, nodes, served in (("a", 2, 2), ("b", 1, 1), (None, 1, 1), ("b", 2, 1)):
        request = NodeRequest("200-0000000001")
        request.node_types, request.tenant_name = ["small"] * nodes, tenant
        kind = RequestKind.of(request)
        assert worker.ready_nodes.could_serve(request.node_types, kind)
        assert len(worker.ready_nodes.choose(request.node_types, kind=kind)) == served
        found = provider.getRequestHandler(worker, request).getDeclinedReasons()
        assert [reason_of(text).code for text in found] == [ReasonCode.ACCESS_TENANT] * (nodes > served)
    assert pool.tenantsOfLabel("small") is None


@pytest.mark.parametrize(("labels", "requestor", "pool", "reason"), driver_table("static", "declines"))
def test_declines(lab: Lab, hosts: Hosts, labels: list[str], requestor: str, pool: dict[str, Any], reason: str) -> None:
    """S-14, S-15, A-13: and nothing is ever launched (S-11); ready nodes are checked (S-9)."""
    provider = lab.provider({**OFF, **TWO}, pool=pool, settled=True)
    request = NodeRequest("200-0000000001")
    request.node_types, request.requestor = labels, requestor
    handler = provider.getRequestHandler(PoolWorkerStandIn(lab.zk, provider, "main"), request)
    found = handler.getDeclinedReasons()
    assert len(found) == bool(reason)
    assert all(reason in text for text in found)
    if "slots" in reason:
        assert reason_of(found[0]).code is ReasonCode.ROOM_STATIC
        assert not handler.hasProviderQuota(labels)
    assert not handler.hasRemainingQuota("small")
    with pytest.raises(NotImplementedError):
        handler.launch(Node("small"))
    assert (provider.labelReady("small"), provider.labelReady("big")) == (True, False)
    node = lab.zk.all_nodes()[0]
    assert handler.checkReusableNode(node)
    node.hostname = "127.0.0.250"
    assert not handler.checkReusableNode(node)
