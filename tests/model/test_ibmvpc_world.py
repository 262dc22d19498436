# SPDX-License-Identifier: Apache-2.0
"""The simulated world on IBM VPC: the real driver on the simulated region, under moves that Hypothesis picks.

The invariants are those of `tests.model.test_world`: never two instances of a node, never more than the limits, nothing
lost, and at the end nothing left. With floating IPs, too: a node keeps the one that its record names. See there for
what a failure prints.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tests.model.budget import budget
from tests.model.cloud import cloud_of
from tests.model.ibmvpc_cloud import IbmModelCloud, IbmWorld
from tests.model.setup import Move, Setup
from tests.model.strategies import CLOUD_SETUPS, ORDERS, cloud_moves
from tests.model.world import replay

REGION = ("throttled", "no_room", "no_room", "lag", "lag")
ADDRESSES = ("lost_address", "lost_address", "no_addresses")


@given(setup=CLOUD_SETUPS, moves=cloud_moves(*REGION))
@budget(5)
def test_no_node_has_two_instances_and_none_is_left(setup: Setup, moves: list[Move]) -> None:
    """CM-7, CM-8: whatever fails, with lists that lag, lost answers, throttled calls, capacity that is missing late."""
    replay(setup, *moves, kind=IbmWorld)


@given(
    setup=st.builds(
        Setup,
        launchers=st.integers(1, 2),
        max_servers=st.integers(1, 3),
        order=ORDERS,
        boot_seconds=st.sampled_from((0.0, 4.0)),
        sends_after_death=st.booleans(),
    ),
    moves=cloud_moves(*REGION, *ADDRESSES),
)
@budget(5)
def test_a_node_keeps_its_floating_ip_and_none_is_left(setup: Setup, moves: list[Move]) -> None:
    """IV-4, IV-13: two launchers use the same free ones again, and delete those that are too many."""
    replay(setup, *moves, addresses=True, kind=IbmWorld)


def test_a_lost_answer_is_asked_for_again_by_its_name() -> None:
    """CM-8, IV-13: the world does meet such answers, of instances and of floating IPs, and uses free ones again."""
    lost = [Move(150, "lost_create"), Move(0, "submit"), Move(300, "lost_address"), Move(10, "submit")]
    again = [Move(150, "take"), Move(0, "release"), Move(300, "submit"), Move(600, "take")]
    seen: Counter[str] = Counter()
    # Which of them an order of threads meets changes with each step that a launch has.
    for order in range(10):
        with IbmWorld(Setup(launchers=2, max_servers=3, order=order, boot_seconds=4.0), addresses=True) as world:
            world.play([*lost, *again])
            cloud = cloud_of(world, IbmModelCloud)
            seen += Counter(cloud.events) + Counter(cloud.application.calls)
    assert seen["calls drop after"] > 0
    assert seen["refused validation_unique_failed"] > 0
    assert seen["vpc.update_floating_ip"] > 0
