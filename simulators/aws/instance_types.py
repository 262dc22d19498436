# SPDX-License-Identifier: Apache-2.0
"""Instance types of the simulated region."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from simulators.aws.filters import Table, matching, one_page
from simulators.base.messages import ApiError, Json

if TYPE_CHECKING:
    from simulators.aws.cloud import Region


@dataclass(frozen=True)
class SimulatedType:
    """One type. ``zones``: letters of the zones that have it; "" = all."""

    name: str
    vcpus: int
    cores: int
    ram_mib: int
    zones: str = ""

    @property
    def architecture(self) -> str:
        family = self.name.partition(".")[0]
        return "arm64" if fnmatchcase(family, "[a-z]*[0-9]g*") or family == "mac2" else "x86_64"

    def in_zone(self, zone: str) -> bool:
        return not self.zones or zone[-1] in self.zones


TYPES: Final = (
    SimulatedType("t3.micro", 2, 1, 1024),
    SimulatedType("t3.small", 2, 1, 2048),
    SimulatedType("t3.medium", 2, 1, 4096),
    SimulatedType("t3.large", 2, 1, 8192),
    SimulatedType("m5.large", 2, 1, 8192),
    SimulatedType("m5.xlarge", 4, 2, 16384),
    SimulatedType("m5.2xlarge", 8, 4, 32768),
    SimulatedType("m6g.large", 2, 2, 8192),
    SimulatedType("c5.large", 2, 1, 4096),
    SimulatedType("c5.xlarge", 4, 2, 8192),
    SimulatedType("g4dn.xlarge", 4, 2, 16384, "a"),
    SimulatedType("p3.2xlarge", 8, 4, 62464, "b"),
    SimulatedType("mac2.metal", 8, 8, 16384),
)
FILTERS: Final[Table[SimulatedType]] = {
    "instance-type": lambda found: [found.name],
    "vcpu-info.default-vcpus": lambda found: [found.vcpus],
}
LOCATIONS: Final = ("region", "availability-zone")


class InstanceTypes:
    """The types by name."""

    def __init__(self) -> None:
        self._types = {found.name: found for found in TYPES}

    def all(self) -> list[SimulatedType]:
        return list(self._types.values())

    def get(self, name: str) -> SimulatedType:
        """A type.

        :raises ApiError: 400, the region has none of the name.
        """
        if name not in self._types:
            raise ApiError(400, f"The following supplied instance types do not exist: [{name}]", "InvalidInstanceType")
        return self._types[name]


class InstanceTypeOperations:
    """:ivar operations: handlers by name of operation."""

    def __init__(self, cloud: Region) -> None:
        self.cloud = cloud
        self.operations: dict[str, Callable[[Json], Json]] = {
            "DescribeInstanceTypes": self._types,
            "DescribeInstanceTypeOfferings": self._offerings,
        }

    def _types(self, arguments: Json) -> Json:
        types = self.cloud.types
        names = arguments.get("InstanceTypes")
        asked = types.all() if names is None else [types.get(name) for name in names]
        found = matching(asked, arguments.get("Filters", ()), FILTERS, lambda _type: {})
        page, token = one_page(self.cloud.core, found, lambda entry: entry.name, arguments, most=100)
        return {"InstanceTypes": [_shown(entry) for entry in page], "NextToken": token}

    def _offerings(self, arguments: Json) -> Json:
        core = self.cloud.core
        kind = arguments.get("LocationType", "region")
        if kind not in LOCATIONS:
            raise ApiError(400, f"Invalid value '{kind}' for locationType", "InvalidParameterValue")
        places = (core.region,) if kind == "region" else core.zones
        offers = [
            {"InstanceType": entry.name, "LocationType": kind, "Location": place}
            for entry in self.cloud.types.all()
            for place in places
            if kind == "region" or entry.in_zone(place)
        ]
        table: Table[Json] = {
            "instance-type": lambda offer: [offer["InstanceType"]],
            "location": lambda offer: [offer["Location"]],
        }
        found = matching(offers, arguments.get("Filters", ()), table, lambda _offer: {})
        key: Callable[[Json], str] = lambda offer: f"{offer['InstanceType']} {offer['Location']}"  # noqa: E731
        page, token = one_page(core, found, key, arguments)
        return {"InstanceTypeOfferings": list(page), "NextToken": token}


def _shown(entry: SimulatedType) -> Json:
    return {
        "InstanceType": entry.name,
        "CurrentGeneration": True,
        "SupportedUsageClasses": ["on-demand", "spot"],
        "BareMetal": entry.name.endswith(".metal"),
        "ProcessorInfo": {"SupportedArchitectures": [entry.architecture]},
        "VCpuInfo": {
            "DefaultVCpus": entry.vcpus,
            "DefaultCores": entry.cores,
            "DefaultThreadsPerCore": entry.vcpus // entry.cores,
        },
        "MemoryInfo": {"SizeInMiB": entry.ram_mib},
    }
