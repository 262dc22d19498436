# SPDX-License-Identifier: Apache-2.0
"""VPC, subnets, security groups, key pairs and zones of the simulated region. Addresses are on loopback."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from simulators.aws.core import ACCOUNT, RegionCore
from simulators.base.addresses import AddressPool
from simulators.base.messages import ApiError, Json

#: Public addresses of instances. sshd of the tests answers on all of 127.0.0.0/8.
PUBLIC: Final = "127.60.0.0/16"
#: A subnet with room for one instance only, in the first zone.
TINY: Final = "subnet-tiny0000000000000"


@dataclass
class SimulatedSubnet:
    """One subnet; ``addresses`` are its private ones."""

    id: str
    zone: str
    cidr: str
    default: bool = False
    tags: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.addresses = AddressPool(self.cidr)


class Vpc:
    """A default VPC with a subnet in each zone, the security group ``default`` and the key pair ``zuul``.

    The caller holds the core's lock.
    """

    def __init__(self, core: RegionCore) -> None:
        self.core = core
        self.vpc_id = core.new_id("vpc")
        self.subnets: dict[str, SimulatedSubnet] = {}
        self.groups: dict[str, Json] = {}
        self.keys: dict[str, Json] = {}
        self.public = AddressPool(PUBLIC)
        for number, zone in enumerate(core.zones):
            self.add_subnet(zone, f"127.{70 + number}.0.0/16", default=True)
        self.add_subnet(core.zones[0], "127.90.0.0/30", subnet_id=TINY)
        self.add_group("default")
        self.add_key("zuul")

    def add_subnet(self, zone: str, cidr: str, default: bool = False, subnet_id: str = "") -> SimulatedSubnet:
        """Adds a subnet. ``cidr``: inside 127.0.0.0/8 when instances shall be reachable."""
        subnet = SimulatedSubnet(subnet_id or self.core.new_id("subnet"), zone, cidr, default)
        self.subnets[subnet.id] = subnet
        return subnet

    def add_group(self, name: str) -> str:
        """Adds a security group; returns its id."""
        group_id = self.core.new_id("sg")
        self.groups[group_id] = {
            "GroupId": group_id,
            "GroupName": name,
            "Description": name,
            "OwnerId": ACCOUNT,
            "VpcId": self.vpc_id,
            "IpPermissions": [],
            "Tags": [],
        }
        return group_id

    def add_key(self, name: str) -> None:
        """Adds a key pair."""
        key_id = self.core.new_id("key")
        self.keys[name] = {"KeyPairId": key_id, "KeyName": name, "KeyType": "ed25519", "KeyFingerprint": "00:11:22"}

    def default_subnets(self, zone: str | None) -> list[SimulatedSubnet]:
        """The default subnet of a zone; None = those of all zones.

        :raises ApiError: 400, there is no such zone, or it has none.
        """
        if zone is not None and zone not in self.core.zones:
            raise ApiError(400, f"Invalid availability zone: [{zone}]", "InvalidParameterValue")
        found = [subnet for subnet in self.subnets.values() if subnet.default and zone in (None, subnet.zone)]
        if not found:
            raise ApiError(400, f"No default subnet for availability zone: '{zone}'.", "MissingInput")
        return found

    def subnet(self, subnet_id: str) -> SimulatedSubnet:
        """A subnet.

        :raises ApiError: 400.
        """
        if subnet_id not in self.subnets:
            raise ApiError(400, f"The subnet ID '{subnet_id}' does not exist", "InvalidSubnetID.NotFound")
        return self.subnets[subnet_id]

    def check_groups(self, ids: list[str]) -> None:
        """Refuses security groups that there are not."""
        for group_id in ids:
            if not group_id.startswith("sg-"):
                raise ApiError(400, f'Invalid id: "{group_id}" (expecting "sg-...")', "InvalidGroupId.Malformed")
            if group_id not in self.groups:
                raise ApiError(400, f"The security group '{group_id}' does not exist", "InvalidGroup.NotFound")

    def check_key(self, name: str) -> None:
        """Refuses a key pair that there is not."""
        if name not in self.keys:
            raise ApiError(400, f"The key pair '{name}' does not exist", "InvalidKeyPair.NotFound")
