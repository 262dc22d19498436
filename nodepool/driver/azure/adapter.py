# SPDX-License-Identifier: Apache-2.0
"""What the framework asks of a resource group of Azure (reference/driver 9).

First `AzureAdapter`, then what ``nodepool check`` finds out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from nodepool.driver.azure import client as c
from nodepool.driver.azure.facts import VMS, AzureFacts, SubscriptionLimits
from nodepool.driver.azure.images import AzureImageCalls, AzureImages
from nodepool.driver.azure.login import AzureLogin
from nodepool.driver.azure.machines import AzureCreation, AzureDeletion, AzureInstance, AzureMachines, disk_metadata
from nodepool.driver.framework.checks import CheckResult, CloudChecks
from nodepool.driver.statemachine import SWEEP_LIST_SECONDS, Adapter, Creation, Resource, ResourceKind, ResourceKinds
from nodepool.exceptions import LaunchError

if TYPE_CHECKING:
    from nodepool.driver.azure.client import Arm
    from nodepool.driver.azure.config import AzureLabel, AzurePool, AzureProviderConfig
    from nodepool.driver.framework.images import ListedImage
    from nodepool.driver.statemachine.adapter import Log
    from nodepool.model.quota import QuotaInformation
    from nodepool.model.request import NodeRequest

#: Connections that are kept: more than a provider has threads.
CONNECTIONS: Final = 40

#: Types of resources -> kind of Azure's. What uses others comes before them.
KINDS: Final = {"instance": c.VMS, "nic": c.INTERFACES, "pip": c.ADDRESSES, "disk": c.DISKS, "image": c.IMAGES}


class AzureResource(Resource):
    """Something that says whose it is; ``name`` is that in the resource group."""

    def __init__(self, metadata: dict[str, str], type: str, name: str) -> None:
        super().__init__(metadata, type)
        self.name = name


class AzureAdapter(Adapter):
    """One resource group. Making it imports requests, and does not ask Azure."""

    lag_seconds = AzureMachines.lag_seconds
    advance_threads = 8

    def __init__(self, provider_config: AzureProviderConfig) -> None:
        from nodepool.driver.framework.http.plain_http import PlainHttp

        super().__init__(provider_config)
        self.config = provider_config
        http = PlainHttp(CONNECTIONS)
        self.client = c.Arm(provider_config, http, AzureLogin(provider_config.name, provider_config.auth_path, http))
        self.facts = AzureFacts(provider_config, self.client)
        self.limits = SubscriptionLimits(provider_config, self.client, self.facts)
        self.machines = AzureMachines(provider_config, self.client, self.facts, self.limits)
        self.images = AzureImages(provider_config, AzureImageCalls(self.client, http, provider_config.location))
        self.use(self.machines)
        self.resources = ResourceKinds(provider_config.name, self._kinds())

    def stop(self) -> None:
        self.machines.stop()

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
    ) -> AzureCreation:
        return AzureCreation(self.machines, hostname, label, image_external_id, metadata, request, az, log)

    def getDeleteStateMachine(self, external_id: Any, log: Log) -> AzureDeletion:
        return AzureDeletion(self.machines, self.machines.record_id(external_id), log)

    # -- lists --

    def listInstances(self) -> list[AzureInstance]:
        records = self.machines.inventory.all(max_age=0.0)
        if records:
            self.limits.know_sizes()
        return [
            AzureInstance(record, self.limits.use_of(record), self.machines.why_ended(record)) for record in records
        ]

    def unansweredCreations(self) -> Iterable[Creation]:
        return self.machines.unanswered()

    def listResources(self) -> Iterator[AzureResource]:
        """All that may be ours of the resource group (AZ-11); of what a VM uses the VM alone."""
        return self.resources.all()

    def _kinds(self) -> Iterator[ResourceKind[AzureResource]]:
        yield ResourceKind("instance", self._found_instances, vital=True)
        yield ResourceKind("nic", self._found_interfaces)
        yield ResourceKind("pip", self._found_addresses)
        yield ResourceKind("disk", self._found_disks)
        yield ResourceKind("image", self._found_images)

    def _found_instances(self) -> Iterator[AzureResource]:
        for record in self.machines.inventory.all(SWEEP_LIST_SECONDS):
            yield AzureResource(dict(record.metadata), "instance", record.id)

    def _found_interfaces(self) -> Iterator[AzureResource]:
        for interface in self.client.interfaces():
            if not interface.used:
                yield AzureResource(dict(interface.metadata), "nic", interface.name)

    def _found_addresses(self) -> Iterator[AzureResource]:
        for address in self.client.addresses():
            if not address.used:
                yield AzureResource(dict(address.metadata), "pip", address.name)

    def _found_disks(self) -> Iterator[AzureResource]:
        for disk in self.client.disks():
            if not disk.used:
                metadata = dict(disk.metadata) or disk_metadata(disk.name, self.config.name)
                yield AzureResource(metadata, "disk", disk.name)

    def _found_images(self) -> Iterator[AzureResource]:
        for image in self.client.images():
            yield AzureResource(dict(image.metadata), "image", image.name)

    def deleteResource(self, resource: Resource) -> None:
        assert isinstance(resource, AzureResource)
        if resource.type == "image":
            self.images.delete(resource.name)
            return
        if resource.type == "disk":
            self.images.discard_disk(resource.name)
            return
        self.client.delete(KINDS[resource.type], resource.name)

    def whyLost(self, external_id: Any) -> tuple[str, str] | None:
        name = self.machines.record_id(external_id)
        return None if name is None else self.machines.why_lost(name)

    # -- quota --

    def getQuotaLimits(self) -> QuotaInformation:
        return self.limits.limits()

    def getQuotaForLabel(self, label: Any) -> QuotaInformation:
        return self.limits.need_of(label)

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
        return self.images.upload(provider_image, image_name, filename, metadata or {})

    def deleteImage(self, external_id: str) -> None:
        self.images.delete(external_id)

    def listImages(self) -> Iterator[ListedImage]:
        return self.images.listed()

    # -- trouble --

    def preflight(self) -> Iterable[CheckResult]:
        return AzurePreflight(self.config, self.client, self.facts).results()


# What ``nodepool check`` finds out about Azure: has it all that the configuration names? Only reads.


class AzurePreflight:
    """Of one provider; for one use."""

    def __init__(self, config: AzureProviderConfig, client: Arm, facts: AzureFacts) -> None:
        self._config = config
        self._checks = CloudChecks(config.name)
        self._client = client
        self._facts = facts

    def results(self) -> Iterator[CheckResult]:
        """All problems, and a line for what is in order. Blocks for some calls to Azure."""
        where = f"resource group {self._config.resource_group}"
        try:
            location = self._client.group_location()
        except LaunchError as error:
            # Nothing else can be asked.
            yield self._checks.failure(where, error)
            return
        yield CheckResult(where, True, f"login works; the group is in {location}")
        yield from self._checks.results("network", self._subnet)
        for pool in self._config.pools.values():
            for label in pool.labels.values():
                yield from self._label(pool, label)
        yield from self._checks.results("quota", self._quota)

    def _subnet(self) -> list[CheckResult]:
        subnet_id = self._facts.subnet_id()
        if self._config.subnet_id:
            self._client.subnet_exists(subnet_id)
        return [CheckResult("network", True, f"the subnet {subnet_id.rpartition('/')[2]} is there")]

    def _label(self, pool: AzurePool, label: AzureLabel) -> Iterator[CheckResult]:
        subject = f"label {label.name} of pool {pool.name}"
        bad = [
            *self._checks.results(subject, self._sizes, pool, label, subject),
            *self._checks.results(subject, self._image, label),
        ]
        yield from bad
        if not bad:
            yield CheckResult(subject, True, "size and image are there")

    def _sizes(self, pool: AzurePool, label: AzureLabel, subject: str) -> list[CheckResult]:
        found = []
        for name in label.vm_sizes:
            size = self._facts.size(name)
            missing = [zone for zone in pool.availability_zones if zone not in size.zones]
            if missing:
                text = f"the size {size.name} is not in zone {', '.join(missing)}"
                found.append(CheckResult(subject, False, text, "correct availability-zones or vm-size"))
        return found

    def _image(self, label: AzureLabel) -> list[CheckResult]:
        """Images of galleries of others and of the Marketplace cannot be asked for without more permissions."""
        image = label.cloud_image
        if image is not None and (image.has_filter or image.image_id):
            reference = self._facts.image_reference(label, None)
            self._client.image_exists(reference["id"])
        return []

    def _quota(self) -> list[CheckResult]:
        usages = {usage.name: usage for usage in self._client.usages()}
        vms = usages.get(VMS)
        if vms is None:
            return []
        wanted = sum(pool.max_servers for pool in self._config.pools.values())
        told = f"VMs: {vms.used:.15g} of {vms.limit:.15g} in use"
        if wanted <= vms.limit:
            return [CheckResult("quota", True, told)]
        allowed = "any number" if math.isinf(wanted) else f"{wanted:g}"
        change = "set" if math.isinf(wanted) else "lower"
        remedy = f"{change} max-servers, or ask for more under Quotas in the portal; the smaller one counts"
        return [CheckResult("quota", True, f"{told}; max-servers of the pools allow {allowed}", remedy)]
