# SPDX-License-Identifier: Apache-2.0
"""What ``nodepool check`` finds out about Google: has it all that the configuration names? Only reads."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from nodepool.driver.framework.checks import CheckResult, CloudChecks
from nodepool.driver.framework.cloud_errors import CloudNotFound, CloudRefused
from nodepool.driver.gce.creation import network_path, subnetwork_path
from nodepool.driver.gce.types import READY, name_of
from nodepool.exceptions import LaunchError, RuntimeConfigurationException

if TYPE_CHECKING:
    from nodepool.driver.gce.client import ComputeEngine
    from nodepool.driver.gce.config import GceLabel, GcePool, GceProviderConfig
    from nodepool.driver.gce.facts import GceFacts, ProjectLimits
    from nodepool.driver.gce.images import GceImages


class GcePreflight:
    """Of one provider; for one use."""

    def __init__(
        self,
        config: GceProviderConfig,
        client: ComputeEngine,
        facts: GceFacts,
        limits: ProjectLimits,
        images: GceImages,
    ) -> None:
        self._config = config
        self._checks = CloudChecks(config.name)
        self._images = images
        self._client = client
        self._facts = facts
        self._limits = limits

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
