# SPDX-License-Identifier: Apache-2.0
"""What ``nodepool check`` finds out about IBM VPC: has it all that the configuration names? Only reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from nodepool.driver.framework.checks import CheckResult, CloudChecks
from nodepool.driver.framework.cloud_errors import CloudNotFound, CloudSetup
from nodepool.driver.ibmvpc.types import group_of_pool
from nodepool.exceptions import LaunchError

if TYPE_CHECKING:
    from nodepool.driver.ibmvpc.client import IbmVpc
    from nodepool.driver.ibmvpc.config import IbmLabel, IbmPool, IbmProviderConfig
    from nodepool.driver.ibmvpc.facts import IbmFacts
    from nodepool.driver.ibmvpc.images import IbmImages


class IbmPreflight:
    """Of one provider; for one use."""

    def __init__(self, config: IbmProviderConfig, client: IbmVpc, facts: IbmFacts, images: IbmImages) -> None:
        self._config = config
        self._checks = CloudChecks(config.name)
        self._client = client
        self._facts = facts
        self._images = images

    def results(self) -> Iterator[CheckResult]:
        """All problems, and a line for what is in order. Blocks for some calls to IBM."""
        where = f"region {self._config.region}"
        try:
            self._facts.vpc_id()
        except LaunchError as error:
            # Nothing else can be asked.
            yield self._checks.failure(where, error)
            return
        yield CheckResult(where, True, f"login works; the VPC {self._config.vpc} is there")
        for pool in self._config.pools.values():
            yield from self._checks.results(f"pool {pool.name}", self._pool, pool)
            for label in pool.labels.values():
                yield from self._label(label)
        yield from self._checks.results("quota", self._quota)
        if any(not image.pause for image in self._config.diskimages.values()):
            yield from self._checks.results("object storage", self._storage)
            yield from self._checks.results("diskimages", self._diskimages)

    def _pool(self, pool: IbmPool) -> list[CheckResult]:
        subject = f"pool {pool.name}"
        found = []
        for subnet in self._facts.subnets(pool):
            if subnet.free is not None and not subnet.free:
                text = f"subnet {subnet.name} has no free addresses"
                found.append(CheckResult(subject, False, text, "add another subnet, or delete what uses this one"))
            elif subnet.free is not None and subnet.free < pool.max_servers < float("inf") and len(pool.subnets) == 1:
                text = f"subnet {subnet.name} has {subnet.free} free addresses, max-servers is {pool.max_servers:g}"
                found.append(CheckResult(subject, True, text, "use a larger subnet, or lower max-servers"))
        group = group_of_pool(self._config.name, pool.name)
        if group not in self._client.groups():
            text = f"there is no resource group {group}: it is made with the first launch"
            return [*found, CheckResult(subject, True, text, "make it if the credentials may not")]
        return found or [CheckResult(subject, True, f"subnets and resource group {group} are there")]

    def _label(self, label: IbmLabel) -> Iterator[CheckResult]:
        subject = f"label {label.name} of pool {label.pool.name}"
        checks = (self._profiles, self._image, self._keys)
        bad = [result for check in checks for result in self._checks.results(subject, check, label)]
        yield from bad
        if not bad:
            yield CheckResult(subject, True, "profile, image and keys are there")

    def _profiles(self, label: IbmLabel) -> list[CheckResult]:
        for name in label.profiles:
            self._facts.profile(name)
        return []

    def _image(self, label: IbmLabel) -> list[CheckResult]:
        if label.cloud_image is not None:
            reference = self._facts.image(label, None)
            image_id = reference.get("id") or reference["href"].rpartition("/")[2]
            try:
                self._client.image(image_id)
            except CloudNotFound:
                text = f"the region has no image {image_id!r}; correct cloud image {label.cloud_image.name!r}"
                raise CloudSetup(text, code="image_not_found", status=404) from None
        return []

    def _keys(self, label: IbmLabel) -> list[CheckResult]:
        for name in label.cloud_image.ssh_keys if label.cloud_image is not None else ():
            self._facts.key_id(name)
        return []

    def _quota(self) -> list[CheckResult]:
        wanted = sum(pool.max_servers for pool in self._config.pools.values())
        limit = self._config.quota_instances
        if limit is None:
            remedy = "set quota of the provider to what the account has, or keep max-servers below it"
            return [CheckResult("quota", True, "IBM tells no limits, and quota is not set", remedy)]
        if wanted <= limit:
            return [CheckResult("quota", True, f"quota allows {limit} instances")]
        text = f"quota allows {limit} instances; max-servers of the pools allow {wanted:g}"
        return [CheckResult("quota", True, text, "lower max-servers, or correct quota; the smaller one counts")]

    def _storage(self) -> list[CheckResult]:
        """Could uploads begin?"""
        bucket = self._images.bucket
        assert bucket is not None
        self._client.storage_instance(self._config.storage_instance or "")
        region = bucket.region()
        next(iter(bucket.keys("npimages_")), None)
        text = f"bucket {bucket.name} is in {region}"
        if region == self._config.region:
            return [CheckResult("object storage", True, text)]
        # IBM imports images of buckets near the region only.
        return [CheckResult("object storage", True, text, f"take a bucket in {self._config.region} if imports fail")]

    def _diskimages(self) -> list[CheckResult]:
        known = self._client.operating_systems()
        remedy = "correct operating-system; ibmcloud is operating-systems lists them"
        found = []
        for image in self._config.diskimages.values():
            subject, system = f"diskimage {image.name}", image.operating_system
            if image.pause:
                continue
            if system in known:
                found.append(CheckResult(subject, True, f"the operating system {system} is known"))
            else:
                found.append(CheckResult(subject, False, f"no operating system {system!r}", remedy))
        return found
