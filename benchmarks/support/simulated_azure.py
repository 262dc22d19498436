# SPDX-License-Identifier: Apache-2.0
"""The simulated Azure subscription as a process of its own, and a provider that uses it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.support.simulated_cloud import LABEL
from benchmarks.support.simulator_process import simulator_process
from simulators.azure import AzureSimulatorClient


@dataclass
class AzureProvider:
    """A provider with one pool and one label.

    :param auth_path: file with the credentials, and with the address if it is not that of the public cloud.
    :param rate: None = the default.
    """

    auth_path: Path
    name: str = "azure-one"
    rate: float | None = None

    @property
    def labels(self) -> Iterable[str]:
        return [LABEL]

    @property
    def slots(self) -> int:
        return 0

    def as_config(self) -> dict[str, Any]:
        reference = {"publisher": "Debian", "offer": "debian-12", "sku": "12-gen2", "version": "latest"}
        image = {"name": "debian", "username": "zuul", "key": "ssh-ed25519 AAAA", "image-reference": reference}
        label = {"name": LABEL, "cloud-image": "debian", "hardware-profile": {"vm-size": "Standard_B1s"}}
        return {
            "name": self.name,
            "driver": "azure",
            "location": "northeurope",
            "resource-group": "nodepool",
            "resource-group-location": "northeurope",
            "auth-path": str(self.auth_path),
            "network": "ci",
            "boot-timeout": 300,
            **({} if self.rate is None else {"rate": self.rate}),
            "cloud-images": [image],
            "pools": [{"name": "main", "max-servers": 1000, "host-key-checking": False, "labels": [label]}],
        }


@contextmanager
def simulated_subscription(directory: Path, settings: dict[str, Any]) -> Iterator[tuple[AzureSimulatorClient, Path]]:
    """Starts it; gives a client, and the path of a file with credentials. The process ends with the block.

    :param settings: as `simulators.azure.AzureSettings`.
    """
    auth_path = directory / "azure.json"
    options = ["--auth-file", str(auth_path)]
    with simulator_process("simulators.azure", AzureSimulatorClient, directory, settings, options) as client:
        yield client, auth_path
