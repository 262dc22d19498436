# SPDX-License-Identifier: Apache-2.0
"""Operations on dedicated hosts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from simulators.aws.filters import Table, matching, one_page, tag_list, tags_for
from simulators.aws.hosts import SimulatedHost
from simulators.base.messages import ApiError, Json
from simulators.base.tokens import CreateTokens, TokenMismatch

if TYPE_CHECKING:
    from simulators.aws.cloud import Region

FILTERS: Final[Table[SimulatedHost]] = {
    "host-id": lambda host: [host.id],
    "state": lambda host: [host.state],
    "instance-type": lambda host: [host.type.name],
    "availability-zone": lambda host: [host.zone],
}


class HostOperations:
    """:ivar operations: handlers by name of operation."""

    def __init__(self, cloud: Region) -> None:
        self.cloud = cloud
        self._tokens: CreateTokens[list[str]] = CreateTokens()
        self.operations: dict[str, Callable[[Json], Json]] = {
            "AllocateHosts": self._allocate,
            "DescribeHosts": self._describe,
            "ReleaseHosts": self._release,
        }

    def _allocate(self, arguments: Json) -> Json:
        token = arguments.get("ClientToken", "")
        try:
            ids = self._tokens.find(token, arguments) if token else None
        except TokenMismatch:
            text = "The client token was used with other parameters."
            raise ApiError(400, text, "IdempotentParameterMismatch") from None
        if ids is None:
            kind = self.cloud.types.get(arguments["InstanceType"])
            zone = arguments["AvailabilityZone"]
            tags = tags_for("dedicated-host", arguments.get("TagSpecifications", ()))
            made = [self.cloud.hosts.allocate(kind, zone, dict(tags)) for _ in range(arguments.get("Quantity", 1))]
            ids = [host.id for host in made]
            if token:
                self._tokens.remember(token, arguments, ids)
        return {"HostIds": ids}

    def _describe(self, arguments: Json) -> Json:
        hosts = self.cloud.hosts
        ids = arguments.get("HostIds")
        asked = list(hosts.hosts.values()) if ids is None else [hosts.get(host_id) for host_id in ids]
        found = matching(asked, arguments.get("Filter", ()), FILTERS, lambda host: host.tags)
        page, token = one_page(self.cloud.core, found, lambda host: host.id, arguments, most=500)
        return {"Hosts": [_shown(host) for host in page], "NextToken": token}

    def _release(self, arguments: Json) -> Json:
        """What cannot be released is told in an answer that is no error."""
        done, failed = [], []
        for host_id in arguments["HostIds"]:
            refusal = self.cloud.hosts.release(self.cloud.hosts.get(host_id))
            if refusal is None:
                done.append(host_id)
            else:
                failed.append({"ResourceId": host_id, "Error": {"Code": refusal[0], "Message": refusal[1]}})
        return {"Successful": done, "Unsuccessful": failed}


def _shown(host: SimulatedHost) -> Json:
    return {
        "HostId": host.id,
        "State": host.state,
        "AvailabilityZone": host.zone,
        "AllocationTime": host.allocated,
        "AutoPlacement": "off",
        "HostRecovery": "off",
        "HostProperties": {"InstanceType": host.type.name, "TotalVCpus": host.slots * host.type.vcpus},
        "Instances": [{"InstanceId": instance_id, "InstanceType": host.type.name} for instance_id in host.instances],
        "Tags": tag_list(host.tags),
    }
