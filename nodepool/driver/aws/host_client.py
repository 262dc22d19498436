# SPDX-License-Identifier: Apache-2.0
"""`HostClient`: calls of EC2 for dedicated hosts (AW-6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from nodepool.driver.aws import transport as t
from nodepool.driver.aws.errors import AwsNotFound, meaning
from nodepool.driver.aws.launch_spec import tag_specifications
from nodepool.driver.aws.places import LaunchPlace
from nodepool.driver.aws.types import tags_of
from nodepool.driver.framework.cloud_errors import CloudAway
from nodepool.driver.statemachine.metadata import PROVIDER_KEY

AVAILABLE: Final = "available"
#: States of hosts that will never work, and of those that are gone.
FAILED: Final = frozenset({"permanent-failure", "released", "released-permanent-failure"})
RELEASED: Final = frozenset({"released", "released-permanent-failure"})
#: AWS keeps hosts of macOS so long after their allocation.
MAC_TIME: Final = timedelta(hours=24)
_HOSTS_A_PAGE: Final = 500


class AwsHost(NamedTuple):
    """A dedicated host."""

    id: str
    status: str
    metadata: Mapping[str, str]
    type: str
    allocated: datetime | None
    #: Are there instances on it?
    used: bool

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> AwsHost:
        return cls(
            id=data["HostId"],
            status=data.get("State", ""),
            metadata=tags_of(data),
            type=(data.get("HostProperties") or {}).get("InstanceType", ""),
            allocated=data.get("AllocationTime"),
            used=bool(data.get("Instances")),
        )

    def may_be_released(self, now: datetime) -> bool:
        """Would AWS let it go? It keeps those with instances, those that it cleans, and young ones of macOS."""
        if self.used or self.status in RELEASED or self.status in ("pending", "configuring"):
            return False
        young = self.allocated is not None and now - self.allocated < MAC_TIME
        return not (young and self.type.startswith("mac"))


class HostClient:
    """One region. All methods block; any thread may call them. They raise what `nodepool.driver.aws.errors` has."""

    def __init__(self, transport: t.AwsTransport) -> None:
        self._transport = transport

    def allocate(self, place: LaunchPlace, tags: Mapping[str, str], token: str, permit: Callable[[], None]) -> str:
        """Allocate one host in a zone; returns its id.

        :param token: what AWS knows the call by when it is sent again.
        """
        arguments = {
            "ClientToken": token,
            "InstanceType": place.instance_type,
            "AvailabilityZone": place.zone,
            "Quantity": 1,
            "AutoPlacement": "off",
            "HostRecovery": "off",
            "HostMaintenance": "off",
            "TagSpecifications": tag_specifications(tags, "dedicated-host"),
        }
        answer = self._transport.call("ec2", t.CHANGE, "AllocateHosts", arguments, permit)
        if not answer.get("HostIds"):
            # What became of it, lists will show.
            raise CloudAway(f"Provider {self._transport.provider}: AllocateHosts failed: the answer has no host")
        return str(answer["HostIds"][0])

    def host(self, host_id: str) -> AwsHost:
        """One host, as it is now; raises AwsNotFound."""
        answer = self._transport.call("ec2", t.READ, "DescribeHosts", {"HostIds": [host_id]})
        if not answer.get("Hosts"):
            raise AwsNotFound(f"there is no host {host_id}", code="InvalidHostID.NotFound")
        return AwsHost.of(answer["Hosts"][0])

    def hosts(self) -> list[AwsHost]:
        """All that have the tag of a launcher."""
        given = {"Filter": [{"Name": "tag-key", "Values": [PROVIDER_KEY]}], "MaxResults": _HOSTS_A_PAGE}
        return [AwsHost.of(data) for data in self._transport.pages("ec2", t.READ, "DescribeHosts", given, "Hosts")]

    def release(self, host_id: str) -> None:
        """Give a host back. AWS tells of a failure in an answer that looks like a success."""
        answer = self._transport.call("ec2", t.CHANGE, "ReleaseHosts", {"HostIds": [host_id]})
        for failed in answer.get("Unsuccessful") or ():
            told = failed.get("Error") or {}
            head = f"Provider {self._transport.provider}: ReleaseHosts failed for {failed.get('ResourceId')}"
            raise meaning(head, str(told.get("Code", "")), str(told.get("Message", "")), 200)
