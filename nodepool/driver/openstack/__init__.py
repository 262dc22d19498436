# SPDX-License-Identifier: Apache-2.0
"""The OpenStack driver (reference/configuration 7). It needs openstacksdk.

Where to begin to read:

* ``config.py``, ``clouds.py``: the keys of the configuration and of clouds.yaml;
* ``transport.py``, ``service_client.py``: one call and its errors; ``api.py``: all calls that are made, and what
  OpenStack says;
* ``cloud.py``: how servers are listed, volumes, floating IPs, data that seldom changes, a server and its addresses;
* ``images.py``: uploads;
* ``servers.py``: the launch and the deletion of a server, why one is refused, and what can be left over.

Here all is put together for the framework in `nodepool.driver.statemachine`, with ``nodepool check``.
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from nodepool.driver.framework.cloud_errors import CheckResult, CloudChecks, Found, failure, or_none, room_for
from nodepool.driver.framework.fact import Repeats
from nodepool.driver.openstack.api import COMPUTE, IMAGE, NETWORK, VOLUME, limit
from nodepool.driver.openstack.cloud import OpenStackCloud, missing_flavor, missing_image, usage
from nodepool.driver.openstack.clouds import Clouds, section, settings_of
from nodepool.driver.openstack.config import OpenStackLabel, OpenStackPool, OpenStackProviderConfig
from nodepool.driver.openstack.images import OpenStackImages
from nodepool.driver.openstack.servers import Leaks, ServerCreation
from nodepool.driver.openstack.transport import Transport
from nodepool.driver.statemachine.instance import CloudAdapter
from nodepool.driver.statemachine.provider import StateMachineDriver
from nodepool.exceptions import (
    CloudUnavailableException,
    LaunchError,
    LaunchNodepoolException,
    RuntimeConfigurationException,
)
from nodepool.model.node import QuotaInformation

log = logging.getLogger("nodepool.driver.openstack")


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
        self.cloud = OpenStackCloud(provider_config, transport, settings)
        self.use(self.cloud)
        self._leaks = Leaks(self.cloud)
        self.resources = self._leaks.kinds
        self.images = OpenStackImages(provider_config, self.cloud.api, section(settings, "disable_vendor_agent"))
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

    # -- trouble --

    def getConsoleLog(self, label: Any, external_id: Any) -> str | None:
        return self.cloud.api.console(str(external_id)) if label.console_log else None

    # -- what ``nodepool check`` finds out: has the cloud all that the configuration names? Only reads --

    def preflight(self) -> Iterator[CheckResult]:
        return CloudChecks(self.config.name).all(f"cloud {self.config.cloud}", self._services, self._checks)

    def _services(self) -> str:
        here = [service for service in (COMPUTE, NETWORK, IMAGE, VOLUME) if self.cloud.transport.has(service)]
        region = f" region {self.config.region_name}," if self.config.region_name else ""
        return f"login works;{region} services: {', '.join(here)}"

    def _checks(self, checks: CloudChecks) -> Iterator[CheckResult]:
        has_key_pair = functools.cache(self.cloud.api.has_key_pair)
        for pool in self.config.pools.values():
            zones, groups = partial(self._check_zones, pool), partial(self._check_groups, pool)
            yield from checks.about(f"pool {pool.name}", "", zones, groups)
            networks, key = partial(self._check_networks, checks), partial(self._check_key, has_key_pair)
            good = "flavor, networks, cloud image and key pair are there, as far as it names them"
            of_label = self._check_flavor, self._check_image, networks, key, self._check_volume
            yield from checks.labels(pool, good, *of_label)
        yield from checks.about("quota", "", self._check_quota)

    def _check_zones(self, pool: OpenStackPool) -> Iterator[Found]:
        there = self.cloud.facts.zones.get()
        for zone in pool.azs or ():
            if zone and there and zone not in there:
                text = f"the cloud has no availability zone {zone!r} that takes servers (it has: {', '.join(there)})"
                yield Found(text, "correct availability-zones of the pool")

    def _check_groups(self, pool: OpenStackPool) -> Iterator[Found]:
        there = self.cloud.api.security_groups() if pool.security_groups else None
        for group in pool.security_groups:
            if there is not None and group not in there:
                text = f"the project has no security group {group!r}"
                yield Found(text, "correct security-groups of the pool, or make the group")

    def _check_flavor(self, label: OpenStackLabel) -> None:
        self.getQuotaForLabel(label)

    def _check_image(self, label: OpenStackLabel) -> Iterator[Found]:
        image = label.cloud_image
        if image is None:
            return
        text = ""
        if image.image_id:
            image_id = image.image_id
            found = or_none(lambda: self.cloud.api.image(image_id))
            if found is None:
                text = f"the cloud has no image with the id {image_id!r}"
            elif found.status != "active":
                text = f"the image {image_id!r} is {found.status}"
        elif self.cloud.facts.image_id(image) is None:
            text = f"the cloud has no usable image {image.image_name!r}"
        if text:
            yield Found(text, f"correct cloud-image {image.name}, or upload the image")

    def _check_networks(self, checks: CloudChecks, label: OpenStackLabel) -> Iterator[Found]:
        for name in label.networks:
            try:
                self.cloud.facts.network_id(name, label)
            except LaunchError as error:
                # A cloud that is away tells no remedy.
                found = failure("", checks.said(error).removeprefix(f"label {label.name}: "))
                yield Found(found.text, found.remedy)

    def _check_key(self, has_key_pair: Callable[[str], bool], label: OpenStackLabel) -> Iterator[Found]:
        if label.key_name and not has_key_pair(label.key_name):
            text = f"the user has no key pair {label.key_name!r} in the cloud"
            yield Found(text, "correct key-name of the label, or make the key pair for this user")

    def _check_volume(self, label: OpenStackLabel) -> Iterator[Found]:
        if label.boot_from_volume and not self.cloud.transport.has(VOLUME):
            yield Found("boot-from-volume is set, and the cloud has no block storage service for us", "leave it out")

    def _check_quota(self) -> list[Found]:
        most = limit(self.cloud.api.compute_limits().get("maxTotalInstances"))
        text = f"the project may have {'any number of' if most == math.inf else f'{most:g}'} instances"
        return [room_for(self.config.pools.values(), most, text, "raise the quota")]


class OpenStackDriver(StateMachineDriver):
    """``driver: openstack``"""

    name = "openstack"
    libraries = ("openstack", "keystoneauth1", "requests", "urllib3")

    def __init__(self) -> None:
        self._clouds = Clouds()

    def reset(self) -> None:
        """clouds.yaml is read again with the next configuration."""
        self._clouds.forget()

    def getProviderConfig(self, provider: dict[str, Any]) -> OpenStackProviderConfig:
        return OpenStackProviderConfig(provider, self._clouds)

    def getAdapter(self, provider_config: Any) -> OpenStackAdapter:
        return OpenStackAdapter(provider_config)
