# SPDX-License-Identifier: Apache-2.0
"""The same world with Azure as the cloud: the same faults, the same jobs, the same invariants."""

from __future__ import annotations

import sys
from typing import Any

from nodepool.testing.azure import write_auth_file
from nodepool.testing.azure.cloud import IMAGE, NETWORK
from tests.chaos import providers
from tests.chaos.azure_cloud import AzureCloud
from tests.chaos.links import Links
from tests.chaos.providers import static_provider
from tests.chaos.world import PROVIDER, World, own_label
from tests.support.launcher_config import Provider
from tests.support.section_provider import SectionProvider

#: Size with 1 core and 1 GiB: with ``max-servers`` alone the limits of cores and RAM hold, too.
SIZE = "Standard_B1s"


class AzureWorld(World):
    """See `World`."""

    def simulator_command(self) -> list[str]:
        # What a VM leaves that failed is reserved for a moment, not for minutes: it would not be gone in time.
        settings = (
            '{"boot_seconds": [0.3, 1.5], "delete_seconds": [0.1, 0.5], "latency_seconds": [0.0, 0.05], '
            '"nic_reserved_seconds": 2, "other_case": true}'
        )
        return [sys.executable, "-m", "nodepool.testing.azure", "--seed", str(self.seed), "--settings", settings]

    def make_cloud(self, url: str) -> AzureCloud:
        return AzureCloud(url)

    def launcher_environment(self, number: int) -> dict[str, str]:
        # Its provider says where the file is that says where the subscription is.
        return {}

    def write_cloud_file(self, number: int, links: Links) -> None:
        write_auth_file(self.directory / f"azure{number}.json", links.cloud_url)

    def providers_of(self, number: int, launch_timeout: int) -> list[Provider]:
        main, others = self._main_provider(number, launch_timeout), self._other_provider(number, launch_timeout)
        return [SectionProvider(main), SectionProvider(others), static_provider(self.sshd.port, self.sshd.host_keys)]

    def _main_provider(self, number: int, launch_timeout: int) -> dict[str, Any]:
        """As `tests.chaos.world.CloudProvider`: two zones."""
        labels = [
            {"name": label, "dynamic-tags": {"tenant": "{request.tenant_name}"}}
            for label in ("small", "medium", own_label(number))
        ]
        pool = {"name": "main", "host-key-checking": False, "availability-zones": ["1", "2"], "labels": labels}
        return self._section(PROVIDER, number, launch_timeout, self.limits.servers, [pool])

    def _other_provider(self, number: int, launch_timeout: int) -> dict[str, Any]:
        """As `tests.chaos.providers.RichProvider`: spot VMs, sizes to choose from; reached over SSH."""
        spot = {"use-spot": True, "spot-fallback": True, "hardware-profile": {"vm-size": [SIZE, "Standard_F2s_v2"]}}
        pools: list[dict[str, Any]] = [
            {"name": providers.VOLUME, "labels": [{"name": providers.VOLUME, "volume-size": 20}]},
            {"name": providers.FLOATING, "labels": [{"name": providers.FLOATING, **spot}]},
        ]
        return self._section(providers.PROVIDER, number, launch_timeout, providers.POOL_SERVERS, pools)

    def _section(
        self, name: str, number: int, launch_timeout: int, servers: int, pools: list[dict[str, Any]]
    ) -> dict[str, Any]:
        common = {"cloud-image": "debian", "hardware-profile": {"vm-size": SIZE}}
        for pool in pools:
            pool |= {"max-servers": servers, "labels": [{**common, **label} for label in pool["labels"]]}
        image = {
            "name": "debian",
            "username": "zuul",
            "key": "ssh-ed25519 AAAA",
            "image-filter": {"name": IMAGE},
            "connection-port": self.sshd.port,
        }
        return {
            "name": name,
            "driver": "azure",
            "location": "northeurope",
            "resource-group": "nodepool",
            "resource-group-location": "northeurope",
            "auth-path": str(self.directory / f"azure{number}.json"),
            "network": NETWORK,
            "launch-timeout": launch_timeout,
            "boot-timeout": launch_timeout,
            "launch-retries": 3,
            "cloud-images": [image],
            "pools": pools,
        }
