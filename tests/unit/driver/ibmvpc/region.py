# SPDX-License-Identifier: Apache-2.0
"""An adapter of a provider section at a simulated region."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from nodepool.driver.ibmvpc.adapter import IbmAdapter
from simulators.ibmvpc import IbmVpcSettings, IbmVpcSimulator
from tests.unit.driver.ibmvpc import support
from tests.unit.driver.simulated_adapter import SimulatedAdapter, simulated

IMAGE = "ibm-debian-12-11-minimal-amd64-1"
Here: TypeAlias = SimulatedAdapter[IbmVpcSimulator, IbmAdapter]


def section(label: dict[str, Any] | None = None, pool: dict[str, Any] | None = None, **provider: Any) -> dict[str, Any]:
    """A provider section of what is in the region."""
    image = {"name": "debian", "username": "root", "image-name": IMAGE, "keys": ["zuul"]}
    given = {"subnet": "ci-us-south-1", "cloud_images": [image], **provider}
    return support.section(label, pool, **given)


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
        with simulated(simulator, IbmAdapter(support.load(given))) as made:
            yield made
