# SPDX-License-Identifier: Apache-2.0
"""The Azure driver. It needs no library of Azure's: it makes less than twenty kinds of calls.

Where to begin to read:

* ``config.py``: what stands in the configuration; ``login.py``: credentials and tokens;
* ``client.py``: what Azure says, and also what can go wrong, and all calls that are made;
* ``facts.py``: what seldom changes, places and limits;
* ``images.py``: uploads, and what Azure takes long for;
* ``machines.py``: how VMs are listed, launched and deleted.

Here all is put together for the framework in `nodepool.driver.statemachine`, with ``nodepool check``.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from nodepool.driver.azure.client import ADDRESSES, DISKS, IMAGES, INTERFACES, VMS, Arm, name_of
from nodepool.driver.azure.config import AzureLabel, AzureProviderConfig
from nodepool.driver.azure.facts import VMS as VMS_QUOTA
from nodepool.driver.azure.facts import AzureFacts
from nodepool.driver.azure.images import AzureImageCalls
from nodepool.driver.azure.login import AzureLogin
from nodepool.driver.azure.machines import AzureCreation, AzureMachines, disk_metadata
from nodepool.driver.framework.cloud_errors import CheckResult, CloudChecks, Found, or_none, room_for
from nodepool.driver.statemachine import CloudAdapter, CloudResource, ResourceKind, ResourceKinds
from nodepool.driver.statemachine.provider import CloudDriver
from nodepool.model.node import QuotaInformation

#: Connections that are kept: more than a provider has threads.
CONNECTIONS: Final = 40

#: Types of resources -> kind of Azure's. What uses others comes before them.
KINDS: Final = {"instance": VMS, "nic": INTERFACES, "pip": ADDRESSES, "disk": DISKS, "image": IMAGES}


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
        self.images: AzureImageCalls = AzureImageCalls(self.client, http, provider_config.location)
        self.use(self.machines)
        self.resources = ResourceKinds(provider_config.name, [self._kind(*row) for row in KINDS.items()])

    # -- what may be left over in the resource group (AZ-11); of what a VM uses the VM alone --

    def _kind(self, type: str, kind: str) -> ResourceKind[CloudResource]:
        found = self._found_instances if kind == VMS else partial(self._found, type, kind)
        deletions = {IMAGES: self.images.delete, DISKS: self.images.discard_disk}
        delete = deletions.get(kind, partial(self.client.delete, kind))
        return ResourceKind(type, found, lambda found: delete(found.id), vital=kind == VMS)

    def _found(self, type: str, kind: str) -> Iterator[CloudResource]:
        for resource in self.client.all_of(kind):
            if not resource.used:
                named = disk_metadata(resource.name, self.config.name) if kind == DISKS else {}
                yield CloudResource(resource.metadata or named, type, resource.name)

    def getConsoleLog(self, label: Any, external_id: Any) -> str | None:
        name = self.machines.record_id(external_id) if label.console_log else None
        return None if name is None else or_none(lambda: self.client.console(name))

    def whyLost(self, external_id: Any) -> tuple[str, str] | None:
        return self.machines.why_lost(external_id)

    # -- quota --

    def getQuotaLimits(self) -> QuotaInformation:
        return self.facts.limits()

    def getQuotaForLabel(self, label: Any) -> QuotaInformation:
        return self.facts.need_of(label)

    # -- nodepool check: has Azure all that the configuration names? Only reads --

    def preflight(self) -> Iterator[CheckResult]:
        where = f"resource group {self.config.resource_group}"
        return CloudChecks(self.config.name).all(where, self._group, self._checks)

    def _group(self) -> str:
        return f"login works; the group is in {self.client.group_location()}"

    def _checks(self, checks: CloudChecks) -> Iterator[CheckResult]:
        yield from checks.about("network", "", self._check_subnet)
        for pool in self.config.pools.values():
            good = "size and cloud image are there, as far as it names them"
            yield from checks.labels(pool, good, self._check_sizes, self._check_image)
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
        for vms in self.client.usages():
            if vms.name == VMS_QUOTA:
                text = f"VMs: {vms.used:.15g} of {vms.limit:.15g} in use"
                yield room_for(self.config.pools.values(), vms.limit, text, "ask for more under Quotas in the portal")


class AzureDriver(CloudDriver):
    """``driver: azure``"""

    name = "azure"
    config_class = AzureProviderConfig
    adapter_class = AzureAdapter
