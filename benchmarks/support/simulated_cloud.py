# SPDX-License-Identifier: Apache-2.0
"""The simulated OpenStack as a process of its own, and a provider that uses it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from simulators.openstack import CLOUD_NAME, SimulatorClient
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

    :param knobs: as `simulators.openstack.Knobs`.
    """
    with simulated_clouds(directory, [CLOUD_NAME], knobs) as clouds:
        yield clouds[CLOUD_NAME]


@contextmanager
def simulated_clouds(
    directory: Path, names: Sequence[str], knobs: dict[str, Any]
) -> Iterator[Mapping[str, SimulatorClient]]:
    """Several, by their names in ``clouds.yaml``; each is a process, which ends with the block."""
    ports, processes, clients = free_ports(len(names)), [], {}
    clouds = directory / "clouds.yaml"
    try:
        for name, port in zip(names, ports, strict=True):
            own = directory / f"{name}.yaml"
            command = [sys.executable, "-m", "simulators.openstack", "--port", str(port)]
            command += ["--clouds-yaml", str(own), "--cloud", name, "--knobs", json.dumps(knobs)]
            process = ChildProcess(command, directory / f"simulator-{name}.log", cwd=ROOT)
            processes.append(process)
            process.start()
            clients[name] = SimulatorClient(f"http://127.0.0.1:{port}")
        for process, client in zip(processes, clients.values(), strict=True):
            _wait_answers(process, client)
        entries = [yaml.safe_load((directory / f"{name}.yaml").read_text(encoding="utf-8"))["clouds"] for name in names]
        merged = {name: cloud for entry in entries for name, cloud in entry.items()}
        clouds.write_text(yaml.safe_dump({"clouds": merged}), encoding="utf-8")
        os.environ[CLOUDS_VARIABLE] = str(clouds)
        yield clients
    finally:
        os.environ.pop(CLOUDS_VARIABLE, None)
        for process in processes:
            process.stop()


def _wait_answers(process: ChildProcess, client: SimulatorClient) -> None:
    wait_for("the simulator answers", lambda: client.url in process.log_text())


@dataclass
class OpenStackProvider:
    """A provider with one pool and one label.

    :param max_servers: of the pool; None = no limit.
    :param ssh_port: where sshd answers on all addresses; None = host keys are not asked for.
    """

    max_servers: int | None = None
    ssh_port: int | None = None
    name: str = "cloud-one"
    label: str = LABEL

    @property
    def labels(self) -> Iterable[str]:
        return [self.label]

    @property
    def slots(self) -> int:
        return 0

    def as_config(self) -> dict[str, Any]:
        label = {"name": self.label, "cloud-image": "cloud-image", "flavor-name": "small"}
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
