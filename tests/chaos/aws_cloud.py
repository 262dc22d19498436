# SPDX-License-Identifier: Apache-2.0
"""`AwsCloud`: the simulated AWS region, steered and seen as the chaos runs do it with the simulated OpenStack."""

from __future__ import annotations

from simulators.aws import AwsSimulatorClient
from tests.chaos.translated_cloud import TranslatedCloud, Translation

TRANSLATION = Translation(
    servers="instances",
    volumes="volumes",
    create="ec2.RunInstances",
    compute="ec2.*",
    no_host={
        "code": "Server.InsufficientInstanceCapacity",
        "message": "Insufficient capacity to satisfy instance request",
    },
    quota=lambda limit: {"instance_limit": limit},
    throttled={"kind": "503", "code": "RequestLimitExceeded"},
    # An end that went wrong is to be seen only by that the instance still runs.
    deletes="ends",
    lag="tag_lag",
)


class AwsCloud(TranslatedCloud):
    """Servers are instances."""

    def __init__(self, url: str) -> None:
        super().__init__(AwsSimulatorClient(url), url, TRANSLATION)
