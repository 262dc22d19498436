# SPDX-License-Identifier: Apache-2.0
"""Floating IPs of one launcher, at a client that has them in memory (IV-13). tests/model has several launchers."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from nodepool.driver.framework.cloud_errors import CloudAway, CloudNoCapacity, CloudNotFound, CloudQuota
from nodepool.driver.ibmvpc.floating import (
    CHOICE_SECONDS,
    CLAIM_SECONDS,
    OWN_SECONDS,
    SETTLED_SECONDS,
    Claim,
    IbmFloatingIps,
)
from nodepool.driver.ibmvpc.types import IbmFloatingIp
from nodepool.exceptions import LaunchStatusException
from tests.support.manual_clock import ManualClock
from tests.unit.driver.ibmvpc.support import GROUP, floating, load, refusal, section
from tests.unit.driver.simulated_adapter import HOST

NIC = "nic-42"
OTHER, OTHER_NIC = "np0000000043", "nic-43"
#: What another launcher has bound.
TAKEN = floating(1, "np0000000099", "nic-99")


def nothing() -> None:
    """Happens."""


class Client:
    """Floating IPs of a region, and the calls about them. What is an attribute happens at a call."""

    def __init__(self, *there: IbmFloatingIp) -> None:
        self.there = {one.id: one for one in there}
        self.calls: list[str] = []
        #: Raised by the next call that makes or binds one: before it is done, or after.
        self.before: Exception | None = None
        self.after: Exception | None = None
        self.status = "available"
        self.listed: Callable[[], None] = nothing
        self.deleting: Callable[[], None] = nothing
        self.paused: Callable[[float], None] = lambda _: None

    def floating_ips(self) -> list[IbmFloatingIp]:
        self.calls.append("list")
        found = list(self.there.values())
        self.listed()
        return found

    def floating_ip(self, floating_id: str, permit: Callable[[], None] = nothing) -> IbmFloatingIp:
        permit()
        self.calls.append(f"get {floating_id}")
        if floating_id not in self.there:
            raise CloudNotFound("absent", status=404)
        return self.there[floating_id]

    def _change(self, call: str, permit: Callable[[], None], change: Callable[[], IbmFloatingIp]) -> IbmFloatingIp:
        permit()
        self.calls.append(call)
        before, self.before, after, self.after = self.before, None, self.after, None
        if before is not None:
            raise before
        made = change()
        self.there[made.id] = made
        if after is not None:
            raise after
        return made

    def create_floating_ip(self, name: str, group_id: str, nic: str, permit: Callable[[], None]) -> IbmFloatingIp:
        def change() -> IbmFloatingIp:
            if any(one.name == name for one in self.there.values()):
                raise refusal("validation_unique_failed")
            return floating(len(self.there) + 50, name, nic)._replace(status=self.status)

        return self._change("make", permit, change)

    def rename_floating_ip(self, floating_id: str, name: str, permit: Callable[[], None]) -> IbmFloatingIp:
        return self._change(f"claim {floating_id}", permit, lambda: self.there[floating_id]._replace(name=name))

    def bind_floating_ip(self, floating_id: str, name: str, nic: str, permit: Callable[[], None]) -> IbmFloatingIp:
        def change() -> IbmFloatingIp:
            if any(one.target == nic for one in self.there.values()):
                raise refusal("floating_ip_in_use", 409)
            return self.there[floating_id]._replace(name=name, target=nic)

        return self._change(f"bind {floating_id}", permit, change)

    def delete_floating_ip(self, floating_id: str, permit: Callable[[], None]) -> None:
        self.deleting()
        permit()
        self.calls.append(f"delete {floating_id}")
        del self.there[floating_id]

    def pause(self, seconds: float) -> None:
        self.calls.append("pause")
        self.paused(seconds)

    def free(self, floating_id: str) -> None:
        """Its instance was deleted."""
        self.there[floating_id] = self.there[floating_id]._replace(target="")


class Launcher:
    def __init__(self, *there: IbmFloatingIp, kept: int = 10) -> None:
        self.client = Client(*there)
        self.clock = ManualClock()
        self.config = load(section(pool={"public-ipv4": True, "floating-ip-pool": kept}))
        self.ips = IbmFloatingIps(self.config, self.client, self.clock)  # type: ignore[arg-type]
        self.client.paused = self.clock.pass_seconds

    def begin(self, name: str = HOST, nic: str = NIC, permit: Callable[[], None] = nothing) -> IbmFloatingIp | Claim:
        return self.ips.bind(name, f"id-{GROUP}", "us-south-1", nic, permit)

    def claim(self, name: str = HOST, nic: str = NIC) -> Claim:
        found = self.begin(name, nic)
        assert isinstance(found, Claim)
        return found

    def take(self, claim: Claim, name: str = HOST, nic: str = NIC) -> IbmFloatingIp | None:
        self.clock.now = max(self.clock.now, claim.ready_at)
        return self.ips.take(claim, name, nic, nothing)

    def bind(self, name: str = HOST, nic: str = NIC, permit: Callable[[], None] = nothing) -> IbmFloatingIp:
        """To the end."""
        while True:
            found = self.begin(name, nic, permit)
            bound = self.take(found, name, nic) if isinstance(found, Claim) else found
            if bound is not None:
                return bound

    def freed(self, name: str = HOST, nic: str = NIC, ago: float = 1.0) -> IbmFloatingIp:
        """One that was bound, and whose instance is absent; its deletion was ordered so many seconds ago."""
        bound = self.bind(name, nic)
        self.client.free(bound.id)
        self.release(name, ago)
        return bound

    def release(self, name: str = HOST, ago: float = 1.0) -> None:
        self.ips.release(name, self.clock.now - ago)

    def settle(self) -> Launcher:
        """What is free has been so for a while."""
        self.ips.all()
        self.clock.now += SETTLED_SECONDS + 1
        return self

    def calls(self, verb: str) -> list[str]:
        return [call for call in self.client.calls if call.startswith(verb)]


# -- one that is free --


def test_made_or_claimed() -> None:
    """IV-4 (today), IV-13 (today): one call makes and binds one; one that is free is claimed, and bound later. IV-3:
    its name says of which provider it is, also when it is claimed again.
    """
    here = Launcher()
    made = here.bind()
    assert (made.name, made.target, here.client.calls) == (HOST, NIC, ["list", "make"])
    here = Launcher(floating(1))
    for _ in range(2):
        claim = here.settle().claim()
        claimed = here.client.there["fip-1"]
        assert (claim.ready_at, claimed.target) == (here.clock.now + CLAIM_SECONDS, "")
        assert re.fullmatch(r"np0000000001-c[0-9a-f]{8}", claimed.name)
        assert claimed.metadata == floating(1).metadata != {}
    here.client.calls.clear()
    bound = here.take(claim)
    assert here.client.calls == ["list", "bind fip-1"]
    assert bound is not None
    assert (bound.name, bound.target) == (HOST, NIC)


@pytest.mark.parametrize("now", [floating(1, "np0000000001-c00000000"), TAKEN])
def test_another_launcher_was_faster(now: IbmFloatingIp) -> None:
    """IV-13 (today): what another one claimed or bound after us is left to it; so is a claim that is too old."""
    here = Launcher(floating(1)).settle()
    claim = here.claim()
    here.client.there["fip-1"] = now
    assert here.take(claim) is None
    assert here.bind().id != "fip-1"
    assert (here.client.there["fip-1"], here.calls("bind")) == (now, [])
    slow = Launcher(floating(1)).settle()
    claim = slow.claim()
    slow.clock.now = claim.ends_at
    assert slow.take(claim) is None


@pytest.mark.parametrize(
    ("there", "settled"),
    [
        # IV-4: Nodepool 11.0.0 makes the floating IP before the instance: it only looks free.
        (floating(1), False),
        # A floating IP stays in its zone, and in the group of its pool.
        (floating(1, zone="us-south-2"), True),
        (floating(1, group="np_south_other"), True),
        (floating(1, group="np_north_main"), True),
    ],
)
def test_of_others(there: IbmFloatingIp, settled: bool) -> None:
    """IV-13 (today): it is left alone."""
    here = Launcher(there)
    if settled:
        here.settle()
    assert here.bind().id != "fip-1"


def test_claim_of_another_launcher() -> None:
    """IV-13 (today): a name that changed is a claim, however long it has been free; one that stopped does not keep it
    for ever. Names are unique: one that an earlier attempt left is bound.
    """
    here = Launcher(floating(1)).settle()
    here.client.there["fip-1"] = floating(1, "np0000000001-c0badcafe")
    here.ips.all()
    assert here.bind().id != "fip-1"
    here.settle()
    assert here.bind(OTHER, OTHER_NIC).id == "fip-1"
    assert Launcher(floating(1, HOST)).bind().id == "fip-1"


@pytest.mark.parametrize("own", [True, False])
def test_taken_while_the_call_waited(own: bool) -> None:
    """IV-13 (today): when the turn of a call comes it is looked at again. What was taken meanwhile is left alone."""
    here = Launcher(floating(1)).settle()

    def late() -> None:
        here.clock.now += CHOICE_SECONDS + 1

    assert isinstance(here.begin(permit=late), Claim)
    assert here.client.calls == ["list", "list", "list", "claim fip-1"]
    here = Launcher(*([] if own else [floating(1)]))
    first = here.freed() if own else here.settle().client.there["fip-1"]

    def turn() -> None:
        here.client.there[first.id] = TAKEN._replace(id=first.id)
        here.clock.now += CHOICE_SECONDS + 1

    assert here.bind(OTHER, OTHER_NIC, turn).id != first.id
    assert here.client.there[first.id].target == "nic-99"


@pytest.mark.parametrize("taken", [False, True])
def test_list_that_takes_long(taken: bool) -> None:
    """IV-13 (today): a list of many pages is too old at its end: one call asks for the one that was chosen."""
    here = Launcher(floating(1)).settle()

    def late() -> None:
        here.clock.now += CHOICE_SECONDS + 1
        if taken:
            here.client.there["fip-1"] = TAKEN

    here.client.listed = late
    assert (here.bind().id == "fip-1") is not taken
    asked = ["list", "list", "get fip-1", "claim fip-1", "get fip-1", "bind fip-1"]
    assert taken or here.client.calls == asked
    assert here.client.there["fip-1"].target == ("nic-99" if taken else NIC)


# -- one that was freed here --


def test_own_one() -> None:
    """IV-13 (today): who freed it need not look again. Later it is claimed, as by any other launcher."""
    here = Launcher()
    first = here.freed()
    assert here.bind(OTHER, OTHER_NIC).id == first.id
    assert [call for call in here.client.calls if call != "list"] == ["make", f"bind {first.id}"]
    here.client.free(first.id)
    here.release(OTHER)
    assert here.settle().claim().floating.id == first.id


def test_deletion_that_was_ordered_long_ago() -> None:
    """IV-13 (today): after it others may be at it: it is not this launcher's own. The sweep sees to it."""
    here = Launcher()
    first = here.freed(ago=OWN_SECONDS)
    assert here.bind(OTHER, OTHER_NIC).id != first.id
    here.config.pools.clear()
    here.ips.all()
    assert here.ips.left_over() == []
    assert [one.id for one in here.settle().ips.left_over()] == [first.id]


@pytest.mark.parametrize("kept", [0, 1])
def test_no_more_are_kept_than_the_pool_says(kept: int) -> None:
    """IV-13: one that is too many is deleted with its node; that of an earlier process is found by its name (IV-4)."""
    here = Launcher(kept=kept)
    bound = [here.bind(f"np{number}", f"nic-{number}") for number in range(3)]
    for number, one in enumerate(bound):
        here.client.free(one.id)
        here.release(f"np{number}")
    assert here.calls("delete") == [f"delete {one.id}" for one in bound[kept:]]
    here.release("np2")
    after = Launcher(floating(1, HOST), kept=0)
    after.release()
    assert after.client.calls == ["list", "get fip-1", "delete fip-1"]


def test_bound_before_its_deletion() -> None:
    """IV-13, D-4: IBM deletes one whatever it is bound to. So it is looked at when the turn of the call has come."""
    here = Launcher(kept=0)
    found = here.bind()
    here.client.there[found.id] = TAKEN._replace(id=found.id)
    here.release()
    here.ips.delete_free(found.id, HOST)
    assert here.calls("delete") == []
    here = Launcher(kept=0)

    def turn() -> None:
        here.client.there[found.id] = TAKEN._replace(id=found.id)

    here.client.deleting = turn
    here.freed()
    assert (here.calls("delete"), here.client.there[found.id].target) == ([], "nic-99")


def test_deletion_and_next_nodes() -> None:
    """IV-13: one that waits for the turn of its deletion is not chosen; one that a launch has chosen is not deleted."""
    here = Launcher(kept=1)
    kept, spare = (here.bind(name, nic) for name, nic in ((HOST, NIC), (OTHER, OTHER_NIC)))
    for one in (kept, spare):
        here.client.free(one.id)
    found: list[IbmFloatingIp] = []

    def turn() -> None:
        here.ips.all()
        found.extend(here.bind(f"np{number}", f"nic-{number}") for number in (1, 2))

    here.release(HOST)
    here.client.deleting = turn
    here.release(OTHER)
    assert here.calls("delete") == [f"delete {spare.id}"]
    assert found[0].id == kept.id
    assert {one.id for one in found} == set(here.client.there)
    here = Launcher(kept=1)
    freed = here.freed()

    def waits() -> None:
        here.ips.delete_free(freed.id, HOST)
        here.release()

    assert here.bind(OTHER, OTHER_NIC, waits).id == freed.id
    assert here.calls("delete") == []


def test_deleted_meanwhile() -> None:
    """IV-13: the one that was chosen may be absent when its turn comes: then another one is made."""
    here = Launcher(floating(1)).settle()
    here.client.before = CloudNotFound("absent", status=404)
    here.ips.all()
    del here.client.there["fip-1"]
    assert here.bind().id != "fip-1"
    assert here.client.calls[-2:] == ["list", "make"]


# -- what is left over --


def test_left_over() -> None:
    """IV-13 (today), D-4: free ones that are more than the pool keeps, all of a pool that has none any more, and those
    that failed; but not what was not seen free for long under its name.
    """
    failed = floating(6)._replace(status="failed")
    groups = [floating(8, group="np_south_gone"), floating(9, group="np_north_main")]
    here = Launcher(*(floating(number) for number in range(1, 5)), failed, *groups, kept=2)
    assert here.ips.left_over() == [failed]
    here.settle()
    here.client.there["fip-8"] = floating(8, "np0000000008-c0badcafe", group="np_south_gone")
    assert {one.id for one in here.ips.left_over()} == {"fip-3", "fip-4", "fip-6"}
    here.settle()
    assert {one.id for one in here.ips.left_over()} == {"fip-3", "fip-4", "fip-6", "fip-8"}
    here.client.calls.clear()
    # It is claimed first, so that no launcher binds it between the look and the deletion.
    here.ips.delete_free("fip-4", "np0000000004")
    assert here.client.calls == ["claim fip-4", "pause", "get fip-4", "delete fip-4"]
    here.ips.delete_free("fip-6", failed.name)
    assert set(here.client.there) == {"fip-1", "fip-2", "fip-3", "fip-8", "fip-9"}


# -- trouble --


def test_failed_ones_are_not_given_out() -> None:
    """IV-4: a floating IP that is ``failed`` fails the launch, also after a lost answer, and goes with the instance."""
    here = Launcher()
    here.client.status = "failed"
    for _ in range(2):
        with pytest.raises(LaunchStatusException, match=r"floating IP 192\.0\.2\.50 is failed"):
            here.bind()
    here.client.free("fip-50")
    here.release()
    assert here.client.there == {}


@pytest.mark.parametrize("done", [True, False])
def test_lost_answers(done: bool) -> None:
    """CM-8, IV-13: never two for one instance. It is not known whether a claim is ours: another one is bound if the
    name changed.
    """
    made, bound, claimed = Launcher(), Launcher(floating(1)).settle(), Launcher(floating(1)).settle()
    claim = bound.claim()
    for here in (made, bound, claimed):
        setattr(here.client, "after" if done else "before", CloudAway("timed out"))
    assert (made.bind().target, len(made.client.there)) == (NIC, 1)
    assert bound.take(claim) is None
    assert (bound.bind().id == "fip-1") is done
    assert [one.target for one in bound.client.there.values() if one.target] == [NIC]
    assert (claimed.bind().id == "fip-1") is not done


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("over_quota", 400, CloudQuota),
        ("over_quota", 409, CloudQuota),
        ("insufficient_ip_addresses", 409, CloudNoCapacity),
    ],
)
def test_no_more(code: str, status: int, kind: type[Exception]) -> None:
    """CM-6: IBM says 409 also when there are no more; then it is not tried again."""
    here = Launcher()
    here.client.before = refusal(code, status)
    with pytest.raises(kind):
        here.bind()
    assert here.client.calls == ["list", "make"]
