# SPDX-License-Identifier: Apache-2.0
"""Pauses between attempts."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nodepool.plan.retries import Backoff


@pytest.mark.parametrize(
    ("backoff", "pauses"),
    [
        (Backoff(1.0, 5.0), [0.0, 1.0, 2.0, 4.0, 5.0, 5.0]),
        (Backoff(2.0, 10.0, factor=1.5), [0.0, 2.0, 3.0, 4.5, 6.75, 10.0, 10.0]),
        (Backoff(3.0, 3.0), [0.0, 3.0, 3.0]),
        (Backoff(3.0, 60.0, factor=1.0), [0.0, 3.0, 3.0]),
        (Backoff(0.0, 60.0), [0.0, 0.0, 0.0]),
        (Backoff(90.0, 60.0), [0.0, 60.0, 60.0]),
        (Backoff(1.0, math.inf), [0.0, 1.0, 2.0, 4.0, 8.0]),
    ],
)
def test_pauses(backoff: Backoff, pauses: list[float]) -> None:
    """They grow by the factor, up to the longest."""
    assert [backoff.pause(failures) for failures in range(len(pauses))] == pauses


@pytest.mark.parametrize("failures", [1024, 1025, 10_000, 10**9])
@pytest.mark.parametrize("factor", [1.5, 2.0, 10.0])
def test_no_number_of_failures_is_too_large(failures: int, factor: float) -> None:
    """2.0 ** 1024 is an OverflowError."""
    assert Backoff(5.0, 60.0, factor).pause(failures) == 60.0
    assert Backoff(5.0, math.inf, factor).pause(failures) > 1e99


@given(
    first=st.floats(0.001, 100),
    times=st.floats(1, 1e6),
    factor=st.floats(1.01, 10),
    failures=st.integers(1, 10**6),
)
@example(first=1.0, times=1e6, factor=9.999999999999998, failures=1)
def test_never_shorter_and_never_longer_than_the_longest(
    first: float, times: float, factor: float, failures: int
) -> None:
    backoff = Backoff(first, first * times, factor)
    assert first <= backoff.pause(failures) <= backoff.pause(failures + 1) <= backoff.longest_seconds
    assert backoff.pause(10**6) == backoff.longest_seconds
