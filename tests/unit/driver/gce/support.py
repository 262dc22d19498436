# SPDX-License-Identifier: Apache-2.0
"""A provider section, and an adapter of it at a simulated project."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nodepool.driver.gce.adapter import GceAdapter
from nodepool.driver.statemachine import Instance, metadata
from nodepool.driver.statemachine.machine import StateMachine
from nodepool.testing.gce import GceSettings, GceSimulator
from nodepool.testing.gce.cloud import BUCKET
from tests.unit.driver.gce.sections import PROVIDER, label_of, load

NODE = "0000000042"
HOST = f"np{NODE}"
LOG = logging.LoggerAdapter(logging.getLogger("test"), {})
METADATA = metadata.for_node(NODE, "main", PROVIDER)
#: No answer of a machine takes so long, unless something is broken.
DEADLINE_SECONDS = 45.0


class Here:
    """An adapter, and the project that it uses."""

    def __init__(self, simulator: GceSimulator, adapter: GceAdapter) -> None:
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
        """What there is, but for images."""
        found: dict[str, int] = self.simulator.state()["contents"]
        return {kind: number for kind, number in found.items() if number and kind != "images"}


@contextmanager
def at_simulator(directory: Path, data: dict[str, Any], bucket: str = BUCKET, **settings: Any) -> Iterator[Here]:
    """An adapter of a section.

    :param bucket: for uploads; the simulator has `BUCKET`.
    :param settings: of the simulator.
    """
    with GceSimulator(GceSettings(**settings)) as simulator:
        key = simulator.write_key_file(directory / "key.json")
        storage = {"bucket-name": bucket, "endpoint": simulator.url}
        here = {"credentials-file": str(key), "endpoint": simulator.url, "object-storage": storage}
        adapter = GceAdapter(load({**data, **here}))
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
            wait = machine.next_advance_seconds
            woken.wait(1.0 if wait is None else min(wait, 1.0))
    finally:
        limit.cancel()
        limit.join()
    raise AssertionError(f"the machine is still {machine.state}")
