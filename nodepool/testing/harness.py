# SPDX-License-Identifier: Apache-2.0
"""What the contract tests stand on: hooks for the author of a driver, fixtures, and steps of the launcher."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from nodepool.clock import monotonic
from nodepool.config.objects import Config, DiskImage, Label
from nodepool.driver.config import ConfigPool, ProviderConfig
from nodepool.driver.interface import Driver, Provider
from nodepool.model import states
from nodepool.model.node import Node
from nodepool.testing.memory_zk import MemoryZooKeeper
from nodepool.testing.pool_worker import PoolWorkerStandIn


class DriverHarness:
    """Override the hooks; add fixtures of your own (autouse) for what has to be there before.

    Each test gets a new driver, configuration, ZooKeeper and provider.
    """

    # -- hooks --

    #: A label that the section of `provider_section` offers, and for which a node can be had.
    label: str = ""
    #: An id as the cloud gives it, of an instance that does not exist.
    unknown_external_id: Any = "no-such-instance"
    #: Longest time that a node may take to be ready, or to be deleted.
    node_seconds: float = 120.0
    #: Longest time for calls that should return soon.
    call_seconds: float = 30.0

    def make_driver(self) -> Driver:
        """A new object of the driver."""
        raise NotImplementedError("override make_driver()")

    def provider_section(self) -> dict[str, Any]:
        """One item of ``providers`` in the configuration, as YAML gives it; must have a pool with `label`."""
        raise NotImplementedError("override provider_section()")

    # -- what tests use --

    def load(self, driver: Driver, section: dict[str, Any] | None = None) -> tuple[ProviderConfig, Config]:
        """Load a section in a configuration that knows all labels and images that it can need."""
        config = Config()
        section = self.provider_section() if section is None else section
        for name in {self.label, *_label_names(section)}:
            config.labels[name] = Label(name)
        for image in section.get("diskimages") or []:
            config.diskimages[image["name"]] = DiskImage(image["name"])
        provider_config = driver.getProviderConfig(section)
        provider_config.load(config)
        config.providers[provider_config.name] = provider_config
        return provider_config, config

    def bounded(self, what: str, call: Callable[[], Any], seconds: float | None = None) -> Any:
        """Call something in a thread; fails the test if it does not return within ``seconds``."""
        outcome: list[Any] = []

        def run() -> None:
            try:
                outcome.extend((call(), None))
            except BaseException as error:  # noqa: BLE001 - raised again below
                outcome.extend((None, error))

        thread = threading.Thread(target=run, name=f"contract-{what}", daemon=True)
        thread.start()
        limit = self.call_seconds if seconds is None else seconds
        thread.join(limit)
        assert not thread.is_alive(), f"{what} did not return within {limit:g} s"
        value, error = outcome
        if error is not None:
            raise error
        return value

    def wait_until(self, what: str, check: Callable[[], Any]) -> Any:
        """Look until something is true, at most ``node_seconds``."""
        deadline = monotonic() + self.node_seconds
        pause = threading.Event()
        while not (found := check()):
            assert monotonic() < deadline, f"{what}: not within {self.node_seconds:g} s"
            pause.wait(0.02)
        return found

    def shut_down(self, provider: Provider) -> None:
        """As the launcher does at its end."""
        self.bounded("stop()", provider.stop)
        self.bounded("join()", provider.join, self.node_seconds)

    def pool_of_label(self, provider_config: ProviderConfig) -> ConfigPool:
        for pool in provider_config.pools.values():
            if self.label in provider_config.getSupportedLabels(pool.name):
                found: ConfigPool = pool
                return found
        pytest.fail(f"no pool of provider_section() has the label {self.label!r}")

    def get_node(self, worker: PoolWorkerStandIn, provider: Provider) -> Node:
        """Have one request served, and check that it went well; returns its node, `in-use` and unlocked."""
        node = self.get_ready_node(worker, provider)
        node.state = states.IN_USE
        worker.getZK().storeNode(node)
        return node

    def get_ready_node(self, worker: PoolWorkerStandIn, provider: Provider) -> Node:
        """The same, but the node is still `ready`."""
        if not provider.LAUNCHES:
            self.wait_for_ready_node(worker)
        request, nodes = worker.serve(self.label, timeout=self.node_seconds)
        assert request.state == states.FULFILLED, f"the request is {request.state}, not fulfilled"
        assert len(nodes) == 1, f"the request has {len(nodes)} nodes, not 1"
        return nodes[0]

    def wait_for_ready_node(self, worker: PoolWorkerStandIn) -> Node:
        zk = worker.getZK()

        def find() -> Node | None:
            ready = (n for n in zk.nodeIterator() if n.state == states.READY and n.allocated_to is None)
            return next((n for n in ready if self.label in n.type and not zk.isNodeLocked(n)), None)

        node: Node = self.wait_until(f"a ready node with label {self.label}", find)
        return node

    def release(self, worker: PoolWorkerStandIn, provider: Provider, node: Node) -> None:
        """Delete a node as the launcher does with one that Zuul has used."""
        zk = worker.getZK()
        node.state = states.USED
        zk.nodes.lock_and_save(node)
        replacement = provider.replacementFor(node)
        if replacement is not None:
            zk.replaceNode(node, replacement)
            provider.nodeDeletedNotification(node)
            return
        task = provider.startNodeCleanup(node)
        self.bounded("join() of what startNodeCleanup() returned", task.join, self.node_seconds)

    # -- fixtures --

    @pytest.fixture
    def driver(self) -> Driver:
        return self.make_driver()

    @pytest.fixture
    def provider_config(self, driver: Driver) -> ProviderConfig:
        return self.load(driver)[0]

    @pytest.fixture
    def zk(self) -> MemoryZooKeeper:
        return MemoryZooKeeper()

    @pytest.fixture
    def provider(self, driver: Driver, provider_config: ProviderConfig, zk: MemoryZooKeeper) -> Iterator[Provider]:
        """A started provider; stopped, joined and searched for threads afterwards."""
        before = set(threading.enumerate())
        provider = driver.getProvider(provider_config)
        provider.zk = zk
        self.bounded("start()", lambda: provider.start(zk))
        yield provider
        self.shut_down(provider)
        check_threads(before, self.call_seconds)

    @pytest.fixture
    def worker(self, provider: Provider, provider_config: ProviderConfig, zk: MemoryZooKeeper) -> PoolWorkerStandIn:
        return PoolWorkerStandIn(zk, provider, self.pool_of_label(provider_config).name)


#: Connection types of nodes in a cluster of Kubernetes; those without a pod have no address.
WITHOUT_ADDRESS = ("namespace", "project")
IN_A_CLUSTER = ("kubectl", *WITHOUT_ADDRESS)


def check_node(node: Node, provider: Provider, label: str) -> None:
    """Does a node record have all that Zuul needs to use it?"""
    assert label in node.type, f"type is {node.type}"
    assert node.provider == provider.name, f"provider is {node.provider!r}"
    assert node.pool in provider.provider.pools, f"pool is {node.pool!r}"
    assert node.external_id is not None, "external_id is not set"
    assert node.connection_type, "connection_type is not set"
    if node.connection_type in IN_A_CLUSTER:
        # KU-8: what a client of the cluster needs. A namespace has no address, a pod is named.
        missing = {"namespace", "host", "token"} - set(node.connection_port or ())
        assert not missing, f"connection_port lacks {', '.join(sorted(missing))}"
    else:
        assert node.username, "username is not set"
        assert isinstance(node.connection_port, int), f"connection_port is {node.connection_port!r}, not a number"
    if node.connection_type not in WITHOUT_ADDRESS:
        assert node.interface_ip, "interface_ip is not set"
    assert node.python_path, "python_path is not set"
    assert all(isinstance(key, str) for key in node.host_keys), f"host_keys are {node.host_keys!r}"


def check_threads(before: set[threading.Thread], seconds: float) -> None:
    """Fail if threads are there that were not there before and do not end."""
    deadline = monotonic() + seconds
    new = [thread for thread in threading.enumerate() if thread not in before]
    for thread in new:
        thread.join(max(0.0, deadline - monotonic()))
    left = [thread.name for thread in new if thread.is_alive()]
    assert not left, f"threads are left behind: {', '.join(left)}"


def _label_names(section: dict[str, Any]) -> Iterator[str]:
    """Labels in a section: of pools, and of the hosts of static pools."""
    for pool in section.get("pools", []):
        for item in pool.get("labels", []):
            yield item["name"] if isinstance(item, dict) else item
        for host in pool.get("nodes", []):
            labels = host.get("labels", [])
            yield from labels.split() if isinstance(labels, str) else labels
