# SPDX-License-Identifier: Apache-2.0
"""A provider section, and an adapter of it at a simulated subscription."""

from __future__ import annotations

import copy
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nodepool.config.objects import Config, DiskImage, Label
from nodepool.driver.azure import AzureDriver
from nodepool.driver.azure.adapter import AzureAdapter
from nodepool.driver.azure.config import AzureProviderConfig
from nodepool.driver.statemachine import Instance, metadata
from nodepool.driver.statemachine.machine import StateMachine
from nodepool.testing.azure import AzureSettings, AzureSimulator

PROVIDER = "north"
NODE = "0000000042"
HOST = f"np{NODE}"
LOG = logging.LoggerAdapter(logging.getLogger("test"), {})
METADATA = metadata.for_node(NODE, "main", PROVIDER)
#: No answer of a machine takes so long, unless something is broken.
DEADLINE_SECONDS = 45.0

_SECTION: dict[str, Any] = {
    "name": PROVIDER,
    "driver": "azure",
    "location": "northeurope",
    "resource-group": "nodepool",
    "resource-group-location": "northeurope",
    "network": "ci",
    "rate": 0,
    "cloud-images": [
        {
            "name": "debian",
            "username": "zuul",
            "key": "ssh-ed25519 AAAA",
            "image-reference": {"publisher": "Debian", "offer": "debian-12", "sku": "12-gen2", "version": "latest"},
        }
    ],
    "pools": [
        {
            "name": "main",
            "labels": [
                {"name": "small", "cloud-image": "debian", "hardware-profile": {"vm-size": "Standard_B1s"}},
            ],
        }
    ],
}


def section(label: dict[str, Any] | None = None, pool: dict[str, Any] | None = None, **provider: Any) -> dict[str, Any]:
    """A provider section with one label.

    :param label: more keys of it; ``pool`` and ``provider`` likewise, with ``-`` for ``_``.
    """
    made = copy.deepcopy(_SECTION)
    made |= {name.replace("_", "-"): value for name, value in provider.items()}
    made["pools"][0] |= pool or {}
    made["pools"][0]["labels"][0] |= label or {}
    return made


def load(data: dict[str, Any]) -> AzureProviderConfig:
    """Load a section in a configuration that has its labels and images."""
    whole = Config()
    for image in data.get("diskimages", []):
        whole.diskimages[image["name"]] = DiskImage(image["name"])
        whole.diskimages[image["name"]].username = "builder"
    for pool in data["pools"]:
        for label in pool.get("labels", []):
            whole.labels[label["name"]] = Label(label["name"])
    made = AzureDriver().getProviderConfig(data)
    made.getSchema()(data)
    made.load(whole)
    return made


def label_of(config: AzureProviderConfig) -> Any:
    return config.pools["main"].labels["small"]


class Here:
    """An adapter, and the subscription that it uses."""

    def __init__(self, simulator: AzureSimulator, adapter: AzureAdapter) -> None:
        self.simulator = simulator
        self.adapter = adapter

    def creation(self, attempt: int = 1, image: str | None = None) -> Any:
        label = label_of(self.adapter.config)
        made = self.adapter.getCreateStateMachine(HOST, label, image, METADATA, None, None, LOG)
        made.attempt = attempt
        return made

    def launch(self, attempt: int = 1, image: str | None = None) -> Instance:
        """The instance that a launch ends with; raises what ends it."""
        found = drive(self.creation(attempt, image))
        assert found is not None
        return found

    def delete(self, external_id: Any) -> None:
        drive(self.adapter.getDeleteStateMachine(external_id, LOG))

    def calls(self, operation: str) -> int:
        return int(self.simulator.state()["calls"].get(operation, 0))

    def contents(self) -> dict[str, int]:
        found: dict[str, int] = self.simulator.state()["contents"]
        return {kind: number for kind, number in found.items() if number and kind != "images"}


@contextmanager
def at_simulator(directory: Path, data: dict[str, Any], **settings: Any) -> Iterator[Here]:
    """An adapter of a section.

    :param settings: of the simulator.
    """
    with AzureSimulator(AzureSettings(**settings)) as simulator:
        auth = simulator.write_auth_file(directory / "auth.json")
        adapter = AzureAdapter(load({**data, "auth-path": str(auth)}))
        try:
            yield Here(simulator, adapter)
        finally:
            adapter.stop()
        assert not simulator.state()["bugs"]
        assert not simulator.state()["double_nodes"]


def drive(machine: StateMachine) -> Instance | None:
    """Advance a machine to its end, as the framework does it: when it wakes, and when it says."""
    woken = threading.Event()
    machine.wake = woken.set
    limit = threading.Timer(DEADLINE_SECONDS, lambda: None)
    limit.start()
    try:
        while limit.is_alive():
            woken.clear()
            found = machine.advance()
            if machine.complete:
                return found
            woken.wait(min(machine.next_advance_seconds or 1.0, 1.0))
    finally:
        limit.cancel()
        limit.join()
    raise AssertionError(f"the machine is still {machine.state}")
