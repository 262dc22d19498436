# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.ibmvpc.floating` (IV-13)."""

from __future__ import annotations

import re
from collections.abc import Callable

from nodepool.driver.ibmvpc.floating import (
    CHOICE_SECONDS,
    CLAIM_SECONDS,
    OWN_SECONDS,
    SETTLED_SECONDS,
    Claim,
    IbmFloatingIps,
)
from nodepool.driver.ibmvpc.types import IbmFloatingIp
from tests.unit.driver.ibmvpc.floating_rig import NIC, Here
from tests.unit.driver.ibmvpc.support import floating
from tests.unit.driver.simulated_adapter import HOST


def test_made_on_the_interface() -> None:
    """IV-4 (today): one call makes and binds it; nobody else could have taken it."""
    here = Here()
    binding = here.bind()
    assert (binding.name, binding.target) == (HOST, NIC)
    assert here.client.calls == ["list", "make"]


def test_free_one_is_used_again() -> None:
    """IV-13 (today): one that is free is claimed, and bound if nobody else claimed it."""
    here = Here(floating(1))
    here.settle()
    claim = here.begin()
    assert isinstance(claim, Claim)
    assert claim.ready_at == here.clock.now + CLAIM_SECONDS
    assert here.client.there["fip-1"].target == ""
    bound = here.take(claim)
    assert here.client.calls == ["list", "list", "claim fip-1", "list", "bind fip-1"]
    assert bound is not None
    assert (bound.name, bound.target) == (HOST, NIC)


def test_claimed_one_is_still_ours() -> None:
    """IV-3: its name says of which provider it is, also when it is claimed again."""
    here = Here(floating(1))
    for _ in range(3):
        here.settle()
        assert isinstance(here.begin(), Claim)
        claimed = here.client.there["fip-1"]
        assert re.fullmatch(r"np0000000001-c[0-9a-f]{8}", claimed.name)
        assert claimed.metadata == floating(1).metadata != {}


def test_another_launcher_was_faster() -> None:
    """IV-13 (today): what another one claimed or bound after us is left to it."""
    for name, target in (("np0000000001-c00000000", ""), ("np0000000099", "nic-99")):
        here = Here(floating(1))
        here.settle()
        claim = here.begin()
        assert isinstance(claim, Claim)
        here.client.there["fip-1"] = floating(1, name, target)
        assert here.take(claim) is None
        assert here.bind().id != "fip-1"
        assert here.client.there["fip-1"].target == target
        assert here.client.calls.count("bind fip-1") == 0


def test_late_claim_of_another_launcher() -> None:
    """IV-13 (today): a claim that arrives after the binding changes the name alone, and the address stays."""
    one, other = two_launchers(floating(1))
    late = other.begin("np2", "nic-2")
    assert isinstance(late, Claim)
    one.client.there["fip-1"] = one.client.there["fip-1"]._replace(name="np1", target="nic-1")
    assert other.take(late, "np2", "nic-2") is None
    assert one.client.there["fip-1"].target == "nic-1"


def test_claim_that_is_too_old() -> None:
    """IV-13 (today): a launcher that stopped for a minute does not bind what others may have claimed meanwhile."""
    here = Here(floating(1))
    here.settle()
    claim = here.begin()
    assert isinstance(claim, Claim)
    here.clock.now = claim.ends_at
    assert here.take(claim) is None


def test_what_others_claimed_is_left_alone() -> None:
    """IV-13 (today): a name that changed is a claim, however long it has been free."""
    here = Here(floating(1))
    here.settle()
    here.client.there["fip-1"] = floating(1, "np0000000001-c0badcafe")
    here.floating.all()
    assert here.bind().id != "fip-1"
    # A launcher that claimed it and stopped does not keep it for ever.
    here.settle()
    assert here.bind("np0000000043", "nic-43").id == "fip-1"


def two_launchers(*there: IbmFloatingIp) -> tuple[Here, Here]:
    """To both of them all has been free for long."""
    one = Here(*there)
    other = Here(clock=one.clock)
    other.client = one.client
    other.floating = IbmFloatingIps(other.config, one.client, one.clock)  # type: ignore[arg-type]
    for here in (one, other):
        here.floating.all()
    one.clock.now += SETTLED_SECONDS + 1
    return one, other


def test_two_launchers_never_share_one() -> None:
    """IV-13 (today): whatever the order of the calls of two launchers is, each ends with an address of its own."""
    one, other = two_launchers(floating(1), floating(2))
    found: dict[str, IbmFloatingIp | Claim | None] = {
        "np1": one.begin("np1", "nic-1"),
        "np2": other.begin("np2", "nic-2"),
    }
    for _ in range(5):
        one.clock.now += CLAIM_SECONDS
        for here, name, nic in ((one, "np1", "nic-1"), (other, "np2", "nic-2")):
            known = found[name]
            if known is None:
                found[name] = here.begin(name, nic)
            elif isinstance(known, Claim):
                found[name] = here.take(known, name, nic)
    bound = [one for one in found.values() if isinstance(one, IbmFloatingIp)]
    assert len({one.id for one in bound}) == 2
    targets = {found.target for found in one.client.there.values() if found.target}
    assert targets == {"nic-1", "nic-2"}


def test_call_that_waited_for_its_turn() -> None:
    """IV-13 (today): when the turn comes it is looked at again whether it is still free."""
    here = Here(floating(1))
    here.settle()

    def turn() -> None:
        here.clock.now += CHOICE_SECONDS + 1

    assert isinstance(here.begin(permit=turn), Claim)
    assert here.client.calls == ["list", "list", "list", "claim fip-1"]


def test_taken_while_it_waited() -> None:
    """IV-13 (today): what another launcher took meanwhile is left to it, also what this one had freed."""
    here = Here()
    first = here.bind()
    here.client.free(first.id)
    here.release()

    def turn() -> None:
        here.client.there[first.id] = first._replace(name="np0000000099", target="nic-99")
        here.clock.now += CHOICE_SECONDS

    second = here.bind("np0000000043", "nic-43", permit=turn)
    assert second.id != first.id
    assert here.client.there[first.id].target == "nic-99"


def test_what_others_freed_just_now_is_left_alone() -> None:
    """IV-4: Nodepool 11.0.0 makes the floating IP before the instance: it only looks free."""
    here = Here(floating(1))
    here.floating.all()
    assert here.bind().id != "fip-1"


def test_other_zone_and_pool() -> None:
    """A floating IP stays in its zone, and in the group of its pool."""
    here = Here(floating(1, zone="us-south-2"), floating(2, group="np_south_other"), floating(3, group="np_north_main"))
    here.settle()
    assert here.bind().id not in ("fip-1", "fip-2", "fip-3")


def test_own_one_is_used_at_once() -> None:
    """IV-13 (today): who freed it need not look again."""
    here = Here()
    first = here.bind()
    here.client.free(first.id)
    here.release()
    second = here.bind("np0000000043", "nic-43")
    assert second.id == first.id
    assert [call for call in here.client.calls if call != "list"] == ["make", f"bind {first.id}"]


def test_own_one_is_everybodys_later() -> None:
    """IV-13 (today): it is claimed then, as by any other launcher."""
    here = Here()
    first = here.bind()
    here.client.free(first.id)
    here.release()
    here.settle()
    claim = here.begin("np0000000043", "nic-43")
    assert isinstance(claim, Claim)
    assert claim.floating.id == first.id


def test_deletion_that_was_ordered_long_ago() -> None:
    """IV-13 (today): after it others may be at the floating IP: it is not this launcher's own."""
    here = Here()
    first = here.bind()
    here.client.free(first.id)
    here.release(ago=OWN_SECONDS)
    assert here.bind("np0000000043", "nic-43").id != first.id
    # The sweep sees to it if it is too many.
    here.config.pools.clear()
    here.floating.all()
    assert here.floating.left_over() == []
    here.settle()
    assert [one.id for one in here.floating.left_over()] == [first.id]


def test_no_more_are_kept_than_the_pool_says() -> None:
    """IV-13 (today): one that is too many is deleted with its node."""
    here = Here(kept=1)
    bindings = [here.bind(f"np000000004{number}", f"nic-{number}") for number in range(3)]
    for number, binding in enumerate(bindings):
        here.client.free(binding.id)
        here.release(f"np000000004{number}")
    assert len(here.client.there) == 1
    assert [call for call in here.client.calls if call.startswith("delete")] == [
        f"delete {binding.id}" for binding in bindings[1:]
    ]


def test_none_is_kept() -> None:
    """IV-13: ``floating-ip-pool: 0``."""
    here = Here(kept=0)
    binding = here.bind()
    here.client.free(binding.id)
    here.release()
    assert here.client.there == {}
    here.release()


def test_release_after_a_restart() -> None:
    """IV-4: what an earlier process made is found by its name."""
    here = Here(floating(1, HOST), kept=0)
    here.release()
    assert here.client.calls == ["list", "get fip-1", "delete fip-1"]


def test_deletion_of_what_is_not_own() -> None:
    """IV-13 (today): it is claimed first, so that no launcher binds it between the look and the deletion."""
    here = Here(floating(1), floating(2), floating(0), kept=2)
    here.settle()
    here.client.calls.clear()
    (spare,) = here.floating.left_over()
    here.floating.delete_free(spare.id, spare.name)
    assert here.client.calls == ["list", "claim fip-2", "pause", "get fip-2", "delete fip-2"]
    assert list(here.client.there) == ["fip-1", "fip-0"]


def test_claimed_by_a_launch_while_it_is_to_be_deleted() -> None:
    """IV-13 (today): the later claim counts, whichever of the two it is."""
    one, other = two_launchers(floating(1))
    other.config.pools.clear()
    claims: list[IbmFloatingIp | Claim] = []

    def launch(seconds: float) -> None:
        one.clock.now += 1
        other.floating._list.clear()
        claims.append(one.begin("np1", "nic-1"))
        one.clock.now += seconds - 1

    one.client.paused = launch
    (spare,) = other.floating.left_over()
    other.floating.delete_free(spare.id, spare.name)
    (claim,) = claims
    if isinstance(claim, Claim):
        assert one.take(claim, "np1", "nic-1") is not None
    assert [found.target for found in one.client.there.values() if found.target] == ["nic-1"]


def test_what_a_launch_may_be_at_is_not_left_over() -> None:
    """IV-13 (today), D-4: what was not seen free for long under its name."""
    here = Here(floating(1))
    here.config.pools.clear()
    assert here.floating.left_over() == []
    here.clock.now += SETTLED_SECONDS
    here.client.there["fip-1"] = floating(1, "np0000000001-c0badcafe")
    assert here.floating.left_over() == []


def test_one_that_others_bound_is_not_deleted() -> None:
    """IV-13: IBM deletes a floating IP whatever it is bound to: a node in use would lose its address."""
    here = Here(kept=0)
    found = here.bind()
    here.client.there[found.id] = found._replace(name="np0000000099", target="nic-99")
    here.release()
    assert not [call for call in here.client.calls if call.startswith("delete")]
    assert here.client.there[found.id].target == "nic-99"
    here.floating.delete_free(found.id, HOST)
    assert here.client.there[found.id].target == "nic-99"


def test_bound_while_its_deletion_waited() -> None:
    """IV-13: it is looked at when the turn of the call has come."""
    here = Here(kept=0)
    found = here.bind()
    here.client.free(found.id)
    delete = here.client.delete_floating_ip

    def late(floating_id: str, permit: Callable[[], None]) -> None:
        here.client.there[found.id] = found._replace(name="np0000000099", target="nic-99")
        delete(floating_id, permit)

    here.client.delete_floating_ip = late  # type: ignore[method-assign]
    here.release()
    assert here.client.there[found.id].target == "nic-99"


def test_one_that_another_thread_binds_is_not_deleted() -> None:
    """IV-13: the instance is gone, and before its deletion ends the next node takes its floating IP."""
    here = Here(kept=0)
    first = here.bind()
    here.client.free(first.id)
    here.clock.now += 1
    here.floating.all()
    here.floating._own_until[first.id] = here.clock.now + OWN_SECONDS

    def turn() -> None:
        here.release()

    assert here.bind("np0000000043", "nic-43", permit=turn).address == first.address
    assert not [call for call in here.client.calls if call.startswith("delete")]


def test_one_that_is_deleted_is_not_chosen() -> None:
    """IV-13: while its deletion waits for its turn."""
    here = Here(kept=0)
    first = here.bind()
    here.client.free(first.id)
    here.clock.now += 1
    delete = here.client.delete_floating_ip
    second: list[IbmFloatingIp] = []

    def late(floating_id: str, permit: Callable[[], None]) -> None:
        here.floating.all()
        second.append(here.bind("np0000000043", "nic-43"))
        delete(floating_id, permit)

    here.client.delete_floating_ip = late  # type: ignore[method-assign]
    here.release()
    assert f"bind {first.id}" not in here.client.calls
    assert [one.id for one in second] == list(here.client.there)


# -- that failed --


# -- what is left over --
