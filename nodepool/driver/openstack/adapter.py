# SPDX-License-Identifier: Apache-2.0
"""What the framework asks of an OpenStack cloud (reference/driver 9).

First `OpenStackAdapter`, then what can be left over, then what ``nodepool check`` finds out.
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from nodepool.clock import monotonic
from nodepool.driver.framework.cloud_errors import CheckResult, CloudChecks, CloudNotFound, CloudRefused, failure
from nodepool.driver.framework.fact import Repeats
from nodepool.driver.openstack.api import COMPUTE, IMAGE, NETWORK, VOLUME, Server, Volume, limit
from nodepool.driver.openstack.cloud import OpenStackCloud, choose_flavor, missing_flavor, missing_image, usage
from nodepool.driver.openstack.clouds import section, settings_of
from nodepool.driver.openstack.create import ServerCreation
from nodepool.driver.openstack.images import BY_IMPORT, BY_TASK, OpenStackImages, checksum_properties
from nodepool.driver.openstack.transport import Transport
from nodepool.driver.statemachine import CloudResource, ImageFile, ResourceKind, ResourceKinds
from nodepool.driver.statemachine.adapter import SWEEP_LIST_SECONDS
from nodepool.driver.statemachine.cloud import CloudAdapter
from nodepool.driver.statemachine.leaks import LOOK_AGAIN_SECONDS
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
    from nodepool.driver.framework.uploads import ListedImage
    from nodepool.driver.openstack.config import OpenStackLabel, OpenStackPool, OpenStackProviderConfig

log = logging.getLogger("nodepool.driver.openstack")

T = TypeVar("T")


class OpenStackAdapter(CloudAdapter):
    """One cloud. Making it reads clouds.yaml again if it could not be used before; the cloud is not asked.

    :param transport: for tests.
    :raises CloudProblem: clouds.yaml is missing or broken, or does not have the cloud.
    """

    creation_class = ServerCreation

    def __init__(self, provider_config: OpenStackProviderConfig, transport: Transport | None = None) -> None:
        super().__init__(provider_config)
        self.config = provider_config
        settings: Mapping[str, Any] = {}
        if transport is None:
            region = provider_config.clouds.region(provider_config.cloud, provider_config.region_name)
            settings = settings_of(region)
            transport = Transport(
                provider_config.name, region, provider_config.rate or 0, renew=provider_config.renewed_region
            )
        #: What clouds.yaml says and is not done.
        self._unheeded = list(unheeded(settings))
        for text in self._unheeded:
            log.warning("Provider %s: clouds.yaml: %s", provider_config.name, text)
        self.cloud = OpenStackCloud(provider_config, transport, settings)
        self.use(self.cloud)
        #: Properties of all images: no agent of the cloud's vendor is in them.
        self._vendor_properties = section(settings, "disable_vendor_agent")
        self._leaks = Leaks(self.cloud)
        self.resources = self._leaks.kinds
        self._images = OpenStackImages(self.cloud.api)
        self._repeats = Repeats()

    def suspectsLeaks(self) -> bool:
        return self._leaks.suspected()

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
        if found is not None:
            self._repeats.over((label.name, "image"))
        elif self._repeats.worth_saying((label.name, "image")):
            log.error("%s", missing_image(self.config.name, label))
        return found is not None

    # -- images --

    def upload(self, file: ImageFile) -> str:
        marks = file.metadata
        # U-4: what says whose it is wins over everything.
        ours = {key: value for key, value in marks.items() if key.startswith("nodepool_")}
        checksums = checksum_properties(file.name, file.md5, file.sha256)
        properties = {**checksums, **marks, **file.image.meta, **self._vendor_properties, **ours}
        timeout, wanted = self.config.image_upload_timeout, file.format or self.config.image_type
        known = {"md5": file.md5, "sha256": file.sha256}
        imports = BY_IMPORT if self.config.wants("image_upload_use_import") else ""
        way = BY_TASK if self.config.wants("image_api_use_tasks") else imports
        return self._images.upload(file.name, file.path, wanted, properties, known, timeout, way)

    def deleteImage(self, external_id: str) -> None:
        self._images.delete(external_id)

    def listImages(self) -> Iterator[ListedImage]:
        return self._images.list(unmarked=self.config.wants("image_api_use_tasks"))

    # -- trouble --

    def preflight(self) -> Iterator[CheckResult]:
        yield from (failure(f"cloud {self.config.cloud} in clouds.yaml", text) for text in self._unheeded)
        yield from Preflight(self.config, self.cloud).results()

    def getConsoleLog(self, label: Any, external_id: Any) -> str | None:
        if not label.console_log:
            return None
        try:
            return self.cloud.api.console(str(external_id))
        except CloudNotFound:
            return None


# What can be left over in the cloud (rules D).
#
# Servers and volumes carry our metadata and are left to the framework. Ports and floating IPs carry none: those that
# nothing uses are deleted here, when they were seen so twice. Images are the matter of builders.

leaks_log = logging.getLogger("nodepool.driver.openstack.adapter")

INSTANCE: Final = "instance"
VOLUME_KIND: Final = "volume"
_OURS: Final = "nodepool_provider_name"
#: Seconds between two looks for volumes where no label needs any: earlier ones may have left some.
OLD_VOLUMES_SECONDS: Final = 600.0


class Leaks:
    """Called by one thread at a time."""

    def __init__(self, cloud: OpenStackCloud, clock: Callable[[], float] = monotonic) -> None:
        self._cloud = cloud
        self._config = cloud.config
        self._clock = clock
        self._down_ports: SeenTwice[str] = SeenTwice()
        self._ports_checked_at = float("-inf")
        self._free_ips: SeenTwice[str] = SeenTwice()
        #: All that says whose it is. Its lists also delete ports and floating IPs that are left over.
        self.kinds = ResourceKinds(cloud.config.name, self._rows(), clock)

    def _rows(self) -> Iterator[ResourceKind[CloudResource]]:
        api = self._cloud.api
        yield ResourceKind(INSTANCE, self._servers, self._delete_server, vital=True)
        idle_seconds = 0.0 if self._config.uses_volumes else OLD_VOLUMES_SECONDS
        yield ResourceKind(VOLUME_KIND, self._left_volumes, lambda found: api.delete_volume(found.id), idle_seconds)
        yield ResourceKind("port", self._clean_ports, lambda _: None)
        yield ResourceKind("floating IP", self._clean_floating_ips, lambda _: None)

    def suspected(self) -> bool:
        """Is there something that another look, soon, may delete?"""
        # A look that comes before the interval is over does not count for ports.
        ports = self._down_ports.new and self._config.port_cleanup_interval <= LOOK_AGAIN_SECONDS
        return self._free_ips.new or ports

    def _delete_server(self, resource: CloudResource) -> None:
        server = self._cloud.inventory.get(resource.id)
        if self._cloud.floating.may_have(resource.id, server):
            self._cloud.floating.release(resource.id, server)
        self._cloud.delete_instance(resource.id)

    def _listed_servers(self) -> list[Server]:
        return self._cloud.inventory.all(SWEEP_LIST_SECONDS)

    def _servers(self) -> list[CloudResource]:
        return [CloudResource(server.metadata, INSTANCE, server.id) for server in self._listed_servers()]

    def _left_volumes(self) -> list[CloudResource]:
        """Of our servers. Where no label needs any, the cloud need not have volumes, or let us see them."""
        try:
            volumes = self._volumes(self._listed_servers())
        except LaunchError as error:
            if self._config.uses_volumes:
                raise
            leaks_log.debug("Provider %s: volumes of earlier labels cannot be looked for: %s", self._config.name, error)
            return []
        return [
            CloudResource(volume.metadata, VOLUME_KIND, volume.id)
            for volume in volumes
            if not volume.attached and not volume.deleting and _OURS in volume.metadata
        ]

    def _volumes(self, servers: Iterable[Server]) -> list[Volume]:
        """All of the project. Those of our servers that nobody could mark so far are marked now."""
        self._cloud.volumes.catch_up()
        volumes = self._cloud.api.volumes()
        marked = {volume.id for volume in volumes if _OURS in volume.metadata}
        self._cloud.volumes.seen(marked, {volume.id for volume in volumes} - marked, servers)
        return volumes

    # -- what says nothing: nothing of it is left to the framework --

    def _clean_ports(self) -> list[CloudResource]:
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

    def _clean_floating_ips(self) -> list[CloudResource]:
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


# What ``nodepool check`` finds out about a cloud: has it all that the configuration names? Only reads.

#: Settings that are true or false. For openstacksdk each text is true.
_FLAGS: Final = (
    *("private", "use_external_network", "use_internal_network", "requires_floating_ip"),
    *("image_api_use_tasks", "image_upload_use_import", "force_ipv4"),
)


def unheeded(settings: Mapping[str, Any]) -> Iterator[str]:
    """What clouds.yaml says of a cloud, openstacksdk heeds, and is not done here; each with the remedy. Pure."""
    for key in _FLAGS:
        if not isinstance(settings.get(key), bool | None):
            yield f"{key} is {settings[key]!r}; set {key} to true or false, without quotes"
    source = settings.get("floating_ip_source")
    if str(source or "none").lower() not in ("none", "neutron"):
        yield f"floating_ip_source is {source!r}, and only Neutron makes floating IPs; leave it out, or set it to None"


class Preflight:
    """Of one provider; for one use.

    :param config: is loaded.
    :param cloud: not stopped.
    """

    def __init__(self, config: OpenStackProviderConfig, cloud: OpenStackCloud) -> None:
        self._config = config
        self._checks = CloudChecks(config.name)
        self._cloud = cloud
        self._has_key_pair = functools.cache(cloud.api.has_key_pair)

    def results(self) -> Iterator[CheckResult]:
        """All problems, and a line for what is in order. Blocks for some calls to the cloud."""
        where = f"cloud {self._config.cloud}"
        try:
            here = [service for service in (COMPUTE, NETWORK, IMAGE, VOLUME) if self._cloud.transport.has(service)]
        except LaunchError as error:
            # Nothing else can be asked.
            yield self._checks.failure(where, error)
            return
        region = f" region {self._config.region_name}," if self._config.region_name else ""
        yield CheckResult(where, True, f"login works;{region} services: {', '.join(here)}")
        for pool in self._config.pools.values():
            yield from self._bad(f"pool {pool.name}", pool, self._zones, self._groups)
            for label in pool.labels.values():
                subject = f"label {label.name} of pool {pool.name}"
                bad = self._bad(subject, label, self._flavor, self._image, self._networks, self._key)
                if label.boot_from_volume and VOLUME not in here:
                    text = "boot-from-volume is set, and the cloud has no block storage service for us"
                    bad.append(CheckResult(subject, False, text, "leave it out"))
                yield from bad or [CheckResult(subject, True, "flavor, image, networks and key pair are there")]
        yield from self._checks.results("quota", self._quota)

    def _bad(self, subject: str, about: T, *checks: Callable[[T], Iterable[str]]) -> list[CheckResult]:
        """What checks find to be wrong: texts, with the remedy after the last semicolon."""

        def run(check: Callable[[T], Iterable[str]]) -> list[CheckResult]:
            return [failure(subject, text) for text in check(about)]

        return [result for check in checks for result in self._checks.results(subject, run, check)]

    def _zones(self, pool: OpenStackPool) -> Iterator[str]:
        there = self._cloud.facts.zones.get()
        for zone in pool.azs or ():
            if zone and there and zone not in there:
                has = f"that takes servers (it has: {', '.join(there)}); correct availability-zones of the pool"
                yield f"the cloud has no availability zone {zone!r} {has}"

    def _groups(self, pool: OpenStackPool) -> Iterator[str]:
        there = self._cloud.api.security_groups() if pool.security_groups else None
        for group in [] if there is None else [group for group in pool.security_groups if group not in there]:
            remedy = "correct security-groups of the pool, or make the group"
            yield f"the project has no security group {group!r}; {remedy}"

    def _flavor(self, label: OpenStackLabel) -> Iterator[str]:
        if choose_flavor(self._cloud.facts.flavors.get(), label.flavor_name, label.min_ram) is None:
            yield missing_flavor(label)

    def _image(self, label: OpenStackLabel) -> Iterator[str]:
        image = label.cloud_image
        if image is None:
            return
        text = ""
        if image.image_id:
            try:
                status = self._cloud.api.image(image.image_id).status
                text = "" if status == "active" else f"the image {image.image_id!r} is {status}"
            except CloudNotFound:
                text = f"the cloud has no image with the id {image.image_id!r}"
        elif self._cloud.facts.image_id(image) is None:
            text = f"the cloud has no usable image {image.image_name!r}"
        if text:
            yield f"{text}; correct cloud-image {image.name}, or upload the image"

    def _networks(self, label: OpenStackLabel) -> Iterator[str]:
        for name in label.networks:
            try:
                self._cloud.facts.network_id(name, label)
            except LaunchError as error:
                yield self._checks.said(error).removeprefix(f"label {label.name}: ")

    def _key(self, label: OpenStackLabel) -> Iterator[str]:
        if label.key_name and not self._has_key_pair(label.key_name):
            remedy = "correct key-name of the label, or make the key pair for this user"
            yield f"the user has no key pair {label.key_name!r} in the cloud; {remedy}"

    def _quota(self) -> list[CheckResult]:
        most = limit(self._cloud.api.compute_limits().get("maxTotalInstances"))
        wanted = sum(pool.max_servers for pool in self._config.pools.values() if pool.max_servers)
        allowed = "no limit" if most == math.inf else f"{most:g}"
        if wanted == math.inf or wanted <= most:
            return [CheckResult("quota", True, f"instances: {allowed}")]
        text = f"the project may have {allowed} instances, max-servers of the pools allow {wanted:g}"
        return [CheckResult("quota", True, text, "lower max-servers, or raise the quota; the smaller one counts")]
