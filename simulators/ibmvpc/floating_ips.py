# SPDX-License-Identifier: Apache-2.0
"""Floating IPs of the simulated region, and which interfaces they are bound to."""

from __future__ import annotations

from simulators.base.messages import Json
from simulators.ibmvpc.core import ZONES, IbmCore, VpcError, crn, href, not_found, zone_reference
from simulators.ibmvpc.groups import ResourceGroup, ResourceGroups
from simulators.ibmvpc.interfaces import VpcInterface
from simulators.ibmvpc.network import VpcNetwork
from simulators.ibmvpc.quota import VpcQuotas
from simulators.ibmvpc.resources import ADDRESSES, VpcResource, VpcTable, identity_of


class VpcFloatingIps:
    """All of them. The caller holds the core's lock.

    :ivar interfaces: what they can be bound to, by id.
    """

    def __init__(
        self, core: IbmCore, resources: VpcTable, network: VpcNetwork, groups: ResourceGroups, quotas: VpcQuotas
    ) -> None:
        self.core = core
        self.interfaces: dict[str, VpcInterface] = {}
        self._resources = resources
        self._network = network
        self._groups = groups
        self._quotas = quotas

    def create(self, body: Json) -> VpcResource:
        """Accepts a POST.

        :raises VpcError: it is refused.
        """
        interface = self._interface(identity_of(body, "target")) if body.get("target") else None
        zone = interface.subnet.zone if interface else identity_of(body, "zone", ("name",))
        if zone not in ZONES:
            raise not_found("Zone", zone, 400)
        name = self._resources.check_name(ADDRESSES, body.get("name") or f"ip-{self.core.number()}")
        group = self._groups.of_body(body)
        self._quotas.check_address(zone)
        return self.add(name, zone, group, interface)

    def add(self, name: str, zone: str, group: ResourceGroup, interface: VpcInterface | None = None) -> VpcResource:
        """A floating IP; the caller has looked at the name."""
        identity = self.core.new_id()
        document: Json = {
            "address": self._network.take_public(),
            "created_at": self.core.stamp(),
            "crn": crn("floating-ip", identity, zone),
            "href": href(f"{ADDRESSES}/{identity}"),
            "id": identity,
            "name": name,
            "resource_group": group.reference,
            "status": "available",
            "zone": zone_reference(zone),
        }
        made = self._resources.add(VpcResource(ADDRESSES, self.core.number(), document))
        if self.core.knobs.address_seconds[1] > 0:
            document["status"] = "pending"
            self.core.after(self.core.knobs.address_seconds, "addresses", lambda: self._available(made))
        if interface is not None:
            document["target"] = interface.target()
        self.core.events["floating IPs made"] += 1
        return made

    @staticmethod
    def _available(floating: VpcResource) -> None:
        if floating.status == "pending":
            floating.document["status"] = "available"

    def change(self, floating: VpcResource, body: Json) -> VpcResource:
        """Accepts a PATCH of name, target or both.

        :raises VpcError: it is refused.
        """
        name = body.get("name", floating.name)
        if name != floating.name:
            self._resources.check_name(ADDRESSES, name)
        if "target" in body:
            interface = None if body["target"] is None else self._interface(identity_of(body, "target"), floating)
            self.bind(floating, interface)
        floating.document["name"] = name
        return floating

    def bind(self, floating: VpcResource, interface: VpcInterface | None) -> None:
        """To another interface, or to none.

        :raises VpcError: the interface is in another zone.
        """
        self._check_state(floating)
        if interface is None:
            floating.document.pop("target", None)
            return
        if interface.subnet.zone != floating.zone:
            text = "Please check whether the resources you are requesting are in the same zone."
            raise VpcError(400, "invalid_zone", text, "target", interface.id)
        floating.document["target"] = interface.target()

    def delete(self, floating: VpcResource) -> None:
        """Accepts a DELETE; it is bound to nothing from then on."""
        self._check_state(floating)
        floating.document["status"] = "deleting"
        floating.document.pop("target", None)
        self.core.after(self.core.knobs.delete_seconds, "addresses", lambda: self.remove(floating))

    def remove(self, floating: VpcResource) -> None:
        self._resources.remove(floating)
        self._network.give_back_public(floating.document["address"])
        self.core.events["floating IPs deleted"] += 1

    def bound_to(self, interface: VpcInterface) -> list[VpcResource]:
        """Those that the interface has."""
        all_of_them = self._resources.of(ADDRESSES)
        return [found for found in all_of_them if (found.document.get("target") or {}).get("id") == interface.id]

    def release(self, interface: VpcInterface) -> None:
        """The interface is gone: its floating IPs are bound to nothing."""
        for floating in self.bound_to(interface):
            del floating.document["target"]
        self.interfaces.pop(interface.id, None)

    def _interface(self, identity: str, floating: VpcResource | None = None) -> VpcInterface:
        """What a body names as target.

        :param floating: it may be bound to that already.
        """
        interface = self.interfaces.get(identity)
        if interface is None:
            raise not_found("Target", identity, 400)
        if any(found is not floating for found in self.bound_to(interface)):
            # That it is refused is documented, and the code is not.
            text = f"The network interface {identity} already has a floating IP."
            raise VpcError(409, "network_interface_in_use", text, "target", identity)
        return interface

    @staticmethod
    def _check_state(floating: VpcResource) -> None:
        if floating.status == "deleting":
            raise VpcError(409, "invalid_state", f"The floating IP {floating.id} is being deleted.", "id", floating.id)
