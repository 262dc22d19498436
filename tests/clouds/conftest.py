# SPDX-License-Identifier: Apache-2.0
"""A launcher with each simulated cloud in turn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clouds.site import Site
from tests.support.clouds import ALL_CLOUDS, CLOUDS
from tests.support.pool_znodes import PoolZnodes
from tests.support.sshd import SshServer
from tests.support.virtual_clock import VirtualClock
from tests.support.zookeeper import ZooKeeperServer


@pytest.fixture
def clock() -> Iterator[VirtualClock]:
    made = VirtualClock(0.1)
    with made.running():
        yield made


@pytest.fixture(params=list(CLOUDS))
def site(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    zookeeper: ZooKeeperServer,
    chroot: str,
    znodes: PoolZnodes,
    sshd: SshServer,
    clock: VirtualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Site]:
    """In the end no node has ever had two instances, and the simulator has found no error in itself."""
    cloud = ALL_CLOUDS[request.param](tmp_path, sshd.port)
    with cloud.simulator:
        for name, value in cloud.environment().items():
            monkeypatch.setenv(name, value)
        made = Site(tmp_path, zookeeper, chroot, znodes, cloud, clock)
        try:
            yield made
        finally:
            made.stop()
        state = cloud.state()
    assert (state["double_nodes"], state["bugs"]) == ([], [])
