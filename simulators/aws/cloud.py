# SPDX-License-Identifier: Apache-2.0
"""The whole simulated region: what is in it at the beginning, and things that nobody knows of."""

from __future__ import annotations

from collections.abc import Callable

from simulators.aws.core import RegionCore
from simulators.aws.hosts import SimulatedHosts
from simulators.aws.images import IMAGE_NAME, SimulatedImages
from simulators.aws.imports import ACTIVE, Imports
from simulators.aws.instance_record import SimulatedInstance
from simulators.aws.instance_types import InstanceTypes
from simulators.aws.instances import SimulatedInstances
from simulators.aws.launch_templates import SimulatedTemplates
from simulators.aws.network import Vpc
from simulators.aws.run_spec import read_run_spec
from simulators.aws.settings import AwsSettings
from simulators.aws.snapshots import SimulatedSnapshots
from simulators.aws.volumes import SimulatedVolume, SimulatedVolumes
from simulators.base.stored_objects import StoredObjects


class Region:
    """A default VPC, an image ``debian-12``, the key pair ``zuul`` and the types of `TYPES` are there to begin with.

    Other threads than the server's hold ``core.lock`` for each look and each change, and call ``core.run_due()`` first.
    """

    def __init__(
        self, settings: AwsSettings | None = None, seed: int = 0, clock: Callable[[], float] | None = None
    ) -> None:
        self.core = RegionCore(settings or AwsSettings(), seed, clock)
        self.network = Vpc(self.core)
        self.types = InstanceTypes()
        self.images = SimulatedImages(self.core)
        self.volumes = SimulatedVolumes(self.core)
        self.snapshots = SimulatedSnapshots(self.core, self.images)
        self.objects = StoredObjects(self.core, self.core.stamp, lambda: self.core.knobs.buckets)
        self.imports = Imports(self)
        self.templates = SimulatedTemplates(self.core)
        self.hosts = SimulatedHosts(self.core)
        self.instances = SimulatedInstances(self.core, self.network, self.volumes, self.hosts)

    @property
    def image_id(self) -> str:
        """The AMI that is there to begin with."""
        return self.images.named(IMAGE_NAME).id

    def add_instance(
        self, metadata: dict[str, str] | None = None, instance_type: str = "t3.micro"
    ) -> SimulatedInstance:
        """An instance that no client made; it boots like any other. Quotas apply.

        :raises ApiError: there is no room.
        """
        tags = [{"Key": key, "Value": value} for key, value in (metadata or {}).items()]
        arguments = {
            "ImageId": self.image_id,
            "InstanceType": instance_type,
            "TagSpecifications": [{"ResourceType": "instance", "Tags": tags}],
        }
        spec = read_run_spec(self, arguments)
        return self.instances.run(spec, self.instances.room(spec, 1, 1))[0]

    def add_volume(self, size_gib: int = 1, metadata: dict[str, str] | None = None) -> SimulatedVolume:
        """A volume that is attached to nothing."""
        return self.volumes.create(size_gib, "gp3", self.core.zones[0], dict(metadata or {}))

    def left_of_uploads(self) -> dict[str, int]:
        """Things that uploads make, and that are of no use: without those that an AMI is made of."""
        images = self.images.images.values()
        used = {device["Ebs"].get("SnapshotId") for image in images for device in image.devices}
        return {
            "snapshots": sum(found not in used for found in self.snapshots.snapshots),
            "objects": sum(len(bucket) for bucket in self.objects.buckets.values()),
            "uploads": len(self.objects.uploads),
            "imports": sum(task.status == ACTIVE for task in self.imports.tasks.values()),
        }

    def contents(self) -> dict[str, int]:
        """How many of each are there; of instances those that have not ended."""
        live = [instance for instance in self.instances.instances.values() if instance.name != "terminated"]
        return {
            "instances": len(live),
            "volumes": len(self.volumes.volumes),
            "images": len(self.images.images),
            "hosts": sum(host.state != "released" for host in self.hosts.hosts.values()),
            "templates": len(self.templates.templates),
        }
