# SPDX-License-Identifier: Apache-2.0
"""Where Azure may have capacity for a VM: the combinations of size and zone that a label allows. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from nodepool.driver.azure.config import AzureLabel


class VmPlace(NamedTuple):
    """One combination."""

    size: str
    zone: str | None
    spot: bool

    def __str__(self) -> str:
        return f"{self.size}{' (spot)' if self.spot else ''} in {f'zone {self.zone}' if self.zone else 'any zone'}"


def places_of(label: AzureLabel) -> list[VmPlace]:
    """All that a label allows, in the order of its sizes, and then of the zones of its pool. What is regular only
    because there is no spot VM comes last.
    """
    zones: list[str | None] = [*label.pool.availability_zones] or [None]
    kinds = (True, False) if label.use_spot and label.spot_fallback else (label.use_spot,)
    return [VmPlace(size, zone, spot) for spot in kinds for size in label.vm_sizes for zone in zones]
