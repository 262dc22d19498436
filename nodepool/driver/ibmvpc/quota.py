# SPDX-License-Identifier: Apache-2.0
"""Limits, and what labels and instances use of them (IV-7). IBM tells no limits: those of the configuration count."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from nodepool.model.quota import QuotaInformation

if TYPE_CHECKING:
    from nodepool.driver.ibmvpc.config import IbmLabel, IbmProviderConfig
    from nodepool.driver.ibmvpc.facts import IbmFacts
    from nodepool.driver.ibmvpc.types import IbmRecord


def limits_of(config: IbmProviderConfig) -> QuotaInformation:
    """``quota`` of a provider."""
    return QuotaInformation(
        instances=config.quota_instances,
        cores=config.quota_cores,
        # In GiB, as Nodepool 11.0.0 counts it.
        ram=config.quota_ram,
        default=math.inf,
    )


def need_of(label: IbmLabel, facts: IbmFacts) -> QuotaInformation:
    """What a node of a label uses, if it is of the first of its profiles. May block.

    :raises RuntimeConfigurationException: the region does not have the profile.
    """
    profile = facts.profile(label.profiles[0])
    return QuotaInformation(instances=1, cores=profile.cores, ram=profile.ram_gib)


def use_of(record: IbmRecord) -> QuotaInformation:
    """What an instance uses."""
    return QuotaInformation(instances=1, cores=record.cores, ram=record.ram_gib)
