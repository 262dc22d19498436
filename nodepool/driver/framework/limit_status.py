# SPDX-License-Identifier: Apache-2.0
"""Limits as status records have them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nodepool.model.pool_status import LimitStatus

if TYPE_CHECKING:
    from nodepool.model.quota import QuotaInformation


@dataclass(frozen=True)
class CloudLimits:
    """What a cloud reported of its quota.

    :param limits: in all. ``others``: what somebody else uses of it.
    :param asked_at: seconds since the epoch.
    """

    limits: QuotaInformation
    others: QuotaInformation
    asked_at: float


def limits_of(scope: str, limits: QuotaInformation, used: QuotaInformation) -> list[LimitStatus]:
    """Limits that the configuration sets. Resources without a limit are left out.

    :param scope: as in `LimitStatus`. ``used``: by nodes of ours.
    """
    now = used.quota["compute"]
    return [
        LimitStatus(scope, resource, limit, now.get(resource, used.default))
        for resource, limit in sorted(limits.quota["compute"].items())
        if math.isfinite(limit)
    ]


def limits_of_cloud(told: CloudLimits, used: QuotaInformation) -> list[LimitStatus]:
    """Limits that a cloud told."""
    others = told.others.quota["compute"]
    return [
        LimitStatus(
            "cloud", limit.resource, limit.limit, limit.used, others.get(limit.resource, 0.0), round(told.asked_at, 3)
        )
        for limit in limits_of("cloud", told.limits, used)
    ]
