# SPDX-License-Identifier: Apache-2.0
"""The same world with Azure as the cloud: the same faults, the same jobs, the same invariants."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from simulators.azure import write_auth_file
from tests.chaos.azure_cloud import AzureCloud
from tests.chaos.links import Links
from tests.chaos.section_world import SectionWorld
from tests.support.clouds import azure_section

#: Size with 1 core and 1 GiB: with ``max-servers`` alone the limits of cores and RAM hold, too.
SIZE = "Standard_B1s"


class AzureWorld(SectionWorld):
    """See `SectionWorld`."""

    simulator = "simulators.azure"
    settings: ClassVar[Mapping[str, Any]] = {
        "boot_seconds": [0.3, 1.5],
        "delete_seconds": [0.1, 0.5],
        "latency_seconds": [0.0, 0.05],
        # What a VM leaves that failed is reserved for a moment, not for minutes: it would not be gone in time.
        "nic_reserved_seconds": 2,
    }
    volume_label: ClassVar[Mapping[str, Any]] = {"hardware-profile": {"vm-size": SIZE}, "volume-size": 20}
    spot_label: ClassVar[Mapping[str, Any]] = {
        "hardware-profile": {"vm-size": [SIZE, "Standard_F2s_v2"]},
        "use-spot": True,
        "spot-fallback": True,
    }

    def make_cloud(self, url: str) -> AzureCloud:
        return AzureCloud(url)

    def write_cloud_file(self, number: int, links: Links) -> None:
        write_auth_file(self._auth_file_of(number), links.cloud_url)

    def _auth_file_of(self, number: int) -> Path:
        return self.directory / f"azure{number}.json"

    def section(self, number: int) -> dict[str, Any]:
        section = azure_section(self._auth_file_of(number), self.sshd.port)
        # The driver's default.
        del section["rate"]
        return section

    def main_pool(self) -> dict[str, Any]:
        return {"availability-zones": ["1", "2"]}

    def main_label(self, name: str) -> dict[str, Any]:
        return {"hardware-profile": {"vm-size": SIZE}, "dynamic-tags": {"tenant": "{request.tenant_name}"}}
