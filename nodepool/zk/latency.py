# SPDX-License-Identifier: Apache-2.0
"""`Latency`: how long ZooKeeper takes to answer, counted by the connection thread."""

from __future__ import annotations

import bisect
from typing import Final

#: Upper bounds of the counts, in seconds.
BOUNDS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


class Latency:
    """Written by one thread without a lock; others read, and may miss what is being added."""

    def __init__(self) -> None:
        #: Answers up to each bound, and those above all of them; not cumulative.
        self.counts = [0] * (len(BOUNDS) + 1)
        self.sum_seconds = 0.0

    def add(self, seconds: float) -> None:
        """Count an answer. Does not block."""
        self.counts[bisect.bisect_left(BOUNDS, seconds)] += 1
        self.sum_seconds += seconds
