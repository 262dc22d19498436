# SPDX-License-Identifier: Apache-2.0
"""The same world with IBM VPC as the cloud: the same faults, the same jobs, the same invariants."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from simulators.ibmvpc import environment, write_credentials
from tests.chaos import providers
from tests.chaos.ibmvpc_cloud import KEPT_ADDRESSES, IbmVpcCloud
from tests.chaos.links import Links
from tests.chaos.section_world import SectionWorld
from tests.support.clouds import ibmvpc_section

#: Profile with 1 core and 2 GiB: with ``max-servers`` alone the limits of cores and RAM hold, too.
SMALL = "nxf-1x2"
#: Profiles that are tried one after the other; spot instances are made of the second.
CHOICE = ["cx2-2x4", "bxf-2x8"]


class IbmVpcWorld(SectionWorld):
    """See `SectionWorld`. Most labels have private addresses only, the others floating IPs that are used again."""

    simulator = "simulators.ibmvpc"
    settings: ClassVar[Mapping[str, Any]] = {
        "boot_seconds": [0.3, 1.5],
        "delete_seconds": [0.1, 0.5],
        "latency_seconds": [0.0, 0.05],
        "address_seconds": [0.0, 0.5],
        "group_lag_seconds": [0.0, 1.0],
        "delete_conflicts": True,
    }
    volume_label: ClassVar[Mapping[str, Any]] = {"profile": CHOICE, "volume-size": 120}
    spot_label: ClassVar[Mapping[str, Any]] = {"profile": CHOICE[::-1], "use-spot": True, "spot-fallback": True}
    other_pools: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        providers.VOLUME: {"floating-ip-pool": 0},
        providers.FLOATING: {"floating-ip-pool": KEPT_ADDRESSES},
    }

    def make_cloud(self, url: str) -> IbmVpcCloud:
        return IbmVpcCloud(url)

    def write_cloud_file(self, number: int, links: Links) -> None:
        write_credentials(self._credentials_of(number), environment(links.cloud_url))

    def _credentials_of(self, number: int) -> Path:
        return self.directory / f"ibm{number}.env"

    def section(self, number: int) -> dict[str, Any]:
        return {**ibmvpc_section(self._credentials_of(number), self.sshd.port), "rate": 20}

    def main_pool(self) -> dict[str, Any]:
        zones = ["us-south-1", "us-south-2"]
        return {"public-ipv4": False, "zone": zones, "subnet": [f"ci-{zone}" for zone in zones]}

    def main_label(self, name: str) -> dict[str, Any]:
        return {"profile": SMALL}
