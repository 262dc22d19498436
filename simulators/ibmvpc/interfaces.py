# SPDX-License-Identifier: Apache-2.0
"""Network interfaces of instances: of their own, or attachments with virtual network interfaces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from simulators.base.messages import Json
from simulators.ibmvpc.core import IbmCore, crn, href
from simulators.ibmvpc.network import reference
from simulators.ibmvpc.resources import INSTANCES, VpcResource

OWN: Final = "network_interface"
VIRTUAL: Final = "virtual_network_interface"


@dataclass
class VpcInterface:
    """The primary interface of an instance.

    :param id: what a floating IP is bound to.
    :param address_id: of the reserved IP.
    :param attachment_id: "" = the interface is the instance's own.
    """

    id: str
    name: str
    instance_id: str
    subnet: VpcResource
    address: str
    address_id: str
    created: str
    attachment_id: str = ""
    attachment_name: str = ""

    @property
    def primary_ip(self) -> Json:
        return {
            "address": self.address,
            "href": href(f"subnets/{self.subnet.id}/reserved_ips/{self.address_id}"),
            "id": self.address_id,
            "name": self.name,
            "resource_type": "subnet_reserved_ip",
        }

    @property
    def shown_id(self) -> str:
        """An attachment is shown as an interface of its own, too."""
        return self.attachment_id or self.id

    def own_reference(self) -> Json:
        """In the instance, whatever kind it is."""
        path = f"{INSTANCES}/{self.instance_id}/network_interfaces/{self.shown_id}"
        return {
            "href": href(path),
            "id": self.shown_id,
            "name": self.attachment_name or self.name,
            "primary_ip": self.primary_ip,
            "resource_type": OWN,
            "subnet": reference(self.subnet.document),
        }

    def attachment_reference(self) -> Json:
        path = f"{INSTANCES}/{self.instance_id}/network_attachments/{self.attachment_id}"
        return {
            "href": href(path),
            "id": self.attachment_id,
            "name": self.attachment_name,
            "primary_ip": self.primary_ip,
            "resource_type": "instance_network_attachment",
            "subnet": reference(self.subnet.document),
            "virtual_network_interface": self._virtual_reference(),
        }

    def _virtual_reference(self) -> Json:
        return {
            "crn": crn("virtual-network-interface", self.id, self.subnet.zone),
            "href": href(f"virtual_network_interfaces/{self.id}"),
            "id": self.id,
            "name": self.name,
            "resource_type": VIRTUAL,
        }

    def target(self) -> Json:
        """As a floating IP has it that is bound to it."""
        if not self.attachment_id:
            found = self.own_reference()
            del found["subnet"]
            return found
        shown = {"primary_ip": self.primary_ip, "subnet": reference(self.subnet.document)}
        return {**self._virtual_reference(), **shown}

    def shown(self, floating: list[Json]) -> Json:
        """As the list of the instance's interfaces has it."""
        return {
            **self.own_reference(),
            "allow_ip_spoofing": False,
            "created_at": self.created,
            "floating_ips": floating,
            "port_speed": 1000,
            "security_groups": [],
            "status": "available",
            "type": "primary",
        }


def make_interface(
    core: IbmCore, instance_id: str, subnet: VpcResource, address: str, name: str, attachment: str
) -> VpcInterface:
    """:param attachment: name of the attachment; "" = the interface is the instance's own."""
    zone = subnet.zone
    return VpcInterface(
        core.new_id(zone),
        name,
        instance_id,
        subnet,
        address,
        core.new_id(zone),
        core.stamp(),
        core.new_id(zone) if attachment else "",
        attachment,
    )
