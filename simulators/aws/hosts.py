# SPDX-License-Identifier: Apache-2.0
"""Dedicated hosts of the simulated region."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from simulators.aws.core import RegionCore
from simulators.aws.instance_types import SimulatedType
from simulators.aws.quota_list import QUOTAS
from simulators.base.messages import ApiError

PENDING, AVAILABLE, RELEASED = "pending", "available", "released"
#: vCPUs of a host.
HOST_VCPUS: Final = 96
#: So long AWS keeps hosts of macOS, in seconds.
MAC_SECONDS: Final = 24 * 3600.0


@dataclass
class SimulatedHost:
    """One host. ``instances``: ids of those on it that have not ended."""

    id: str
    type: SimulatedType
    zone: str
    allocated: float
    state: str = PENDING
    instances: set[str] = field(default_factory=set)
    tags: dict[str, str] = field(default_factory=dict)

    @property
    def slots(self) -> int:
        """How many instances it takes."""
        return 1 if self.type.name.endswith(".metal") else HOST_VCPUS // self.type.vcpus


class SimulatedHosts:
    """Hosts by id, released ones for a while. The caller holds the core's lock."""

    def __init__(self, core: RegionCore) -> None:
        self.core = core
        self.hosts: dict[str, SimulatedHost] = {}

    def live(self, family: str) -> int:
        """How many hosts of a family there are."""
        hosts = [host for host in self.hosts.values() if host.state != RELEASED]
        return sum(host.type.name.partition(".")[0] == family for host in hosts)

    def allocate(self, kind: SimulatedType, zone: str, tags: dict[str, str]) -> SimulatedHost:
        """Makes a host.

        :raises ApiError: 400, there are enough.
        """
        family = kind.name.partition(".")[0]
        name = f"Running Dedicated {family} Hosts"
        limit = next((self.core.knobs.quotas[quota.code] for quota in QUOTAS if quota.name == name), 0.0)
        if self.live(family) >= limit:
            text = f"The maximum number of Dedicated Hosts of the family {family} has been reached"
            raise ApiError(400, text, "HostLimitExceeded")
        if self._room(kind, zone) <= 0:
            text = f"There is not enough capacity to allocate a Dedicated Host for {kind.name} in {zone}."
            raise ApiError(500, text, "InsufficientHostCapacity")
        host = SimulatedHost(self.core.new_id("h"), kind, zone, self.core.now(), tags=tags)
        self.hosts[host.id] = host
        self.core.events["hosts allocated"] += 1
        self.core.after(self.core.knobs.host_seconds, "host", lambda: self._become_available(host))
        return host

    def _room(self, kind: SimulatedType, zone: str) -> int:
        """Rules for instances on demand go for hosts, too."""
        for rule in self.core.knobs.capacity:
            if rule.matches(kind.name, zone, False):
                hosts = [host for host in self.hosts.values() if host.state != RELEASED]
                return rule.room - sum(rule.matches(host.type.name, host.zone, False) for host in hosts)
        return 1

    def get(self, host_id: str) -> SimulatedHost:
        """A host.

        :raises ApiError: 400.
        """
        if host_id not in self.hosts:
            raise ApiError(400, f"The host ID '{host_id}' does not exist", "InvalidHostID.NotFound")
        return self.hosts[host_id]

    def check_room(self, host_id: str, kind: SimulatedType) -> None:
        """Refuses an instance that the host does not take."""
        host = self.get(host_id)
        if host.state != AVAILABLE:
            raise ApiError(400, f"The host {host_id} is {host.state}", "InvalidHostState")
        if host.type != kind:
            raise ApiError(400, f"The host {host_id} has no {kind.name}", "InvalidParameterValue")
        if len(host.instances) >= host.slots:
            text = f"Not enough capacity on host {host_id} to launch another {kind.name}"
            raise ApiError(400, text, "InsufficientCapacityOnHost")

    def release(self, host: SimulatedHost) -> tuple[str, str] | None:
        """Gives a host back; code and text of why not."""
        if host.state == RELEASED:
            return ("Client.InvalidHostID.NotFound", f"The host {host.id} was released before")
        if host.instances:
            return ("Client.InvalidHost.Occupied", f"Dedicated Host {host.id} has running instances")
        if host.type.name.startswith("mac") and self.core.now() - host.allocated < MAC_SECONDS:
            return (
                "Client.HostMinAllocationPeriodUnexpired",
                f"The host {host.id} was allocated less than 24 hours ago",
            )
        host.state = RELEASED
        self.core.events["hosts released"] += 1
        self.core.at(self.core.now() + self.core.knobs.terminated_seconds, lambda: self._forget(host))
        return None

    def _become_available(self, host: SimulatedHost) -> None:
        if host.state == PENDING:
            host.state = AVAILABLE

    def _forget(self, host: SimulatedHost) -> None:
        self.hosts.pop(host.id, None)
