# SPDX-License-Identifier: Apache-2.0
"""What ``nodepool check`` finds out about a cloud: has it all that the configuration names? Only reads."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from nodepool.driver.framework.check_result import CheckResult, failure
from nodepool.driver.framework.cloud_checks import CloudChecks
from nodepool.driver.framework.cloud_errors import CloudNotFound
from nodepool.driver.openstack.api import COMPUTE, IMAGE, NETWORK, VOLUME
from nodepool.driver.openstack.facts import choose_flavor, missing_flavor
from nodepool.driver.openstack.views import limit
from nodepool.exceptions import LaunchError

if TYPE_CHECKING:
    from nodepool.driver.openstack.cloud import OpenStackCloud
    from nodepool.driver.openstack.config import OpenStackLabel, OpenStackPool, OpenStackProviderConfig


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
