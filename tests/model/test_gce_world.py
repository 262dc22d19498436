# SPDX-License-Identifier: Apache-2.0
"""The simulated world on Google Compute Engine: the real driver on the simulated project, under moves that Hypothesis
picks.

The invariants are those of `tests.model.test_world`: never two instances of a node, never more than the limits, nothing
lost, and at the end nothing left. See there for what a failure prints.
"""

from __future__ import annotations

from hypothesis import given

from tests.model.budget import budget
from tests.model.cloud import cloud_of
from tests.model.gce_cloud import GceModelCloud, GceWorld
from tests.model.setup import Move, Setup
from tests.model.strategies import CLOUD_SETUPS, cloud_moves
from tests.model.world import replay

PROJECT = ("throttled", "no_room", "no_room", "crowded", "silent_zone", "lag", "lag")


@given(setup=CLOUD_SETUPS, moves=cloud_moves(*PROJECT))
@budget(5)
def test_no_node_has_two_instances_and_none_is_left(setup: Setup, moves: list[Move]) -> None:
    """CM-7, CM-8, GC-5, GC-9: whatever fails, with lost answers, silent zones, and operations that fail late."""
    replay(setup, *moves, kind=GceWorld)


def test_a_lost_answer_is_asked_for_again_by_its_request_id() -> None:
    """CM-8: the world does meet such answers; a second instance of the node would be a violation at once."""
    lost = [Move(150, "lost_create"), Move(0, "submit"), Move(300, "lost_create"), Move(10, "submit")]
    with GceWorld(Setup(launchers=2, max_servers=3, order=1, boot_seconds=4.0)) as world:
        world.play([*lost, Move(150, "take")])
        events = cloud_of(world, GceModelCloud).events
    assert events["calls drop after"] == events["calls repeated"] > 0
