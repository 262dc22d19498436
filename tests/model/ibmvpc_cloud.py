# SPDX-License-Identifier: Apache-2.0
"""The simulated region of IBM VPC in a simulated world: the real driver, but no connection."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pytest

from nodepool.driver.ibmvpc import IbmVpcDriver
from nodepool.driver.ibmvpc import login as c
from nodepool.driver.ibmvpc.floating import SETTLED_SECONDS
from nodepool.driver.ibmvpc.types import node_metadata
from nodepool.model import states
from simulators.ibmvpc.application import IbmVpcApplication
from simulators.ibmvpc.cloud import VpcRegion
from simulators.ibmvpc.resources import ADDRESSES, INSTANCES, VOLUMES
from simulators.ibmvpc.settings import IbmVpcSettings, ProfileCapacity, VpcBootRule, VpcErrorRule
from tests.model.cloud import ModelServer, cloud_of
from tests.model.invariants import Invariants
from tests.model.setup import Setup
from tests.model.simulated_cloud import RestModelCloud, RestWorld, SimulatedMoves
from tests.support.clouds import ibmvpc_section

if TYPE_CHECKING:
    from simulators.ibmvpc.resources import VpcResource

URL: Final = "http://ibm.invalid"
#: Seconds from the order until an instance is gone.
DELETE_SECONDS: Final = (0.0, 2.0)
#: Free floating IPs that a pool keeps.
KEPT: Final = 1


class IbmModelCloud(RestModelCloud):
    """:ivar region: what is there; the settings say what goes wrong."""

    driver_name = "ibmvpc"
    error_rule = VpcErrorRule
    boot_rule = VpcBootRule
    #: IBM documents none: the driver counts on a second.
    lag_seconds = (0.2, 0.9)

    sizes: ClassVar = {"small": {"profile": "cx2-2x4"}, "large": {"profile": "bx2-2x8"}}

    def __init__(self, world: IbmWorld) -> None:
        boot = world.setup.boot_seconds
        self.addresses = world.addresses
        settings = IbmVpcSettings(boot_seconds=(boot / 2, boot), delete_seconds=DELETE_SECONDS)
        self.region = VpcRegion(settings, world.setup.order, lambda: world.now)
        super().__init__(world, IbmVpcApplication(self.region), self.region.core)

    def make_driver(self) -> IbmVpcDriver:
        return IbmVpcDriver()

    def section(self) -> dict[str, Any]:
        addresses = {"public-ipv4": self.addresses, "floating-ip-pool": KEPT, "use-internal-ip": not self.addresses}
        return {**ibmvpc_section(Path("/etc/ibm.env")), **addresses}

    def servers(self) -> list[ModelServer]:
        return [ModelServer(one.name, node_metadata(one.name, one.group_name)) for one in self._of(INSTANCES)]

    def floating_ips(self) -> list[VpcResource]:
        return self._of(ADDRESSES)

    def volumes(self) -> list[VpcResource]:
        return self._of(VOLUMES)

    def _of(self, kind: str) -> list[VpcResource]:
        self._core.run_due()
        return list(self.region.resources.of(kind))

    def refuse_for_quota(self) -> None:
        self._once(self.create_call, "400", code="over_quota")

    def throttle(self) -> None:
        self._once("vpc.*", "429", count=3)

    def lose_address(self) -> None:
        """The next call that makes a floating IP or binds one works, and its answer is lost."""
        self._once("vpc.*te_floating_ip", "drop", after=True)

    def no_room(self, late: bool) -> ProfileCapacity:
        return ProfileCapacity(zone=self.words.zones[0])

    def set_addresses(self, room: bool) -> None:
        """Are there more floating IPs?"""
        self.knobs.quotas = {} if room else {"floating_ips": 1}

    def heal(self) -> None:
        super().heal()
        self.set_addresses(True)


class IbmInvariants(Invariants):
    """Of floating IPs and volumes, too."""

    def look(self) -> None:
        """A node that can be used has the floating IP that its record names."""
        super().look()
        cloud = cloud_of(self._world, IbmModelCloud)
        if not cloud.addresses:
            return
        bound: dict[str, list[str]] = {}
        for floating in cloud.floating_ips():
            if target := (floating.document.get("target") or {}).get("id"):
                bound.setdefault(target, []).append(floating.document["address"])
        for node_id, node in self._nodes().items():
            if node is None or node["state"] not in (states.READY, states.IN_USE):
                continue
            instance = cloud.region.resources.named(INSTANCES, node["external_id"])
            if instance is None:
                continue
            found = bound.get(instance.document["primary_network_interface"]["id"])
            if found != [node["public_ipv4"]]:
                self._world.violation(f"node {node_id} has floating IP {node['public_ipv4']}, bound are {found}")

    def at_the_end(self) -> None:
        """No volume is left over, and no more floating IPs than a pool keeps."""
        # What is too many is deleted when no launcher can be at it.
        self._world.run_seconds(2 * SETTLED_SECONDS)
        super().at_the_end()
        cloud = cloud_of(self._world, IbmModelCloud)
        for volume in cloud.volumes():
            if not volume.document["volume_attachments"]:
                self._world.violation(f"volume {volume.name} is left over")
        free: dict[str, list[str]] = {}
        for floating in cloud.floating_ips():
            if not floating.document.get("target"):
                free.setdefault(floating.group_name, []).append(floating.name)
        for group, names in free.items():
            if len(names) > KEPT:
                self._world.violation(f"free floating IPs of {group}: {names}")


class IbmMoves(SimulatedMoves):
    """What can happen in a region, too."""

    def do_lost_address(self, _: int) -> None:
        self._world.create_faults += 1
        cloud_of(self._world, IbmModelCloud).lose_address()

    def do_no_addresses(self, number: int) -> None:
        cloud_of(self._world, IbmModelCloud).set_addresses(number % 2 == 0)


class IbmWorld(RestWorld):
    """:param addresses: do nodes get floating IPs?"""

    moves_class = IbmMoves
    invariants_class = IbmInvariants

    def __init__(self, setup: Setup, *, addresses: bool = False, trace: bool = False) -> None:
        self.addresses = addresses
        super().__init__(setup, trace=trace)

    def make_cloud(self) -> IbmModelCloud:
        return IbmModelCloud(self)

    def patch(self, patch: pytest.MonkeyPatch) -> None:
        super().patch(patch)
        values = {"APIKEY": IbmVpcSettings.api_key}
        found = c.Credentials(c.IAM, "the world", values, URL, f"{URL}/v1", URL)
        patch.setattr(c, "read_credentials", lambda _path: found)
