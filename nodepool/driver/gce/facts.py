# SPDX-License-Identifier: Apache-2.0
"""What seldom changes in a project of Google.

First machine types, images, limits and use (`GceFacts`, GC-4), then the places where an instance may be launched, then
which quotas it counts against.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterable
from functools import partial
from typing import Final, NamedTuple

from nodepool.driver.framework.cloud_errors import else_correct, or_none
from nodepool.driver.framework.fact import Fact, Repeats
from nodepool.driver.gce.client import ComputeEngine, quoted
from nodepool.driver.gce.config import GceLabel, GceProviderConfig
from nodepool.driver.gce.types import GceRecord, MachineType
from nodepool.exceptions import RuntimeConfigurationException
from nodepool.model.node import QuotaInformation

#: How long the newest image of a family is remembered: a new one is used within 5 minutes.
FAMILY_SECONDS: Final = 240.0
#: The same of a machine type, and of the lack of one.
TYPE_SECONDS: Final = 6 * 3600.0
NO_TYPE_SECONDS: Final = 600.0
#: Limits seldom change.
LIMITS_SECONDS: Final = 600.0
_TOLD_SECONDS: Final = 3600.0

log = logging.getLogger("nodepool.driver.gce.facts")


class GceFacts:
    """Of one provider. Thread-safe: what changes a table is one operation. May block, unless it is stated."""

    def __init__(self, config: GceProviderConfig, client: ComputeEngine) -> None:
        self._config = config
        self._client = client
        #: Links of images by the name of the cloud image.
        self._images: dict[str, Fact[str]] = {}
        #: By zone and name; None = the zone does not have it.
        self._types: dict[tuple[str, str], Fact[MachineType | None]] = {}
        self._quotas = Fact(client.quotas)
        self._repeats = Repeats(_TOLD_SECONDS)
        #: Quotas by name; those that are 0 are not for this project. Replaced as a whole.
        self._known: dict[str, float] = {}

    # -- machine types --

    def machine_type(self, zone: str, name: str) -> MachineType | None:
        """A machine type of a zone; None = it is not there. May block."""
        ask = partial(self._client.machine_type, zone, name)
        fact = self._types.setdefault((zone, name), Fact(lambda: or_none(ask)))
        found = fact.get(TYPE_SECONDS)
        return found if found is not None else fact.get(NO_TYPE_SECONDS)

    def type_somewhere(self, name: str) -> MachineType:
        """The same of the first zone that has it; may block.

        :raises RuntimeConfigurationException: none has.
        """
        for zone in self._config.zones:
            found = self.machine_type(zone, name)
            if found is not None:
                return found
        zones = ", ".join(self._config.zones)
        raise RuntimeConfigurationException(f"there is no machine type {name!r} in {zones}; correct instance-type")

    def known_type(self, zone: str, name: str) -> MachineType | None:
        """A machine type if it was asked for before. Does not block."""
        fact = self._types.get((zone, name))
        return None if fact is None else fact.known()

    # -- images --

    def image_link(self, label: GceLabel, image_name: str | None) -> str:
        """What an instance of a label is made of; may block.

        :param image_name: of the upload; None = the label's cloud image.
        :raises CloudSetup: there is no such family.
        """
        if image_name is not None:
            return f"{self._client.project}/global/images/{image_name}"
        image = label.cloud_image
        assert image is not None
        if image.image_id:
            return image.image_id
        ask = partial(self._newest, image.name, str(image.image_project), str(image.image_family))
        return self._images.setdefault(image.name, Fact(ask)).get(FAMILY_SECONDS)

    def forget_images(self) -> None:
        """Google refused a creation: look up again what it was made of."""
        self._images = {}

    def _newest(self, name: str, project: str, family: str) -> str:
        with else_correct(f"correct image-project or image-family of cloud image {name!r}"):
            link = f"projects/{quoted(project)}/global/images/family/{quoted(family)}"
            return self._client.image_at(link, "reading an image family").link

    # -- limits of the region and the project, and what labels and instances use of them (GC-7) --

    def limits(self) -> QuotaInformation:
        """Of what the labels of the configuration need, as far as Google has reported.

        Nothing waits for it: without an answer the last one counts, or there are no limits. What Google then refuses
        waits all the same.
        """
        self._refresh()
        known = self._known
        needed: set[str] = set()
        for label in (label for pool in self._config.pools.values() for label in pool.labels.values()):
            for place in places_of(label):
                if machine := self.known_type(place.zone, place.machine_type):
                    needed |= self._named(machine, place.spot, label.pool.public_ipv4, label).keys()
        found = {name: known[name] for name in needed if name in known}
        return QuotaInformation(default=math.inf, instances=known.get(INSTANCES, math.inf), **found)

    def _refresh(self) -> None:
        name = self._config.name
        with self._repeats.logged(
            "quotas", log.warning, "Provider %s: the quota of the project is not known: %s", name
        ):
            known = self._quotas.get(LIMITS_SECONDS)
            self._known = {name: limit for name, limit in known.items() if limit > 0}

    def know_types(self, records: Iterable[GceRecord]) -> None:
        """Have the machine types of instances for `use_of`; without its type an instance counts as one only."""
        types = {(record.zone, record.machine_type) for record in records}
        provider = self._config.name
        with self._repeats.logged("types", log.warning, "Provider %s: a machine type is not known: %s", provider):
            for zone, name in types:
                self.machine_type(zone, name)

    def need_of(self, label: GceLabel) -> QuotaInformation:
        """What a node of a label uses, if it is of the first of its machine types.

        :raises RuntimeConfigurationException: no zone has the machine type.
        """
        if not self._known:
            self._refresh()
        machine = self._first_type(label)
        return _use(machine, self._named(machine, label.use_spot, label.pool.public_ipv4, label))

    def _first_type(self, label: GceLabel) -> MachineType:
        for name in label.machine_types[:-1]:
            try:
                return self.type_somewhere(name)
            except RuntimeConfigurationException as error:
                log.debug("Label %s: %s", label.name, error)
        return self.type_somewhere(label.machine_types[-1])

    def use_of(self, record: GceRecord, label: GceLabel | None = None) -> QuotaInformation:
        """What an instance uses, as far as its machine type is known. Does not block.

        :param label: whose it is, if it is known: it says what disk the instance has.
        """
        machine = self.known_type(record.zone, record.machine_type)
        if machine is None:
            return QuotaInformation(instances=1)
        return _use(machine, self._named(machine, record.spot, bool(record.public_ipv4), label))

    def _named(self, machine: MachineType, spot: bool, address: bool, label: GceLabel | None) -> dict[str, float]:
        """By name. :param label: says what disk there is; None = it is not known."""
        named = core_quotas(machine, spot, self._known)
        if address:
            named[ADDRESSES] = 1
        return named if label is None else named | disk_quotas(label.volume_type, label.volume_size)


# Where Compute Engine may have capacity for an instance: the combinations that a label allows.


class GcePlace(NamedTuple):
    """One combination."""

    machine_type: str
    zone: str
    spot: bool

    def __str__(self) -> str:
        return f"{self.machine_type}{' (spot)' if self.spot else ''} in {self.zone}"


def places_of(label: GceLabel) -> list[GcePlace]:
    """All that a label allows, in the order of its machine types, and then of the zones. What is a standard instance
    only because there is no spot instance comes last.
    """
    zones = label.pool.provider.zones
    return [GcePlace(name, zone, spot) for spot in label.spot_kinds for name in label.machine_types for zone in zones]


# Which quotas of Google an instance counts against, by their names (``metric``). Pure functions.
#
# https://cloud.google.com/compute/resource-usage has them. Newer series have quotas that the API does not show; what
# Google then refuses waits all the same.

INSTANCES: Final = "INSTANCES"
ADDRESSES: Final = "IN_USE_ADDRESSES"
#: Of the series that have no quota of their own: E2, N1 and those with shared cores.
CPUS: Final = "CPUS"
#: Of the whole project.
CPUS_ALL_REGIONS: Final = "CPUS_ALL_REGIONS"
#: Spot instances count against it where it is more than 0, else as standard ones do.
PREEMPTIBLE_CPUS: Final = "PREEMPTIBLE_CPUS"
OLD_SERIES: Final = frozenset({"custom", "e2", "f1", "g1", "n1"})
#: Type of a disk -> quota of its size.
_DISKS: Final = {
    "pd-standard": "DISKS_TOTAL_GB",
    "pd-balanced": "SSD_TOTAL_GB",
    "pd-ssd": "SSD_TOTAL_GB",
    "pd-extreme": "SSD_TOTAL_GB",
    "hyperdisk-balanced": "HDB_TOTAL_GB",
}


def core_quotas(machine: MachineType, spot: bool, told: Collection[str]) -> dict[str, float]:
    """Quotas of the cores of an instance.

    :param told: quotas that Google tells, and that are more than 0.
    """
    if spot and PREEMPTIBLE_CPUS in told:
        return {PREEMPTIBLE_CPUS: machine.cores}
    family = CPUS if machine.series in OLD_SERIES else f"{machine.series.upper()}_CPUS"
    return {name: machine.cores for name in (family, CPUS_ALL_REGIONS) if name in told}


def disk_quotas(kind: str, size_gib: int) -> dict[str, float]:
    """Quotas of a disk."""
    name = _DISKS.get(kind.lower())
    return {name: size_gib} if name else {}


def _use(machine: MachineType, named: dict[str, float]) -> QuotaInformation:
    return QuotaInformation(instances=1, cores=machine.cores, ram=machine.ram_mib, **named)
