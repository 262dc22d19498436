# SPDX-License-Identifier: Apache-2.0
"""The simulated world with builders, under moves and faults that Hypothesis picks.

After each write: no image is built twice at the same time (B-11); no upload becomes ready after one of a newer build
(U-12); nothing that is wanted begins to be deleted (R-1, R-2). At the end: all images are ready everywhere, and nothing
else is left, in ZooKeeper, in clouds and on disks. See `tests.model.test_world` for what a failure prints.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.model.budget import budget
from tests.model.image_world import ImageWorld, image_setup
from tests.model.setup import Move, Setup
from tests.model.world import replay

#: 0 = whoever can go on first; odd = by chance; even = by priorities, where one party may be slow for long.
ORDERS = st.integers(0, 2**30)

CALM = ("request", "request", "clock", "long_clock", "stall")
PROCESSES = ("crash", "stop", "restart", "freeze", "zombie", "cut", "serve_and_cut")
CLOUDS = (
    "refused_upload",
    "lost_upload",
    "broken_upload",
    "corrupted_upload",
    "truncated_upload",
    "refused_deletion",
    "image_service_down",
    "failed_build",
)
HANDS = ("build_corrupted", "upload_corrupted", "files_deleted", "unwanted_build", "unwanted_upload")
RELOADS = ("image_removed", "image_back")


def moves(kinds: tuple[str, ...], most: int) -> st.SearchStrategy[list[Move]]:
    gaps = st.sampled_from((0, 2, 10, 40, 80, 150, 300))
    return st.lists(st.builds(Move, gaps, st.sampled_from(kinds), st.integers(0, 49)), max_size=most)


SETUPS = st.builds(image_setup, st.integers(1, 3), ORDERS, st.booleans())


@given(setup=SETUPS, moves=moves((*CALM, *PROCESSES), 20))
@budget(12)
def test_builders_that_die_freeze_and_lose_their_connections(setup: Setup, moves: list[Move]) -> None:
    """R-4, R-5, U-12"""
    replay(setup, *moves, kind=ImageWorld)


@given(setup=SETUPS, moves=moves((*CALM, *CLOUDS, "crash", "restart", "zombie"), 20))
@budget(12)
def test_clouds_that_refuse_and_lose_and_corrupt(setup: Setup, moves: list[Move]) -> None:
    """U-6, R-4, R-7"""
    replay(setup, *moves, kind=ImageWorld)


@given(setup=SETUPS, moves=moves((*CALM, *HANDS, *RELOADS, "crash", "restart", "zombie", "cut"), 20))
@budget(12)
def test_hands_and_configurations(setup: Setup, moves: list[Move]) -> None:
    """R-3, R-9, R-11, R-13, R-17"""
    replay(setup, *moves, kind=ImageWorld)
