# SPDX-License-Identifier: Apache-2.0
"""Instance profiles and operating systems of the simulated region."""

from __future__ import annotations

from typing import Final, NamedTuple

from simulators.base.messages import Json
from simulators.ibmvpc.core import ZONES, href, zone_reference


class SimulatedProfile(NamedTuple):
    """A profile of instances.

    :param memory: GiB.
    """

    name: str
    vcpus: int
    memory: int
    spot: bool = False
    zones: tuple[str, ...] = tuple(ZONES)

    @property
    def architecture(self) -> str:
        return "s390x" if self.name.startswith("bz") else "amd64"

    def shown(self) -> Json:
        """As the list of profiles has it."""
        classes = ["standard", "spot"] if self.spot else ["standard"]
        availability: Json = {"type": "fixed", "value": "standard"}
        if self.spot:
            availability = {"type": "enum", "default": "standard", "values": classes}
        return {
            "availability_class": availability,
            "bandwidth": _fixed(self.vcpus * 2000),
            "cluster_network_attachment_count": {"type": "enum", "default": 0, "values": []},
            "confidential_compute_modes": {"type": "enum", "default": "disabled", "values": ["disabled"]},
            "disks": [],
            "family": "balanced",
            "href": href(f"instance/profiles/{self.name}"),
            "memory": _fixed(self.memory),
            "name": self.name,
            "network_attachment_count": {"type": "range", "min": 1, "max": 5},
            "network_bandwidth_mode": {"type": "fixed", "value": "independent"},
            "network_interface_count": {"type": "range", "min": 1, "max": 5},
            "os_architecture": {"type": "enum", "default": self.architecture, "values": [self.architecture]},
            "port_speed": _fixed(16000),
            "reservation_terms": {"type": "enum", "values": ["one_year", "three_year"]},
            "resource_type": "instance_profile",
            "secure_boot_modes": {"type": "enum", "default": False, "values": [False]},
            "status": "current",
            "supported_cluster_network_profiles": [],
            "threads_per_core": {"type": "enum", "default": 2, "values": [1, 2]},
            "total_volume_bandwidth": {"type": "range", "min": 500, "max": 4000, "default": 1000, "step": 1},
            "vcpu_architecture": {"type": "fixed", "value": self.architecture},
            "vcpu_burst_limit": _fixed(100),
            "vcpu_count": _fixed(self.vcpus),
            "vcpu_manufacturer": {"type": "fixed", "value": "intel"},
            "vcpu_percentage": {"type": "enum", "default": 100, "values": [100]},
            "volume_bandwidth_qos_modes": {"type": "enum", "default": "weighted", "values": ["weighted"]},
            "zones": [zone_reference(zone) for zone in self.zones],
        }


def _fixed(value: int) -> Json:
    return {"type": "fixed", "value": value}


PROFILES: Final = {
    profile.name: profile
    for profile in (
        SimulatedProfile("nxf-1x2", 1, 2),
        SimulatedProfile("cx2-2x4", 2, 4),
        SimulatedProfile("cx2-4x8", 4, 8),
        SimulatedProfile("bx2-2x8", 2, 8),
        SimulatedProfile("bx2-4x16", 4, 16),
        SimulatedProfile("bxf-2x8", 2, 8, spot=True),
        SimulatedProfile("bxf-4x16", 4, 16, spot=True),
        # There are profiles that not all zones have.
        SimulatedProfile("mx2-2x16", 2, 16, zones=tuple(ZONES)[1:]),
        SimulatedProfile("bz2-2x8", 2, 8),
    )
}


def _system(name: str, family: str, version: str, architecture: str) -> Json:
    return {
        "allow_user_image_creation": True,
        "architecture": architecture,
        "dedicated_host_only": False,
        "display_name": f"{family} {version} ({architecture})",
        "family": family,
        "href": href(f"operating_systems/{name}"),
        "name": name,
        "user_data_format": "cloud_init",
        "vendor": family.split(" ")[0],
        "version": version,
    }


SYSTEMS: Final = {
    system["name"]: system
    for system in (
        _system("debian-12-amd64", "Debian GNU/Linux", "12.x Bookworm/Stable - Minimal Install", "amd64"),
        _system("ubuntu-24-04-amd64", "Ubuntu Linux", "24.04 LTS Noble Numbat Minimal Install", "amd64"),
        _system("red-9-amd64", "Red Hat Enterprise Linux", "9.x - Minimal Install", "amd64"),
        _system("ubuntu-24-04-s390x", "Ubuntu Linux", "24.04 LTS Noble Numbat Minimal Install", "s390x"),
    )
}
