# SPDX-License-Identifier: Apache-2.0
"""Where Compute Engine may have capacity for an instance: the combinations that a label allows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from nodepool.driver.gce.config import GceLabel


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
    kinds = (True, False) if label.use_spot and label.spot_fallback else (label.use_spot,)
    zones = label.pool.provider.zones
    return [GcePlace(name, zone, spot) for spot in kinds for name in label.machine_types for zone in zones]
