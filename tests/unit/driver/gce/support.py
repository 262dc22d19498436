# SPDX-License-Identifier: Apache-2.0
"""A provider section, and an adapter of it at a simulated project."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from nodepool.driver.gce.adapter import GceAdapter
from nodepool.driver.statemachine import instance
from simulators.gce import GceSettings, GceSimulator
from simulators.gce.cloud import BUCKET
from tests.unit.driver.gce.sections import PROVIDER, load
from tests.unit.driver.simulated_adapter import NODE, SimulatedAdapter, simulated

METADATA = instance.for_node(NODE, "main", PROVIDER)
Here: TypeAlias = SimulatedAdapter[GceSimulator, GceAdapter]


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
        with simulated(simulator, GceAdapter(load({**data, **here})), uncounted=["images"]) as made:
            yield made
