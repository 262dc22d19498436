# SPDX-License-Identifier: Apache-2.0
"""`OpenStackAdapter`: what the framework asks of the cloud (reference/driver 9)."""

from __future__ import annotations

import itertools
import logging
import math
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from nodepool.clock import monotonic
from nodepool.driver.framework.cloud_errors import CloudNotFound, CloudRefused
from nodepool.driver.framework.fact import Repeats
from nodepool.driver.openstack.cloud import OpenStackCloud
from nodepool.driver.openstack.clouds import risks_of, settings_of
from nodepool.driver.openstack.create import ServerCreation
from nodepool.driver.openstack.facts import missing_flavor, missing_image
from nodepool.driver.openstack.image_tasks import TaskUploads
from nodepool.driver.openstack.images import OpenStackImages, checksum_properties
from nodepool.driver.openstack.instance import OpenStackInstance, usage
from nodepool.driver.openstack.preflight import Preflight, unheeded
from nodepool.driver.openstack.transport import Transport
from nodepool.driver.openstack.views import ERROR, Server, Volume, limit
from nodepool.driver.statemachine import Adapter, Resource, ResourceKind, ResourceKinds
from nodepool.driver.statemachine.adapter import SWEEP_LIST_SECONDS
from nodepool.driver.statemachine.leaks import LOOK_AGAIN_SECONDS
from nodepool.driver.statemachine.machines import DeletionMachine
from nodepool.exceptions import (
    CloudUnavailableException,
    LaunchError,
    LaunchNodepoolException,
    RuntimeConfigurationException,
)
from nodepool.metrics import reports
from nodepool.model.quota import QuotaInformation
from nodepool.plan.retries import SeenTwice

if TYPE_CHECKING:
    from nodepool.driver.framework.checks import CheckResult
    from nodepool.driver.framework.images import ListedImage
    from nodepool.driver.openstack.config import OpenStackProviderConfig
    from nodepool.driver.statemachine.adapter import Log
    from nodepool.driver.statemachine.lost_creations import Creation
    from nodepool.model.request import NodeRequest

log = logging.getLogger("nodepool.driver.openstack")


class OpenStackAdapter(Adapter):
    """One cloud. Making it reads clouds.yaml again if it could not be used before; the cloud is not asked.

    :param transport: for tests.
    :raises CloudProblem: clouds.yaml is missing or broken, or does not have the cloud.
    """

    advance_threads = 8

    def __init__(self, provider_config: OpenStackProviderConfig, transport: Transport | None = None) -> None:
        super().__init__(provider_config)
        self.config = provider_config
        settings: Mapping[str, Any] = {}
        #: What clouds.yaml says and is not done.
        self._unheeded: list[CheckResult] = []
        if transport is None:
            region = provider_config.clouds.region(provider_config.cloud, provider_config.region_name)
            self._unheeded = list(unheeded(region))
            for risk in [*risks_of(region), *(f"{found.text}; {found.remedy}" for found in self._unheeded)]:
                log.warning("Provider %s: %s", provider_config.name, risk)
            settings = settings_of(region)
            transport = Transport(
                provider_config.name, region, provider_config.rate or 0, renew=provider_config.renewed_region
            )
        self.cloud = OpenStackCloud(provider_config, transport, settings)
        self.use(self.cloud)
        #: Properties of all images: no agent of the cloud's vendor is in them.
        self._vendor_properties = settings.get("disable_vendor_agent") or {}
        self._leaks = Leaks(self.cloud)
        self._images = OpenStackImages(provider_config.name, self.cloud.api, transport.stopped)
        #: Guards the table of labels whose missing image was reported.
        self._lock = threading.Lock()
        self._missing: set[str] = set()
        self._repeats = Repeats()

    def stop(self) -> None:
        self.cloud.stop()

    # -- machines --

    def getCreateStateMachine(
        self,
        hostname: str,
        label: Any,
        image_external_id: Any,
        metadata: dict[str, str],
        request: NodeRequest | None,
        az: str | None,
        log: Log,
    ) -> ServerCreation:
        return ServerCreation(self.cloud, hostname, label, image_external_id, metadata, request, az, log)

    def getDeleteStateMachine(self, external_id: Any, log: Log) -> ServerDeletion:
        # Out of a record, where anything may stand; a server that it does not name is found as a leaked one.
        return ServerDeletion(self.cloud, external_id if isinstance(external_id, str) else None, log)

    # -- lists --

    def listInstances(self) -> list[OpenStackInstance]:
        return self.cloud.instances()

    def unansweredCreations(self) -> list[Creation]:
        return self.cloud.unanswered()

    def listResources(self) -> Iterator[Resource]:
        return self._leaks.resources()

    def suspectsLeaks(self) -> bool:
        return self._leaks.suspected()

    def deleteResource(self, resource: Resource) -> None:
        assert isinstance(resource, OpenStackResource)
        self._leaks.delete(resource)

    # -- quota --

    def getQuotaLimits(self) -> QuotaInformation:
        compute = self.cloud.api.compute_limits()
        volumes = self.cloud.api.volume_limits() if self.config.uses_volumes else {}
        return QuotaInformation(
            cores=limit(compute.get("maxTotalCores")),
            instances=limit(compute.get("maxTotalInstances")),
            ram=limit(compute.get("maxTotalRAMSize")),
            volumes=limit(volumes.get("maxTotalVolumes")),
            default=math.inf,
            **{"volume-gb": limit(volumes.get("maxTotalVolumeGigabytes"))},
        )

    def getQuotaForLabel(self, label: Any) -> QuotaInformation:
        try:
            flavor = self.cloud.facts.flavor_of(label)
        except LaunchNodepoolException:
            # The framework adds whose it is.
            raise RuntimeConfigurationException(missing_flavor(label)) from None
        volumes = (1, label.volume_size) if label.boot_from_volume else (0, 0)
        return usage(flavor.cores, flavor.ram, *volumes)

    # -- labels --

    def getAZs(self) -> Sequence[str | None]:
        zones: list[str | None] = list(self.cloud.facts.zones.get())
        return zones or [None]

    def labelReady(self, label: Any) -> bool:
        """Is the cloud image there (O-7)? While the cloud is away the answer is yes: the launch will show."""
        if label.cloud_image is None:
            return True
        try:
            found = self.cloud.facts.image_id(label.cloud_image)
        except CloudUnavailableException as error:
            if self._repeats.worth_saying(label.name):
                log.warning("Label %s: its image could not be looked up: %s", label.name, error)
            return True
        self._repeats.over(label.name)
        with self._lock:
            if found is not None:
                self._missing.discard(label.name)
                return True
            known = label.name in self._missing
            self._missing.add(label.name)
        if not known:
            log.error("%s", missing_image(self.config.name, label))
        return False

    # -- images --

    def uploadImage(
        self,
        provider_image: Any,
        image_name: str,
        filename: str,
        image_format: str | None = None,
        metadata: dict[str, str] | None = None,
        md5: str | None = None,
        sha256: str | None = None,
    ) -> str:
        given = metadata or {}
        # U-4: what says whose it is wins over everything.
        ours = {key: value for key, value in given.items() if key.startswith("nodepool_")}
        checksums = checksum_properties(image_name, md5, sha256)
        properties = {**checksums, **given, **provider_image.meta, **self._vendor_properties, **ours}
        timeout, wanted = self.config.image_upload_timeout, image_format or self.config.image_type
        known = {"md5": md5, "sha256": sha256}
        if self.config.image_by_task:
            tasks = TaskUploads(self.config.name, self.cloud.api)
            region = self.cloud.transport.region
            return tasks.upload(region, image_name, filename, wanted, properties, known, timeout)
        by_import = self.config.image_by_import
        return self._images.upload(image_name, filename, wanted, properties, known, timeout, by_import)

    def deleteImage(self, external_id: str) -> None:
        self._images.delete(external_id)

    def listImages(self) -> Iterator[ListedImage]:
        return self._images.list(unmarked=self.config.image_by_task)

    # -- trouble --

    def preflight(self) -> Iterator[CheckResult]:
        return itertools.chain(self._unheeded, Preflight(self.config, self.cloud).results())

    def getConsoleLog(self, label: Any, external_id: Any) -> str | None:
        if not label.console_log:
            return None
        try:
            return self.cloud.api.console(str(external_id))
        except CloudNotFound:
            return None


# The deletion of one server: its floating IP is deleted first (O-5).


class ServerDeletion(DeletionMachine[Server]):
    """See `DeletionMachine`."""

    cloud: OpenStackCloud

    def before(self, record: Server | None) -> Callable[[], Any] | None:
        server_id, floating = self.external_id, self.cloud.floating
        if not floating.may_have(server_id, record):
            return None
        return lambda: floating.release(server_id, record)

    def begun(self, record: Server) -> bool:
        return record.deleting and record.status != ERROR

    def busy(self, error: LaunchError) -> bool:
        """Another operation on the server is under way."""
        return isinstance(error, CloudRefused) and error.status == 409


# What can be left over in the cloud (rules D).
#
# Servers, volumes and unfinished images carry our metadata and are left to the framework. Ports and floating IPs
# carry none: those that nothing uses are deleted here, when they were seen so twice.

leaks_log = logging.getLogger("nodepool.driver.openstack.adapter")

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
            leaks_log.debug("Provider %s: volumes of earlier labels cannot be looked for: %s", self._config.name, error)
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
            leaks_log.warning("Provider %s: deleting leaked %s %s", self._config.name, kind, leaked)
            try:
                delete(leaked)
            except CloudNotFound:
                continue
            except CloudRefused as error:
                leaks_log.error("Provider %s: %s %s could not be deleted: %s", self._config.name, kind, leaked, error)
                continue
            reports.report_leaks(self._config.name, f"{kind}s")
