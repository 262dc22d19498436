# SPDX-License-Identifier: Apache-2.0
"""`CloudSite`: where launchers with simulated clouds run, for the fixtures of all drivers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from tests.support.cloud_place import CloudPlace
from tests.support.local_launcher import LocalLauncher
from tests.support.pool_znodes import PoolZnodes
from tests.support.sshd import SshServer
from tests.support.zookeeper import ZooKeeperServer

P = TypeVar("P", bound=CloudPlace)


class ObservedCloud(Protocol):
    """A simulator that tells what happened to nodes."""

    def state(self) -> dict[str, Any]: ...


class CloudSite(NamedTuple):
    """:param directory: for the files of the launcher, and of its clouds.
    :param sshd: nodes are reached there.
    """

    directory: Path
    zookeeper: ZooKeeperServer
    chroot: str
    znodes: PoolZnodes
    sshd: SshServer

    @contextmanager
    def running(self, place: P) -> Iterator[P]:
        """A place whose launcher can be started, and is stopped in the end; then no node may ever have had two
        machines."""

        def start() -> LocalLauncher:
            launcher = LocalLauncher(self.directory / "nodepool.yaml", self.zookeeper, self.chroot, place.settings())
            launcher.start()
            return launcher

        place.start = start
        yield place
        if place.launcher is not None:
            place.launcher.stop()
        assert_unharmed(place.simulator)


def assert_unharmed(cloud: ObservedCloud) -> None:
    """No node has ever had two machines, and the simulator has found no error in itself."""
    state = cloud.state()
    assert state["double_nodes"] == []
    assert state["bugs"] == []
