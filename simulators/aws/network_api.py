# SPDX-License-Identifier: Apache-2.0
"""Describe operations of the network: subnets, security groups, key pairs, zones, VPCs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from simulators.aws.filters import Table, matching, one_page, tag_list
from simulators.aws.network import SimulatedSubnet
from simulators.base.messages import ApiError, Json

if TYPE_CHECKING:
    from simulators.aws.cloud import Region

SUBNET_FILTERS: Final[Table[SimulatedSubnet]] = {
    "subnet-id": lambda subnet: [subnet.id],
    "availability-zone": lambda subnet: [subnet.zone],
    "default-for-az": lambda subnet: [subnet.default],
    "state": lambda _subnet: ["available"],
}
GROUP_FILTERS: Final[Table[Json]] = {
    "group-id": lambda group: [group["GroupId"]],
    "group-name": lambda group: [group["GroupName"]],
    "vpc-id": lambda group: [group["VpcId"]],
}
KEY_FILTERS: Final[Table[Json]] = {"key-name": lambda key: [key["KeyName"]]}
ZONE_FILTERS: Final[Table[str]] = {"zone-name": lambda zone: [zone], "state": lambda _zone: ["available"]}


class NetworkOperations:
    """:ivar operations: handlers by name of operation."""

    def __init__(self, cloud: Region) -> None:
        self.cloud = cloud
        self.operations: dict[str, Callable[[Json], Json]] = {
            "DescribeSubnets": self._subnets,
            "DescribeSecurityGroups": self._groups,
            "DescribeKeyPairs": self._keys,
            "DescribeAvailabilityZones": self._zones,
        }

    def _subnets(self, arguments: Json) -> Json:
        network = self.cloud.network
        if "SubnetIds" in arguments:
            asked = [network.subnet(subnet_id) for subnet_id in arguments["SubnetIds"]]
        else:
            asked = list(network.subnets.values())
        found = matching(asked, arguments.get("Filters", ()), SUBNET_FILTERS, lambda subnet: subnet.tags)
        page, token = one_page(self.cloud.core, found, lambda subnet: subnet.id, arguments)
        return {"Subnets": [self._subnet(subnet) for subnet in page], "NextToken": token}

    def _subnet(self, subnet: SimulatedSubnet) -> Json:
        return {
            "SubnetId": subnet.id,
            "VpcId": self.cloud.network.vpc_id,
            "State": "available",
            "AvailabilityZone": subnet.zone,
            "CidrBlock": subnet.cidr,
            "AvailableIpAddressCount": subnet.addresses.free,
            "DefaultForAz": subnet.default,
            "MapPublicIpOnLaunch": subnet.default,
            "Tags": tag_list(subnet.tags),
        }

    def _groups(self, arguments: Json) -> Json:
        network = self.cloud.network
        ids = arguments.get("GroupIds", list(network.groups))
        network.check_groups(ids)
        asked = [network.groups[group_id] for group_id in ids]
        found = matching(asked, arguments.get("Filters", ()), GROUP_FILTERS, lambda _group: {})
        page, token = one_page(self.cloud.core, found, lambda group: str(group["GroupId"]), arguments)
        return {"SecurityGroups": list(page), "NextToken": token}

    def _keys(self, arguments: Json) -> Json:
        network = self.cloud.network
        names = arguments.get("KeyNames", list(network.keys))
        for name in names:
            network.check_key(name)
        asked = [network.keys[name] for name in names]
        return {"KeyPairs": matching(asked, arguments.get("Filters", ()), KEY_FILTERS, lambda _key: {})}

    def _zones(self, arguments: Json) -> Json:
        core = self.cloud.core
        names = arguments.get("ZoneNames", core.zones)
        for name in names:
            if name not in core.zones:
                raise ApiError(400, f"Invalid availability zone: [{name}]", "InvalidParameterValue")
        found = matching(names, arguments.get("Filters", ()), ZONE_FILTERS, lambda _zone: {})
        zones = [
            {"ZoneName": zone, "ZoneId": f"use1-az{zone[-1]}", "RegionName": core.region, "State": "available"}
            for zone in found
        ]
        return {"AvailabilityZones": zones}
