# SPDX-License-Identifier: Apache-2.0
"""A provider section, an adapter of it at a simulated region, and values as IBM tells them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from nodepool.driver.framework.cloud_errors import CodedError
from nodepool.driver.ibmvpc import IbmAdapter, IbmVpcDriver
from nodepool.driver.ibmvpc.types import IbmFloatingIp, meaning
from nodepool.driver.statemachine import instance
from simulators.ibmvpc import (
    IbmVpcSettings,
    IbmVpcSimulator,
)
from tests.support.provider_sections import DriverSections
from tests.unit.driver.simulated_adapter import NODE, SimulatedAdapter, simulated

PROVIDER = "south"
GROUP = f"np_{PROVIDER}_main"
METADATA = instance.for_node(NODE, "main", PROVIDER)
Here: TypeAlias = SimulatedAdapter[IbmVpcSimulator, IbmAdapter]

_SECTIONS = DriverSections(IbmVpcDriver(), "ibmvpc")
section, changed, load = _SECTIONS.section, _SECTIONS.changed, _SECTIONS.load


def in_region(label: dict[str, Any] | None = None, pool: dict[str, Any] | None = None, **provider: Any) -> Any:
    """A provider section of what is in the simulated region."""
    name = "ibm-debian-12-11-minimal-amd64-1"
    image = {"name": "debian", "username": "root", "image-name": name, "keys": ["zuul"]}
    return section(label, pool, **{"subnet": "ci-us-south-1", "cloud_images": [image], **provider})


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
        with simulated(simulator, IbmAdapter(load(given))) as made:
            yield made


def refusal(code: str, status: int = 400) -> Exception:
    """What the client raises for an error of IBM."""
    return meaning("Provider south: it failed", [CodedError(code, "IBM says so")], status)


def floating(
    number: int, name: str = "", target: str = "", group: str = GROUP, zone: str = "us-south-1"
) -> IbmFloatingIp:
    return IbmFloatingIp(
        {
            "id": f"fip-{number}",
            "name": name or f"np{number:010}",
            "address": f"192.0.2.{number}",
            "status": "available",
            "zone": {"name": zone},
            "resource_group": {"id": f"id-{group}", "name": group},
            "created_at": f"2026-01-{number:02}T00:00:00Z",
            **({"target": {"id": target}} if target else {}),
        }
    )
