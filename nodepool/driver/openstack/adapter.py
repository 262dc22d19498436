# SPDX-License-Identifier: Apache-2.0
"""`OpenStackAdapter`: what the framework asks of the cloud (reference/driver 9)."""

from __future__ import annotations

import itertools
import logging
import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nodepool.driver.framework.cloud_errors import CloudNotFound
from nodepool.driver.framework.repeats import Repeats
from nodepool.driver.openstack.cloud import OpenStackCloud
from nodepool.driver.openstack.clouds import risks_of, settings_of
from nodepool.driver.openstack.create import ServerCreation
from nodepool.driver.openstack.delete import ServerDeletion
from nodepool.driver.openstack.facts import missing_flavor, missing_image
from nodepool.driver.openstack.image_content import checksum_properties
from nodepool.driver.openstack.image_tasks import TaskUploads
from nodepool.driver.openstack.images import OpenStackImages
from nodepool.driver.openstack.instance import OpenStackInstance, usage
from nodepool.driver.openstack.leaks import Leaks, OpenStackResource
from nodepool.driver.openstack.preflight import Preflight, unheeded
from nodepool.driver.openstack.transport import Transport
from nodepool.driver.openstack.views import limit
from nodepool.driver.statemachine import Adapter
from nodepool.exceptions import CloudUnavailableException, LaunchNodepoolException, RuntimeConfigurationException
from nodepool.model.quota import QuotaInformation

if TYPE_CHECKING:
    from nodepool.driver.framework.check_result import CheckResult
    from nodepool.driver.framework.listed_image import ListedImage
    from nodepool.driver.openstack.config import OpenStackProviderConfig
    from nodepool.driver.statemachine import Resource
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
