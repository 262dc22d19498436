# SPDX-License-Identifier: Apache-2.0
"""What ``nodepool check`` finds out about Azure: has it all that the configuration names? Only reads."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from nodepool.driver.azure.facts import VMS
from nodepool.driver.framework.checks import CheckResult, CloudChecks
from nodepool.exceptions import LaunchError

if TYPE_CHECKING:
    from nodepool.driver.azure.client import Arm
    from nodepool.driver.azure.config import AzureLabel, AzurePool, AzureProviderConfig
    from nodepool.driver.azure.facts import AzureFacts


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
