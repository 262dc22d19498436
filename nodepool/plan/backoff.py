# SPDX-License-Identifier: Apache-2.0
"""How long to wait before something that failed is tried again."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

#: Stands for no longest pause.
NEVER_SECONDS: Final = 1e100


@dataclass(frozen=True)
class Backoff:
    """Pauses that grow with each failure in a row, up to a longest one.

    :param first_seconds: pause after the first failure.
    :param longest_seconds: no pause is longer; may be infinite.
    :param factor: each pause is so many times as long as the one before it; at least 1.
    """

    first_seconds: float
    longest_seconds: float
    factor: float = 2.0

    def pause(self, failures: int) -> float:
        """Seconds from the last failure to the next attempt.

        :param failures: how many there were in a row, the last one included; with less than one there is no pause.
        """
        if failures < 1 or self.first_seconds <= 0:
            return 0.0
        longest = min(self.longest_seconds, NEVER_SECONDS)
        if failures > self._steps(longest):
            return longest
        return min(longest, self.first_seconds * self.factor ** (failures - 1))

    def _steps(self, longest: float) -> float:
        """So many growths lead to the longest pause or past it: a float holds no power of some thousands."""
        if longest <= self.first_seconds:
            return 0
        if self.factor <= 1:
            return math.inf
        return math.ceil(math.log(longest / self.first_seconds, self.factor))
