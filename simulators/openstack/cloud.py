# SPDX-License-Identifier: Apache-2.0
"""The whole simulated cloud: its services, what is in it at the beginning, and things that nobody knows of."""

from __future__ import annotations

from collections.abc import Callable

from simulators.openstack.compute import Compute
from simulators.openstack.core import Core
from simulators.openstack.create_spec import CreateSpec
from simulators.openstack.image_data import Upload
from simulators.openstack.images import Images
from simulators.openstack.knobs import Knobs, Quota
from simulators.openstack.messages import Json, new_id
from simulators.openstack.network import NETWORKS, Network, NetworkSpec
from simulators.openstack.servers import Server
from simulators.openstack.volumes import Volumes

#: Name, vCPUs, RAM in MiB, disk in GiB.
FLAVORS = (
    ("small", 1, 1024, 10),
    ("medium", 2, 4096, 20),
    ("large", 4, 8192, 40),
    ("xlarge", 8, 16384, 80),
    ("impossible", 1, 2048, 10),
)
IMAGE = "cloud-image"
KEY = "key"


class Cloud:
    """Flavors `FLAVORS`, networks `NETWORKS`, the image "cloud-image" and the key pair "key" are there to begin with.

    Other threads than the server's hold ``core.lock`` for each look and each change, and call ``core.run_due()`` first.
    """

    def __init__(
        self,
        knobs: Knobs | None = None,
        seed: int = 0,
        clock: Callable[[], float] | None = None,
        networks: tuple[NetworkSpec, ...] = NETWORKS,
    ) -> None:
        self.core = Core(knobs or Knobs(), seed, clock)
        self.network = Network(self.core, networks)
        self.volumes = Volumes(self.core)
        self.images = Images(self.core)
        #: Swift: container -> name -> object.
        self.objects: dict[str, dict[str, Upload]] = {}
        self.compute = Compute(self.core, self.network, self.volumes)
        for number, (name, cores, ram, disk) in enumerate(FLAVORS, 1):
            self.add_flavor(str(number), name, cores, ram, disk)
        self.images.add_active(IMAGE)
        self.add_keypair(KEY, "ssh-ed25519 AAAA simulated")

    def add_flavor(self, key: str, name: str, cores: int, ram: int, disk: int) -> Json:
        """Adds a flavor; ``ram`` in MiB, ``disk`` in GiB."""
        return self.compute.flavors.add(
            {
                "id": key,
                "name": name,
                "vcpus": cores,
                "ram": ram,
                "disk": disk,
                "swap": 0,
                "rxtx_factor": 1.0,
                "OS-FLV-EXT-DATA:ephemeral": 0,
                "OS-FLV-DISABLED:disabled": False,
                "os-flavor-access:is_public": True,
                "description": None,
                "extra_specs": {},
                "links": [],
            }
        )

    def add_keypair(self, name: str, public_key: str) -> Json:
        """Adds a key pair."""
        content = {"name": name, "public_key": public_key, "fingerprint": "00:11:22:33", "type": "ssh"}
        self.compute.keypairs.add({"id": name, "keypair": content})
        return content

    def add_server(
        self, name: str = "stray", metadata: dict[str, str] | None = None, network: str = "provider"
    ) -> Server:
        """A server that no client created; it boots like any other. Quotas apply.

        :raises ApiError: 403, a quota; 404, no such network.
        """
        flavor = next(iter(self.compute.flavors))
        spec = CreateSpec(
            name=name,
            flavor=flavor,
            image_id=next(iter(self.images.images))["id"],
            volume_size=0,
            networks=[self.network.networks.named(network)["id"]],
            security_groups=["default"],
            metadata=dict(metadata or {}),
            key_name=None,
            zone=self.core.knobs.availability_zones[0],
            config_drive=False,
            user_data=None,
        )
        return self.compute.create(spec)

    def add_port(
        self, network: str = "provider", device_owner: str = "compute:nova", device_id: str | None = None
    ) -> Json:
        """A port that is DOWN and belongs to a server that does not exist.

        :raises ApiError: 404, no such network.
        """
        network_id = self.network.networks.named(network)["id"]
        return self.network.create_port(network_id, new_id() if device_id is None else device_id, device_owner)

    def add_floating_ip(self, network: str = "public") -> Json:
        """A floating IP that is attached to nothing.

        :raises ApiError: 404, no such network.
        """
        return self.network.create_floating_ip(self.network.networks.named(network)["id"], None)

    def add_volume(self, size: int = 1, name: str = "", metadata: dict[str, str] | None = None) -> Json:
        """A volume of ``size`` GiB that is attached to nothing."""
        return self.volumes.create(size, name=name, metadata=dict(metadata or {}))

    def add_image(
        self, name: str = "stray", metadata: dict[str, str] | None = None, status: str = "active", hidden: bool = False
    ) -> Json:
        """An image that no client made.

        :param status: e.g. ``saving``, of an upload that ended in the middle.
        """
        image = self.images.add_active(name)
        image |= {"visibility": "private", "status": status, "os_hidden": hidden} | dict(metadata or {})
        self.images.images.changed(image)
        return image

    def limit(self, key: str, quota: str) -> Json:
        """An entry of the absolute limits. Those that were not set are shown as no limit, or left out."""
        most = getattr(self.core.knobs.quota, quota)
        entry = {key: most}
        return entry if most != getattr(Quota(), quota) else self.core.turn("limit", entry, {key: -1}, {})

    def contents(self) -> dict[str, int]:
        """How many of each are there: servers, ports, floating IPs, volumes, images."""
        return {
            "servers": len(self.compute.servers),
            "ports": len(self.network.ports),
            "floating_ips": len(self.network.floating_ips),
            "volumes": len(self.volumes.volumes),
            "images": len(self.images.images),
        }
