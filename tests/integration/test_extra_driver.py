# SPDX-License-Identifier: Apache-2.0
"""A driver that is not part of the package, as its author installs it: a directory and an environment variable."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.registry import PATH_VARIABLE
from simulators.example_cloud import ExampleCloud
from tests.scenario.test_example import copy_of_the_example
from tests.support.command_line import CommandLine
from tests.support.launcher import LauncherProcess
from tests.support.launcher_config import write_config
from tests.support.pool_znodes import PoolZnodes
from tests.support.sshd import SshServer
from tests.support.wait import wait_for
from tests.support.zookeeper import ZooKeeperServer


@dataclass
class MyCloud:
    """A provider of a copy of the example driver."""

    url: str
    ssh_port: int
    name = "mine"
    labels = ("small",)
    slots = 0

    def as_config(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "driver": "mycloud",
            "url": self.url,
            "cloud-images": [{"name": "debian", "username": "debian", "connection-port": self.ssh_port}],
            "pools": [{"name": "main", "labels": [{"name": "small", "cloud-image": "debian", "size": "small"}]}],
        }


@pytest.fixture
def cloud() -> Iterator[ExampleCloud]:
    with ExampleCloud(boot_seconds=0.2) as cloud:
        yield cloud


def test_copied_driver(
    tmp_path: Path, zookeeper: ZooKeeperServer, chroot: str, znodes: PoolZnodes, cloud: ExampleCloud, sshd: SshServer
) -> None:
    """reference/driver 0: config-validate knows it, and a launcher serves a request with it."""
    copy_of_the_example(tmp_path / "drivers", "mycloud")
    config = tmp_path / "nodepool.yaml"
    write_config(config, zookeeper, chroot, [MyCloud(cloud.url, sshd.port)])
    where = {PATH_VARIABLE: str(tmp_path / "drivers")}
    nodepool = CommandLine(config)
    assert nodepool("config-validate").status == 1
    nodepool.environment.update(where)
    result = nodepool("config-validate")
    assert result.status == 0, result.err
    launcher = LauncherProcess(config, tmp_path / "launcher.log", environment=where)
    launcher.start()
    try:
        request_id = znodes.submit(["small"])
        wait_for("the request is fulfilled", lambda: znodes.request_state(request_id) == "fulfilled")
        (node_id,) = (znodes.request(request_id) or {})["nodes"]
        assert (znodes.node(node_id) or {})["username"] == "debian"
        znodes.change_node(node_id, state="used")
        wait_for("the machine is gone", lambda: not cloud.machines.instances())
    finally:
        launcher.stop()
    assert not launcher.tracebacks()
