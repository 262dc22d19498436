# SPDX-License-Identifier: Apache-2.0
"""What ``nodepool check`` finds out about a cloud: has it all that the configuration names? Only reads."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from nodepool.driver.framework.checks import CheckResult, CloudChecks, failure
from nodepool.driver.framework.cloud_errors import CloudNotFound
from nodepool.driver.openstack.api import COMPUTE, IMAGE, NETWORK, VOLUME
from nodepool.driver.openstack.clouds import VERSION_IN_PATH, section, settings_of
from nodepool.driver.openstack.facts import choose_flavor, missing_flavor
from nodepool.driver.openstack.views import limit
from nodepool.exceptions import LaunchError

if TYPE_CHECKING:
    from openstack.config.cloud_region import CloudRegion

    from nodepool.driver.openstack.cloud import OpenStackCloud
    from nodepool.driver.openstack.config import OpenStackLabel, OpenStackPool, OpenStackProviderConfig


#: Major versions of services that the driver speaks.
_VERSIONS: Final = {COMPUTE: ("2",), IMAGE: ("2",), VOLUME: ("2", "3")}
#: Settings that are true or false. For openstacksdk each text is true.
_FLAGS: Final = (
    *("private", "use_external_network", "use_internal_network", "requires_floating_ip"),
    *("image_api_use_tasks", "image_upload_use_import", "force_ipv4"),
)
#: Settings that are better left out: key of clouds.yaml, what it is, what to do.
_WITHOUT_EFFECT: Final = (
    ("vendor_hook", "is code that is not run here", "leave it out, if no other program needs it"),
    ("timing", "keeps a record of each call in memory, for ever", "leave it out"),
)
_CACHE_KEYS: Final = frozenset({"auth", "expiration_time", "max_age", "class", "path", "arguments", "expiration"})


def unheeded(region: CloudRegion) -> Iterator[CheckResult]:
    """What clouds.yaml says of a cloud, openstacksdk heeds, and is not done here. Pure.

    What would give other nodes or images than asked for has failed; what only does nothing is a warning.
    """
    where, config = f"cloud {region.name} in clouds.yaml", settings_of(region)
    for key in _FLAGS:
        if not isinstance(config.get(key), bool | None):
            yield CheckResult(where, False, f"{key} is {config[key]!r}", f"set {key} to true or false, without quotes")
    if str(config.get("floating_ip_source") or "none").lower() not in ("none", "neutron"):
        text = f"floating_ip_source is {config['floating_ip_source']!r}, and only Neutron makes floating IPs"
        yield CheckResult(where, False, text, "leave it out, or set it to None if the cloud has no floating IPs")
    if not isinstance(config.get("disable_vendor_agent"), Mapping | None):
        yield CheckResult(where, False, "disable_vendor_agent is no mapping", "write properties of images into it")
    for service in (COMPUTE, IMAGE, VOLUME, NETWORK):
        yield from _of_service(region, where, service)
    for key, text, remedy in _WITHOUT_EFFECT:
        if config.get(key):
            yield CheckResult(where, True, f"{key} {text}", remedy)
    own, general = region.config.get("metrics"), region.get_client_config("metrics")
    if any(section(metrics, "influxdb").get("host") for metrics in (own, general)):
        yield CheckResult(where, True, "calls are not reported to InfluxDB (metrics.influxdb)", "use metrics.statsd")
    if config["metrics"] is None and any(section(metrics, "statsd").get("port") for metrics in (own, general)):
        text = "calls are not counted: port of metrics.statsd is no number from 1 to 65535"
        yield CheckResult(where, True, text, "correct it")
    if (region.get_client_config("cache") or {}).keys() & _CACHE_KEYS:
        text = "cache is not used: one list of servers, volumes or floating IPs serves all launches (O-8)"
        yield CheckResult(where, True, text, "leave it out")


def _of_service(region: CloudRegion, where: str, service: str) -> Iterator[CheckResult]:
    key = service.replace("-", "_")
    major = (region.get_api_version(service) or "").partition(".")[0]
    spoken = _VERSIONS.get(service)
    if major and spoken and major not in spoken:
        text = f"{key}_api_version is {major}, and only {' and '.join(spoken)} can be used"
        # Not each provider has volumes.
        yield CheckResult(where, service == VOLUME, text, f"set it to {spoken[-1]}")
    # That of volumes may have a project added later.
    endpoint = region.get_endpoint(service) if service != VOLUME else None
    if endpoint and not VERSION_IN_PATH.search(endpoint):
        text = f"{key}_endpoint_override has no version in its path, so that each call ends with 404"
        yield CheckResult(where, False, text, "add the version, e.g. /v2.1")


class Preflight:
    """Of one provider; for one use.

    :param config: is loaded.
    :param cloud: not stopped.
    """

    def __init__(self, config: OpenStackProviderConfig, cloud: OpenStackCloud) -> None:
        self._config = config
        self._checks = CloudChecks(config.name)
        self._cloud = cloud
        self._key_pairs: dict[str, bool] = {}

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
            yield from self._pool(pool)
            for label in pool.labels.values():
                yield from self._label(label, VOLUME in here)
        yield from self._checks.results("quota", self._quota)

    # -- a pool --

    def _pool(self, pool: OpenStackPool) -> Iterator[CheckResult]:
        subject = f"pool {pool.name}"
        yield from self._checks.results(subject, self._zones, pool, subject)
        if pool.security_groups:
            yield from self._checks.results(subject, self._groups, pool, subject)

    def _zones(self, pool: OpenStackPool, subject: str) -> list[CheckResult]:
        there = self._cloud.facts.zones.get()
        found = []
        for zone in pool.azs or ():
            if zone and there and zone not in there:
                text = f"the cloud has no availability zone {zone!r} that takes servers (it has: {', '.join(there)})"
                found.append(CheckResult(subject, False, text, "correct availability-zones of the pool"))
        return found

    def _groups(self, pool: OpenStackPool, subject: str) -> list[CheckResult]:
        there = self._cloud.api.security_groups()
        if there is None:
            return []
        return [
            CheckResult(
                subject,
                False,
                f"the project has no security group {group!r}",
                "correct security-groups of the pool, or make the group",
            )
            for group in pool.security_groups
            if group not in there
        ]

    # -- a label --

    def _label(self, label: OpenStackLabel, volumes: bool) -> Iterator[CheckResult]:
        subject = f"label {label.name} of pool {label.pool.name}"
        bad = [
            result
            for check in (self._flavor, self._image, self._networks, self._key)
            for result in self._checks.results(subject, check, label, subject)
        ]
        if label.boot_from_volume and not volumes:
            text = "boot-from-volume is set, and the cloud has no block storage service for us"
            bad.append(CheckResult(subject, False, text, "leave it out"))
        yield from bad
        if not bad:
            yield CheckResult(subject, True, "flavor, image, networks and key pair are there")

    def _flavor(self, label: OpenStackLabel, subject: str) -> list[CheckResult]:
        if choose_flavor(self._cloud.facts.flavors.get(), label.flavor_name, label.min_ram) is None:
            return [failure(subject, missing_flavor(label))]
        return []

    def _image(self, label: OpenStackLabel, subject: str) -> list[CheckResult]:
        image = label.cloud_image
        if image is None:
            return []
        text = ""
        if image.image_id:
            try:
                status = self._cloud.api.image(image.image_id).status
                text = "" if status == "active" else f"the image {image.image_id!r} is {status}"
            except CloudNotFound:
                text = f"the cloud has no image with the id {image.image_id!r}"
        elif self._cloud.facts.image_id(image) is None:
            text = f"the cloud has no usable image {image.image_name!r}"
        if not text:
            return []
        return [CheckResult(subject, False, text, f"correct cloud-image {image.name}, or upload the image")]

    def _networks(self, label: OpenStackLabel, subject: str) -> list[CheckResult]:
        found = []
        for name in label.networks:
            try:
                self._cloud.facts.network_id(name, label)
            except LaunchError as error:
                found.append(failure(subject, self._checks.said(error).removeprefix(f"label {label.name}: ")))
        return found

    def _key(self, label: OpenStackLabel, subject: str) -> list[CheckResult]:
        name = label.key_name
        if not name:
            return []
        if name not in self._key_pairs:
            self._key_pairs[name] = self._cloud.api.has_key_pair(name)
        if self._key_pairs[name]:
            return []
        remedy = "correct key-name of the label, or make the key pair for this user"
        return [CheckResult(subject, False, f"the user has no key pair {name!r} in the cloud", remedy)]

    # -- limits --

    def _quota(self) -> list[CheckResult]:
        limits = self._cloud.api.compute_limits()
        most = limit(limits.get("maxTotalInstances"))
        wanted = sum(pool.max_servers for pool in self._config.pools.values() if pool.max_servers)
        told = "no limit" if most == math.inf else f"{most:g}"
        if wanted == math.inf or wanted <= most:
            return [CheckResult("quota", True, f"instances: {told}")]
        text = f"the project may have {told} instances, max-servers of the pools allow {wanted:g}"
        return [CheckResult("quota", True, text, "lower max-servers, or raise the quota; the smaller one counts")]
