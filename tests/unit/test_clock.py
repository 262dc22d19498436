# SPDX-License-Identifier: Apache-2.0
"""What the clocks of the process are asked beside the time."""

from __future__ import annotations

import pytest

from nodepool.clock import next_tick


@pytest.mark.parametrize(
    ("now", "period", "expected"),
    [(100.0, 1.0, 101.0), (100.1, 1.0, 101.0), (100.99, 1.0, 101.0), (100.1, 0.25, 100.25), (0.0, 2.0, 2.0)],
)
def test_next_tick(now: float, period: float, expected: float) -> None:
    """Later than now, and the same for all who ask in a period."""
    assert next_tick(now, period) == expected
