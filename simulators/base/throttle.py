# SPDX-License-Identifier: Apache-2.0
"""Token buckets, as clouds limit calls with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class CallBucket:
    """:param size: most tokens; ``refill``: tokens per second."""

    size: float
    refill: float


class Throttle:
    """Buckets by name; all are full in the beginning.

    :param clock: seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._levels: dict[str, tuple[float, float]] = {}

    def take(self, wanted: Mapping[str, tuple[CallBucket, float]]) -> str | None:
        """Takes tokens out of all named buckets, or, if one has too few, none at all.

        :param wanted: name -> bucket and number of tokens.
        :returns: the name of a bucket that has too few, or None.
        """
        now = self._clock()
        levels = {name: self._level(name, bucket, now) for name, (bucket, _number) in wanted.items()}
        for name, (_bucket, number) in wanted.items():
            if levels[name] < number:
                return name
        for name, (_bucket, number) in wanted.items():
            self._levels[name] = (levels[name] - number, now)
        return None

    def level(self, name: str, bucket: CallBucket) -> float:
        """How many tokens are in it now."""
        return self._level(name, bucket, self._clock())

    def _level(self, name: str, bucket: CallBucket, now: float) -> float:
        level, since = self._levels.get(name, (bucket.size, now))
        return min(bucket.size, level + (now - since) * bucket.refill)
