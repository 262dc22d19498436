# SPDX-License-Identifier: Apache-2.0
"""A provider section, an adapter of it at a simulated project, and a client of recorded answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias

from nodepool.driver.gce import GceAdapter, GceDriver
from nodepool.driver.gce.client import ComputeEngine
from nodepool.driver.gce.types import LabelReader
from nodepool.driver.statemachine import instance
from simulators.gce import GceSettings, GceSimulator
from simulators.gce.cloud import BUCKET
from tests.support.provider_sections import DriverSections
from tests.unit.driver.recorded_http import RecordedHttp
from tests.unit.driver.simulated_adapter import NODE, SimulatedAdapter, simulated

PROVIDER = "north"
METADATA = instance.for_node(NODE, "main", PROVIDER)
#: Of the simulated cloud, as is the project.
ZONES = ["us-central1-a", "us-central1-b"]
Here: TypeAlias = SimulatedAdapter[GceSimulator, GceAdapter]

_SECTIONS = DriverSections(GceDriver(), "gce")
section, changed, load = _SECTIONS.section, _SECTIONS.changed, _SECTIONS.load


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


def content(data: Any) -> bytes:
    """What becomes JSON, unless it is the content itself."""
    return data if isinstance(data, bytes) else (data if isinstance(data, str) else json.dumps(data)).encode()


def recorded(*answers: tuple[int, Any], zone: str | list[str] = ZONES[0]) -> tuple[ComputeEngine, RecordedHttp]:
    """A client that gets these answers.

    :param answers: status, and a value that becomes JSON, or the content itself.
    """
    http = RecordedHttp(*answers)
    login: Any = SimpleNamespace(headers=dict, refused=lambda _headers: None)
    return ComputeEngine(load(section(zone=zone)), http, login, LabelReader(PROVIDER, ["main"])), http
