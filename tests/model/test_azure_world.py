# SPDX-License-Identifier: Apache-2.0
"""The simulated world on Azure: the real driver on the simulated subscription, under moves that Hypothesis picks.

The invariants are those of `tests.model.test_world`: never two instances of a node, never more than the limits, nothing
lost, and at the end nothing left. See there for what a failure prints.
"""

from __future__ import annotations

from hypothesis import given

from tests.model.azure_cloud import AzureWorld
from tests.model.budget import budget
from tests.model.setup import Move, Setup
from tests.model.strategies import CLOUD_SETUPS, cloud_moves
from tests.model.world import replay

SUBSCRIPTION = ("throttled", "no_room", "no_room", "lag", "lag")


@given(setup=CLOUD_SETUPS, moves=cloud_moves(*SUBSCRIPTION))
@budget(5)
def test_no_node_has_two_vms_and_none_is_left(setup: Setup, moves: list[Move]) -> None:
    """CM-7, CM-8: whatever fails, with lists that lag, lost answers, throttled calls, capacity that is missing late."""
    replay(setup, *moves, kind=AzureWorld)
