# SPDX-License-Identifier: Apache-2.0
"""The AWS driver. It needs botocore, which the extra ``aws`` brings.

First what the framework in `nodepool.driver.statemachine` asks of a region (reference/driver 9), then what ``nodepool
check`` finds out, then the driver. Where to go on:

* ``config.py``: what stands in the configuration;
* ``client.py``: one call, and all calls that are made; ``types.py``: what AWS says, also what can go wrong;
* ``instances.py``: how instances are listed, launched and deleted; what seldom changes, places and limits;
* ``launches.py``: what launches send, and launches that go in one call;
* ``images.py``: uploads of images, and what can be left over.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any, Final

from nodepool.clock import wall_time
from nodepool.driver.aws.client import AwsTransport, Ec2
from nodepool.driver.aws.config import EBS_DIRECT, IMAGE, AwsDiskImage, AwsLabel, AwsPool, AwsProviderConfig
from nodepool.driver.aws.images import PREFIX, AwsImages
from nodepool.driver.aws.instances import AccountLimits, AwsCreation, AwsFacts, AwsInstances, instance_of
from nodepool.driver.aws.launches import LOOK_SECONDS
from nodepool.driver.aws.types import Subnet
from nodepool.driver.framework.cloud_errors import CheckResult, CloudChecks, Found, of_limits
from nodepool.driver.statemachine import CloudAdapter, CloudResource, ResourceKind, ResourceKinds
from nodepool.driver.statemachine.provider import CloudDriver
from nodepool.exceptions import LaunchError
from nodepool.model.node import QuotaInformation

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
        self.images: AwsImages = AwsImages(provider_config, self.client)
        self.resources = ResourceKinds(provider_config.name, self._kinds())

    # -- what may be left over --

    def _kinds(self) -> Iterator[ResourceKind[CloudResource]]:
        client = self.client
        yield self.instance_kind()
        yield ResourceKind(VOLUME, self._found_volumes, lambda found: client.delete_volume(found.id))
        labels = [label for pool in self.config.pools.values() for label in pool.labels.values()]
        idle = 0.0 if any(label.dedicated_host for label in labels) else OLD_HOSTS_SECONDS
        yield ResourceKind(HOST, self._found_hosts, lambda found: client.release_host(found.id), idle)
        yield ResourceKind(TEMPLATE, self._no_templates, lambda _: None, LOOK_SECONDS)
        yield from self.images.kinds()

    def _found_volumes(self) -> Iterator[CloudResource]:
        for volume in self.client.volumes():
            if volume.status in _FREE:
                yield CloudResource(volume.metadata, VOLUME, volume.id)

    def _found_hosts(self) -> Iterator[CloudResource]:
        now = datetime.fromtimestamp(wall_time(), UTC)
        for host in self.client.hosts():
            if host.may_be_released(now):
                yield CloudResource(host.metadata, HOST, host.id)

    def _no_templates(self) -> list[CloudResource]:
        """Templates belong to no node: those that no label uses are removed here."""
        self.instances.templates.remove_unused()
        return []

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
        #: Zones of the region that can be used.
        self._zones: set[str] = set()
        #: Where instances of each pool may be, as far as it is known.
        self._zones_of_pool: dict[str, set[str]] = {}
        # What several labels or images have in common is asked for once.
        self._has_key_pair, self._zones_with = cache(self._client.has_key_pair), cache(self._client.zones_with)
        self._import_error = cache(self._error_of_imports)

    def results(self) -> Iterator[CheckResult]:
        """All problems, and a line for what is in order. Blocks for some calls to AWS."""
        return CloudChecks(self._config.name).all(f"region {self._config.region_name}", self._region, self._others)

    def _region(self) -> str:
        self._zones = {name for name, state in self._client.zones().items() if state == "available"}
        return f"the credentials work; zones: {', '.join(sorted(self._zones))}"

    def _others(self, checks: CloudChecks) -> Iterator[CheckResult]:
        good = "instance type, cloud image and key pair are there, as far as it names them"
        for pool in self._config.pools.values():
            yield from checks.about(f"pool {pool.name}", "", partial(self._pool, pool))
            yield from checks.labels(pool, good, self._types, self._image, self._key)
        yield from checks.about("quota", "", self._quota)
        for image in self._config.diskimages.values():
            if not image.pause:
                yield from checks.about(f"diskimage {image.name}", "", partial(self._upload, image))

    # -- a pool --

    def _pool(self, pool: AwsPool) -> Iterator[Found]:
        for zone in pool.availability_zones:
            if zone not in self._zones:
                text = f"the region has no zone {zone!r} that can be used (it has: {', '.join(sorted(self._zones))})"
                yield Found(text, "correct availability-zone of the pool")
        subnets = self._client.subnets(pool.subnet_ids)
        if not subnets and not pool.subnet_ids:
            text = "the region has no default VPC with subnets, and the pool names none"
            yield Found(text, "add subnet-id to the pool")
        for subnet_id in pool.subnet_ids:
            yield from self._subnet(pool, subnet_id, subnets.get(subnet_id))
        if pool.security_group_id:
            yield from self._group(pool.security_group_id, subnets)
        zones = {subnet.zone for subnet in subnets.values()}
        self._zones_of_pool[pool.name] = zones & set(pool.availability_zones) if pool.availability_zones else zones

    def _subnet(self, pool: AwsPool, subnet_id: str, subnet: Subnet | None) -> Iterator[Found]:
        if subnet is None:
            yield Found(f"the region has no subnet {subnet_id!r}", "correct subnet-id of the pool")
        elif not subnet.free:
            yield Found(f"subnet {subnet_id} has no free addresses", "add another subnet to subnet-id")
        elif pool.public_ipv6 and not subnet.ipv6:
            text = f"subnet {subnet_id} has no IPv6 addresses, and public-ipv6 is set"
            yield Found(text, "give it an IPv6 block, or set public-ipv6: false")
        elif pool.availability_zones and subnet.zone not in pool.availability_zones:
            text = f"subnet {subnet_id} is in zone {subnet.zone}, not in {', '.join(pool.availability_zones)}"
            yield Found(text, "remove availability-zone of the pool: the subnet says it")

    def _group(self, group_id: str, subnets: dict[str, Subnet]) -> Iterator[Found]:
        vpc = self._client.vpc_of_group(group_id)
        others = {subnet.vpc for subnet in subnets.values()} - {vpc}
        if vpc is None:
            yield Found(f"the region has no security group {group_id!r}", "correct security-group-id of the pool")
        elif others:
            text = f"security group {group_id} is in {vpc}, and the subnets are in {', '.join(sorted(others))}"
            yield Found(text, "choose a group of the VPC of the subnets")

    # -- a label --

    def _types(self, label: AwsLabel) -> Iterator[Found]:
        found, somewhere = [], False
        zones = self._zones_of_pool.get(label.pool.name) or set()
        for name in label.fleet_types or label.instance_types:
            self._facts.instance_type(name)
            offered = self._zones_with(name)
            here = offered & zones if zones else offered
            somewhere = somewhere or bool(here)
            if not here:
                others = ", ".join(sorted(offered - zones))
                text = f"{name} is not offered in {', '.join(sorted(zones)) or 'the region'}"
                found.append(f"{text}, but in {others}" if others else text)
        # Of several types that AWS chooses from one will do.
        for text in found:
            yield Found(text, "choose another instance type, or a subnet or zone that has it", somewhere)

    def _image(self, label: AwsLabel) -> Iterator[Found]:
        if label.cloud_image is not None:
            image = self._facts.image(self._facts.cloud_image_id(label))
            if image.status not in ("available", ""):
                remedy = f"correct image-id of cloud image {label.cloud_image.name}"
                yield Found(f"the image {image.id} is {image.status}", remedy)

    def _key(self, label: AwsLabel) -> Iterator[Found]:
        if not self._has_key_pair(label.key_name):
            remedy = "correct key-name of the label, or import the key pair in this region"
            yield Found(f"the region has no key pair {label.key_name!r}", remedy)

    def _quota(self) -> list[Found]:
        limits = self._limits.limits().get_resources()
        if not limits and not self._limits.answers:
            text = "Service Quotas does not tell the limits of the account: only what AWS refuses will show them"
            return [Found(text, "allow servicequotas:ListServiceQuotas", ok=True)]
        pools = self._config.pools.values()
        return of_limits(pools, limits, self._limits.need_of, "limit {} of the account", "Service Quotas")

    # -- uploads of images: could they begin? --

    def _upload(self, image: AwsDiskImage) -> Iterator[Found]:
        problem = image.format_problem(self._config.image_type)
        if problem is not None:
            yield Found(problem, "change image-format, or import-method of the diskimage")
        elif image.import_method == EBS_DIRECT:
            yield Found("uploads by ebs-direct need no bucket", ok=True)
        elif self._store is None:
            yield Found("images are imported from S3", "add object-storage.bucket-name to the provider")
        else:
            if error := self._import_error(image.import_method):
                raise error
            yield Found(f"bucket {self._config.bucket_name} and imports can be listed", ok=True)

    def _error_of_imports(self, method: str) -> LaunchError | None:
        """Why images cannot be imported, as far as it can be known without one."""
        assert self._store is not None
        try:
            next(iter(self._store.keys(PREFIX)), None)
            self._client.import_tasks(whole=method == IMAGE)
        except LaunchError as error:
            return error
        return None


class AwsDriver(CloudDriver):
    """``driver: aws``"""

    name = "aws"
    libraries = ("botocore",)
    config_class = AwsProviderConfig
    adapter_class = AwsAdapter
