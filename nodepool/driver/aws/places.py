# SPDX-License-Identifier: Apache-2.0
"""Where AWS may have room for an instance: the combinations of type and subnet or zone that a label allows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from nodepool.driver.framework.resting_places import RestingPlaces

if TYPE_CHECKING:
    from nodepool.driver.aws.config import AwsLabel


class LaunchPlace(NamedTuple):
    """One combination. ``subnet_id`` or ``zone`` or neither."""

    instance_type: str
    subnet_id: str | None
    zone: str | None
    spot: bool

    def __str__(self) -> str:
        where = self.subnet_id or self.zone or "any zone"
        return f"{self.instance_type}{' (spot)' if self.spot else ''} in {where}"


def places_of(label: AwsLabel) -> list[LaunchPlace]:
    """All that a label allows, in the order of its types, and then of the subnets or zones of its pool. What is on
    demand only because there is no spot instance comes last.
    """
    pool = label.pool
    # With one subnet there may be its zone, too.
    zone = pool.availability_zones[0] if pool.availability_zones else None
    where: list[tuple[str | None, str | None]] = [(subnet, zone) for subnet in pool.subnet_ids]
    where = where or [(None, name) for name in pool.availability_zones] or [(None, None)]
    kinds = (True, False) if label.use_spot and label.spot_fallback else (label.use_spot,)
    if label.fleet_types:
        # Types and subnets are all told to AWS, which chooses.
        return [LaunchPlace(f"fleet of {', '.join(label.fleet_types)}", None, None, spot) for spot in kinds]
    return [LaunchPlace(name, *one, spot) for spot in kinds for name in label.instance_types for one in where]


class Places(RestingPlaces[LaunchPlace]):
    """Which of them had no room a while ago."""

    def to_try(self, label: AwsLabel) -> list[LaunchPlace]:
        """The places of a label in order, but for those that rest. If all rest, the one that has rested longest."""
        return self.awake(places_of(label))
