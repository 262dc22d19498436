# SPDX-License-Identifier: Apache-2.0
"""Limits of the subscription in the location, and what labels and VMs use of them (AZ-9)."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from nodepool.clock import monotonic
from nodepool.driver.azure.types import Usage, VmRecord, VmSize
from nodepool.driver.framework.fact import Fact
from nodepool.driver.framework.repeats import Repeats
from nodepool.exceptions import LaunchError
from nodepool.model.quota import QuotaInformation

if TYPE_CHECKING:
    from nodepool.driver.azure.client import Arm
    from nodepool.driver.azure.config import AzureLabel, AzurePool, AzureProviderConfig
    from nodepool.driver.azure.facts import AzureFacts

log = logging.getLogger("nodepool.driver.azure.quota")

#: Limits seldom change.
LIMITS_SECONDS: Final = 600.0
_TOLD_SECONDS: Final = 3600.0

#: Azure's names of quotas: cores of all regular VMs, of all spot VMs, and VMs.
CORES: Final = "cores"
SPOT_CORES: Final = "lowPriorityCores"
VMS: Final = "virtualMachines"
ADDRESSES: Final = "StandardSkuPublicIPAddresses"
#: Its name in newer subscriptions.
ADDRESSES_ALSO: Final = "IPv4StandardSkuPublicIpAddresses"


class SubscriptionLimits:
    """Of one provider. Thread-safe. All but `use_of` may block."""

    def __init__(
        self, config: AzureProviderConfig, client: Arm, facts: AzureFacts, clock: Callable[[], float] = monotonic
    ) -> None:
        self._config = config
        self._facts = facts
        self._usages: Fact[list[Usage]] = Fact(client.usages, clock)
        self._repeats = Repeats(_TOLD_SECONDS, clock)
        #: Replaced as a whole.
        self._last: list[Usage] = []

    def limits(self) -> QuotaInformation:
        """Of what the labels of the configuration need, as far as Azure has told.

        Nothing waits for it: without an answer the last one counts, or there are no limits. What Azure then refuses
        waits all the same (AZ-10).
        """
        try:
            self._last = self._usages.get(LIMITS_SECONDS)
        except LaunchError as error:
            if self._repeats.worth_saying("usages"):
                log.warning("Provider %s: the quota of the subscription is not known: %s", self._config.name, error)
        else:
            self._repeats.over("usages")
        by_name = {usage.name.lower(): usage.limit for usage in self._last}
        if ADDRESSES_ALSO.lower() in by_name:
            by_name.setdefault(ADDRESSES.lower(), by_name[ADDRESSES_ALSO.lower()])
        found = {name: by_name[name.lower()] for name in self._needed() if name.lower() in by_name}
        instances = by_name.get(VMS.lower(), math.inf)
        return QuotaInformation(default=math.inf, instances=instances, **_named(found))

    def _needed(self) -> set[str]:
        needed = {ADDRESSES}
        for pool in self._config.pools.values():
            for label in pool.labels.values():
                for name in label.vm_sizes:
                    size = self._facts.known_size(name)
                    needed |= set(_cores_of(size, label.use_spot)) if size else set()
                    if size and label.use_spot and label.spot_fallback:
                        needed |= set(_cores_of(size, False))
        return needed

    def know_sizes(self) -> None:
        """Have the sizes of VMs for `use_of`; without them each counts as a VM only."""
        try:
            self._facts.know_sizes()
        except LaunchError as error:
            if self._repeats.worth_saying("sizes"):
                log.warning("Provider %s: the sizes of VMs are not known: %s", self._config.name, error)
        else:
            self._repeats.over("sizes")

    def need_of(self, label: AzureLabel) -> QuotaInformation:
        """What a node of a label uses, if it is of the first of its sizes.

        :raises RuntimeConfigurationException: the location does not have the size.
        """
        size = self._facts.size(label.vm_sizes[0])
        return _use(size, label.use_spot, _public_addresses(label.pool))

    def use_of(self, record: VmRecord) -> QuotaInformation:
        """What a VM uses, as far as its size is known. Does not block."""
        size = self._facts.known_size(record.size)
        if size is None:
            return QuotaInformation(instances=1)
        addresses = record.addresses
        public = sum(1 for address in (addresses.public_ipv4, addresses.public_ipv6) if address)
        return _use(size, record.spot, public)


def _public_addresses(pool: AzurePool) -> int:
    return int(pool.public_ipv4) + int(pool.public_ipv6)


def _cores_of(size: VmSize, spot: bool) -> dict[str, float]:
    """Quotas that the cores of a VM count against: spot VMs have one of their own, for all families."""
    if spot:
        return {SPOT_CORES: size.cores}
    return {CORES: size.cores, **({size.family: size.cores} if size.family else {})}


def _use(size: VmSize, spot: bool, public_addresses: int) -> QuotaInformation:
    named = {**_cores_of(size, spot), **({ADDRESSES: public_addresses} if public_addresses else {})}
    return QuotaInformation(instances=1, cores=size.cores, ram=size.ram_mib, **_named(named))


def _named(quotas: dict[str, float]) -> dict[str, float]:
    """``cores`` of Nodepool are those of all VMs; Azure's count only regular ones."""
    return {("regularCores" if name == CORES else name): amount for name, amount in quotas.items()}
