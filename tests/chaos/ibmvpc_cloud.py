# SPDX-License-Identifier: Apache-2.0
"""`IbmVpcCloud`: the simulated IBM region, steered and seen as chaos runs do it with the simulated OpenStack."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simulators.ibmvpc import IbmVpcSimulatorClient
from tests.chaos.providers import POOL_SERVERS
from tests.chaos.translated_cloud import TranslatedCloud, Translation

#: Free floating IPs that the pools keep, which are no left-overs.
KEPT_ADDRESSES = 2
#: Free ones at the end of a run, at most: what a killed launcher left is claimed by another one, or deleted, only when
#: it has been free for two minutes. That is longer than a run waits.
FREE_ADDRESSES = KEPT_ADDRESSES + 4 * POOL_SERVERS

TRANSLATION = Translation(
    servers="instances",
    volumes="volumes",
    create="vpc.create_*",
    compute="vpc.*",
    no_host={"code": "cannot_start_capacity"},
    quota=lambda limit: {"quotas": {"instances": limit}},
    leaks=("volume_leak_rate",),
)


class IbmVpcCloud(TranslatedCloud):
    """Servers are instances. Floating IPs that they use are not counted."""

    def __init__(self, url: str) -> None:
        super().__init__(IbmVpcSimulatorClient(url), url, TRANSLATION)

    def counted(self, state: Mapping[str, Any]) -> dict[str, int]:
        return {**super().counted(state), "floating_ips": max(0, state["free_floating_ips"] - FREE_ADDRESSES)}
