# SPDX-License-Identifier: Apache-2.0
"""What the framework asks of a resource group of Azure (reference/driver 9).

What ``nodepool check`` finds out stands at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from nodepool.driver.azure.client import ADDRESSES, DISKS, IMAGES, INTERFACES, VMS, Arm, name_of
from nodepool.driver.azure.facts import VMS as VMS_QUOTA
from nodepool.driver.azure.facts import AzureFacts
from nodepool.driver.azure.images import AzureImageCalls
from nodepool.driver.azure.login import AzureLogin
from nodepool.driver.azure.machines import AzureCreation, AzureMachines, disk_metadata
from nodepool.driver.framework.cloud_errors import CheckResult, CloudChecks, Found
from nodepool.driver.statemachine import (
    SWEEP_LIST_SECONDS,
    CloudAdapter,
    CloudResource,
    ImageFile,
    ResourceKind,
    ResourceKinds,
)

if TYPE_CHECKING:
    from nodepool.driver.azure.config import AzureLabel, AzureProviderConfig
    from nodepool.driver.framework.uploads import ListedImage
    from nodepool.model.quota import QuotaInformation

#: Connections that are kept: more than a provider has threads.
CONNECTIONS: Final = 40

#: Types of resources -> kind of Azure's. What uses others comes before them.
KINDS: Final = {"instance": VMS, "nic": INTERFACES, "pip": ADDRESSES, "disk": DISKS, "image": IMAGES}


def _delete(delete: Callable[[str], object], resource: CloudResource) -> None:
    delete(resource.id)


class AzureAdapter(CloudAdapter):
    """One resource group. Making it imports requests, and does not ask Azure."""

    creation_class = AzureCreation

    def __init__(self, provider_config: AzureProviderConfig) -> None:
        from nodepool.driver.framework.http.plain_http import PlainHttp

        super().__init__(provider_config)
        self.config = provider_config
        http = PlainHttp(CONNECTIONS)
        self.client = Arm(provider_config, http, AzureLogin(provider_config.name, provider_config.auth_path, http))
        self.facts = AzureFacts(provider_config, self.client)
        self.machines = AzureMachines(provider_config, self.client, self.facts)
        self.images = AzureImageCalls(self.client, http, provider_config.location)
        self.use(self.machines)
        self.resources = ResourceKinds(provider_config.name, self._kinds())

    # -- what may be left over in the resource group (AZ-11); of what a VM uses the VM alone --

    def _kinds(self) -> Iterator[ResourceKind[CloudResource]]:
        deletions = {"image": self.images.delete_image, "disk": self.images.discard_disk}
        for type, kind in KINDS.items():
            found = self._found_instances if kind == VMS else partial(self._found, type, kind)
            delete = deletions.get(type, partial(self.client.delete, kind))
            yield ResourceKind(type, found, partial(_delete, delete), vital=kind == VMS)

    def _found_instances(self) -> Iterator[CloudResource]:
        for record in self.machines.inventory.all(SWEEP_LIST_SECONDS):
            yield CloudResource(record.metadata, "instance", record.id)

    def _found(self, type: str, kind: str) -> Iterator[CloudResource]:
        for resource in self.client.all_of(kind):
            if not resource.used:
                named = disk_metadata(resource.name, self.config.name) if kind == DISKS else {}
                yield CloudResource(resource.metadata or named, type, resource.name)

    def whyLost(self, external_id: Any) -> tuple[str, str] | None:
        name = self.machines.record_id(external_id)
        return None if name is None else self.machines.why_lost(name)

    # -- quota --

    def getQuotaLimits(self) -> QuotaInformation:
        return self.facts.limits()

    def getQuotaForLabel(self, label: Any) -> QuotaInformation:
        return self.facts.need_of(label)

    # -- images --

    def upload(self, file: ImageFile) -> str:
        return self.images.upload(file.image, file.name, file.path, file.metadata)

    def deleteImage(self, external_id: str) -> None:
        self.images.delete_image(external_id)

    def listImages(self) -> Iterator[ListedImage]:
        return self.images.listed()

    # -- nodepool check: has Azure all that the configuration names? Only reads --

    def preflight(self) -> Iterator[CheckResult]:
        where = f"resource group {self.config.resource_group}"
        return CloudChecks(self.config.name).all(where, self._group, self._checks)

    def _group(self) -> str:
        return f"login works; the group is in {self.client.group_location()}"

    def _checks(self, checks: CloudChecks) -> Iterator[CheckResult]:
        yield from checks.about("network", "", self._check_subnet)
        for pool in self.config.pools.values():
            for label in pool.labels.values():
                of_label = partial(self._check_sizes, label), partial(self._check_image, label)
                yield from checks.about(
                    f"label {label.name} of pool {pool.name}", "size and image are there", *of_label
                )
        yield from checks.about("quota", "", self._check_quota)

    def _check_subnet(self) -> Iterator[Found]:
        subnet_id = self.facts.subnet_id()
        if self.config.subnet_id:
            self.client.subnet_id(subnet_id)
        yield Found(f"the subnet {name_of(subnet_id)} is there", ok=True)

    def _check_sizes(self, label: AzureLabel) -> Iterator[Found]:
        for size in map(self.facts.size, label.vm_sizes):
            missing = [zone for zone in label.pool.availability_zones if zone not in size.zones]
            if missing:
                text = f"the size {size.name} is not in zone {', '.join(missing)}"
                yield Found(text, "correct availability-zones or vm-size")

    def _check_image(self, label: AzureLabel) -> None:
        """Images of galleries of others and of the Marketplace cannot be asked for without more permissions."""
        image = label.cloud_image
        if image is not None and (image.has_filter or image.image_id):
            self.client.image_exists(self.facts.image_reference(label, None)["id"])

    def _check_quota(self) -> Iterator[Found]:
        vms = next((usage for usage in self.client.usages() if usage.name == VMS_QUOTA), None)
        if vms is None:
            return
        wanted = sum(pool.max_servers for pool in self.config.pools.values())
        text = f"VMs: {vms.used:.15g} of {vms.limit:.15g} in use"
        if wanted <= vms.limit:
            yield Found(text, ok=True)
            return
        allowed, change = ("any number", "set") if math.isinf(wanted) else (f"{wanted:g}", "lower")
        remedy = f"{change} max-servers, or ask for more under Quotas in the portal; the smaller one counts"
        yield Found(f"{text}; max-servers of the pools allow {allowed}", remedy, ok=True)
