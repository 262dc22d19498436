# SPDX-License-Identifier: Apache-2.0
"""What the framework asks of a project of Google (reference/driver 9).

First `GceAdapter`, then what ``nodepool check`` finds out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from nodepool.clock import monotonic
from nodepool.driver.framework.checks import CheckResult, CloudChecks
from nodepool.driver.framework.cloud_errors import CloudNotFound, CloudRefused
from nodepool.driver.gce.client import ComputeEngine, GoogleLogin
from nodepool.driver.gce.facts import GceFacts, ProjectLimits
from nodepool.driver.gce.images import GceImageCalls, GceImages
from nodepool.driver.gce.instances import (
    GceCreation,
    GceInstances,
    Preemptions,
    network_path,
    subnetwork_path,
)
from nodepool.driver.gce.types import PREEMPTED, READY, LabelReader, name_of, zone_and_name
from nodepool.driver.statemachine import SWEEP_LIST_SECONDS, CloudAdapter, CloudResource, ResourceKind, ResourceKinds
from nodepool.exceptions import LaunchError, RuntimeConfigurationException

if TYPE_CHECKING:
    from nodepool.driver.framework.images import ListedImage
    from nodepool.driver.gce.config import GceLabel, GcePool, GceProviderConfig
    from nodepool.model.quota import QuotaInformation

#: Connections that are kept: more than a provider has threads.
CONNECTIONS: Final = 64
#: Addresses that somebody reserved with our labels are looked for so often, in seconds, while there are none.
ADDRESSES_SECONDS: Final = 600.0


class GceAdapter(CloudAdapter):
    """One project. Making it imports requests, and does not ask Google."""

    creation_class = GceCreation

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

    def idInAdvance(self, hostname: str, label: Any, metadata: dict[str, str]) -> str | None:
        # With several zones the launch chooses one.
        return hostname if len(self.config.zones) == 1 else None

    # -- what may be left over in the zones and the region (GC-8) --

    def _kinds(self) -> Iterator[ResourceKind[CloudResource]]:
        client = self.client
        yield ResourceKind(
            "instance", self._found_instances, lambda found: client.delete_instance(found.zone, found.id), vital=True
        )
        yield ResourceKind("disk", self._found_disks, lambda found: client.delete_disk(found.zone, found.id))
        yield ResourceKind(
            "address", self._found_addresses, lambda found: client.delete_address(found.id), ADDRESSES_SECONDS
        )
        if self.config.diskimages:
            yield ResourceKind("image", self._found_images, lambda found: self.images.delete(found.id))

    def _found_instances(self) -> Iterator[CloudResource]:
        for record in self.instances.inventory.all(SWEEP_LIST_SECONDS):
            yield CloudResource(record.metadata, "instance", record.name, zone=record.zone)
        if self._uses_spot:
            self.preemptions.look()

    def _found_disks(self) -> Iterator[CloudResource]:
        for disk in self.client.disks():
            if not disk.used:
                yield CloudResource(disk.metadata, "disk", disk.name, zone=disk.zone)

    def _found_addresses(self) -> Iterator[CloudResource]:
        for address in self.client.addresses():
            if not address.used:
                yield CloudResource(address.metadata, "address", address.name)

    def _found_images(self) -> Iterator[CloudResource]:
        for image in self.images.listed():
            yield CloudResource(image.metadata, "image", image.name, usable=image.usable)

    def whyLost(self, external_id: Any) -> tuple[str, str] | None:
        record_id = self.instances.record_id(external_id)
        said = None if record_id is None else self.preemptions.why(*zone_and_name(record_id))
        return None if said is None else (PREEMPTED, said)

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
        return GcePreflight(self).results()


# What ``nodepool check`` finds out about Google: has it all that the configuration names? Only reads.


class GcePreflight:
    """Of one provider; for one use."""

    def __init__(self, adapter: GceAdapter) -> None:
        self._config, self._client, self._facts = adapter.config, adapter.client, adapter.facts
        self._limits, self._images = adapter.limits, adapter.images
        self._checks = CloudChecks(adapter.config.name)

    def results(self) -> Iterator[CheckResult]:
        """All problems, and a line for what is in order. Blocks for some calls to Google."""
        project = f"project {self._config.project}"
        try:
            self._client.exists(self._client.project, "reading the project")
        except LaunchError as error:
            # Nothing else can be asked.
            yield self._checks.failure(project, error)
            return
        yield CheckResult(project, True, "the login works; the project is there")
        for zone in self._config.zones:
            yield from self._checks.results(f"zone {zone}", self._zone, zone)
        for pool in self._config.pools.values():
            subject = f"pool {pool.name}"
            yield from self._checks.results(subject, self._network, pool, subject)
            for label in pool.labels.values():
                yield from self._label(pool, label)
        yield from self._checks.results("quota", self._quota)
        if self._config.bucket_name:
            subject = f"bucket {self._config.bucket_name}"
            yield from self._checks.results(subject, self._bucket, subject)

    def _bucket(self, subject: str) -> list[CheckResult]:
        """Can uploads go there? That objects may be made shows only then."""
        try:
            left = sum(not image.usable for image in self._images.listed())
        except CloudNotFound as error:
            raise CloudNotFound(f"{error}; correct object-storage.bucket-name", code=error.code, status=404) from None
        told = f"; {left} uploads did not end" if left else ""
        return [CheckResult(subject, True, f"the bucket is there{told}")]

    def _zone(self, zone: str) -> list[CheckResult]:
        subject, region = f"zone {zone}", self._config.region
        if zone.rpartition("-")[0] != region:
            return [CheckResult(subject, False, f"it is not in region {region}", "correct zone or region")]
        self._there(f"zones/{zone}", "reading the zone", "correct zone")
        return [CheckResult(subject, True, "the zone is there")]

    def _network(self, pool: GcePool, subject: str) -> list[CheckResult]:
        """Those of another project may not be shown to us."""
        if "/" not in pool.network:
            self._there(network_path(pool.network), "reading the network", "correct network, or make one")
        if pool.subnetwork and "/" not in pool.subnetwork:
            path = subnetwork_path(pool.subnetwork, self._config.region)
            self._there(path, "reading the subnetwork", "correct subnetwork")
        return [CheckResult(subject, True, f"the network {name_of(f'/{pool.network}')} is there")]

    def _there(self, path: str, what: str, remedy: str) -> None:
        try:
            self._client.exists(path, what)
        except CloudRefused as error:
            if error.status not in (400, 404):
                raise
            raise CloudNotFound(f"{error.said.partition('; ')[0]}; {remedy}", code=error.code, status=404) from None

    def _label(self, pool: GcePool, label: GceLabel) -> Iterator[CheckResult]:
        subject = f"label {label.name} of pool {pool.name}"
        bad = [
            *self._checks.results(subject, self._types, label, subject),
            *self._checks.results(subject, self._image, label, subject),
        ]
        yield from bad
        if not any(not result.ok for result in bad):
            yield CheckResult(subject, True, "machine type and image are there")

    def _types(self, label: GceLabel, subject: str) -> list[CheckResult]:
        found = []
        for name in label.machine_types:
            self._facts.type_somewhere(name)
            missing = [zone for zone in self._config.zones if self._facts.machine_type(zone, name) is None]
            if missing:
                text = f"{name} is not in {', '.join(missing)}: it is never made there"
                found.append(CheckResult(subject, True, text, "choose another instance-type or zone"))
        return found

    def _image(self, label: GceLabel, subject: str) -> list[CheckResult]:
        if label.cloud_image is None:
            return []
        remedy = f"correct cloud image {label.cloud_image.name}"
        try:
            image = self._client.image_at(self._facts.image_link(label, None))
        except CloudNotFound as error:
            raise CloudNotFound(f"{error}; {remedy}", code=error.code, status=404) from None
        if image.status not in (READY, ""):
            return [CheckResult(subject, False, f"the image {image.name} is {image.status}", remedy)]
        if image.size_gib > label.volume_size:
            text = f"the image {image.name} has {image.size_gib} GiB, volume-size is {label.volume_size}"
            return [CheckResult(subject, False, text, "raise volume-size")]
        return []

    def _quota(self) -> list[CheckResult]:
        """How many nodes of each label the quota allows, were there no others."""
        told: set[str] = set()
        results: list[CheckResult] = []
        limits = self._limits.limits().get_resources()
        for pool in self._config.pools.values():
            for label in pool.labels.values():
                try:
                    needs = self._limits.need_of(label).get_resources()
                except (LaunchError, RuntimeConfigurationException):
                    # What is wrong with it was told of the label.
                    continue
                for name, limit in limits.items():
                    need = needs.get(name, 0)
                    if not need or math.isinf(limit):
                        continue
                    told.add(f"{name}: {limit:.15g}")
                    most = math.floor(limit / need)
                    if most < 1 or pool.max_servers > most:
                        results.append(self._short(label, name, limit, most))
        return results or [CheckResult("quota", True, ", ".join(sorted(told)) or "no quota concerns the labels")]

    @staticmethod
    def _short(label: GceLabel, name: str, limit: float, most: int) -> CheckResult:
        pool = label.pool
        wanted = "any number" if math.isinf(pool.max_servers) else f"{pool.max_servers:g}"
        text = (
            f"quota {name} is {limit:.15g}: it allows {most} nodes of label {label.name}, "
            f"max-servers of pool {pool.name} allows {wanted}"
        )
        remedy = f"ask for more of {name} under Quotas in the Google Cloud console, or lower max-servers"
        return CheckResult("quota", most >= 1, text, remedy)
