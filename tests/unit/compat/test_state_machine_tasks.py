# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from nodepool.compat.state_machine_tasks import (
    NodescanRequest,
    NodescanWorker,
    StateMachineNodeDeleter,
    StateMachineNodeLauncher,
)
from nodepool.driver.fake.cloud import FakeCloud
from nodepool.driver.statemachine import StateMachineProvider
from nodepool.exceptions import LaunchKeyscanException
from nodepool.model import states
from nodepool.model.node import Node
from nodepool.testing.memory_zk import MemoryZooKeeper
from tests.support.driver_site import DriverSite
from tests.support.machine_driver import MachineDriver
from tests.support.wait import wait_for

LOG = logging.getLogger("driver")


@pytest.fixture
def worker() -> Iterator[NodescanWorker]:
    made = NodescanWorker()
    made.start()
    yield made
    made.stop()
    made.join()


def node_on(port: int) -> Node:
    node = Node("small", id="1")
    node.interface_ip, node.connection_port, node.connection_type = "127.0.0.1", port, "winrm"
    return node


def test_scan(worker: NodescanWorker) -> None:
    """A port that answers is enough where no keys are collected."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        request = NodescanRequest(node_on(server.getsockname()[1]), True, 30, LOG)
        worker.addRequest(request)
        assert request.result() == []
    assert request.complete
    wait_for("it is not waited for any more", lambda: worker.length() == 0)


def test_nobody_answers(worker: NodescanWorker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    request = NodescanRequest(node_on(port), True, 0.1, LOG)
    worker.addRequest(request)
    with pytest.raises(LaunchKeyscanException):
        request.result()


def test_without_check(worker: NodescanWorker) -> None:
    request = NodescanRequest(node_on(1), False, 30, LOG)
    worker.addRequest(request)
    assert request.result() == []


def test_fail() -> None:
    """The first end counts."""
    request = NodescanRequest(node_on(1), True, 30, LOG)
    request.fail(KeyError("first"))
    request.fail(ValueError("second"))
    with pytest.raises(KeyError):
        request.result()


def test_launch_and_deletion() -> None:
    """As the framework's own, begun by a driver."""
    zk = MemoryZooKeeper()
    section: dict[str, Any] = {
        "name": "nowhere",
        "driver": "machines",
        "cloud": "state-machine-tasks",
        "pools": [{"name": "main", "labels": [{"name": "small", "cores": 2}]}],
    }
    site = DriverSite(MachineDriver(), section, zk)
    try:
        provider: Any = site.provider
        assert isinstance(provider, StateMachineProvider)
        handler: Any = provider.getRequestHandler(site.worker, site.worker.submit("small"))
        node = Node("small")
        node.provider, node.pool, node.hostname = "nowhere", "main", "np1"
        zk.storeNode(node)
        node.state = states.BUILDING
        zk.nodes.lock_and_save(node)
        launch = StateMachineNodeLauncher(handler, node, provider.provider)
        launch.launch()
        wait_for("it has ended", lambda: launch.complete)
        assert node.state == states.READY
        node.state = states.USED
        deletion = StateMachineNodeDeleter(zk, provider, node)
        seen = [deletion.complete]
        provider.scheduler.add(deletion)
        deletion.join(30)
        assert [*seen, deletion.complete] == [False, True]
        assert zk.getNode(node.key) is None
    finally:
        site.end()
        FakeCloud.forget("state-machine-tasks")
