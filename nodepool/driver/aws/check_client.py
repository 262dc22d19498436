# SPDX-License-Identifier: Apache-2.0
"""`CheckClient`: calls of EC2 that only ``nodepool check`` makes. They read."""

from __future__ import annotations

from nodepool.driver.aws import transport as t
from nodepool.driver.aws.subnet_client import SubnetClient


class CheckClient(SubnetClient):
    """One region. All methods block. They raise what `nodepool.driver.aws.errors` has.

    What is not there is missing in the answers: ids are sent as filters.
    """

    def zones(self) -> dict[str, str]:
        """States of the zones of the region, by name."""
        answer = self._transport.call("ec2", t.READ, "DescribeAvailabilityZones", {})
        return {zone["ZoneName"]: zone.get("State", "") for zone in answer.get("AvailabilityZones") or ()}

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
