# SPDX-License-Identifier: Apache-2.0
"""Floating IPs of launchers at a client that has them in memory (IV-13). tests/model has the rest of the launchers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nodepool.driver.framework.cloud_errors import CloudAway, CloudNoCapacity, CloudNotFound, CloudQuota
from nodepool.driver.ibmvpc.floating import GRACE_SECONDS, LOOK_SECONDS, SETTLED_SECONDS, IbmFloatingIps
from nodepool.driver.ibmvpc.types import IbmFloatingIp
from tests.support.manual_clock import ManualClock
from tests.unit.driver.ibmvpc.support import GROUP, floating, load, refusal, section
from tests.unit.driver.simulated_adapter import HOST

NIC = "nic-42"
OTHER, OTHER_NIC = "np0000000043", "nic-43"
#: What another launcher has bound.
TAKEN = floating(1, "np0000000099", "nic-99")


class Client:
    """Floating IPs of a region, and the calls about them."""

    def __init__(self, *there: IbmFloatingIp) -> None:
        self.there = {one.id: one for one in there}
        self.calls: list[str] = []
        #: Raised by the next calls that make or change one: before it is done, or after.
        self.before: list[Exception] = []
        self.after: list[Exception] = []
        self.status = "available"
        #: Happens when the turn of a deletion has come.
        self.deleting: Callable[[], None] = lambda: None

    def floating_ips(self) -> list[IbmFloatingIp]:
        self.calls.append("list")
        return list(self.there.values())

    def floating_ip(self, floating_id: str) -> IbmFloatingIp:
        self.calls.append(f"get {floating_id}")
        if floating_id not in self.there:
            raise CloudNotFound("absent", status=404)
        return self.there[floating_id]

    def _change(self, call: str, change: Callable[[], IbmFloatingIp]) -> IbmFloatingIp:
        self.calls.append(call)
        if self.before:
            raise self.before.pop(0)
        made = change()
        self.there[made.id] = made
        if self.after:
            raise self.after.pop(0)
        return made

    def create_floating_ip(self, name: str, group_id: str, nic: str, permit: Callable[[], None]) -> IbmFloatingIp:
        def change() -> IbmFloatingIp:
            if any(one.name == name for one in self.there.values()):
                raise refusal("validation_unique_failed")
            return floating(len(self.there) + 50, name, nic)._replace(status=self.status)

        permit()
        return self._change("make", change)

    def rename_floating_ip(self, floating_id: str, name: str) -> IbmFloatingIp:
        return self._change(f"rename {floating_id}", lambda: self.there[floating_id]._replace(name=name))

    def bind_floating_ip(self, floating_id: str, name: str, nic: str, permit: Callable[[], None]) -> IbmFloatingIp:
        def change() -> IbmFloatingIp:
            if any(one.target == nic for one in self.there.values()):
                raise refusal("floating_ip_in_use", 409)
            return self.there[floating_id]._replace(name=name, target=nic)

        permit()
        return self._change(f"bind {floating_id}", change)

    def delete(self, kind: str, floating_id: str, permit: Callable[[], None]) -> None:
        self.deleting()
        permit()
        self.calls.append(f"delete {floating_id}")
        del self.there[floating_id]


class Launcher:
    def __init__(self, *there: IbmFloatingIp, kept: int = 10) -> None:
        self.client = Client(*there)
        self.clock = ManualClock().rules()
        config = load(section(pool={"public-ipv4": True, "floating-ip-pool": kept}))
        self.ips = IbmFloatingIps(config, self.client)  # type: ignore[arg-type]

    def bind(self, name: str = HOST, nic: str = NIC, permit: Callable[[], None] = lambda: None) -> IbmFloatingIp:
        return self.ips.bind(name, f"id-{GROUP}", "us-south-1", nic, permit)

    def freed(self, name: str = HOST, nic: str = NIC) -> IbmFloatingIp:
        """One that was bound, and whose instance is deleted."""
        bound = self.bind(name, nic)
        self.free(bound.id)
        self.ips.release(name)
        return bound

    def free(self, floating_id: str) -> None:
        self.client.there[floating_id] = self.client.there[floating_id]._replace(target="")

    def settle(self) -> Launcher:
        """What is free has been so for a while."""
        self.look()
        self.clock.now += SETTLED_SECONDS + 1
        return self

    def look(self) -> None:
        self.clock.now += 1
        self.ips.all()

    def left(self) -> list[str]:
        return [one.id for one in self.ips.left_over()]

    def calls(self, *verbs: str) -> list[str]:
        return [call for call in self.client.calls if call.startswith(verbs)]


@pytest.mark.parametrize("again", ["", "-c0badcafe"])
def test_taken_over_from_a_launcher_that_has_stopped(again: str) -> None:
    """IV-13 (today): by the sweep, when it has been free under the same name for long; its name says by whom. It is
    used when no call of the other launcher can be under way.
    """
    here = Launcher(floating(1, f"np0000000001{again}"))
    assert (here.left(), here.calls("rename")) == ([], [])
    assert (here.settle().left(), here.calls("rename")) == ([], ["rename fip-1"])
    name = here.client.there["fip-1"].name
    assert name[: len("np0000000001-c")] == "np0000000001-c" != name
    assert here.client.there["fip-1"].metadata == floating(1).metadata != {}
    assert here.bind().id != "fip-1"
    here.clock.now += GRACE_SECONDS
    assert here.bind(OTHER, OTHER_NIC).id == "fip-1"
    assert len(here.calls("rename")) == 1


@pytest.mark.parametrize("late", [False, True])
def test_taken_while_the_call_waited(late: bool) -> None:
    """IV-13 (today): when the turn of a call comes it must be free by what was listed a moment ago."""
    here = Launcher()
    first = here.freed()

    def turn() -> None:
        here.client.there[first.id] = TAKEN._replace(id=first.id)
        if late:
            here.clock.now += LOOK_SECONDS + 1
        else:
            here.look()

    assert here.bind(OTHER, OTHER_NIC, turn).id != first.id
    assert (here.client.there[first.id].target, here.calls("bind")) == ("nic-99", [])


@pytest.mark.parametrize("kept", [0, 1])
def test_no_more_are_kept_than_the_pool_says(kept: int) -> None:
    """IV-13: one that is too many is deleted with its node. Of a pool that keeps none who finds it deletes it (IV-4),
    and it is not used again.
    """
    here = Launcher(kept=kept)
    bound = [here.bind(f"np{number}", f"nic-{number}") for number in range(3)]
    for number, one in enumerate(bound):
        here.free(one.id)
        here.ips.release(f"np{number}")
    assert here.calls("delete") == [f"delete {one.id}" for one in bound[kept:]]
    here.ips.release("np2")
    after = Launcher(floating(1), kept=0)
    assert (after.bind().id == "fip-1", after.left()) == (False, ["fip-1"])
    after.ips.release("np0000000001")
    assert after.calls("get", "delete") == ["get fip-1", "delete fip-1"]


def test_deletion_and_next_nodes() -> None:
    """IV-13: one that waits for the turn of its deletion is not chosen; one that a launch has chosen is not deleted."""
    here = Launcher(kept=1)
    kept, spare = here.bind(), here.bind(OTHER, OTHER_NIC)
    found: list[IbmFloatingIp] = []

    def turn() -> None:
        here.look()
        found.extend(here.bind(f"np{number}", f"nic-{number}") for number in (1, 2))

    for one in (kept, spare):
        here.free(one.id)
    here.ips.release(HOST)
    here.client.deleting = turn
    here.ips.release(OTHER)
    assert here.calls("delete") == [f"delete {spare.id}"]
    assert (found[0].id, {one.id for one in found}) == (kept.id, set(here.client.there))
    here = Launcher(kept=1)
    freed = here.freed()

    def waits() -> None:
        here.ips.delete_free(freed.id, HOST)
        here.ips.release(HOST)
        assert here.left() == []

    assert here.bind(OTHER, OTHER_NIC, waits).id == freed.id
    assert here.calls("delete") == []


def test_left_over() -> None:
    """IV-13 (today), D-4: of free ones those that are more than the pool keeps, all of a pool that is absent, and what
    failed; of what another launcher named nothing before it was taken over. What is of others is left alone.
    """
    failed = floating(6)._replace(status="failed")
    groups = [floating(8, group="np_south_gone"), floating(9, group="np_north_main")]
    here = Launcher(*(floating(number) for number in range(1, 4)), failed, *groups, kept=2)
    assert here.left() == ["fip-6"]
    assert here.settle().left() == ["fip-6"]
    here.clock.now += GRACE_SECONDS
    assert here.left() == ["fip-3", "fip-6", "fip-8"]
    assert here.calls("rename") == [f"rename fip-{number}" for number in (1, 2, 3, 8)]
    here.ips.delete_free("fip-6", failed.name)
    assert "fip-6" not in here.client.there


@pytest.mark.parametrize("done", [True, False])
def test_lost_answers(done: bool) -> None:
    """CM-8, IV-13: never two for one instance."""
    made, bound = Launcher(), Launcher()
    first = bound.freed()
    for here in (made, bound):
        getattr(here.client, "after" if done else "before").append(CloudAway("timed out"))
    assert (made.bind().target, len(made.client.there)) == (NIC, 1)
    assert (bound.bind(OTHER, OTHER_NIC).id, len(bound.client.there)) == (first.id, 1)


@pytest.mark.parametrize("status", [400, 409])
@pytest.mark.parametrize(("code", "kind"), [("over_quota", CloudQuota), ("insufficient_ip_addresses", CloudNoCapacity)])
def test_no_more(code: str, kind: type[Exception], status: int) -> None:
    """CM-6: IBM says 409 also when there are no more; then it is not tried again. A quota is that of the zone."""
    here = Launcher()
    first = here.bind(OTHER, OTHER_NIC)
    here.client.before = [refusal(code, status)]
    with pytest.raises(kind):
        here.bind()
    assert here.calls("make") == ["make", "make"]
    assert (here.ips.shortage("us-south-1") is not None, here.ips.shortage("us-south-2")) == (kind is CloudQuota, None)
    here.free(first.id)
    here.ips.release(OTHER)
    assert here.ips.shortage("us-south-1") is None
