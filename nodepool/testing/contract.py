# SPDX-License-Identifier: Apache-2.0
"""`DriverContract`: a pytest class that checks a driver against reference/driver.

Subclass it in a test module of your driver and run pytest::

    from nodepool.testing.contract import DriverContract

    class TestMyDriver(DriverContract):
        label = "small"

        def make_driver(self):
            return MyDriver()

        def provider_section(self):
            return {
                "name": "cloud",
                "driver": "mydriver",
                "pools": [{"name": "main", "labels": [{"name": "small"}]}],
            }

The driver talks to the cloud that its section names: point it at a fake one, or be ready to pay for some
instances. Everything else is in memory; no ZooKeeper is needed.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import Final

import pytest

from nodepool.driver.config import ProviderConfig
from nodepool.driver.handler import NodeRequestHandler
from nodepool.driver.interface import Driver, Provider
from nodepool.driver.registry import missing_members
from nodepool.exceptions import NotFound
from nodepool.model import states
from nodepool.testing.configuration_rules import ConfigurationRules
from nodepool.testing.harness import check_node, check_threads
from nodepool.testing.memory_zk import MemoryZooKeeper
from nodepool.testing.pool_worker import PoolWorkerStandIn

HANDLER_MEMBERS: Final = (
    *("pw", "request", "launcher_id", "provider", "pool", "zk", "manager", "log", "nodeset", "paused", "done"),
    *("ready_nodes", "failed_nodes", "alive_thread_count", "imagesAvailable", "launch", "launchesComplete"),
    *("hasProviderQuota", "hasRemainingQuota", "checkReusableNode", "setNodeMetadata", "getDeclinedReasons"),
    *("run", "poll", "declineRequest", "unlockNodeSet", "nodeReusedNotification"),
)


class DriverContract(ConfigurationRules):
    """Override the hooks of `DriverHarness`; add fixtures of your own (autouse) for what has to be there before.

    Each test gets a new driver, configuration, ZooKeeper and provider.
    """

    def test_classes_are_complete(self, driver: Driver, provider: Provider, worker: PoolWorkerStandIn) -> None:
        """Nothing that a base class demands is missing."""
        handler = provider.getRequestHandler(worker, worker.submit(self.label))
        for thing in (driver, provider, provider.provider, handler):
            missing = missing_members(type(thing))
            assert not missing, f"{type(thing).__name__} lacks {', '.join(missing)}"

    # -- provider --

    def test_provider_keeps_its_configuration(self, provider: Provider, provider_config: ProviderConfig) -> None:
        """2: the object is compared on a reload."""
        assert provider.provider is provider_config, "provider.provider must be the ProviderConfig"
        assert provider.name == provider_config.name, f"name is {provider.name!r}"

    def test_nothing_runs_before_start(self, driver: Driver, provider_config: ProviderConfig) -> None:
        """2: a provider that was not started has no threads."""
        before = set(threading.enumerate())
        driver.getProvider(provider_config)
        check_threads(before, self.call_seconds)

    def test_stop_more_than_once(self, provider: Provider) -> None:
        """2: idle() and stop() return soon and may be called again; join() returns."""
        for call in (provider.idle, provider.idle, provider.stop, provider.stop):
            self.bounded(f"{call.__name__}()", call)
        self.bounded("join()", provider.join, self.node_seconds)

    def test_reload(self, driver: Driver, provider: Provider, zk: MemoryZooKeeper) -> None:
        """G-5: the successor is started before the old one is stopped, and then serves."""
        self.bounded("idle()", provider.idle)
        successor = driver.getProvider(self.load(driver)[0])
        successor.zk = zk
        self.bounded("start()", lambda: successor.start(zk))
        try:
            self.bounded("stop()", provider.stop)
            worker = PoolWorkerStandIn(zk, successor, self.pool_of_label(successor.provider).name)
            self.release(worker, successor, self.get_node(worker, successor))
        finally:
            self.shut_down(successor)

    def test_label_ready(self, provider: Provider, provider_config: ProviderConfig) -> None:
        """2: takes a name or the pool's label object."""
        labels = self.pool_of_label(provider_config).labels
        for label in (self.label, labels[self.label] if isinstance(labels, dict) else self.label):
            assert self.bounded("labelReady()", partial(provider.labelReady, label)), f"{label!r}: not ready"

    def test_error_labels(self, provider: Provider) -> None:
        """2: a list of names; the label is not in it."""
        labels = provider.errorLabels()
        assert isinstance(labels, list), f"errorLabels() returns a {type(labels).__name__}, not a list"
        assert self.label not in labels, f"{self.label!r} is an error label"

    def test_list_nodes(self, provider: Provider, worker: PoolWorkerStandIn) -> None:
        """2: machines carry the id of their node."""
        node = self.get_node(worker, provider)
        found = self.bounded("listNodes()", provider.listNodes)
        if provider.LAUNCHES:
            ids = [machine.metadata.get("nodepool_node_id") for machine in found]
            assert ids.count(node.id) == 1, f"listNodes() shows {ids.count(node.id)} machines of node {node.id}"
        self.release(worker, provider, node)

    def test_delete_what_is_not_there(self, provider: Provider) -> None:
        """X-4: an unknown machine is as good as deleted: no error, or NotFound."""
        for call in (provider.cleanupNode, provider.waitForNodeCleanup):
            try:
                self.bounded(f"{call.__name__}()", partial(call, self.unknown_external_id), self.node_seconds)
            except NotFound:
                continue

    def test_sweep(self, provider: Provider, worker: PoolWorkerStandIn) -> None:
        """2, D-2: cleanupLeakedResources() finds nothing to do, and leaves a node that is used alone."""
        node = self.get_node(worker, provider)
        for _ in range(3):
            self.bounded("cleanupLeakedResources()", provider.cleanupLeakedResources, self.node_seconds)
        stored = worker.getZK().getNode(node.key)
        assert stored is not None, "the node is gone"
        assert stored.state == states.IN_USE, f"the node is {stored.state}"
        if provider.LAUNCHES:
            ids = [machine.metadata.get("nodepool_node_id") for machine in provider.listNodes()]
            assert node.id in ids, "the machine of a node that is in use was deleted"
        self.release(worker, provider, node)

    def test_leaked_machine(self, provider: Provider, worker: PoolWorkerStandIn) -> None:
        """D-2: a machine without a node is deleted by the second sweep at the latest."""
        if not provider.LAUNCHES:
            pytest.skip("this driver has no machines of its own")
        node = self.get_node(worker, provider)
        worker.getZK().deleteRawNode(node.key)
        for _ in range(2):
            self.bounded("cleanupLeakedResources()", provider.cleanupLeakedResources, self.node_seconds)

        def gone() -> bool:
            return node.id not in [machine.metadata.get("nodepool_node_id") for machine in provider.listNodes()]

        self.wait_until("the leaked machine is gone", gone)

    # -- requests --

    def test_handler(self, provider: Provider, worker: PoolWorkerStandIn) -> None:
        """3: a new handler has everything that the framework uses, and no reason to decline."""
        request = worker.submit(self.label)
        handler = provider.getRequestHandler(worker, request)
        assert isinstance(handler, NodeRequestHandler), "getRequestHandler() must return a NodeRequestHandler"
        missing = [member for member in HANDLER_MEMBERS if not hasattr(handler, member)]
        assert not missing, f"the handler lacks {', '.join(missing)}"
        assert handler.request is request, "handler.request is another object"
        assert handler.launcher_id == worker.launcher_id, "handler.launcher_id is not that of the pool worker"
        assert not handler.paused, "a new handler is paused"
        assert not handler.done, "a new handler is done"
        assert list(handler.nodeset) == [], "a new handler has nodes"
        assert handler.alive_thread_count == 0, "a new handler has launches in progress"
        assert handler.imagesAvailable(), "imagesAvailable() is false"
        reasons = handler.getDeclinedReasons()
        assert isinstance(reasons, list), f"getDeclinedReasons() returns a {type(reasons).__name__}"
        assert not reasons, f"the request would be declined: {'; '.join(reasons)}"

    def test_declines_unknown_label(self, worker: PoolWorkerStandIn) -> None:
        """A-13: a label of nobody is declined, and the request fails when nobody else is there."""
        request, nodes = worker.serve("no-such-label", timeout=self.node_seconds)
        assert request.declined_by == [worker.launcher_id], f"declined_by is {request.declined_by}"
        assert request.state == states.FAILED, f"the request is {request.state}, not failed"
        assert not nodes, "a declined request has nodes"

    def test_disabled_pool(self, driver: Driver, zk: MemoryZooKeeper) -> None:
        """A-13: ``max-servers: 0`` declines everything."""
        section = self.provider_section()
        for pool in section["pools"]:
            pool["max-servers"] = 0
        before = set(threading.enumerate())
        provider = driver.getProvider(self.load(driver, section)[0])
        provider.zk = zk
        self.bounded("start()", lambda: provider.start(zk))
        worker = PoolWorkerStandIn(zk, provider, self.pool_of_label(provider.provider).name)
        request, _ = worker.serve(self.label, timeout=self.node_seconds)
        assert request.state == states.FAILED, f"the request is {request.state}, not failed"
        self.shut_down(provider)
        check_threads(before, self.call_seconds)

    def test_life_of_a_node(self, provider: Provider, worker: PoolWorkerStandIn) -> None:
        """3, L, X: requested, ready, used, deleted."""
        zk = worker.getZK()
        node = self.get_node(worker, provider)
        check_node(node, provider, self.label)
        foretold = self.bounded("idInAdvance()", partial(provider.idInAdvance, node))
        assert foretold in (None, node.external_id), f"idInAdvance() says {foretold}, it became {node.external_id}"
        assert not zk.isNodeLocked(node), "a fulfilled request's node is still locked"
        self.release(worker, provider, node)
        assert zk.getNode(node.key) is None, "the node is still there after its deletion"
        if provider.LAUNCHES:
            ids = [machine.metadata.get("nodepool_node_id") for machine in provider.listNodes()]
            assert node.id not in ids, "the machine is still there after its deletion"
        else:
            self.wait_for_ready_node(worker)

    def test_two_nodes(self, provider: Provider, worker: PoolWorkerStandIn) -> None:
        """N-7, N-8: a request with two nodes gets two, in one availability zone."""
        if not provider.LAUNCHES:
            pytest.skip("this driver has only the machines that it is given")
        request, nodes = worker.serve(self.label, self.label, timeout=self.node_seconds)
        assert request.state == states.FULFILLED, f"the request is {request.state}, not fulfilled"
        assert len({node.id for node in nodes}) == 2, f"the request has the nodes {request.nodes}"
        assert len({str(node.external_id) for node in nodes}) == 2, "both nodes have the same external_id"
        assert len({node.az for node in nodes}) == 1, "the nodes are in different availability zones"
        for node in nodes:
            self.release(worker, provider, node)

    def test_cancelled_request(self, provider: Provider, worker: PoolWorkerStandIn) -> None:
        """L-11, Q-13: the handler of a request that is gone ends, and keeps no node."""
        zk = worker.getZK()
        request = worker.submit(self.label)
        handler = worker.accept(request)
        zk.deleteNodeRequest(request)
        worker.drive(handler, self.node_seconds)
        nodes = [node for node in zk.nodeIterator() if node.allocated_to == request.id]
        assert not nodes, f"nodes of a request that is gone: {nodes}"
        for node in [n for n in zk.nodeIterator() if provider.LAUNCHES and n.provider == provider.name]:
            assert not zk.isNodeLocked(node), f"node {node.id} is still locked"
            self.release(worker, provider, node)

    def test_reuses_a_ready_node(self, provider: Provider, worker: PoolWorkerStandIn) -> None:
        """N-2: a free ready node is taken, not launched again."""
        zk = worker.getZK()
        first = self.get_ready_node(worker, provider)
        first.allocated_to = None
        zk.storeNode(first)
        _, nodes = worker.serve(self.label, timeout=self.node_seconds)
        if provider.LAUNCHES:
            assert [node.id for node in nodes] == [first.id], "a ready node was not reused"
        assert len(nodes) == 1, "the request was not served"
        self.release(worker, provider, nodes[0])

    def test_deletion_notification(self, provider: Provider, worker: PoolWorkerStandIn) -> None:
        """2: may come for any node of the provider."""
        node = self.get_node(worker, provider)
        self.release(worker, provider, node)
        self.bounded("nodeDeletedNotification()", partial(provider.nodeDeletedNotification, node))
