# SPDX-License-Identifier: Apache-2.0
"""`SubnetClient`: which subnets there are."""

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


class SubnetClient:
    """One region. All methods block; any thread may call them. They raise what `nodepool.driver.aws.errors` has.

    What is not there is missing in the answers: ids are sent as filters.
    """

    def __init__(self, transport: t.AwsTransport) -> None:
        self._transport = transport

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
