# SPDX-License-Identifier: Apache-2.0
"""`AwsAdapter`: what the framework asks of a region (reference/driver 9)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from nodepool.clock import wall_time
from nodepool.driver.aws.client import Ec2
from nodepool.driver.aws.creation import AwsCreation, FleetCreation, HostCreation, InstanceCreation
from nodepool.driver.aws.facts import AwsFacts
from nodepool.driver.aws.images import INSTANCE, VOLUME, AwsImages, AwsKind, AwsResource, AwsResources, ImageLeaks
from nodepool.driver.aws.instances import AwsDeletion, AwsInstance, AwsInstances, instance_of
from nodepool.driver.aws.launches import LOOK_SECONDS
from nodepool.driver.aws.preflight import AwsPreflight, CheckClient, ImagePreflight
from nodepool.driver.aws.quota import AccountLimits
from nodepool.driver.aws.transport import AwsTransport
from nodepool.driver.statemachine import SWEEP_LIST_SECONDS, Adapter, Creation, Resource
from nodepool.exceptions import RuntimeConfigurationException
from nodepool.model.quota import QuotaInformation

if TYPE_CHECKING:
    from nodepool.driver.aws.config import AwsProviderConfig
    from nodepool.driver.framework.checks import CheckResult
    from nodepool.driver.framework.images import ListedImage
    from nodepool.driver.statemachine.adapter import Log
    from nodepool.model.request import NodeRequest

HOST: Final = "host"
TEMPLATE: Final = "launchtemplate"
#: Hosts that an earlier configuration may have left are looked for so often, in seconds.
OLD_HOSTS_SECONDS: Final = 3600.0
#: States of volumes that nothing uses.
_FREE: Final = ("available", "error")


class AwsAdapter(Adapter):
    """One region. Making it imports botocore, and does not ask AWS.

    :param transport: for tests.
    """

    lag_seconds = AwsInstances.lag_seconds
    advance_threads = 8
    counts_ends = True

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
        self._image_leaks = ImageLeaks(provider_config, self.client, self.images)
        self.resources = AwsResources(provider_config.name, self._kinds())

    def stop(self) -> None:
        self.instances.stop()

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
    ) -> AwsCreation:
        machine = FleetCreation if label.fleet_types else HostCreation if label.dedicated_host else InstanceCreation
        return machine(self.instances, hostname, label, image_external_id, metadata, request, az, log)

    def getDeleteStateMachine(self, external_id: Any, log: Log) -> AwsDeletion:
        return AwsDeletion(self.instances, external_id, log)

    # -- lists --

    def listInstances(self) -> list[AwsInstance]:
        records = self.instances.inventory.all(max_age=0.0)
        for name in {record.type for record in records if record.type}:
            # That of somebody else's instance may be one that is not told of to everybody.
            with contextlib.suppress(RuntimeConfigurationException):
                self.facts.instance_type(name)
        volumes = {volume.id: volume for volume in self.client.volumes()} if self.limits.counts_volumes else {}
        region = self.config.region_name
        use_of, why_ended = self.limits.use_of, self.instances.why_ended
        return [AwsInstance(record, region, use_of(record, volumes), ends=why_ended(record)) for record in records]

    def unansweredCreations(self) -> Iterable[Creation]:
        return self.instances.unanswered()

    def listResources(self) -> Iterator[AwsResource]:
        return self.resources.all()

    def deleteResource(self, resource: Resource) -> None:
        assert isinstance(resource, AwsResource)
        self.resources.delete(resource)

    def _kinds(self) -> Iterator[AwsKind]:
        yield AwsKind(INSTANCE, self._found_instances, delete=self.instances.delete_instance, vital=True)
        yield AwsKind(VOLUME, self._found_volumes, delete=self.client.delete_volume)
        labels = [label for pool in self.config.pools.values() for label in pool.labels.values()]
        idle = 0.0 if any(label.dedicated_host for label in labels) else OLD_HOSTS_SECONDS
        yield AwsKind(HOST, self._found_hosts, idle, delete=self.instances.hosts.release)
        yield AwsKind(TEMPLATE, self._no_templates, LOOK_SECONDS, delete=self.instances.fleets.delete_template)

        yield from self._image_leaks.kinds()

    def _found_instances(self) -> Iterator[AwsResource]:
        for record in self.instances.inventory.all(SWEEP_LIST_SECONDS):
            yield AwsResource(record.metadata, INSTANCE, record.id)

    def _found_volumes(self) -> Iterator[AwsResource]:
        for volume in self.client.volumes():
            if volume.status in _FREE:
                yield AwsResource(volume.metadata, VOLUME, volume.id)

    def _found_hosts(self) -> Iterator[AwsResource]:
        now = datetime.fromtimestamp(wall_time(), UTC)
        for host in self.instances.hosts.hosts():
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
        self.images.delete(external_id)

    def listImages(self) -> Iterator[ListedImage]:
        return self._image_leaks.listed()

    # -- quota --

    def getQuotaLimits(self) -> QuotaInformation:
        return self.limits.limits()

    def getQuotaForLabel(self, label: Any) -> QuotaInformation:
        return self.limits.need_of(label)

    def preflight(self) -> Iterator[CheckResult]:
        client = CheckClient(self.client.transport)
        reached = False
        for result in AwsPreflight(self.config, client, self.facts, self.limits).results():
            yield result
            # The first one is that of the credentials.
            reached = reached or result.ok
        if reached:
            yield from ImagePreflight(self.config, self.images).results()

    # -- trouble --

    def getConsoleLog(self, label: Any, external_id: Any) -> str | None:
        instance_id = instance_of(external_id)
        return self.client.console(instance_id) if label.console_log and instance_id else None
