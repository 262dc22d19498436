# SPDX-License-Identifier: Apache-2.0
"""The same world with another cloud: the same faults, the same jobs, the same invariants."""

from __future__ import annotations

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from simulators import aws, azure, ibmvpc
from simulators.aws.images import IMAGE_NAME
from tests.chaos import providers
from tests.chaos.links import Links
from tests.chaos.providers import static_provider
from tests.chaos.translated_cloud import TranslatedCloud, Translation
from tests.chaos.world import PROVIDER, World, own_label
from tests.support import clouds
from tests.support.launcher_config import Provider
from tests.support.section_provider import SectionProvider

Json = dict[str, Any]
TENANT = {"dynamic-tags": {"tenant": "{request.tenant_name}"}}
#: Free floating IPs that the pools of IBM keep, which are no left-overs.
KEPT_ADDRESSES = 2
#: Free ones at the end of a run, at most: what a killed launcher left is claimed by another one, or deleted, only when
#: it has been free for two minutes. That is longer than a run waits.
FREE_ADDRESSES = KEPT_ADDRESSES + 4 * providers.POOL_SERVERS


class SectionWorld(World, ABC):
    """Each launcher has a provider as `tests.chaos.world.cloud_provider`, and another as
    `tests.chaos.providers.rich_provider`, whose servers are reached over SSH.

    :cvar settings: of the simulator, beside those of all.
    :cvar volume_label: keys of the other provider's label of servers with a larger volume; ``spot_label``: of that of
        spot instances.
    :cvar other_pools: more keys of its pools, by name.
    """

    translation: ClassVar[Translation]
    settings: ClassVar[Json]
    volume_label: ClassVar[Json]
    spot_label: ClassVar[Json]
    other_pools: ClassVar[Mapping[str, Json]] = {}

    def simulator_command(self) -> list[str]:
        settings = {"boot_seconds": [0.3, 1.5], "latency_seconds": [0.0, 0.05], **self.settings}
        options = ["--seed", str(self.seed), "--settings", json.dumps(settings)]
        return [sys.executable, "-m", f"simulators.{self.translation.words.name}", *self.simulator_options(), *options]

    def simulator_options(self) -> list[str]:
        """More options of the simulator."""
        return []

    def make_cloud(self, url: str) -> TranslatedCloud:
        return TranslatedCloud(url, self.translation)

    def launcher_environment(self, number: int) -> dict[str, str]:
        # Its providers say where the cloud is.
        return {}

    def login_file(self, number: int) -> Path:
        """Says to a launcher where the cloud is, and how it logs in."""
        return self.directory / f"login{number}"

    def providers_of(self, number: int, launch_timeout: int) -> list[Provider]:
        names = ("small", "medium", own_label(number))
        labels = [{"name": name, "cloud-image": "debian", **self.main_label(name)} for name in names]
        main = {"name": "main", "max-servers": self.limits.servers, "host-key-checking": False, **self.main_pool()}
        others = [
            self._pool_of_one(providers.VOLUME, self.volume_label),
            self._pool_of_one(providers.FLOATING, {**self.spot_label, "use-spot": True, "spot-fallback": True}),
        ]
        times = {"launch-timeout": launch_timeout, "boot-timeout": launch_timeout, "launch-retries": 3}
        main_section = {**self.section(number), **times, "name": PROVIDER, "pools": [{**main, "labels": labels}]}
        other_section = {**self.other_section(number), **times, "name": providers.PROVIDER, "pools": others}
        return [
            SectionProvider(main_section),
            SectionProvider(other_section),
            static_provider(self.sshd.port, self.sshd.host_keys),
        ]

    def _pool_of_one(self, name: str, label: Json) -> Json:
        labels = [{"name": name, "cloud-image": "debian", **label}]
        return {"name": name, "max-servers": providers.POOL_SERVERS, **self.other_pools.get(name, {}), "labels": labels}

    @abstractmethod
    def section(self, number: int) -> Json:
        """A launcher's provider, without what depends on its name and pools; its image is ``debian``."""

    def other_section(self, number: int) -> Json:
        """The other provider, likewise."""
        return self.section(number)

    def main_pool(self) -> Json:
        """More keys of the pool of most labels."""
        return {}

    @abstractmethod
    def main_label(self, name: str) -> Json:
        """Keys of a label of it."""


class AwsWorld(SectionWorld):
    """What must wait for its turn goes together."""

    translation = Translation(
        clouds.Aws,
        volumes="volumes",
        no_host={
            "code": "Server.InsufficientInstanceCapacity",
            "message": "Insufficient capacity to satisfy instance request",
        },
        quota=lambda limit: {"instance_limit": limit},
        # A deletion that went wrong is to be seen only by that the instance still runs.
        lag="tag_lag",
        leaks=(),
    )
    settings: ClassVar = {
        "end_seconds": [0.1, 0.5],
        # What has ended is shown for a while, and not for an hour: lists would grow all the time.
        "terminated_seconds": 20,
        "state_lag_seconds": [0.0, 0.3],
        # Only if tags lag at all: what the faults hide.
        "late_tags": True,
    }
    # Of c5.xlarge.
    largest_ram = 8192
    #: Type with 1 core and 1 GiB.
    small: ClassVar = {"key-name": "zuul", "instance-type": "t3.micro"}
    volume_label: ClassVar = {**small, "volume-size": 20, "volume-type": "gp3"}
    spot_label: ClassVar = {**small, "instance-type": ["t3.micro", "t3.small"]}

    def launcher_environment(self, number: int) -> dict[str, str]:
        # Where the region is says the file: it is known only later.
        there = aws.environment("", aws.AwsSettings.access_key)
        del there["AWS_ENDPOINT_URL"]
        return {**there, "AWS_CONFIG_FILE": str(self.login_file(number))}

    def write_cloud_file(self, number: int, links: Links) -> None:
        self.login_file(number).write_text(f"[default]\nendpoint_url = {links.cloud_url}\n", encoding="utf-8")

    def section(self, number: int) -> Json:
        section = {**clouds.aws_section("", self.sshd.port), "rate": 10}
        (image,) = section["cloud-images"]
        del image["image-id"]
        image["image-filters"] = [{"name": "name", "values": [IMAGE_NAME]}]
        return section

    def main_pool(self) -> Json:
        return {"max-cores": self.limits.cores, "max-ram": self.limits.ram}

    def main_label(self, name: str) -> Json:
        return {**self.small, **({"instance-type": "c5.xlarge"} if name == "medium" else {}), **TENANT}


class AzureWorld(SectionWorld):
    """Ports are network interfaces. Each VM has a public address, which is not counted."""

    translation = Translation(
        clouds.Azure,
        volumes="disks",
        no_host={"code": "AllocationFailed", "message": "Allocation failed."},
        quota=lambda limit: {"quotas": {"virtualMachines": limit}},
        leaks=("port_leak_rate", "volume_leak_rate"),
        counts=lambda state: {
            "ports": state["contents"]["nics"],
            "floating_ips": state["contents"]["addresses"] - state["contents"]["vms"],
        },
    )
    # What a VM leaves that failed is reserved for a moment, not for minutes: it would not be gone in time.
    settings: ClassVar = {"delete_seconds": [0.1, 0.5], "nic_reserved_seconds": 2}
    #: Size with 1 core and 1 GiB: with ``max-servers`` alone the limits of cores and RAM hold, too.
    small: ClassVar = {"hardware-profile": {"vm-size": "Standard_B1s"}}
    volume_label: ClassVar = {**small, "volume-size": 20}
    spot_label: ClassVar = {"hardware-profile": {"vm-size": ["Standard_B1s", "Standard_F2s_v2"]}}

    def write_cloud_file(self, number: int, links: Links) -> None:
        azure.write_auth_file(self.login_file(number), links.cloud_url)

    def section(self, number: int) -> Json:
        section = clouds.azure_section(self.login_file(number), self.sshd.port)
        # The driver's default.
        del section["rate"]
        return section

    def main_pool(self) -> Json:
        return {"availability-zones": ["1", "2"]}

    def main_label(self, name: str) -> Json:
        return {**self.small, **TENANT}


class GceWorld(SectionWorld):
    """A deletion that went wrong is to be seen in its operation, and by that the instance still runs."""

    translation = Translation(
        clouds.Gce,
        volumes="disks",
        no_host={
            "code": "ZONE_RESOURCE_POOL_EXHAUSTED",
            "message": "The zone does not have enough resources available to fulfill the request.",
            "status": 503,
        },
        quota=lambda limit: {"quotas": {"INSTANCES": limit}},
    )
    settings: ClassVar = {"delete_seconds": [0.1, 0.5], "operation_seconds": 60}
    #: Type with 1 core and 614 MiB: pools have no limits of cores and memory here.
    small: ClassVar = {"instance-type": "f1-micro"}
    volume_label: ClassVar = {**small, "volume-size": 20, "volume-type": "pd-ssd"}
    spot_label: ClassVar = {"instance-type": ["f1-micro", "e2-micro"]}

    def simulator_options(self) -> list[str]:
        return ["--key-file", str(self._key_file)]

    @property
    def _key_file(self) -> Path:
        """What the simulator writes."""
        return self.directory / "gce.json"

    def write_cloud_file(self, number: int, links: Links) -> None:
        """Tokens come the same way as all answers."""
        key = json.loads(self._key_file.read_text(encoding="utf-8"))
        file = self.login_file(number)
        file.touch(mode=0o600)
        file.write_text(json.dumps({**key, "token_uri": f"{links.cloud_url}/token"}), encoding="utf-8")

    def section(self, number: int) -> Json:
        section = clouds.gce_section(self.login_file(number), self.links[number].cloud_url, self.sshd.port)
        return {**section, "rate": 20}

    def other_section(self, number: int) -> Json:
        """Zones to choose from."""
        return {**self.section(number), "zone": ["us-central1-b", "us-central1-c"]}

    def main_label(self, name: str) -> Json:
        return self.small


class IbmVpcWorld(SectionWorld):
    """Most labels have private addresses only, the others floating IPs that are used again. Floating IPs that
    instances use are not counted."""

    translation = Translation(
        clouds.IbmVpc,
        volumes="volumes",
        no_host={"code": "cannot_start_capacity"},
        quota=lambda limit: {"quotas": {"instances": limit}},
        create="vpc.create_*",
        counts=lambda state: {"floating_ips": max(0, state["free_floating_ips"] - FREE_ADDRESSES)},
    )
    settings: ClassVar = {
        "delete_seconds": [0.1, 0.5],
        "address_seconds": [0.0, 0.5],
        "group_lag_seconds": [0.0, 1.0],
        "delete_conflicts": True,
    }
    #: Profiles that are tried one after the other; spot instances are made of the second.
    volume_label: ClassVar = {"profile": ["cx2-2x4", "bxf-2x8"], "volume-size": 120}
    spot_label: ClassVar = {"profile": ["bxf-2x8", "cx2-2x4"]}
    other_pools: ClassVar = {
        providers.VOLUME: {"floating-ip-pool": 0},
        providers.FLOATING: {"floating-ip-pool": KEPT_ADDRESSES},
    }

    def write_cloud_file(self, number: int, links: Links) -> None:
        ibmvpc.write_credentials(self.login_file(number), ibmvpc.environment(links.cloud_url))

    def section(self, number: int) -> Json:
        return {**clouds.ibmvpc_section(self.login_file(number), self.sshd.port), "rate": 20}

    def main_pool(self) -> Json:
        zones = ["us-south-1", "us-south-2"]
        return {"public-ipv4": False, "zone": zones, "subnet": [f"ci-{zone}" for zone in zones]}

    def main_label(self, name: str) -> Json:
        # 1 core and 2 GiB: with ``max-servers`` alone the limits of cores and RAM hold, too.
        return {"profile": "nxf-1x2"}
