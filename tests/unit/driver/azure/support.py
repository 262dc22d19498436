# SPDX-License-Identifier: Apache-2.0
"""A provider section, an adapter of it at a simulated subscription, and a client of recorded answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias

from nodepool.driver.azure import AzureAdapter, AzureDriver
from nodepool.driver.azure.client import Arm
from nodepool.driver.statemachine import instance
from simulators.azure import AzureSettings, AzureSimulator
from tests.support.provider_sections import DriverSections
from tests.unit.driver.recorded_http import RecordedHttp
from tests.unit.driver.simulated_adapter import NODE, SimulatedAdapter, simulated

PROVIDER = "north"
METADATA = instance.for_node(NODE, "main", PROVIDER)
Here: TypeAlias = SimulatedAdapter[AzureSimulator, AzureAdapter]
#: Status, and a value that becomes JSON, unless it is the content itself; headers.
Recording: TypeAlias = Sequence[Any]

_SECTIONS = DriverSections(AzureDriver(), "azure")
section, changed, load = _SECTIONS.section, _SECTIONS.changed, _SECTIONS.load


@contextmanager
def at_simulator(directory: Path, data: dict[str, Any], **settings: Any) -> Iterator[Here]:
    """An adapter of a section.

    :param settings: of the simulator.
    """
    with AzureSimulator(AzureSettings(**settings)) as simulator:
        auth = simulator.write_auth_file(directory / "auth.json")
        with simulated(simulator, AzureAdapter(load({**data, "auth-path": str(auth)})), uncounted=["images"]) as made:
            yield made


def arm(*answers: Recording) -> tuple[Arm, RecordedHttp]:
    """A client that gets these answers."""
    account = SimpleNamespace(arm_url="https://management.azure.com", subscription_id="s")
    login: Any = SimpleNamespace(account=account, headers=dict, refused=lambda _headers: None)
    http = RecordedHttp(*answers, again=True)
    return Arm(load(section(resource_group="g", location="North Europe")), http, login), http
