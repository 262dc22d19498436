# SPDX-License-Identifier: Apache-2.0
"""The same world with IBM VPC as the cloud: the same faults, the same jobs, the same invariants."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from nodepool.testing.ibmvpc import environment, write_credentials
from tests.chaos import providers
from tests.chaos.ibmvpc_cloud import KEPT_ADDRESSES, IbmVpcCloud
from tests.chaos.links import Links
from tests.chaos.providers import static_provider
from tests.chaos.world import PROVIDER, World, own_label
from tests.support.ibmvpc_place import ibmvpc_section
from tests.support.launcher_config import Provider
from tests.support.section_provider import SectionProvider

#: Profile with 1 core and 2 GiB: with ``max-servers`` alone the limits of cores and RAM hold, too.
SMALL = "nxf-1x2"
#: Profiles that are tried one after the other; spot instances are made of the second.
CHOICE = ["cx2-2x4", "bxf-2x8"]


class IbmVpcWorld(World):
    """See `World`."""

    def simulator_command(self) -> list[str]:
        settings = (
            '{"boot_seconds": [0.3, 1.5], "delete_seconds": [0.1, 0.5], "latency_seconds": [0.0, 0.05], '
            '"address_seconds": [0.0, 0.5], "group_lag_seconds": [0.0, 1.0], "delete_conflicts": true}'
        )
        return [sys.executable, "-m", "nodepool.testing.ibmvpc", "--seed", str(self.seed), "--settings", settings]

    def make_cloud(self, url: str) -> IbmVpcCloud:
        return IbmVpcCloud(url)

    def launcher_environment(self, number: int) -> dict[str, str]:
        # Its providers say where the file is that says where the region is.
        return {}

    def write_cloud_file(self, number: int, links: Links) -> None:
        write_credentials(self._credentials_of(number), environment(links.cloud_url))

    def _credentials_of(self, number: int) -> Path:
        return self.directory / f"ibm{number}.env"

    def providers_of(self, number: int, launch_timeout: int) -> list[Provider]:
        main, others = self._main_provider(number, launch_timeout), self._other_provider(number, launch_timeout)
        return [SectionProvider(main), SectionProvider(others), static_provider(self.sshd.port, self.sshd.host_keys)]

    def _main_provider(self, number: int, launch_timeout: int) -> dict[str, Any]:
        """As `tests.chaos.world.CloudProvider`: two zones, private addresses only."""
        labels = [{"name": label, "profile": SMALL} for label in ("small", "medium", own_label(number))]
        pool = {
            "name": "main",
            "max-servers": self.limits.servers,
            "public-ipv4": False,
            "host-key-checking": False,
            "zone": ["us-south-1", "us-south-2"],
            "subnet": ["ci-us-south-1", "ci-us-south-2"],
            "labels": labels,
        }
        return self._section(PROVIDER, number, launch_timeout, [pool])

    def _other_provider(self, number: int, launch_timeout: int) -> dict[str, Any]:
        """As `tests.chaos.providers.RichProvider`: spot instances, floating IPs that are used again; over SSH."""
        spot = {"use-spot": True, "spot-fallback": True, "profile": CHOICE[::-1]}
        pools: list[dict[str, Any]] = [
            {
                "name": providers.VOLUME,
                "floating-ip-pool": 0,
                "labels": [{"name": providers.VOLUME, "profile": CHOICE, "volume-size": 120}],
            },
            {
                "name": providers.FLOATING,
                "floating-ip-pool": KEPT_ADDRESSES,
                "labels": [{"name": providers.FLOATING, **spot}],
            },
        ]
        for pool in pools:
            pool["max-servers"] = providers.POOL_SERVERS
        return self._section(providers.PROVIDER, number, launch_timeout, pools)

    def _section(self, name: str, number: int, launch_timeout: int, pools: list[dict[str, Any]]) -> dict[str, Any]:
        for pool in pools:
            pool["labels"] = [{"cloud-image": "debian", **label} for label in pool["labels"]]
        section = ibmvpc_section(self._credentials_of(number), self.sshd.port)
        times = {"launch-timeout": launch_timeout, "boot-timeout": launch_timeout, "launch-retries": 3}
        return {**section, **times, "name": name, "rate": 20, "pools": pools}
