# SPDX-License-Identifier: Apache-2.0
"""The same world with AWS as the cloud: the same faults, the same jobs, the same invariants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from simulators.aws import AwsSettings, environment
from simulators.aws.images import IMAGE_NAME
from tests.chaos.aws_cloud import AwsCloud
from tests.chaos.links import Links
from tests.chaos.section_world import SectionWorld
from tests.support.clouds import aws_section

#: Type with 1 core and 1 GiB, and with 2 cores and 8 GiB.
SMALL, MEDIUM = "t3.micro", "c5.xlarge"


class AwsWorld(SectionWorld):
    """See `SectionWorld`."""

    simulator = "simulators.aws"
    settings: ClassVar[Mapping[str, Any]] = {
        "boot_seconds": [0.3, 1.5],
        "end_seconds": [0.1, 0.5],
        "latency_seconds": [0.0, 0.05],
        # What has ended is shown for a while, and not for an hour: lists would grow all the time.
        "terminated_seconds": 20,
        "state_lag_seconds": [0.0, 0.3],
        # Only if tags lag at all: what the faults hide.
        "late_tags": True,
    }
    volume_label: ClassVar[Mapping[str, Any]] = {
        "key-name": "zuul",
        "instance-type": SMALL,
        "volume-size": 20,
        "volume-type": "gp3",
    }
    spot_label: ClassVar[Mapping[str, Any]] = {
        "key-name": "zuul",
        "instance-type": [SMALL, "t3.small"],
        "use-spot": True,
        "spot-fallback": True,
    }

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

    def section(self, number: int) -> dict[str, Any]:
        filters = [{"name": "name", "values": [IMAGE_NAME]}]
        image = {"name": "debian", "image-filters": filters, "username": "admin", "connection-port": self.sshd.port}
        return {**aws_section("", self.sshd.port), "rate": 10, "cloud-images": [image]}

    def main_pool(self) -> dict[str, Any]:
        """What must wait for its turn goes together."""
        return {"max-cores": self.limits.cores, "max-ram": self.limits.ram}

    def main_label(self, name: str) -> dict[str, Any]:
        size = MEDIUM if name == "medium" else SMALL
        return {"key-name": "zuul", "instance-type": size, "dynamic-tags": {"tenant": "{request.tenant_name}"}}
