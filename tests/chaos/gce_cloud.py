# SPDX-License-Identifier: Apache-2.0
"""`GceCloud`: the simulated Google project, steered and seen as the chaos runs do it with the simulated OpenStack."""

from __future__ import annotations

from simulators.gce import GceSimulatorClient
from tests.chaos.translated_cloud import TranslatedCloud, Translation

TRANSLATION = Translation(
    servers="instances",
    volumes="disks",
    create="instances.insert",
    compute="instances.*",
    no_host={
        "code": "ZONE_RESOURCE_POOL_EXHAUSTED",
        "message": "The zone does not have enough resources available to fulfill the request.",
        "status": 503,
    },
    quota=lambda limit: {"quotas": {"INSTANCES": limit}},
    throttled={"kind": "403", "reason": "rateLimitExceeded"},
    # A deletion that went wrong is to be seen in its operation, and by that the instance still runs.
    lost="failed",
    leaks=("volume_leak_rate",),
)


class GceCloud(TranslatedCloud):
    """Servers are instances."""

    def __init__(self, url: str) -> None:
        super().__init__(GceSimulatorClient(url), url, TRANSLATION)
