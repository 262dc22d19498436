# SPDX-License-Identifier: Apache-2.0
"""VPC, subnets and SSH keys of the simulated region; addresses."""

from __future__ import annotations

import base64
import hashlib
from typing import Final

from simulators.base.addresses import AddressPool
from simulators.base.messages import Json
from simulators.ibmvpc.core import ZONES, IbmCore, VpcError, crn, href, zone_reference
from simulators.ibmvpc.groups import ResourceGroups
from simulators.ibmvpc.resources import KEYS, SUBNETS, VPCS, VpcResource, VpcTable

VPC_NAME: Final = "ci"
KEY_NAME: Final = "zuul"


class VpcNetwork:
    """The VPC ``ci``, a subnet ``<zone>`` in each zone, and the key ``zuul``, to begin with."""

    def __init__(self, core: IbmCore, resources: VpcTable, groups: ResourceGroups) -> None:
        self.core = core
        self._resources = resources
        self._groups = groups
        self._pools: dict[str, AddressPool] = {}
        # Loopback: an sshd of a test answers there.
        self._public = AddressPool("127.64.0.0/10")
        self.vpc = self.add_vpc(VPC_NAME)
        for number, zone in enumerate(ZONES):
            self.add_subnet(f"{VPC_NAME}-{zone}", zone, f"10.240.{number * 64}.0/18")
        self.add_key(KEY_NAME)

    def _common(self, kind: str, identity: str, name: str, path: str, zone: str = "") -> Json:
        return {
            "created_at": self.core.stamp(),
            "crn": crn(kind, identity, zone),
            "href": href(f"{path}/{identity}"),
            "id": identity,
            "name": name,
            "resource_group": self._groups.default.reference,
        }

    def add_vpc(self, name: str) -> VpcResource:
        document = {
            **self._common("vpc", self.core.new_id(), name, VPCS),
            "classic_access": False,
            "cse_source_ips": [],
            "default_network_acl": self._part("network-acl", "network_acls"),
            "default_routing_table": {
                **self._part("routing-table", "routing_tables"),
                "resource_type": "routing_table",
            },
            "default_security_group": self._part("security-group", "security_groups"),
            "dns": {"enable_hub": False, "resolution_binding_count": 0, "resolver": {"type": "system", "servers": []}},
            "health_reasons": [],
            "health_state": "ok",
            "public_address_ranges": [],
            "resource_type": "vpc",
            "status": "available",
        }
        return self._resources.add(VpcResource(VPCS, self.core.number(), document))

    def _part(self, kind: str, path: str) -> Json:
        identity = self.core.new_id()
        return {"crn": crn(kind, identity), "href": href(f"{path}/{identity}"), "id": identity, "name": f"ci-{kind}"}

    def add_subnet(self, name: str, zone: str, cidr: str) -> VpcResource:
        """Another subnet of the VPC."""
        identity = self.core.new_id(zone)
        pool = self._pools[identity] = AddressPool(cidr)
        document = {
            **self._common("subnet", identity, name, SUBNETS, zone),
            "available_ipv4_address_count": pool.free,
            "ip_version": "ipv4",
            "ipv4_cidr_block": cidr,
            "network_acl": self.vpc.document["default_network_acl"],
            "resource_type": "subnet",
            "routing_table": self.vpc.document["default_routing_table"],
            "status": "available",
            "total_ipv4_address_count": pool.free + 3,
            "vpc": reference(self.vpc.document),
            "zone": zone_reference(zone),
        }
        return self._resources.add(VpcResource(SUBNETS, self.core.number(), document))

    def add_key(self, name: str) -> VpcResource:
        content = f"key {name}".encode()
        digest = base64.b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        document = {
            **self._common("key", self.core.new_id(), name, KEYS),
            "fingerprint": f"SHA256:{digest}",
            "length": 256,
            "public_key": f"ssh-ed25519 {base64.b64encode(content).decode()}",
            "type": "ed25519",
        }
        return self._resources.add(VpcResource(KEYS, self.core.number(), document))

    # -- addresses --

    def take(self, subnet: VpcResource) -> str:
        """A private address.

        :raises VpcError: the subnet has none left.
        """
        pool = self._pools[subnet.id]
        address = pool.take()
        if address is None:
            text = f"Insufficient available IP addresses in subnet {subnet.id}."
            raise VpcError(409, "insufficient_ip_addresses", text)
        subnet.document["available_ipv4_address_count"] = pool.free
        return address

    def give_back(self, subnet_id: str, address: str) -> None:
        pool = self._pools[subnet_id]
        pool.give_back(address)
        subnet = self._resources.find(SUBNETS, subnet_id)
        if subnet is not None:
            subnet.document["available_ipv4_address_count"] = pool.free

    def take_public(self) -> str:
        """The address of a floating IP."""
        address = self._public.take()
        if address is None:
            raise VpcError(409, "insufficient_ip_addresses", "There are no more public addresses.")
        return address

    def give_back_public(self, address: str) -> None:
        self._public.give_back(address)


def reference(document: Json) -> Json:
    """What other things have of it."""
    names = ("crn", "href", "id", "name", "resource_type")
    return {name: document[name] for name in names if name in document}
