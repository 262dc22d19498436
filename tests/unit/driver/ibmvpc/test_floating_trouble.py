# SPDX-License-Identifier: Apache-2.0
"""Floating IPs when lists take long, calls fail or have no answer, and what is left over (IV-13)."""

from __future__ import annotations

import pytest

from nodepool.driver.framework.cloud_errors import CloudAway, CloudNoCapacity, CloudNotFound, CloudQuota
from nodepool.driver.ibmvpc.floating import CHOICE_SECONDS, Claim
from nodepool.exceptions import LaunchStatusException
from tests.unit.driver.ibmvpc.floating_rig import NIC, Here
from tests.unit.driver.ibmvpc.support import floating, refusal
from tests.unit.driver.simulated_adapter import HOST


def test_list_that_takes_long() -> None:
    """IV-13 (today): a list of many pages is too old at its end: one call tells of the one that was chosen."""
    here = Here(floating(1))
    here.settle()

    def late() -> None:
        here.clock.now += CHOICE_SECONDS + 1

    here.client.listed = late
    assert here.bind().id == "fip-1"
    assert here.client.calls == ["list", "list", "get fip-1", "claim fip-1", "get fip-1", "bind fip-1"]


def test_taken_during_a_list_that_takes_long() -> None:
    here = Here(floating(1))
    here.settle()

    def late() -> None:
        here.clock.now += CHOICE_SECONDS + 1
        here.client.there["fip-1"] = floating(1, "np0000000099", "nic-99")

    here.client.listed = late
    assert here.bind().id != "fip-1"
    assert here.client.there["fip-1"].target == "nic-99"


def test_failed_ones_are_not_given_out() -> None:
    """IV-4: a floating IP that is ``failed`` fails the launch, and goes with the instance."""
    here = Here()
    here.client.status = "failed"
    with pytest.raises(LaunchStatusException, match=r"floating IP 192\.0\.2\.50 is failed"):
        here.bind()
    # As found by a launch whose answer was lost.
    with pytest.raises(LaunchStatusException, match="is failed"):
        here.bind()
    here.client.free("fip-50")
    here.release()
    assert here.client.there == {}


def test_failed_ones_are_left_over() -> None:
    """IV-13: however many are kept."""
    failed = floating(1)._replace(status="failed")
    here = Here(failed, floating(2), floating(3, HOST, NIC)._replace(status="failed"))
    assert here.floating.left_over() == [failed]
    here.floating.delete_free("fip-1", failed.name)
    assert set(here.client.there) == {"fip-2", "fip-3"}


@pytest.mark.parametrize("done", [True, False])
def test_lost_answer_of_a_new_one(done: bool) -> None:
    """CM-8: never two for one instance."""
    here = Here()
    setattr(here.client, "after" if done else "before", CloudAway("timed out"))
    binding = here.bind()
    assert binding.target == NIC
    assert len(here.client.there) == 1


@pytest.mark.parametrize("done", [True, False])
def test_lost_answer_of_a_binding(done: bool) -> None:
    """CM-8: the next list says whether it was done."""
    here = Here(floating(1))
    here.settle()
    claim = here.begin()
    assert isinstance(claim, Claim)
    setattr(here.client, "after" if done else "before", CloudAway("timed out"))
    assert here.take(claim) is None
    bound = here.bind()
    assert (bound.id == "fip-1") is done
    assert [one.target for one in here.client.there.values() if one.target] == [NIC]


@pytest.mark.parametrize("done", [True, False])
def test_lost_answer_of_a_claim(done: bool) -> None:
    """IV-13 (today): who knows whether it is ours? Another one is bound if its name changed."""
    here = Here(floating(1))
    here.settle()
    setattr(here.client, "after" if done else "before", CloudAway("timed out"))
    assert (here.bind().id == "fip-1") is not done


def test_one_of_the_name() -> None:
    """IV-3: names are unique: one that an earlier attempt left is bound."""
    here = Here(floating(1, HOST))
    assert here.bind().id == "fip-1"


def test_deleted_meanwhile() -> None:
    """The one that was chosen may be gone: then another one is made."""
    here = Here(floating(1))
    here.settle()
    here.client.before = CloudNotFound("gone", status=404)
    here.floating.all()
    del here.client.there["fip-1"]
    assert here.bind().id != "fip-1"
    assert here.client.calls[-2:] == ["list", "make"]


def test_quota() -> None:
    """CM-6: the launch waits."""
    here = Here()
    here.client.before = refusal("over_quota")
    with pytest.raises(CloudQuota):
        here.bind()


@pytest.mark.parametrize(("code", "kind"), [("over_quota", CloudQuota), ("insufficient_ip_addresses", CloudNoCapacity)])
def test_conflict_that_does_not_pass(code: str, kind: type[Exception]) -> None:
    """CM-6: IBM says 409 also when there are no more; then it is not tried again."""
    here = Here()
    here.client.before = refusal(code, 409)
    with pytest.raises(kind):
        here.bind()
    assert here.client.calls == ["list", "make"]


def test_left_over() -> None:
    """IV-13 (today), D-4: free ones that are more than the pool keeps, and all of a pool that has none any more."""
    there = [floating(number) for number in range(1, 5)]
    here = Here(*there, floating(8, group="np_south_gone"), floating(9, group="np_north_main"), kept=2)
    here.settle()
    assert {one.id for one in here.floating.left_over()} == {"fip-3", "fip-4", "fip-8"}


def test_what_is_bound_meanwhile_is_not_deleted() -> None:
    """D-4: between the list and the deletion somebody may have taken it."""
    here = Here(floating(1), kept=0)
    here.client.there["fip-1"] = floating(1, HOST, NIC)
    here.floating.delete_free("fip-1", HOST)
    assert "fip-1" in here.client.there
    here.client.free("fip-1")
    here.settle()
    here.floating.delete_free("fip-1", HOST)
    assert here.client.there == {}
