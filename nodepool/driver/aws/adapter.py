# SPDX-License-Identifier: Apache-2.0
"""What the framework asks of a region of AWS (reference/driver 9).

First `AwsAdapter`, then what ``nodepool check`` finds out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from nodepool.clock import wall_time
from nodepool.driver.aws.client import Ec2
from nodepool.driver.aws.config import EBS_DIRECT, IMAGE
from nodepool.driver.aws.facts import AwsFacts
from nodepool.driver.aws.image_store import PREFIX
from nodepool.driver.aws.images import AMI, AwsImages, AwsResource
from nodepool.driver.aws.instances import (
    AwsCreation,
    AwsInstances,
    instance_of,
)
from nodepool.driver.aws.launches import LOOK_SECONDS
from nodepool.driver.aws.quota import AccountLimits
from nodepool.driver.aws.transport import AwsTransport
from nodepool.driver.framework.checks import CheckResult, CloudChecks, failure
from nodepool.driver.statemachine import SWEEP_LIST_SECONDS, CloudAdapter, ResourceKind, ResourceKinds
from nodepool.exceptions import LaunchError, RuntimeConfigurationException
from nodepool.model.quota import QuotaInformation

if TYPE_CHECKING:
    from nodepool.driver.aws.config import AwsDiskImage, AwsLabel, AwsPool, AwsProviderConfig
    from nodepool.driver.aws.types import Subnet
    from nodepool.driver.framework.images import ListedImage

INSTANCE: Final = "instance"
VOLUME: Final = "volume"
HOST: Final = "host"
TEMPLATE: Final = "launchtemplate"
#: Hosts that an earlier configuration may have left are looked for so often, in seconds.
OLD_HOSTS_SECONDS: Final = 3600.0
#: States of volumes that nothing uses.
_FREE: Final = ("available", "error")


class AwsAdapter(CloudAdapter):
    """One region. Making it imports botocore, and does not ask AWS.

    :param transport: for tests.
    """

    counts_ends = True
    creation_class = AwsCreation

    def __init__(self, provider_config: AwsProviderConfig, transport: AwsTransport | None = None) -> None:
        super().__init__(provider_config)
        self.config = provider_config
        self.client = Ec2(
            transport
            or AwsTransport(
                provider_config.name, provider_config.region_name, provider_config.profile_name, provider_config.rate
            )
        )
        self.facts = AwsFacts(self.client)
        self.limits = AccountLimits(provider_config, self.client, self.facts)
        self.instances = AwsInstances(provider_config, self.client, self.facts, self.limits)
        self.use(self.instances)
        self.images = AwsImages(provider_config, self.client)
        self.resources = ResourceKinds(provider_config.name, self._kinds())

    # -- what may be left over --

    def _kinds(self) -> Iterator[ResourceKind[AwsResource]]:
        client = self.client
        yield ResourceKind(
            INSTANCE, self._found_instances, lambda found: self.instances.delete_instance(found.id), vital=True
        )
        yield ResourceKind(VOLUME, self._found_volumes, lambda found: client.delete_volume(found.id))
        labels = [label for pool in self.config.pools.values() for label in pool.labels.values()]
        idle = 0.0 if any(label.dedicated_host for label in labels) else OLD_HOSTS_SECONDS
        yield ResourceKind(HOST, self._found_hosts, lambda found: client.release_host(found.id), idle)
        yield ResourceKind(TEMPLATE, self._no_templates, lambda _: None, LOOK_SECONDS)
        yield from self.images.kinds()

    def _found_instances(self) -> Iterator[AwsResource]:
        for record in self.instances.inventory.all(SWEEP_LIST_SECONDS):
            yield AwsResource(record.metadata, INSTANCE, record.id)

    def _found_volumes(self) -> Iterator[AwsResource]:
        for volume in self.client.volumes():
            if volume.status in _FREE:
                yield AwsResource(volume.metadata, VOLUME, volume.id)

    def _found_hosts(self) -> Iterator[AwsResource]:
        now = datetime.fromtimestamp(wall_time(), UTC)
        for host in self.client.hosts():
            if host.may_be_released(now):
                yield AwsResource(host.metadata, HOST, host.id)

    def _no_templates(self) -> list[AwsResource]:
        """Templates belong to no node: those that no label uses are removed here."""
        self.instances.templates.remove_unused()
        return []

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
        wanted = image_format or self.config.image_type
        return self.images.upload(provider_image, image_name, filename, wanted, metadata or {}, sha256)

    def deleteImage(self, external_id: str) -> None:
        self.images.delete(AMI, external_id)

    def listImages(self) -> Iterator[ListedImage]:
        return self.images.listed()

    # -- quota --

    def getQuotaLimits(self) -> QuotaInformation:
        return self.limits.limits()

    def getQuotaForLabel(self, label: Any) -> QuotaInformation:
        return self.limits.need_of(label)

    def preflight(self) -> Iterator[CheckResult]:
        return AwsPreflight(self).results()

    # -- trouble --

    def getConsoleLog(self, label: Any, external_id: Any) -> str | None:
        instance_id = instance_of(external_id)
        return self.client.console(instance_id) if label.console_log and instance_id else None


# What ``nodepool check`` finds out about a region: has it all that the configuration names? Only reads.


class AwsPreflight:
    """Of one provider; for one use."""

    def __init__(self, adapter: AwsAdapter) -> None:
        self._config, self._client, self._facts = adapter.config, adapter.client, adapter.facts
        self._limits, self._store = adapter.limits, adapter.images.store
        self._checks = CloudChecks(adapter.config.name)
        #: Zones of the region that can be used.
        self._zones: set[str] = set()
        #: Where instances of each pool may be, as far as it is known.
        self._zones_of_pool: dict[str, set[str]] = {}
        self._key_pairs: dict[str, bool] = {}
        self._offered: dict[str, set[str]] = {}
        #: Why imports cannot be asked for, by method; "" = they can.
        self._imports: dict[str, str] = {}

    def results(self) -> Iterator[CheckResult]:
        """All problems, and a line for what is in order. Blocks for some calls to AWS."""
        where = f"region {self._config.region_name}"
        try:
            states = self._client.zones()
        except LaunchError as error:
            # Nothing else can be asked.
            yield self._checks.failure(where, error)
            return
        self._zones = {name for name, state in states.items() if state == "available"}
        yield CheckResult(where, True, f"the credentials work; zones: {', '.join(sorted(self._zones))}")
        for pool in self._config.pools.values():
            yield from self._checks.results(f"pool {pool.name}", self._pool, pool)
            for label in pool.labels.values():
                yield from self._label(label)
        yield from self._checks.results("quota", self._quota)
        for image in self._config.diskimages.values():
            if not image.pause:
                yield self._upload(image)

    # -- a pool --

    def _pool(self, pool: AwsPool) -> list[CheckResult]:
        subject = f"pool {pool.name}"
        bad = [
            CheckResult(
                subject,
                False,
                f"the region has no zone {zone!r} that can be used (it has: {', '.join(sorted(self._zones))})",
                "correct availability-zone of the pool",
            )
            for zone in pool.availability_zones
            if zone not in self._zones
        ]
        subnets = self._client.subnets(pool.subnet_ids) if pool.subnet_ids else self._client.default_subnets()
        bad += self._subnets(pool, subnets, subject)
        if pool.security_group_id:
            bad += self._group(pool.security_group_id, subnets, subject)
        zones = {subnet.zone for subnet in subnets.values()}
        self._zones_of_pool[pool.name] = zones & set(pool.availability_zones) if pool.availability_zones else zones
        return bad

    def _subnets(self, pool: AwsPool, subnets: dict[str, Subnet], subject: str) -> list[CheckResult]:
        if not subnets and not pool.subnet_ids:
            text = "the region has no default VPC with subnets, and the pool names none"
            return [CheckResult(subject, False, text, "add subnet-id to the pool")]
        found = []
        for subnet_id in pool.subnet_ids:
            subnet = subnets.get(subnet_id)
            if subnet is None:
                text, remedy = f"the region has no subnet {subnet_id!r}", "correct subnet-id of the pool"
            elif not subnet.free:
                text, remedy = (
                    f"subnet {subnet_id} has no free addresses",
                    "add another subnet to subnet-id",
                )
            elif pool.public_ipv6 and not subnet.ipv6:
                text = f"subnet {subnet_id} has no IPv6 addresses, and public-ipv6 is set"
                remedy = "give it an IPv6 block, or set public-ipv6: false"
            elif pool.availability_zones and subnet.zone not in pool.availability_zones:
                text = f"subnet {subnet_id} is in zone {subnet.zone}, not in {', '.join(pool.availability_zones)}"
                remedy = "remove availability-zone of the pool: the subnet says it"
            else:
                continue
            found.append(CheckResult(subject, False, text, remedy))
        return found

    def _group(self, group_id: str, subnets: dict[str, Subnet], subject: str) -> list[CheckResult]:
        vpc = self._client.vpc_of_group(group_id)
        if vpc is None:
            text = f"the region has no security group {group_id!r}"
            return [CheckResult(subject, False, text, "correct security-group-id of the pool")]
        others = {subnet.vpc for subnet in subnets.values()} - {vpc}
        if others:
            text = f"security group {group_id} is in {vpc}, and the subnets are in {', '.join(sorted(others))}"
            return [CheckResult(subject, False, text, "choose a group of the VPC of the subnets")]
        return []

    # -- a label --

    def _label(self, label: AwsLabel) -> Iterator[CheckResult]:
        subject = f"label {label.name} of pool {label.pool.name}"
        found = [
            result
            for check in (self._types, self._image, self._key)
            for result in self._checks.results(subject, check, label, subject)
        ]
        yield from found
        if not found:
            yield CheckResult(subject, True, "instance type, image and key pair are there")

    def _types(self, label: AwsLabel, subject: str) -> list[CheckResult]:
        found, somewhere = [], False
        names = label.fleet_types or label.instance_types
        zones = self._zones_of_pool.get(label.pool.name) or set()
        for name in names:
            self._facts.instance_type(name)
            if name not in self._offered:
                self._offered[name] = self._client.zones_with(name)
            here = self._offered[name] & zones if zones else self._offered[name]
            somewhere = somewhere or bool(here)
            if not here:
                text = f"{name} is not offered in {', '.join(sorted(zones)) or 'the region'}"
                others = ", ".join(sorted(self._offered[name] - zones))
                text += f", but in {others}" if others else ""
                found.append((text, "choose another instance type, or a subnet or zone that has it"))
        # Of several types that AWS chooses from one will do.
        return [CheckResult(subject, somewhere, text, remedy) for text, remedy in found]

    def _image(self, label: AwsLabel, subject: str) -> list[CheckResult]:
        if label.cloud_image is None:
            return []
        image = self._facts.image(self._facts.cloud_image_id(label))
        if image.status in ("available", ""):
            return []
        remedy = f"correct image-id of cloud image {label.cloud_image.name}"
        return [CheckResult(subject, False, f"the image {image.id} is {image.status}", remedy)]

    def _key(self, label: AwsLabel, subject: str) -> list[CheckResult]:
        name = label.key_name
        if name not in self._key_pairs:
            self._key_pairs[name] = self._client.has_key_pair(name)
        if self._key_pairs[name]:
            return []
        remedy = "correct key-name of the label, or import the key pair in this region"
        return [CheckResult(subject, False, f"the region has no key pair {name!r}", remedy)]

    # -- limits --

    def _quota(self) -> list[CheckResult]:
        """How many nodes of each label the limits of the account allow, were there no others."""
        limits = self._limits.told()
        if limits is None:
            text = "Service Quotas does not tell the limits of the account: only what AWS refuses will show them"
            return [CheckResult("quota", True, text, "allow servicequotas:ListServiceQuotas")]
        told: set[str] = set()
        results: list[CheckResult] = []
        for pool in self._config.pools.values():
            wanted = "any number" if math.isinf(pool.max_servers) else f"{pool.max_servers:g}"
            for label in pool.labels.values():
                try:
                    needs = self._limits.need_of(label).get_resources()
                except (LaunchError, RuntimeConfigurationException):
                    # What is wrong with it was told of the label.
                    continue
                for code, limit in limits.items():
                    if not needs.get(code):
                        continue
                    most = math.floor(limit / needs[code])
                    told.add(f"{code}: {limit:.15g}")
                    if most >= 1 and pool.max_servers <= most:
                        continue
                    text = (
                        f"limit {code} of the account is {limit:.15g}: it allows {most} nodes of label {label.name}, "
                        f"max-servers of pool {pool.name} allows {wanted}"
                    )
                    remedy = (
                        f"ask for more of {code} under Service Quotas, or lower max-servers; the smaller one counts"
                    )
                    results.append(CheckResult("quota", most >= 1, text, remedy))
        return results or [CheckResult("quota", True, ", ".join(sorted(told)) or "no limit concerns the labels")]

    # -- uploads of images: could they begin? --

    def _upload(self, image: AwsDiskImage) -> CheckResult:
        subject = f"diskimage {image.name}"
        problem = image.format_problem(self._config.image_type)
        if problem is not None:
            return CheckResult(subject, False, problem, "change image-format, or import-method of the diskimage")
        method = image.import_method
        if method == EBS_DIRECT:
            return CheckResult(subject, True, "uploads by ebs-direct need no bucket")
        if method not in self._imports:
            self._imports[method] = self._without_import(method)
        if why := self._imports[method]:
            return failure(subject, why)
        return CheckResult(subject, True, f"bucket {self._config.bucket_name} and imports can be listed")

    def _without_import(self, method: str) -> str:
        """Why images cannot be imported, as far as it can be known without one."""
        if self._store is None:
            return "images are imported from S3; add object-storage.bucket-name to the provider"
        try:
            next(iter(self._store.keys(PREFIX)), None)
            self._client.import_tasks(whole=method == IMAGE)
        except LaunchError as error:
            return self._checks.said(error)
        return ""
