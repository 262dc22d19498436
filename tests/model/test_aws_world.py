# SPDX-License-Identifier: Apache-2.0
"""The simulated world on AWS: the real driver on the simulated region, under moves and faults that Hypothesis picks.

The invariants are those of `tests.model.test_world`: never two instances of a node, never more than the limits, nothing
lost, and at the end nothing left. See there for what a failure prints.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.model.aws_cloud import AwsModelCloud, AwsWorld
from tests.model.budget import budget
from tests.model.cloud import cloud_of
from tests.model.setup import Move, Setup
from tests.model.strategies import CALM, CLOUD_SETUPS, ORDERS, SUBMITS, cloud_moves, moves
from tests.model.world import replay

REGION = ("throttled", "no_room", "lag", "lag")


@given(setup=CLOUD_SETUPS, moves=cloud_moves(*REGION))
@budget(5)
def test_no_node_has_two_instances_and_none_is_left(setup: Setup, moves: list[Move]) -> None:
    """AW-2, CM-8: whatever fails, with lists that lag, lost answers, throttled calls and zones without room."""
    replay(setup, *moves, kind=AwsWorld)


@given(
    setup=st.builds(Setup, launchers=st.just(2), max_servers=st.just(6), order=ORDERS, boot_seconds=st.just(2.0)),
    moves=moves((*CALM, *SUBMITS, "crash", "restart", "lost_create", "quota_error", "no_room", "lag"), 10),
)
@budget(5)
def test_joined_launches(setup: Setup, moves: list[Move]) -> None:
    """Launches that wait for the few calls that AWS takes go together; each node gets its own instance all the same."""
    burst = [Move(40 if number == 0 else 0, "submit", 2 * number + 1) for number in range(6)]
    replay(setup, *burst, *moves, throttles=True, kind=AwsWorld)


def test_a_lost_answer_is_asked_for_again_by_its_token() -> None:
    """AW-2: the world does meet such answers; a region that does not know tokens is a violation at once."""
    lost = [Move(150, "lost_create"), Move(0, "submit"), Move(300, "lost_create"), Move(10, "submit")]
    with AwsWorld(Setup(launchers=2, max_servers=3, order=1, boot_seconds=4.0)) as world:
        world.play([*lost, Move(150, "take")])
        events = cloud_of(world, AwsModelCloud).events
    assert events["calls drop after"] == events["creations repeated"] > 0
