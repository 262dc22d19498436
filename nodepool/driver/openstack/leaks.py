# SPDX-License-Identifier: Apache-2.0
"""What can be left over in the cloud (rules D).

Servers, volumes and unfinished images carry our metadata and are left to the framework. Ports and floating IPs
carry none: those that nothing uses are deleted here, when they were seen so twice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from nodepool.clock import monotonic
from nodepool.driver.framework.cloud_errors import CloudNotFound, CloudRefused
from nodepool.driver.openstack.views import Server, Volume
from nodepool.driver.statemachine import Resource, ResourceKind, ResourceKinds
from nodepool.driver.statemachine.adapter import SWEEP_LIST_SECONDS
from nodepool.driver.statemachine.leaks import LOOK_AGAIN_SECONDS
from nodepool.exceptions import LaunchError
from nodepool.metrics import leaks
from nodepool.plan.seen_twice import SeenTwice

if TYPE_CHECKING:
    from nodepool.driver.openstack.cloud import OpenStackCloud

log = logging.getLogger("nodepool.driver.openstack.leaks")

INSTANCE: Final = "instance"
VOLUME: Final = "volume"
IMAGE: Final = "image"
_OURS: Final = "nodepool_provider_name"
#: Seconds between two looks for volumes where no label needs any: earlier ones may have left some.
OLD_VOLUMES_SECONDS: Final = 600.0


class OpenStackResource(Resource):
    """Something that says whose it is; ``id`` is that of the cloud."""

    def __init__(self, metadata: Mapping[str, str], type: str, id: str) -> None:
        super().__init__(dict(metadata), type)
        self.id = id


class Leaks:
    """Called by one thread at a time."""

    def __init__(self, cloud: OpenStackCloud, clock: Callable[[], float] = monotonic) -> None:
        self._cloud = cloud
        self._config = cloud.config
        self._clock = clock
        self._down_ports: SeenTwice[str] = SeenTwice()
        self._ports_checked_at = float("-inf")
        self._free_ips: SeenTwice[str] = SeenTwice()
        self._old_volumes_at = float("-inf")
        self._kinds = ResourceKinds(cloud.config.name, self._rows(), clock)

    def resources(self) -> Iterator[OpenStackResource]:
        """All that says whose it is; also deletes ports and floating IPs that are left over. Blocks."""
        return self._kinds.all()

    def _rows(self) -> Iterator[ResourceKind[OpenStackResource]]:
        yield ResourceKind(INSTANCE, self._servers, vital=True)
        if self._config.uses_volumes:
            yield ResourceKind(VOLUME, self._left_volumes)
        if self._config.diskimages:
            yield ResourceKind(IMAGE, self._unfinished_images)
        yield ResourceKind("port", self._clean_ports)
        yield ResourceKind("floating IP", self._clean_floating_ips)
        if not self._config.uses_volumes:
            yield ResourceKind(VOLUME, self._old_volumes)

    def suspected(self) -> bool:
        """Is there something that another look, soon, may delete?"""
        # A look that comes before the interval is over does not count for ports.
        return (
            self._free_ips.new
            or self._cloud.volumes.open
            or (self._down_ports.new and self._config.port_cleanup_interval <= LOOK_AGAIN_SECONDS)
        )

    def delete(self, resource: OpenStackResource) -> None:
        """Delete a leaked thing. Blocks. Raises NotFound and other errors of the API."""
        if resource.type == INSTANCE:
            server = self._cloud.inventory.get(resource.id)
            if self._cloud.floating.may_have(resource.id, server):
                self._cloud.floating.release(resource.id, server)
            self._cloud.delete_instance(resource.id)
        elif resource.type == VOLUME:
            self._cloud.api.delete_volume(resource.id)
        else:
            self._cloud.api.delete_image(resource.id)

    def _listed_servers(self) -> list[Server]:
        return self._cloud.inventory.all(SWEEP_LIST_SECONDS)

    def _servers(self) -> list[OpenStackResource]:
        return [OpenStackResource(server.metadata, INSTANCE, server.id) for server in self._listed_servers()]

    def _left_volumes(self) -> list[OpenStackResource]:
        return [
            OpenStackResource(volume.metadata, VOLUME, volume.id)
            for volume in self._volumes(self._listed_servers())
            if not volume.attached and not volume.deleting and _OURS in volume.metadata
        ]

    def _old_volumes(self) -> list[OpenStackResource]:
        """Those of labels that are not configured any more; seldom, as a rule there is none.

        The cloud need not have volumes, or let us see them: that is no trouble.
        """
        now = self._clock()
        if now < self._old_volumes_at and not self._cloud.volumes.open:
            return []
        self._old_volumes_at = now + OLD_VOLUMES_SECONDS
        try:
            left = self._left_volumes()
        except LaunchError as error:
            log.debug("Provider %s: volumes of earlier labels cannot be looked for: %s", self._config.name, error)
            return []
        if any(resource.metadata[_OURS] == self._config.name for resource in left):
            # The next look tells whether they are left over.
            self._old_volumes_at = now
        return left

    def _volumes(self, servers: Iterable[Server]) -> list[Volume]:
        """All of the project. Those of our servers that nobody could mark so far are marked now."""
        self._cloud.volumes.catch_up()
        volumes = self._cloud.api.volumes()
        marked = {volume.id for volume in volumes if _OURS in volume.metadata}
        self._cloud.volumes.seen(marked, {volume.id for volume in volumes} - marked, servers)
        return volumes

    def _unfinished_images(self) -> Iterator[OpenStackResource]:
        """Uploads that a builder began and never ended. Images that can be used are the builder's business."""
        for status in ("queued", "saving"):
            for image in self._cloud.api.images(status=status, visibility="private"):
                if _OURS in image.properties:
                    properties = {key: str(value) for key, value in image.properties.items()}
                    resource = OpenStackResource(properties, IMAGE, image.id)
                    resource.usable = False
                    yield resource

    # -- what says nothing: nothing of it is left to the framework --

    def _clean_ports(self) -> list[OpenStackResource]:
        """D-6: DOWN, owned by nobody or by Nova, in two checks that are far enough apart."""
        interval = self._config.port_cleanup_interval
        now = self._clock()
        if interval <= 0 or now - self._ports_checked_at < interval:
            return []
        self._ports_checked_at = now
        # A server that is being made has a port that is DOWN, too.
        in_use = {server.id for server in self._listed_servers()}
        down = {
            port.id
            for port in self._cloud.api.ports(status="DOWN")
            if port.status == "DOWN"
            and (not port.owner or port.owner.startswith("compute:"))
            and port.device not in in_use
        }
        self._delete_each("port", self._down_ports.look(down), self._cloud.api.delete_port)
        return []

    def _clean_floating_ips(self) -> list[OpenStackResource]:
        """D-7: attached to nothing in two checks: one that is just being attached by somebody is spared."""
        if not self._config.clean_floating_ips:
            return []
        free = {floating.id for floating in self._cloud.floating.unattached()}
        self._delete_each("floatingip", self._free_ips.look(free), self._cloud.api.delete_floating_ip)
        return []

    def _delete_each(self, kind: str, ids: Collection[str], delete: Callable[[str], None]) -> None:
        """D-5."""
        for leaked in sorted(ids):
            log.warning("Provider %s: deleting leaked %s %s", self._config.name, kind, leaked)
            try:
                delete(leaked)
            except CloudNotFound:
                continue
            except CloudRefused as error:
                log.error("Provider %s: %s %s could not be deleted: %s", self._config.name, kind, leaked, error)
                continue
            leaks.report(self._config.name, f"{kind}s")
