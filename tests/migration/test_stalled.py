# SPDX-License-Identifier: Apache-2.0
"""A released launcher that stands still at the worst moment loses nothing to ours."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest

from benchmarks.support.simulated_cloud import OpenStackProvider
from simulators.openstack import SimulatorClient
from tests.support.launcher import LauncherProcess
from tests.support.launcher_config import write_config
from tests.support.pool_znodes import PoolZnodes
from tests.support.released import released_programs
from tests.support.tcp_proxy import TcpProxy
from tests.support.wait import holds_for, wait_for
from tests.support.workplace import Workplace

SESSION_SECONDS = 30.0
#: Each way between the released launcher and ZooKeeper: so its lock comes well after its node.
DELAY_SECONDS = 0.3
#: Ours has looked for lost nodes several times.
STALLED_SECONDS = 8.0
PROVIDER = OpenStackProvider()


@pytest.fixture
def relay(workplace: Workplace) -> Iterator[TcpProxy]:
    """The way of the released launcher to ZooKeeper."""
    link = TcpProxy(workplace.zookeeper.tls_port)
    link.start()
    yield link
    link.stop()


@pytest.fixture
def released(workplace: Workplace, relay: TcpProxy, cloud: SimulatorClient) -> Iterator[LauncherProcess]:
    """A released launcher that serves."""
    assert cloud.servers() == []
    config = workplace.directory / "released.yaml"
    settings = {"session_seconds": SESSION_SECONDS, "zookeeper_ports": [relay.port]}
    write_config(config, workplace.zookeeper, workplace.chroot, [PROVIDER], **settings)  # type: ignore[arg-type]
    command = [str(released_programs().launcher)]
    launcher = LauncherProcess(config, workplace.directory / "released.log", command)
    launcher.start()
    workplace.wait_registered(launcher, 1)
    yield launcher
    launcher.stop(signal.SIGINT, seconds=60)


@pytest.mark.timeout(300)
def test_between_storing_and_locking_a_node(
    workplace: Workplace, released: LauncherProcess, relay: TcpProxy, znodes: PoolZnodes, cloud: SimulatorClient
) -> None:
    """C-4, C-10: the node is not locked for seconds, and its request is served with it all the same."""
    relay.delay_seconds = (DELAY_SECONDS, DELAY_SECONDS)
    request_id = znodes.submit(["small"])
    node_id = wait_for("a node that is not locked yet", lambda: _unlocked(znodes), 60)
    released.send_signal(signal.SIGSTOP)
    ours = workplace.launch([PROVIDER], wait=False, session_seconds=SESSION_SECONDS)
    workplace.wait_registered(ours, 2)
    end = time.monotonic() + STALLED_SECONDS
    holds_for("the node is as it was", lambda: _unlocked(znodes) == node_id, lambda: time.monotonic() > end)
    relay.delay_seconds = (0.0, 0.0)
    released.send_signal(signal.SIGCONT)

    assert [node["id"] for node in znodes.served(request_id, 90)] == [node_id]
    assert [server["metadata"]["nodepool_node_id"] for server in cloud.servers()] == [node_id]


def _unlocked(znodes: PoolZnodes) -> str | None:
    """The node in ``init`` that nobody has locked."""
    return next((name for name in znodes.nodes("init") if not znodes.node_lockers(name)), None)
