# SPDX-License-Identifier: Apache-2.0
"""What Hypothesis picks from in several tests: whose turn it is, what happens, and worlds of public clouds."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.model.setup import Move, Setup

#: 0 = whoever can go on first; odd = by chance; even = by priorities, where one party may be slow for long.
ORDERS = st.integers(0, 2**30)

CALM = ("submit", "submit", "take", "release", "stall", "clock")
PROCESSES = (
    "cancel",
    "crash",
    "stop",
    "restart",
    "freeze",
    "zombie",
    "cut",
    "serve_and_cut",
    "kill_zuul",
    "long_clock",
)
CLOUD = ("lost_create", "failed_create", "quota_error", "cloud_down")
SUBMITS = ("submit", "submit", "submit")

#: Small worlds: what drivers of public clouds do in them takes many more steps.
CLOUD_SETUPS = st.builds(
    Setup,
    launchers=st.integers(1, 2),
    max_servers=st.integers(1, 3),
    pools=st.integers(1, 2),
    min_ready=st.sampled_from((0, 0, 1)),
    order=ORDERS,
    boot_seconds=st.sampled_from((0.0, 4.0)),
    sends_after_death=st.booleans(),
)


def moves(kinds: tuple[str, ...], most: int) -> st.SearchStrategy[list[Move]]:
    gaps = st.sampled_from((0, 1, 2, 5, 10, 20, 40, 80, 150))
    return st.lists(st.builds(Move, gaps, st.sampled_from(kinds), st.integers(0, 49)), max_size=most)


def cloud_moves(*kinds: str) -> st.SearchStrategy[list[Move]]:
    """In such a world. :param kinds: faults that only its cloud knows."""
    return moves((*CALM, *SUBMITS, *PROCESSES, *CLOUD, *kinds), 18)
