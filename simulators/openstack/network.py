# SPDX-License-Identifier: Apache-2.0
"""The simulated Neutron: networks with 127.x addresses, ports, floating IPs, security groups."""

from __future__ import annotations

import ipaddress
import itertools
from dataclasses import dataclass

from simulators.base.addresses import AddressPool
from simulators.openstack.collection import Collection
from simulators.openstack.core import Core
from simulators.openstack.messages import ApiError, Json, new_id

UP, DOWN = "ACTIVE", "DOWN"


@dataclass(frozen=True)
class NetworkSpec:
    """A network to begin with.

    :param ipv4: its subnet, inside 127.0.0.0/8 when servers shall be reachable.
    :param ipv6: adds a subnet of IPv4-mapped addresses (``::ffff:127.x.y.z``): they lead to the same host over IPv6.
    :param external: floating IPs come from it; servers cannot be on it.
    :param provider: has a physical network: servers on it are reachable without a floating IP.
    """

    name: str
    ipv4: str
    ipv6: bool = False
    external: bool = False
    provider: bool = False


NETWORKS = (
    NetworkSpec("provider", "127.10.0.0/16", provider=True),
    NetworkSpec("dual", "127.20.0.0/16", ipv6=True, provider=True),
    NetworkSpec("private", "127.30.0.0/16"),
    NetworkSpec("public", "127.40.0.0/16", external=True),
    NetworkSpec("tiny", "127.50.0.0/30", provider=True),
)


class Network:
    """All of Neutron's state. The caller holds the core's lock."""

    def __init__(self, core: Core, specs: tuple[NetworkSpec, ...] = NETWORKS) -> None:
        self.core = core
        self.networks = Collection("Network", "networks")
        self.subnets = Collection("Subnet", "subnets")
        self.ports = Collection("Port", "ports")
        self.floating_ips = Collection("FloatingIP", "floatingips")
        self.security_groups = Collection("SecurityGroup", "security_groups")
        self._pools: dict[str, AddressPool] = {}
        self._by_device: dict[str, dict[str, Json]] = {}
        self._numbers = itertools.count(1)
        for spec in specs:
            self._add_network(spec)
        self.add_security_group("default")

    def add_security_group(self, name: str) -> Json:
        """Adds a group without rules."""
        entry = {"id": new_id(), "name": name, "description": "", "stateful": True, "security_group_rules": []}
        return self.security_groups.add(entry | self._owner())

    def usable_networks(self) -> list[Json]:
        """Networks that servers can be on."""
        return [entry for entry in self.networks if not entry["router:external"]]

    def create_port(self, network_id: str, device_id: str, device_owner: str, addresses: bool = True) -> Json:
        """Makes a port that is DOWN.

        :raises ApiError: 404, 409 (OverQuota, IpAddressGenerationFailure).
        """
        network = self.networks.get(network_id)
        quota = self.core.knobs.quota.ports
        if 0 <= quota <= len(self.ports):
            raise ApiError(409, "Quota exceeded for resources: ['port'].", "OverQuota")
        number = next(self._numbers)
        entry: Json = {
            "id": new_id(),
            "name": "",
            "network_id": network_id,
            "mac_address": "fa:16:3e:" + ":".join(f"{number >> shift & 255:02x}" for shift in (16, 8, 0)),
            "device_id": device_id,
            "device_owner": device_owner,
            "status": DOWN,
            "admin_state_up": True,
            "fixed_ips": self._fixed_ips(network) if addresses else [],
            "security_groups": [],
            "allowed_address_pairs": [],
            "port_security_enabled": True,
            "binding:vnic_type": "normal",
            "tags": [],
            "created_at": self.core.stamp(),
            "updated_at": self.core.stamp(),
        }
        self._by_device.setdefault(device_id, {})[entry["id"]] = self.ports.add(entry | self._owner())
        return self.ports.get(entry["id"])

    def delete_port(self, key: str) -> None:
        """Deletes it and gives its addresses back; a floating IP on it becomes free.

        :raises ApiError: 404.
        """
        port = self.ports.remove(key)
        self._by_device[port["device_id"]].pop(key)
        if not self._by_device[port["device_id"]]:
            del self._by_device[port["device_id"]]
        for fixed in port["fixed_ips"]:
            self._pools[fixed["subnet_id"]].give_back(fixed["ip_address"])
        for floating in self.floating_ips:
            if floating["port_id"] == key:
                self.attach(floating, None)

    def ports_of(self, server_id: str) -> list[Json]:
        """The server's ports."""
        return list(self._by_device.get(server_id, {}).values())

    def set_status(self, port: Json, status: str) -> None:
        """UP or DOWN."""
        port["status"] = status
        self.ports.changed(port)

    def create_floating_ip(self, network_id: str, port_id: str | None, fixed_address: str | None = None) -> Json:
        """Takes an address from an external network and attaches it to the port, if one is given.

        :raises ApiError: 404, 400, 409 (OverQuota, IpAddressGenerationFailure).
        """
        network = self.networks.get(network_id)
        if not network["router:external"]:
            raise ApiError(400, f"Network {network_id} is not a valid external network.", "BadRequest")
        quota = self.core.knobs.quota.floating_ips
        if 0 <= quota <= len(self.floating_ips):
            raise ApiError(409, "Quota exceeded for resources: ['floatingip'].", "OverQuota")
        if port_id is not None:
            self.ports.get(port_id)
        address = self._pools[network["subnets"][0]].take()
        if address is None:
            raise _no_addresses(network_id)
        entry: Json = {
            "id": new_id(),
            "floating_ip_address": address,
            "floating_network_id": network_id,
            "router_id": None,
            "port_id": None,
            "fixed_ip_address": None,
            "status": DOWN,
            "description": "",
            "dns_domain": "",
            "dns_name": "",
            "port_details": None,
            **self.core.turn("forwardings", {}, {"port_forwardings": []}),
            "tags": [],
            "created_at": self.core.stamp(),
            "updated_at": self.core.stamp(),
        }
        self.floating_ips.add(entry | self._owner())
        entry = self.floating_ips.get(entry["id"])
        self.attach(entry, port_id, fixed_address)
        return entry

    def attach(self, floating: Json, port_id: str | None, fixed_address: str | None = None) -> None:
        """Attaches a floating IP to a port, or frees it.

        :raises ApiError: 404; 400, the port has no such IPv4 address; 409, another floating IP is on it.
        """
        fixed = None
        if port_id is not None:
            addresses = [entry["ip_address"] for entry in self.ports.get(port_id)["fixed_ips"]]
            fixed = fixed_address or next((address for address in addresses if ":" not in address), None)
            if fixed not in addresses:
                raise ApiError(400, f"Port {port_id} does not have fixed ip {fixed}.", "BadRequest")
            if any(entry["port_id"] == port_id and entry is not floating for entry in self.floating_ips):
                raise ApiError(409, f"Port {port_id} already has a floating IP.", "FloatingIPPortAlreadyAssociated")
        floating["port_id"] = port_id
        floating["fixed_ip_address"] = fixed
        floating["status"] = UP if port_id else DOWN
        self.floating_ips.changed(floating)

    def delete_floating_ip(self, key: str) -> Json:
        """Deletes it.

        :raises ApiError: 404.
        """
        entry = self.floating_ips.remove(key)
        self._pools[self.networks.get(entry["floating_network_id"])["subnets"][0]].give_back(
            entry["floating_ip_address"]
        )
        return entry

    def _fixed_ips(self, network: Json) -> list[Json]:
        addresses: list[Json] = []
        for subnet_id in network["subnets"]:
            address = self._pools[subnet_id].take()
            if address is None:
                for taken in addresses:
                    self._pools[taken["subnet_id"]].give_back(taken["ip_address"])
                raise _no_addresses(network["id"])
            version6 = self.subnets.get(subnet_id)["ip_version"] == 6
            addresses.append({"subnet_id": subnet_id, "ip_address": f"::ffff:{address}" if version6 else address})
        return addresses

    def _add_network(self, spec: NetworkSpec) -> None:
        network: Json = {
            "id": new_id(),
            "name": spec.name,
            "status": "ACTIVE",
            "admin_state_up": True,
            "shared": spec.provider,
            "router:external": spec.external,
            "provider:network_type": "flat" if spec.provider else None,
            "provider:physical_network": "physnet1" if spec.provider else None,
            "provider:segmentation_id": None,
            "port_security_enabled": True,
            "mtu": 1500,
            "availability_zones": ["nova"],
            "availability_zone_hints": [],
            "is_default": False,
            "description": "",
            "tags": [],
            "subnets": [],
        }
        self.networks.add(network | self._owner())
        network = self.networks.get(network["id"])
        self._add_subnet(network, spec.ipv4, 4)
        if spec.ipv6:
            # The second half of the same range: mapped addresses lead to IPv4 hosts, which must be different ones.
            first = ipaddress.ip_network(spec.ipv4)
            self._add_subnet(network, str(ipaddress.ip_network((int(first[0]) + (1 << 16), first.prefixlen))), 6)

    def _add_subnet(self, network: Json, cidr: str, version: int) -> None:
        pool = AddressPool(cidr)
        subnet: Json = {
            "id": new_id(),
            "name": f"{network['name']}-v{version}",
            "network_id": network["id"],
            "ip_version": version,
            "cidr": cidr if version == 4 else f"::ffff:{cidr.split('/')[0]}/112",
            "gateway_ip": None,
            "enable_dhcp": True,
            "ipv6_address_mode": None,
            "ipv6_ra_mode": None,
            "dns_nameservers": [],
            "host_routes": [],
            "allocation_pools": [],
            "tags": [],
        }
        self.subnets.add(subnet | self._owner())
        self._pools[subnet["id"]] = pool
        network["subnets"].append(subnet["id"])

    def _owner(self) -> Json:
        return {"project_id": self.core.project_id, "tenant_id": self.core.project_id}


def _no_addresses(network_id: str) -> ApiError:
    return ApiError(409, f"No more IP addresses available on network {network_id}.", "IpAddressGenerationFailure")
