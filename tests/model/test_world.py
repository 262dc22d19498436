# SPDX-License-Identifier: Apache-2.0
"""The simulated world under moves and faults that Hypothesis picks: the invariants of issue 5, and of explanations.

A failure prints ``Setup`` and ``Move`` values. `tests.model.world.replay` with ``trace=True`` prints each turn of that
run and what the launchers log. A found case becomes a row of ``tables.yaml``.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.model.budget import budget
from tests.model.setup import Move, Setup
from tests.model.strategies import CALM, CLOUD, ORDERS, PROCESSES, moves
from tests.model.world import replay

MAINTENANCE = ("pause", "pause", "resume", "crash", "cut", "long_clock")
PAUSED = moves((*CALM, "submit", *MAINTENANCE), 18)
RELOADS = ("reload", "reload", "reload_back", "crash", "zombie", "cut", "long_clock", "host_down")


def setups(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Setup]:
    """Of two launchers, if ``fields`` do not say otherwise."""
    return st.builds(Setup, **{"launchers": st.just(2), "order": ORDERS, **fields})


#: Of launchers with pools that come and go, or are paused.
POOLS: dict[str, st.SearchStrategy[Any]] = {
    "max_servers": st.integers(1, 3),
    "pools": st.integers(1, 2),
    "min_ready": st.integers(0, 1),
    "boot_seconds": st.sampled_from((0.0, 4.0)),
}


@given(
    setup=setups(
        launchers=st.integers(2, 3),
        max_servers=st.integers(1, 3),
        min_ready=st.sampled_from((0, 0, 1, 2)),
        tenant_limit=st.sampled_from((None, None, 2)),
        sends_after_death=st.booleans(),
    ),
    moves=moves((*CALM, *PROCESSES, *CLOUD), 25),
)
@budget(55)
def test_nothing_is_lost_or_leaked_or_over_the_limit_whatever_fails(setup: Setup, moves: list[Move]) -> None:
    replay(setup, *moves)


@given(
    setup=setups(launchers=st.just(3), max_servers=st.integers(1, 3), tenant_limit=st.sampled_from((None, None, 2))),
    count=st.integers(2, 5),
    moves=moves(CALM, 12),
)
@budget(12)
def test_launchers_that_fill_one_limit_at_the_same_time(setup: Setup, count: int, moves: list[Move]) -> None:
    """All see the same gap. Also requests for two nodes, which must not wait for each other for ever."""
    replay(setup, Move(40, "submit"), *(Move(0, "submit", number) for number in range(1, count)), *moves)


@given(
    setup=setups(launchers=st.integers(2, 3), max_servers=st.just(3), min_ready=st.integers(1, 2)),
    moves=moves(("stall", "clock", "long_clock"), 8),
)
@budget(15)
def test_min_ready_is_met_by_several_launchers_and_not_exceeded(setup: Setup, moves: list[Move]) -> None:
    """M-6."""
    replay(setup, *moves)


@given(
    setup=setups(pools=st.just(0), hosts=st.integers(1, 3), sends_after_death=st.booleans()),
    moves=moves((*CALM, *PROCESSES, "host_down"), 20),
)
@budget(30)
def test_a_slot_of_a_host_has_one_node_and_comes_back_ready(setup: Setup, moves: list[Move]) -> None:
    """S-10"""
    replay(setup, *moves)


@given(
    setup=setups(
        pools=st.just(0), hosts=st.integers(1, 3), quarantine_after=st.integers(0, 3), sends_after_death=st.booleans()
    ),
    moves=moves((*CALM, *PROCESSES, "host_down", "quarantine", "quarantine", "quarantine"), 20),
)
@budget(20)
def test_a_host_that_is_quarantined_loses_no_node_and_comes_back(setup: Setup, moves: list[Move]) -> None:
    """S-16, S-17, S-10: by operators and by failures, in any state, with launchers that come and go."""
    replay(setup, *moves)


@given(
    setup=setups(**POOLS, hosts=st.integers(0, 2)),
    moves=moves((*CALM, *RELOADS), 16),
)
@budget(20)
def test_a_configuration_that_changes_in_the_middle(setup: Setup, moves: list[Move]) -> None:
    """G-4 to G-6: pools, labels, hosts and limits come and go; what was begun goes on, and nothing is left over."""
    replay(setup, *moves)


@given(
    setup=setups(
        max_servers=st.integers(1, 3),
        pools=st.integers(2, 3),
        cloud_limit=st.sampled_from((None, 2, 3)),
        min_ready=st.integers(0, 2),
        sends_after_death=st.booleans(),
    ),
    moves=moves((*CALM, "submit", "submit", *PROCESSES, *CLOUD), 20),
)
@budget(20)
def test_pools_with_different_labels_that_share_a_cloud(setup: Setup, moves: list[Move]) -> None:
    """Q-2, Q-8: limits of pools, and of all together; nobody waits for ever for what others hold.

    E-1, E-2: here most requests wait, each for a known reason with the numbers of the plan.
    """
    replay(setup, *moves)


@given(
    setup=setups(
        max_servers=st.integers(1, 3),
        slices=st.integers(1, 3),
        min_ready=st.integers(0, 1),
        sends_after_death=st.booleans(),
    ),
    moves=moves((*CALM, "submit", "submit", *PROCESSES, *CLOUD), 18),
)
@budget(12)
def test_a_backing_node_has_one_node_in_each_slot_and_stays_as_long_as_they_do(setup: Setup, moves: list[Move]) -> None:
    """T-3, T-7, T-9"""
    replay(setup, *moves)


@given(
    setup=setups(**POOLS, hosts=st.integers(0, 2)),
    moves=PAUSED,
)
@budget(20)
def test_what_operators_pause_fails_nothing_and_goes_on_afterwards(setup: Setup, moves: list[Move]) -> None:
    """MT-3 to MT-7: whatever is paused, no request fails, and each is served after the end of the pause."""
    replay(setup, *moves)


@given(
    setup=setups(**POOLS, slices=st.integers(1, 3)),
    moves=PAUSED,
)
@budget(12)
def test_where_backing_nodes_come_from_is_paused(setup: Setup, moves: list[Move]) -> None:
    """T-13, T-14, MT-11: no request for a slot fails by it, and each is served after the end of the pause."""
    replay(setup, *moves)


MIXED: dict[str, st.SearchStrategy[Any]] = {
    **POOLS,
    "launchers": st.integers(2, 3),
    "hosts": st.integers(0, 2),
    "tenant_limit": st.sampled_from((None, None, 2, 3)),
    "mixed": st.just(True),
}


@given(setup=setups(**MIXED), moves=moves((*CALM, "submit", *PROCESSES, "failed_create"), 20))
@budget(40)
def test_requests_over_several_pools_are_served_as_a_whole(setup: Setup, moves: list[Move]) -> None:
    """MN-2 to MN-4: a launcher of either side ends in whatever state, and nothing is lost."""
    replay(setup, *moves)


@given(
    setup=setups(**{**MIXED, "pools": st.just(2), "max_servers": st.just(2), "cloud_limit": st.integers(2, 3)}),
    moves=moves(("submit", "submit", *CALM), 12),
)
@budget(8)
def test_requests_over_several_pools_do_not_wait_for_each_other(setup: Setup, moves: list[Move]) -> None:
    """MN-5: each holds a node whose room another one needs."""
    replay(setup, *(Move(0, "submit", number) for number in (0, 2, 4)), *moves)
