# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from benchmarks.suite.statistics import percent_worse


def test_percent_worse() -> None:
    """Each pair is compared with itself: a machine that gets slower all the time makes nothing worse."""
    pairs = [(100.0, 104.0), (200.0, 208.0), (400.0, 416.0)]
    assert percent_worse(pairs, more_is_better=False) == pytest.approx(4.0)
    assert percent_worse([(after, before) for before, after in pairs], more_is_better=True) == pytest.approx(4.0)


def test_better() -> None:
    assert percent_worse([(100.0, 50.0)], more_is_better=False) == pytest.approx(-50.0)


def test_one_round_does_not_count_more_than_others() -> None:
    assert percent_worse([(1.0, 1.0), (1.0, 9.0), (1.0, 1.01)], more_is_better=False) == pytest.approx(1.0)


def test_nothing_was_measured() -> None:
    assert percent_worse([], more_is_better=True) is None
