# SPDX-License-Identifier: Apache-2.0
"""`CheckClient`: calls of EC2 that only ``nodepool check`` makes. They read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from nodepool.driver.aws import transport as t


class Subnet(NamedTuple):
    """A subnet."""

    id: str
    zone: str
    vpc: str
    #: Addresses that are left.
    free: int
    ipv6: bool

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Subnet:
        return cls(
            id=data["SubnetId"],
            zone=data.get("AvailabilityZone", ""),
            vpc=data.get("VpcId", ""),
            free=data.get("AvailableIpAddressCount", 1),
            ipv6=bool(data.get("Ipv6CidrBlockAssociationSet")),
        )


class CheckClient:
    """One region. All methods block. They raise what `nodepool.driver.aws.errors` has.

    What is not there is missing in the answers: ids are sent as filters.
    """

    def __init__(self, transport: t.AwsTransport) -> None:
        self._transport = transport

    def zones(self) -> dict[str, str]:
        """States of the zones of the region, by name."""
        answer = self._transport.call("ec2", t.READ, "DescribeAvailabilityZones", {})
        return {zone["ZoneName"]: zone.get("State", "") for zone in answer.get("AvailabilityZones") or ()}

    def subnets(self, ids: Iterable[str]) -> dict[str, Subnet]:
        """Subnets, by id."""
        return self._subnets("subnet-id", list(ids))

    def default_subnets(self) -> dict[str, Subnet]:
        """Those of the default VPC, which instances get that name none."""
        return self._subnets("default-for-az", ["true"])

    def _subnets(self, name: str, values: list[str]) -> dict[str, Subnet]:
        given = {"Filters": [{"Name": name, "Values": values}], "MaxResults": 1000}
        found = self._transport.pages("ec2", t.READ, "DescribeSubnets", given, "Subnets")
        return {subnet.id: subnet for subnet in map(Subnet.of, found)}

    def vpc_of_group(self, group_id: str) -> str | None:
        """The VPC of a security group; None = there is no such group."""
        given = {"Filters": [{"Name": "group-id", "Values": [group_id]}]}
        answer = self._transport.call("ec2", t.READ, "DescribeSecurityGroups", given)
        return next((str(group.get("VpcId", "")) for group in answer.get("SecurityGroups") or ()), None)

    def has_key_pair(self, name: str) -> bool:
        """Is there a key pair of the name?"""
        given = {"Filters": [{"Name": "key-name", "Values": [name]}]}
        answer = self._transport.call("ec2", t.READ, "DescribeKeyPairs", given)
        return bool(answer.get("KeyPairs"))

    def zones_with(self, instance_type: str) -> set[str]:
        """Zones that have instances of a type."""
        given = {
            "LocationType": "availability-zone",
            "Filters": [{"Name": "instance-type", "Values": [instance_type]}],
        }
        found = self._transport.pages("ec2", t.READ, "DescribeInstanceTypeOfferings", given, "InstanceTypeOfferings")
        return {str(data["Location"]) for data in found}
