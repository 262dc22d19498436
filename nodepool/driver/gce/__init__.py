# SPDX-License-Identifier: Apache-2.0
"""The driver of Google Compute Engine. Of Google's libraries it needs only google-auth.

Here is what the framework in `nodepool.driver.statemachine` asks of a project (reference/driver 9), also for ``nodepool
check``, then the driver. It makes less than thirty kinds of calls. Where to go on:

* ``config.py``: what stands in the configuration;
* ``client.py``: all calls for instances, and tokens; ``types.py``: what Google says, also what can go wrong;
* ``facts.py``: what seldom changes, places and limits;
* ``instances.py``: how instances are listed, launched and deleted, and what operations say of that;
* ``images.py``: uploads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

from nodepool.driver.framework.cloud_errors import (
    CheckResult,
    CloudChecks,
    CloudNotFound,
    CloudRefused,
    Found,
    else_correct,
    of_limits,
    or_none,
)
from nodepool.driver.gce.client import ComputeEngine, GoogleLogin
from nodepool.driver.gce.config import GceLabel, GcePool, GceProviderConfig
from nodepool.driver.gce.facts import GceFacts
from nodepool.driver.gce.images import GceImages
from nodepool.driver.gce.instances import GceCreation, GceInstances, network_path, subnetwork_path
from nodepool.driver.gce.types import READY, LabelReader, Leftover, name_of, zone_and_name
from nodepool.driver.statemachine import CloudAdapter, CloudResource, ResourceKind, ResourceKinds
from nodepool.driver.statemachine.provider import CloudDriver
from nodepool.model.node import QuotaInformation

#: Connections that are kept: more than a provider has threads.
CONNECTIONS: Final = 64
#: Addresses that others reserved with our labels are looked for so often, in seconds, while there are none.
ADDRESSES_SECONDS: Final = 600.0


class GceAdapter(CloudAdapter):
    """One project. Making it imports requests, and does not ask Google."""

    creation_class = GceCreation

    def __init__(self, provider_config: GceProviderConfig) -> None:
        from nodepool.driver.framework.http.plain_http import PlainHttp

        super().__init__(provider_config)
        config = self.config = provider_config
        http = PlainHttp(CONNECTIONS)
        self.labels = LabelReader(config.name, config.pools)
        login = GoogleLogin(config.name, config.credentials_file, http)
        self.client = ComputeEngine(config, http, login, self.labels)
        self.facts = GceFacts(config, self.client)
        self.instances = GceInstances(config, self.client, self.facts)
        self.images: GceImages = GceImages(config, self.client)
        self.use(self.instances)
        self.resources = ResourceKinds(config.name, self._kinds())

    def idInAdvance(self, hostname: str, label: Any, metadata: dict[str, str]) -> str | None:
        # With several zones the launch chooses one.
        return hostname if len(self.config.zones) == 1 else None

    # -- what may be left over in the zones and the region (GC-8) --

    def _kinds(self) -> Iterator[ResourceKind[CloudResource]]:
        client = self.client
        yield self.instance_kind()
        yield ResourceKind(
            "disk", partial(self._unused, "disk", client.disks), lambda found: client.delete_disk(found.zone, found.id)
        )
        addresses = partial(self._unused, "address", client.addresses)
        yield ResourceKind("address", addresses, lambda found: client.delete_address(found.id), ADDRESSES_SECONDS)
        if self.config.diskimages:
            yield ResourceKind("image", self._found_images, lambda found: self.images.delete(found.id))

    def _unused(self, type: str, ask: Callable[[], Iterable[Leftover]]) -> Iterator[CloudResource]:
        for found in ask():
            if not found.used:
                yield CloudResource(found.metadata, type, found.name, zone=found.zone)

    def _found_images(self) -> Iterator[CloudResource]:
        for image in self.images.listed():
            yield CloudResource(image.metadata, "image", image.name, usable=image.usable)

    # -- quota --

    def getQuotaLimits(self) -> QuotaInformation:
        return self.facts.limits()

    def getQuotaForLabel(self, label: Any) -> QuotaInformation:
        return self.facts.need_of(label)

    # -- trouble --

    def getConsoleLog(self, label: Any, external_id: Any) -> str | None:
        record_id = self.instances.record_id(external_id) if label.console_log else None
        return None if record_id is None else or_none(lambda: self.client.console(*zone_and_name(record_id)))

    # -- nodepool check: has Google all that the configuration names? Only reads --

    def preflight(self) -> Iterator[CheckResult]:
        return CloudChecks(self.config.name).all(f"project {self.config.project}", self._project, self._checks)

    def _project(self) -> str:
        self.client.exists(self.client.project, "reading the project")
        return "the login works; the project is there"

    def _checks(self, checks: CloudChecks) -> Iterator[CheckResult]:
        for zone in self.config.zones:
            yield from checks.about(f"zone {zone}", "the zone is there", partial(self._check_zone, zone))
        for pool in self.config.pools.values():
            good = f"the network {name_of(f'/{pool.network}')} is there"
            yield from checks.about(f"pool {pool.name}", good, partial(self._check_network, pool))
            good = "machine type and cloud image are there, as far as it names them"
            yield from checks.labels(pool, good, self._check_types, self._check_image)
        yield from checks.about("quota", "", self._check_quota)
        if self.config.bucket_name:
            yield from checks.about(f"bucket {self.config.bucket_name}", "", self._check_bucket)

    def _check_bucket(self) -> Iterator[Found]:
        """Can uploads be made? That objects may be made shows only then."""
        with else_correct("correct object-storage.bucket-name"):
            left = sum(not image.usable for image in self.images.listed())
        yield Found(f"the bucket is there{f'; {left} uploads did not end' if left else ''}", ok=True)

    def _check_zone(self, zone: str) -> Iterator[Found]:
        if zone.rpartition("-")[0] != self.config.region:
            yield Found(f"it is not in region {self.config.region}", "correct zone or region")
        else:
            self._there(f"zones/{zone}", "reading the zone", "correct zone")

    def _check_network(self, pool: GcePool) -> None:
        """Those of another project may not be shown to us."""
        if "/" not in pool.network:
            self._there(network_path(pool.network), "reading the network", "correct network, or make one")
        if pool.subnetwork and "/" not in pool.subnetwork:
            path = subnetwork_path(pool.subnetwork, self.config.region)
            self._there(path, "reading the subnetwork", "correct subnetwork")

    def _there(self, path: str, what: str, remedy: str) -> None:
        try:
            self.client.exists(path, what)
        except CloudRefused as error:
            if error.status not in (400, 404):
                raise
            raise CloudNotFound(f"{error.said.partition('; ')[0]}; {remedy}", code=error.code, status=404) from None

    def _check_types(self, label: GceLabel) -> Iterator[Found]:
        for name in label.machine_types:
            self.facts.type_somewhere(name)
            missing = [zone for zone in self.config.zones if self.facts.machine_type(zone, name) is None]
            if missing:
                text = f"{name} is not in {', '.join(missing)}: it is never made there"
                yield Found(text, "choose another instance-type or zone", ok=True)

    def _check_image(self, label: GceLabel) -> Iterator[Found]:
        if label.cloud_image is None:
            return
        remedy = f"correct cloud image {label.cloud_image.name}"
        with else_correct(remedy):
            image = self.client.image_at(self.facts.image_link(label, None))
        if image.status not in (READY, ""):
            yield Found(f"the image {image.name} is {image.status}", remedy)
        elif image.size_gib > label.volume_size:
            text = f"the image {image.name} has {image.size_gib} GiB, volume-size is {label.volume_size}"
            yield Found(text, "raise volume-size")

    def _check_quota(self) -> list[Found]:
        pools, limits = self.config.pools.values(), self.facts.limits().get_resources()
        return of_limits(pools, limits, self.facts.need_of, "quota {}", "Quotas in the Google Cloud console")


class GceDriver(CloudDriver):
    """``driver: gce``"""

    name = "gce"
    libraries = ("google.auth",)
    config_class = GceProviderConfig
    adapter_class = GceAdapter
