# SPDX-License-Identifier: Apache-2.0
"""Where IBM may have capacity for an instance: the combinations of profile and subnet that a label allows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from nodepool.driver.ibmvpc.config import IbmLabel
    from nodepool.driver.ibmvpc.types import IbmSubnet


class IbmPlace(NamedTuple):
    """One combination. The subnet has the zone."""

    profile: str
    zone: str
    subnet_id: str
    spot: bool

    def __str__(self) -> str:
        return f"{self.profile}{' (spot)' if self.spot else ''} in zone {self.zone}"


def places_of(label: IbmLabel, subnets: Iterable[IbmSubnet]) -> list[IbmPlace]:
    """All that a label allows, in the order of its profiles, and then of the zones of its pool. What is regular only
    because there is no spot instance comes last. Pure.

    :param subnets: of the pool.
    """
    where = [(zone, subnet.id) for zone in label.pool.zones for subnet in subnets if subnet.zone == zone]
    kinds = (True, False) if label.use_spot and label.spot_fallback else (label.use_spot,)
    return [IbmPlace(profile, *one, spot) for spot in kinds for profile in label.profiles for one in where]
