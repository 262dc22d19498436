# SPDX-License-Identifier: Apache-2.0
"""`Here`: the floating IPs of one launcher, at a client that has them in memory."""

from __future__ import annotations

from collections.abc import Callable

from nodepool.driver.framework.cloud_errors import CloudNotFound
from nodepool.driver.ibmvpc.floating import SETTLED_SECONDS, Claim, IbmFloatingIps
from nodepool.driver.ibmvpc.types import IbmFloatingIp
from tests.support.manual_clock import ManualClock
from tests.unit.driver.ibmvpc.support import GROUP, floating, load, refusal, section
from tests.unit.driver.simulated_adapter import HOST

ZONE = "us-south-1"


NIC = "nic-42"


def permit() -> None:
    """The instance is wanted."""


class Client:
    """Floating IPs of a region, and the calls about them."""

    def __init__(self, *there: IbmFloatingIp) -> None:
        self.there = {one.id: one for one in there}
        self.calls: list[str] = []
        #: Raised by the next call that makes or binds one: before it is done, or after.
        self.before: Exception | None = None
        self.after: Exception | None = None
        #: Of the next ones that are made.
        self.status = "available"
        #: Called at the end of a list.
        self.listed: Callable[[], None] = lambda: None
        #: Called by a pause.
        self.paused: Callable[[float], None] = lambda _: None

    def floating_ips(self) -> list[IbmFloatingIp]:
        self.calls.append("list")
        found = list(self.there.values())
        self.listed()
        return found

    def floating_ip(self, floating_id: str, permit: Callable[[], None] = permit) -> IbmFloatingIp:
        permit()
        self.calls.append(f"get {floating_id}")
        return self._get(floating_id)

    def create_floating_ip(
        self, name: str, group_id: str, interface_id: str, permit: Callable[[], None]
    ) -> IbmFloatingIp:
        permit()
        self.calls.append("make")
        self._fail("before")
        if any(one.name == name for one in self.there.values()):
            raise refusal("validation_unique_failed")
        made = floating(len(self.there) + 50, name, interface_id)._replace(status=self.status)
        self.there[made.id] = made
        self._fail("after")
        return made

    def rename_floating_ip(self, floating_id: str, name: str, permit: Callable[[], None]) -> IbmFloatingIp:
        permit()
        self.calls.append(f"claim {floating_id}")
        self._fail("before")
        self.there[floating_id] = self._get(floating_id)._replace(name=name)
        self._fail("after")
        return self.there[floating_id]

    def bind_floating_ip(
        self, floating_id: str, name: str, interface_id: str, permit: Callable[[], None]
    ) -> IbmFloatingIp:
        permit()
        self.calls.append(f"bind {floating_id}")
        self._fail("before")
        if any(one.target == interface_id for one in self.there.values()):
            raise refusal("floating_ip_in_use", 409)
        self.there[floating_id] = self._get(floating_id)._replace(name=name, target=interface_id)
        self._fail("after")
        return self.there[floating_id]

    def delete_floating_ip(self, floating_id: str, permit: Callable[[], None]) -> None:
        permit()
        self.calls.append(f"delete {floating_id}")
        self._get(floating_id)
        del self.there[floating_id]

    def pause(self, seconds: float) -> None:
        self.calls.append("pause")
        self.paused(seconds)

    def _get(self, floating_id: str) -> IbmFloatingIp:
        if floating_id not in self.there:
            raise CloudNotFound("gone", status=404)
        return self.there[floating_id]

    def _fail(self, when: str) -> None:
        error = getattr(self, when)
        setattr(self, when, None)
        if error is not None:
            raise error

    def free(self, floating_id: str) -> None:
        """Its instance was deleted."""
        self.there[floating_id] = self.there[floating_id]._replace(target="")


class Here:
    def __init__(self, *there: IbmFloatingIp, kept: int = 10, clock: ManualClock | None = None) -> None:
        self.client = Client(*there)
        self.clock = clock or ManualClock()
        pool = {"public-ipv4": True, "floating-ip-pool": kept}
        self.config = load(section(pool=pool))
        self.floating = IbmFloatingIps(self.config, self.client, self.clock)  # type: ignore[arg-type]
        self.client.paused = self._pause

    def _pause(self, seconds: float) -> None:
        self.clock.now += seconds

    def begin(
        self, name: str = HOST, nic: str = NIC, zone: str = ZONE, permit: Callable[[], None] = permit
    ) -> IbmFloatingIp | Claim:
        return self.floating.bind(name, f"id-{GROUP}", zone, nic, permit)

    def take(self, claim: Claim, name: str = HOST, nic: str = NIC) -> IbmFloatingIp | None:
        self.clock.now = max(self.clock.now, claim.ready_at)
        return self.floating.take(claim, name, nic, permit)

    def bind(
        self, name: str = HOST, nic: str = NIC, zone: str = ZONE, permit: Callable[[], None] = permit
    ) -> IbmFloatingIp:
        """To the end."""
        while True:
            found = self.begin(name, nic, zone, permit)
            if isinstance(found, IbmFloatingIp):
                return found
            bound = self.take(found, name, nic)
            if bound is not None:
                return bound

    def release(self, name: str = HOST, ago: float = 1.0) -> None:
        """:param ago: seconds since the deletion of the instance was ordered."""
        self.floating.release(name, self.clock.now - ago)

    def settle(self) -> None:
        """What is free has been so for a while."""
        self.floating.all()
        self.clock.now += SETTLED_SECONDS + 1
