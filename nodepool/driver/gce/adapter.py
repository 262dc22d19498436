# SPDX-License-Identifier: Apache-2.0
"""`GceAdapter`: what the framework asks of a project (reference/driver 9)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from nodepool.clock import monotonic
from nodepool.driver.framework.cloud_errors import CloudNotFound
from nodepool.driver.gce.client import ComputeEngine
from nodepool.driver.gce.creation import GceCreation
from nodepool.driver.gce.facts import GceFacts, ProjectLimits
from nodepool.driver.gce.images import GceImageCalls, GceImages
from nodepool.driver.gce.instances import GceDeletion, GceInstance, GceInstances, Preemptions
from nodepool.driver.gce.login import GoogleLogin
from nodepool.driver.gce.preflight import GcePreflight
from nodepool.driver.gce.types import PREEMPTED, LabelReader, zone_and_name
from nodepool.driver.statemachine import SWEEP_LIST_SECONDS, Adapter, Creation, Resource, ResourceKind, ResourceKinds

if TYPE_CHECKING:
    from nodepool.driver.framework.checks import CheckResult
    from nodepool.driver.framework.images import ListedImage
    from nodepool.driver.gce.config import GceProviderConfig
    from nodepool.driver.statemachine.adapter import Log
    from nodepool.model.quota import QuotaInformation
    from nodepool.model.request import NodeRequest

#: Connections that are kept: more than a provider has threads.
CONNECTIONS: Final = 64
#: Addresses that somebody reserved with our labels are looked for so often, in seconds, while there are none.
ADDRESSES_SECONDS: Final = 600.0


class GceResource(Resource):
    """Something that says whose it is.

    :param zone: "" = it is in none.
    """

    def __init__(self, metadata: dict[str, str], type: str, name: str, zone: str = "", *, usable: bool = True) -> None:
        super().__init__(metadata, type)
        self.usable = usable
        self.name = name
        self.zone = zone


class GceAdapter(Adapter):
    """One project. Making it imports requests, and does not ask Google."""

    lag_seconds = GceInstances.lag_seconds
    advance_threads = 8

    def __init__(self, provider_config: GceProviderConfig, clock: Callable[[], float] = monotonic) -> None:
        from nodepool.driver.framework.http.plain_http import PlainHttp

        super().__init__(provider_config)
        config = self.config = provider_config
        http = PlainHttp(CONNECTIONS)
        self.labels = LabelReader(config.name, config.pools)
        login = GoogleLogin(config.name, config.credentials_file, http)
        self.client = ComputeEngine(config, http, login, self.labels)
        self.facts = GceFacts(config, self.client)
        self.limits = ProjectLimits(config, self.client, self.facts)
        self.instances = GceInstances(config, self.client, self.facts, self.limits)
        calls = GceImageCalls(self.client, config.bucket_name or "", config.storage_endpoint)
        self.images = GceImages(config, calls)
        self.preemptions = Preemptions(config.name, config.zones, self.client)
        self.use(self.instances)
        self._uses_spot = any(label.use_spot for pool in config.pools.values() for label in pool.labels.values())
        self.resources = ResourceKinds(config.name, self._kinds(), clock)

    def stop(self) -> None:
        self.instances.stop()

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
    ) -> GceCreation:
        return GceCreation(self.instances, hostname, label, image_external_id, metadata, request, az, log)

    def idInAdvance(self, hostname: str, label: Any, metadata: dict[str, str]) -> str | None:
        # With several zones the launch chooses one.
        return hostname if len(self.config.zones) == 1 else None

    def getDeleteStateMachine(self, external_id: Any, log: Log) -> GceDeletion:
        return GceDeletion(self.instances, self.instances.record_id(external_id), log)

    # -- lists --

    def listInstances(self) -> list[GceInstance]:
        instances = self.instances
        records = instances.inventory.all(max_age=0.0)
        self.limits.know_types(records)
        use_of, stored_id, why_ended = self.limits.use_of, instances.stored_id, instances.why_ended
        return [GceInstance(record, stored_id(record.id), use_of(record), why_ended(record)) for record in records]

    def unansweredCreations(self) -> Iterable[Creation]:
        return self.instances.unanswered()

    def listResources(self) -> Iterator[GceResource]:
        """All that may be ours in the zones and the region (GC-8)."""
        return self.resources.all()

    def _kinds(self) -> Iterator[ResourceKind[GceResource]]:
        yield ResourceKind("instance", self._found_instances, vital=True)
        yield ResourceKind("disk", self._found_disks)
        yield ResourceKind("address", self._found_addresses, ADDRESSES_SECONDS)
        if self.config.diskimages:
            yield ResourceKind("image", self._found_images)

    def _found_instances(self) -> Iterator[GceResource]:
        for record in self.instances.inventory.all(SWEEP_LIST_SECONDS):
            yield GceResource(dict(record.metadata), "instance", record.name, record.zone)
        if self._uses_spot:
            self.preemptions.look()

    def _found_disks(self) -> Iterator[GceResource]:
        for disk in self.client.disks():
            if not disk.used:
                yield GceResource(dict(disk.metadata), "disk", disk.name, disk.zone)

    def _found_addresses(self) -> Iterator[GceResource]:
        for address in self.client.addresses():
            if not address.used:
                yield GceResource(dict(address.metadata), "address", address.name)

    def _found_images(self) -> Iterator[GceResource]:
        for image in self.images.listed():
            yield GceResource(dict(image.metadata), "image", image.name, usable=image.usable)

    def whyLost(self, external_id: Any) -> tuple[str, str] | None:
        record_id = self.instances.record_id(external_id)
        said = None if record_id is None else self.preemptions.why(*zone_and_name(record_id))
        return None if said is None else (PREEMPTED, said)

    def deleteResource(self, resource: Resource) -> None:
        assert isinstance(resource, GceResource)
        if resource.type == "instance":
            self.client.delete_instance(resource.zone, resource.name)
        elif resource.type == "disk":
            self.client.delete_disk(resource.zone, resource.name)
        elif resource.type == "image":
            self.images.delete(resource.name)
        else:
            self.client.delete_address(resource.name)

    # -- quota --

    def getQuotaLimits(self) -> QuotaInformation:
        return self.limits.limits()

    def getQuotaForLabel(self, label: Any) -> QuotaInformation:
        return self.limits.need_of(label)

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
        return self.images.upload(provider_image, image_name, filename, metadata or {})

    def deleteImage(self, external_id: str) -> None:
        self.images.delete(external_id)

    def listImages(self) -> Iterator[ListedImage]:
        return self.images.listed()

    # -- trouble --

    def getConsoleLog(self, label: Any, external_id: Any) -> str | None:
        record_id = self.instances.record_id(external_id) if label.console_log else None
        if record_id is None:
            return None
        try:
            return self.client.console(*zone_and_name(record_id))
        except CloudNotFound:
            return None

    def preflight(self) -> Iterable[CheckResult]:
        return GcePreflight(self.config, self.client, self.facts, self.limits, self.images).results()
