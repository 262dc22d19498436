# SPDX-License-Identifier: Apache-2.0
"""The whole simulated region: what is in it at the beginning, and things that nobody knows of."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from simulators.base.messages import Json
from simulators.base.stored_objects import Piece, StoredObjects
from simulators.ibmvpc.core import REGION, ZONES, IbmCore
from simulators.ibmvpc.floating_ips import VpcFloatingIps
from simulators.ibmvpc.groups import ResourceGroups
from simulators.ibmvpc.images import IMAGE_NAME, VpcImages
from simulators.ibmvpc.instance_spec import SpecReader
from simulators.ibmvpc.instances import VpcInstances
from simulators.ibmvpc.network import VpcNetwork
from simulators.ibmvpc.quota import VpcQuotas
from simulators.ibmvpc.resources import (
    ADDRESSES,
    IMAGES,
    INSTANCES,
    SUBNETS,
    VOLUMES,
    VpcResource,
    VpcTable,
)
from simulators.ibmvpc.settings import IbmVpcSettings
from simulators.ibmvpc.volumes import VpcVolumes

#: Where buckets are, with the storage class.
LOCATION = f"{REGION}-standard"


class VpcRegion:
    """To begin with: the VPC ``ci``, a subnet in each zone, the key ``zuul``, IBM's images and the bucket ``images``.

    Other threads than the server's hold ``core.lock`` for each look and each change, and call ``core.run_due()`` first.
    """

    def __init__(
        self, settings: IbmVpcSettings | None = None, seed: int = 0, clock: Callable[[], float] | None = None
    ) -> None:
        core = self.core = IbmCore(settings or IbmVpcSettings(), seed, clock)
        self.resources = VpcTable()
        self.groups = ResourceGroups(core)
        self.network = VpcNetwork(core, self.resources, self.groups)
        self.quotas = VpcQuotas(core, self.resources)
        self.objects = StoredObjects(core, core.stamp, lambda: core.knobs.buckets, LOCATION, keep_data=True)
        self.images = VpcImages(core, self.resources, self.objects, self.groups, self.quotas)
        self.volumes = VpcVolumes(core, self.resources)
        self.addresses = VpcFloatingIps(core, self.resources, self.network, self.groups, self.quotas)
        self.specs = SpecReader(self.resources, self.groups)
        self.instances = VpcInstances(core, self.resources, self.network, self.volumes, self.addresses, self.quotas)

    # -- things that no client made --

    def add_instance(
        self,
        name: str,
        group: str = "Default",
        profile: str = "cx2-2x4",
        hidden_group: bool = False,
        tags: Sequence[str] = (),
    ) -> VpcResource:
        """An instance; it boots like any other. VpcQuotas apply.

        :param group: of its resource group, which is made if there is none; ``hidden_group``: no client sees it.
        :param tags: of its boot volume.
        :raises VpcError: there is no room.
        """
        zone = next(iter(ZONES))
        subnet = next(found for found in self.resources.of(SUBNETS) if found.zone == zone)
        image = self.resources.named(IMAGES, IMAGE_NAME)
        assert image is not None
        made = self.groups.hidden(group) if hidden_group else self.groups.ensure(group)
        body: Json = {
            "name": name,
            "profile": {"name": profile},
            "zone": {"name": zone},
            "resource_group": {"id": made.id},
            "image": {"id": image.id},
            "primary_network_interface": {"subnet": {"id": subnet.id}},
            "boot_volume_attachment": {"volume": {"profile": {"name": "general-purpose"}, "user_tags": list(tags)}},
        }
        return self.instances.create(self.specs.read(body))

    def add_address(self, name: str, group: str = "Default") -> VpcResource:
        """A floating IP that is bound to nothing."""
        return self.addresses.add(name, next(iter(ZONES)), self.groups.ensure(group))

    def add_volume(self, name: str, group: str = "Default", tags: Sequence[str] = ()) -> VpcResource:
        """A volume that no instance has."""
        return self.volumes.add(name, next(iter(ZONES)), self.groups.ensure(group), tags)

    def add_image(self, name: str, group: str = "Default") -> VpcResource:
        """An image of the account, which can be used."""
        return self.images.add(name, self.groups.ensure(group))

    def add_object(self, key: str, bucket: str = "images", data: str = "") -> None:
        """An object in a bucket."""
        self.objects.put(bucket, key, [Piece.of(data.encode(), None, keep=True)], {})

    def left_of_uploads(self) -> dict[str, int]:
        """Things that uploads make, and that are of no use."""
        return {
            "objects": sum(len(bucket) for bucket in self.objects.buckets.values()),
            "uploads": len(self.objects.uploads),
            "pending": sum(found.status == "pending" for found in self.resources.of(IMAGES)),
        }

    def contents(self) -> dict[str, int]:
        """How many of each are there; of images those of the account."""
        return {
            "instances": self.resources.count(INSTANCES),
            "volumes": self.resources.count(VOLUMES),
            "floating_ips": self.resources.count(ADDRESSES),
            "images": sum(found.document["visibility"] == "private" for found in self.resources.of(IMAGES)),
        }
