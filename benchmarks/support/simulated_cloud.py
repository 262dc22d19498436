# SPDX-License-Identifier: Apache-2.0
"""The simulated OpenStack as a process of its own, and a provider that uses it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nodepool.testing.openstack import CLOUD_NAME, SimulatorClient
from tests.support.ports import free_ports
from tests.support.process import ChildProcess
from tests.support.wait import wait_for

ROOT = Path(__file__).resolve().parents[2]
#: openstacksdk looks here for the file with the clouds.
CLOUDS_VARIABLE = "OS_CLIENT_CONFIG_FILE"
LABEL = "small"


@contextmanager
def simulated_cloud(directory: Path, knobs: dict[str, Any]) -> Iterator[SimulatorClient]:
    """Starts it and tells launchers, which inherit the environment, where it is. The process ends with the block.

    :param knobs: as `nodepool.testing.openstack.Knobs`.
    """
    port, clouds = free_ports(1)[0], directory / "clouds.yaml"
    command = [sys.executable, "-m", "nodepool.testing.openstack", "--port", str(port)]
    command += ["--clouds-yaml", str(clouds), "--knobs", json.dumps(knobs)]
    process = ChildProcess(command, directory / "simulator.log", cwd=ROOT)
    process.start()
    client = SimulatorClient(f"http://127.0.0.1:{port}")
    os.environ[CLOUDS_VARIABLE] = str(clouds)
    try:
        wait_for("the simulator answers", lambda: client.url in process.log_text())
        yield client
    finally:
        os.environ.pop(CLOUDS_VARIABLE)
        process.stop()


@dataclass
class OpenStackProvider:
    """A provider with one pool and one label.

    :param max_servers: of the pool; None = no limit.
    :param ssh_port: where sshd answers on all addresses; None = host keys are not asked for.
    """

    max_servers: int | None = None
    ssh_port: int | None = None
    name: str = "cloud-one"

    @property
    def labels(self) -> Iterable[str]:
        return [LABEL]

    @property
    def slots(self) -> int:
        return 0

    def as_config(self) -> dict[str, Any]:
        label = {"name": LABEL, "cloud-image": "cloud-image", "flavor-name": "small"}
        pool: dict[str, Any] = {
            "name": "main",
            "networks": ["provider"],
            "host-key-checking": self.ssh_port is not None,
            "labels": [label],
        }
        if self.max_servers is not None:
            pool["max-servers"] = self.max_servers
        image = {"name": "cloud-image", "username": "zuul", "connection-port": self.ssh_port or 22}
        section = {"driver": "openstack", "cloud": CLOUD_NAME, "rate": 0, "boot-timeout": 120}
        return {"name": self.name, **section, "cloud-images": [image], "pools": [pool]}
