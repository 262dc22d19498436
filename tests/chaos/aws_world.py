# SPDX-License-Identifier: Apache-2.0
"""The same world with AWS as the cloud: the same faults, the same jobs, the same invariants."""

from __future__ import annotations

import sys
from typing import Any

from nodepool.testing.aws import AwsSettings, environment
from nodepool.testing.aws.images import IMAGE_NAME
from tests.chaos import providers
from tests.chaos.aws_cloud import AwsCloud
from tests.chaos.links import Links
from tests.chaos.providers import static_provider
from tests.chaos.world import PROVIDER, World, own_label
from tests.support.launcher_config import Provider
from tests.support.section_provider import SectionProvider

#: Type with 1 core and 1 GiB, and with 2 cores and 8 GiB.
SMALL, MEDIUM = "t3.micro", "c5.xlarge"


class AwsWorld(World):
    """See `World`."""

    def simulator_command(self) -> list[str]:
        # What has ended is shown for a while, and not for an hour: lists would grow all the time.
        settings = (
            '{"boot_seconds": [0.3, 1.5], "end_seconds": [0.1, 0.5], "latency_seconds": [0.0, 0.05], '
            '"terminated_seconds": 20, "state_lag_seconds": [0.0, 0.3]}'
        )
        return [sys.executable, "-m", "nodepool.testing.aws", "--seed", str(self.seed), "--settings", settings]

    def make_cloud(self, url: str) -> AwsCloud:
        return AwsCloud(url)

    def launcher_environment(self, number: int) -> dict[str, str]:
        # Where the region is says the file: it is known only later.
        there = environment("", AwsSettings.access_key)
        del there["AWS_ENDPOINT_URL"]
        return {**there, "AWS_CONFIG_FILE": str(self.directory / f"aws{number}.config")}

    def write_cloud_file(self, number: int, links: Links) -> None:
        text = f"[default]\nendpoint_url = {links.cloud_url}\n"
        (self.directory / f"aws{number}.config").write_text(text, encoding="utf-8")

    def providers_of(self, number: int, launch_timeout: int) -> list[Provider]:
        main = self._main_provider(number, launch_timeout)
        others = self._other_provider(launch_timeout)
        return [SectionProvider(main), SectionProvider(others), static_provider(self.sshd.port, self.sshd.host_keys)]

    def _main_provider(self, number: int, launch_timeout: int) -> dict[str, Any]:
        """As `tests.chaos.world.CloudProvider`; what must wait for its turn goes together."""
        types = {"medium": MEDIUM}
        tenant = {"tenant": "{request.tenant_name}"}
        labels = [
            {"name": label, "instance-type": types.get(label, SMALL), "dynamic-tags": tenant}
            for label in ("small", "medium", own_label(number))
        ]
        pool = {
            "name": "main",
            "max-servers": self.limits.servers,
            "max-cores": self.limits.cores,
            "max-ram": self.limits.ram,
            "host-key-checking": False,
        }
        return self._section(PROVIDER, launch_timeout, [{**pool, "labels": labels}])

    def _other_provider(self, launch_timeout: int) -> dict[str, Any]:
        """As `tests.chaos.providers.RichProvider`: spot instances, types to choose from; reached over SSH."""
        spot = {"use-spot": True, "spot-fallback": True, "instance-type": [SMALL, "t3.small"]}
        root = {"instance-type": SMALL, "volume-size": 20, "volume-type": "gp3"}
        pools: list[dict[str, Any]] = [
            {"name": providers.VOLUME, "labels": [{"name": providers.VOLUME, **root}]},
            {"name": providers.FLOATING, "labels": [{"name": providers.FLOATING, **spot}]},
        ]
        for pool in pools:
            pool["max-servers"] = providers.POOL_SERVERS
        return self._section(providers.PROVIDER, launch_timeout, pools)

    def _section(self, name: str, launch_timeout: int, pools: list[dict[str, Any]]) -> dict[str, Any]:
        for pool in pools:
            pool["labels"] = [{"cloud-image": "debian", "key-name": "zuul", **label} for label in pool["labels"]]
        filters = [{"name": "name", "values": [IMAGE_NAME]}]
        image = {"name": "debian", "image-filters": filters, "username": "admin", "connection-port": self.sshd.port}
        return {
            "name": name,
            "driver": "aws",
            "region-name": "us-east-1",
            "rate": 10,
            "launch-timeout": launch_timeout,
            "boot-timeout": launch_timeout,
            "launch-retries": 3,
            "cloud-images": [image],
            "pools": pools,
        }
