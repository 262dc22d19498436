# SPDX-License-Identifier: Apache-2.0
"""The whole simulated project: what is in it at the beginning, and things that nobody knows of."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Final

from simulators.base.addresses import AddressPool
from simulators.base.core import SimulationCore
from simulators.base.messages import ApiError
from simulators.gce.images import ProjectImages
from simulators.gce.instance_spec import read_instance_spec, read_labels
from simulators.gce.instances import ProjectInstance, ProjectInstances
from simulators.gce.links import (
    GLOBAL,
    IMAGE_PROJECT,
    PROJECT,
    REGIONS,
    ZONES,
    link,
    path_of,
    read_link,
    region_scope,
    zone_scope,
)
from simulators.gce.objects import ProjectBuckets
from simulators.gce.operations import ProjectOperations
from simulators.gce.resources import ProjectResource, ProjectResources
from simulators.gce.settings import GceSettings

#: Image that everybody may use, its family, and the bucket for uploads.
IMAGE, FAMILY, BUCKET = "debian-12-bookworm-v20261101", "debian-12", "nodepool-images"
ZONE: Final = "us-central1-a"
#: Google writes times as on the Pacific coast.
_PACIFIC: Final = timezone(timedelta(hours=-8))
_SUMMER: Final = timezone(timedelta(hours=-7))


class GceCore(SimulationCore[GceSettings]):
    """Times as Google writes them: of RFC 3339, so that the zone and the fraction are its choice."""

    def stamp(self) -> str:
        now = datetime.fromtimestamp(self.now(), _PACIFIC)
        return self.turn(
            "time",
            now.isoformat(timespec="milliseconds"),
            now.astimezone(_SUMMER).isoformat(timespec="milliseconds"),
            f"{now.astimezone(UTC).isoformat(timespec='seconds')[:19]}Z",
        )


class Project:
    """A project with the network ``default``, a bucket, and the images of ``debian-cloud``.

    Other threads than the server's hold ``core.lock`` for each look and each change, and call ``core.run_due()`` first.
    """

    def __init__(
        self, settings: GceSettings | None = None, seed: int = 0, clock: Callable[[], float] | None = None
    ) -> None:
        self.core = GceCore(settings or GceSettings(), seed, clock)
        self.email = f"nodepool@{PROJECT}.iam.gserviceaccount.com"
        self.resources = ProjectResources(self.core.stamp)
        self.operations = ProjectOperations(self)
        self.objects = ProjectBuckets(self.core, [BUCKET])
        self.images = ProjectImages(self)
        self.instances = ProjectInstances(self)
        self.networks = {path_of(PROJECT, GLOBAL, "networks", "default")}
        self.subnetworks = {path_of(PROJECT, region_scope(region), "subnetworks", "default") for region in REGIONS}
        self._private = AddressPool("10.128.0.0/16")
        # Loopback: an sshd of a test answers there.
        self._public = AddressPool("127.64.0.0/10")
        self.images.add(IMAGE, FAMILY, project=IMAGE_PROJECT)

    @staticmethod
    def region_of(zone: str) -> str:
        """The region of a zone.

        :raises ApiError: 400, there is no such zone.
        """
        if zone not in ZONES:
            raise ApiError(400, f"Invalid value for field 'zone': '{zone}'. Unknown zone.", "invalid")
        return ZONES[zone]

    def image_of(self, text: object) -> ProjectResource | None:
        """The image that a link names; of a family, its newest one."""
        path = read_link(text)
        place, family, name = path.partition("/images/family/")
        return self.images.newest(place.split("/")[1], name) if family else self.resources.find(path)

    # -- addresses --

    def take_address(self) -> str:
        address = self._private.take()
        if address is None:
            raise ApiError(400, "The subnetwork 'default' has no free addresses.", "IP_SPACE_EXHAUSTED")
        return address

    def give_back_address(self, address: str) -> None:
        self._private.give_back(address)

    def take_public_address(self) -> str:
        address = self._public.take()
        if address is None:
            raise ApiError(503, "There are no free external addresses.", "backendError")
        return address

    def give_back_public_address(self, address: str) -> None:
        self._public.give_back(address)

    # -- things that no client made --

    def add_instance(
        self,
        name: str,
        metadata: dict[str, str] | None = None,
        labels: dict[str, str] | None = None,
        zone: str = ZONE,
        machine_type: str = "e2-micro",
    ) -> ProjectInstance:
        """An instance; it boots like any other.

        :raises ApiError: the name is taken.
        """
        body = {
            "name": name,
            "machineType": f"{zone_scope(zone)}/machineTypes/{machine_type}",
            "labels": dict(labels or {}),
            "metadata": {"items": [{"key": key, "value": value} for key, value in (metadata or {}).items()]},
            "disks": [
                {
                    "boot": True,
                    "autoDelete": True,
                    "initializeParams": {"sourceImage": f"projects/{IMAGE_PROJECT}/global/images/family/{FAMILY}"},
                }
            ],
            "networkInterfaces": [{"network": "global/networks/default"}],
        }
        self.instances.create(read_instance_spec(self, zone, body))
        found = self.resources.get(path_of(PROJECT, zone_scope(zone), "instances", name))
        assert isinstance(found, ProjectInstance)
        return found

    def add_disk(self, name: str, labels: dict[str, str] | None = None, zone: str = ZONE) -> ProjectResource:
        """A disk that no instance has."""
        document = {
            "sizeGb": "10",
            "status": "READY",
            "type": link(path_of(PROJECT, zone_scope(zone), "diskTypes", "pd-standard")),
        }
        disk = ProjectResource(PROJECT, zone_scope(zone), "disks", name, document)
        return self.resources.add(disk, read_labels(labels, "labels"))

    def add_address(
        self, name: str, labels: dict[str, str] | None = None, region: str = "us-central1"
    ) -> ProjectResource:
        """A reserved address that nothing uses."""
        document = {"address": self.take_public_address(), "status": "RESERVED", "addressType": "EXTERNAL"}
        address = ProjectResource(PROJECT, region_scope(region), "addresses", name, document)
        return self.resources.add(address, read_labels(labels, "labels"))

    def contents(self) -> dict[str, int]:
        """How many of each are there; images without those of other projects."""
        found = {kind: self.resources.count(kind) for kind in ("instances", "disks", "addresses")}
        own = sum(image.project == PROJECT for image in self.resources.of("images"))
        return {**found, "images": own, "objects": self.objects.count()}
