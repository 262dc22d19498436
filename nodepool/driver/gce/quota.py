# SPDX-License-Identifier: Apache-2.0
"""Limits of the region and the project, and what labels and instances use of them (GC-7)."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from nodepool.clock import monotonic
from nodepool.driver.framework.fact import Fact
from nodepool.driver.framework.repeats import Repeats
from nodepool.driver.gce.quota_names import ADDRESSES, INSTANCES, core_quotas, disk_quotas
from nodepool.exceptions import LaunchError, RuntimeConfigurationException
from nodepool.model.quota import QuotaInformation

if TYPE_CHECKING:
    from nodepool.driver.gce.client import ComputeEngine
    from nodepool.driver.gce.config import GceLabel, GceProviderConfig
    from nodepool.driver.gce.facts import GceFacts
    from nodepool.driver.gce.types import GceQuota, GceRecord, MachineType

log = logging.getLogger("nodepool.driver.gce.quota")

#: Limits seldom change.
LIMITS_SECONDS: Final = 600.0
_TOLD_SECONDS: Final = 3600.0


class ProjectLimits:
    """Of one provider. Thread-safe. All but `use_of` may block."""

    def __init__(
        self, config: GceProviderConfig, client: ComputeEngine, facts: GceFacts, clock: Callable[[], float] = monotonic
    ) -> None:
        self._config = config
        self._facts = facts
        self._quotas: Fact[list[GceQuota]] = Fact(client.quotas, clock)
        self._repeats = Repeats(_TOLD_SECONDS, clock)
        #: By name; those that are 0 are not for this project. Replaced as a whole.
        self._known: dict[str, float] = {}

    def limits(self) -> QuotaInformation:
        """Of what the labels of the configuration need, as far as Google has told.

        Nothing waits for it: without an answer the last one counts, or there are no limits. What Google then refuses
        waits all the same.
        """
        self._refresh()
        known = self._known
        needed: set[str] = set()
        for pool in self._config.pools.values():
            for label in pool.labels.values():
                for name in label.machine_types:
                    for spot in {label.use_spot, label.use_spot and not label.spot_fallback}:
                        machine = self._type_of(name)
                        needed |= set(self._named(machine, spot, label, known)) if machine else set()
        found = {name: known[name] for name in needed if name in known}
        return QuotaInformation(default=math.inf, instances=known.get(INSTANCES, math.inf), **found)

    def _type_of(self, name: str) -> MachineType | None:
        return next((found for zone in self._config.zones if (found := self._facts.known_type(zone, name))), None)

    def _refresh(self) -> None:
        try:
            quotas = self._quotas.get(LIMITS_SECONDS)
        except LaunchError as error:
            if self._repeats.worth_saying("quotas"):
                log.warning("Provider %s: the quota of the project is not known: %s", self._config.name, error)
            return
        self._repeats.over("quotas")
        # A quota that both tell is that of the region.
        self._known = {quota.metric: quota.limit for quota in reversed(quotas) if quota.limit > 0}

    def know_types(self, records: Iterable[GceRecord]) -> None:
        """Have the machine types of instances for `use_of`; without its type an instance counts as one only."""
        for zone, name in {(record.zone, record.machine_type) for record in records}:
            try:
                self._facts.machine_type(zone, name)
            except LaunchError as error:
                if self._repeats.worth_saying("types"):
                    log.warning("Provider %s: a machine type is not known: %s", self._config.name, error)
                return
        self._repeats.over("types")

    def need_of(self, label: GceLabel) -> QuotaInformation:
        """What a node of a label uses, if it is of the first of its machine types.

        :raises RuntimeConfigurationException: no zone has the machine type.
        """
        if not self._known:
            self._refresh()
        machine = self._first_type(label)
        return _use(machine, self._named(machine, label.use_spot, label, self._known))

    def _first_type(self, label: GceLabel) -> MachineType:
        for name in label.machine_types[:-1]:
            try:
                return self._facts.type_somewhere(name)
            except RuntimeConfigurationException as error:
                log.debug("Label %s: %s", label.name, error)
        return self._facts.type_somewhere(label.machine_types[-1])

    def use_of(self, record: GceRecord, label: GceLabel | None = None) -> QuotaInformation:
        """What an instance uses, as far as its machine type is known. Does not block.

        :param label: whose it is, if it is known: it says what disk the instance has.
        """
        machine = self._facts.known_type(record.zone, record.machine_type)
        if machine is None:
            return QuotaInformation(instances=1)
        named = core_quotas(machine, record.spot, self._known)
        if record.public_ipv4:
            named[ADDRESSES] = 1
        if label is not None:
            named |= disk_quotas(label.volume_type, label.volume_size)
        return _use(machine, named)

    @staticmethod
    def _named(machine: MachineType, spot: bool, label: GceLabel, known: dict[str, float]) -> dict[str, float]:
        named = core_quotas(machine, spot, known)
        if label.pool.public_ipv4:
            named[ADDRESSES] = 1
        return named | disk_quotas(label.volume_type, label.volume_size)


def _use(machine: MachineType, named: dict[str, float]) -> QuotaInformation:
    return QuotaInformation(instances=1, cores=machine.cores, ram=machine.ram_mib, **named)
