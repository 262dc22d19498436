# SPDX-License-Identifier: Apache-2.0
"""A clock that tests move."""

from __future__ import annotations

import time


class ManualClock:
    """A clock for the simulator that only goes when a test says so. Starts at the real time."""

    def __init__(self) -> None:
        self._now = time.time()

    def __call__(self) -> float:
        return self._now

    def pass_seconds(self, seconds: float) -> None:
        """Lets time pass."""
        self._now += seconds
