# SPDX-License-Identifier: Apache-2.0
"""An adapter of a provider section at a simulated region."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nodepool.driver.ibmvpc.adapter import IbmAdapter
from nodepool.driver.statemachine import Instance, metadata
from nodepool.driver.statemachine.machine import StateMachine
from nodepool.testing.ibmvpc import IbmVpcSettings, IbmVpcSimulator
from tests.unit.driver.ibmvpc import support

LOG = logging.LoggerAdapter(logging.getLogger("test"), {})
IMAGE = "ibm-debian-12-11-minimal-amd64-1"
#: No answer of a machine takes so long, unless something is broken.
DEADLINE_SECONDS = 45.0


def section(label: dict[str, Any] | None = None, pool: dict[str, Any] | None = None, **provider: Any) -> dict[str, Any]:
    """A provider section of what is in the region."""
    image = {"name": "debian", "username": "root", "image-name": IMAGE, "keys": ["zuul"]}
    given = {"subnet": "ci-us-south-1", "cloud_images": [image], **provider}
    return support.section(label, pool, **given)


class Here:
    """An adapter, and the region that it uses."""

    def __init__(self, simulator: IbmVpcSimulator, adapter: IbmAdapter) -> None:
        self.simulator = simulator
        self.adapter = adapter

    def creation(self, node: str = support.NODE, attempt: int = 1, image: str | None = None) -> Any:
        label = support.label_of(self.adapter.config)
        data = metadata.for_node(node, "main", support.PROVIDER)
        made = self.adapter.getCreateStateMachine(f"np{node}", label, image, data, None, None, LOG)
        made.attempt = attempt
        return made

    def launch(self, node: str = support.NODE, attempt: int = 1, image: str | None = None) -> Instance:
        """The instance that a launch ends with; raises what ends it."""
        found = drive(self.creation(node, attempt, image))
        assert found is not None
        return found

    def delete(self, external_id: Any) -> None:
        drive(self.adapter.getDeleteStateMachine(external_id, LOG))

    def calls(self, operation: str) -> int:
        return int(self.simulator.state()["calls"].get(operation, 0))

    def contents(self) -> dict[str, int]:
        found: dict[str, int] = self.simulator.state()["contents"]
        return {kind: number for kind, number in found.items() if number}


@contextmanager
def at_simulator(directory: Path, data: dict[str, Any], **settings: Any) -> Iterator[Here]:
    """An adapter of a section.

    :param settings: of the simulator.
    """
    with IbmVpcSimulator(IbmVpcSettings(**settings)) as simulator:
        file = simulator.write_credentials(directory / "ibm.env")
        given = {**data, "credentials-file": str(file)}
        if "object-storage" in data:
            given["object-storage"] = {**data["object-storage"], "endpoint": simulator.url}
        adapter = IbmAdapter(support.load(given))
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
            woken.wait(1.0 if machine.next_advance_seconds is None else min(machine.next_advance_seconds, 1.0))
    finally:
        limit.cancel()
        limit.join()
    raise AssertionError(f"the machine is still {machine.state}")
