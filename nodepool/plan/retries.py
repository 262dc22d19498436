# SPDX-License-Identifier: Apache-2.0
"""How long to wait before something is tried, asked or logged again.

First the growing delay (`Backoff`), then the circuit breaker, then what must be seen twice.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

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
        try:
            pause = self.first_seconds * self.factor ** (failures - 1) if failures > 0 else 0.0
        except OverflowError:
            pause = math.inf
        return min(pause, self.longest_seconds, NEVER_SECONDS)


# The circuit breaker: when is a cloud that keeps failing not called any more, and when is it tried again?
#
# *Closed*: all is well. After `TRIP_FAILURES` calls in a row failed, over at least `TRIP_SECONDS`, it is *open*:
# nothing new is begun. When the pause is over one call, the probe, finds out whether the cloud is back. Each probe that
# fails doubles the pause.

#: Calls that must fail in a row, with no call that worked in between...
TRIP_FAILURES: Final = 5
#: ...and seconds from the first to the last of them: a moment's trouble in many calls at once is no outage.
TRIP_SECONDS: Final = 2.0
#: From a probe that failed, or the failure that opened it, to the next probe.
PROBE: Final = Backoff(2.0, 30.0)


class CircuitBreaker:
    """Pure: each method gets the time, in seconds. The owner serializes the calls.

    :param failures: see `TRIP_FAILURES`; ``seconds``: `TRIP_SECONDS`; ``probe``: `PROBE`.
    """

    def __init__(self, failures: int = TRIP_FAILURES, seconds: float = TRIP_SECONDS, probe: Backoff = PROBE) -> None:
        self._trip_failures, self._trip_seconds, self._probe = failures, seconds, probe
        #: What the last failure was, while it is open; else empty.
        self.reason = ""
        self._failures = 0
        self._first_failure = 0.0
        #: Since it opened; the failure that opened it counts as the first.
        self._probes_failed = 0
        self._probe_at = 0.0

    @property
    def is_open(self) -> bool:
        return self._probes_failed > 0

    def failed(self, now: float, reason: str) -> bool:
        """Note a call that failed because of the cloud.

        :param reason: one line.
        :return: it opens with this failure.
        """
        if self.is_open:
            self.reason = reason
            if now >= self._probe_at:
                self.plan_probe(now)
            return False
        if not self._failures:
            self._first_failure = now
        self._failures += 1
        if self._failures < self._trip_failures or now - self._first_failure < self._trip_seconds:
            return False
        self.reason = reason
        self.plan_probe(now)
        return True

    def plan_probe(self, now: float) -> None:
        """The probe is for later: it has failed, or begins now, and no other call shall be one."""
        self._probes_failed += 1
        self._probe_at = now + self._probe.pause(self._probes_failed)

    def worked(self) -> bool:
        """Note a call that worked; did it close the circuit breaker?"""
        ended = self.is_open
        self._failures = 0
        self._probes_failed = 0
        self.reason = ""
        return ended

    def probe_due(self, now: float) -> float | None:
        """Seconds until the probe, 0 = now; None = it is closed."""
        return max(0.0, self._probe_at - now) if self.is_open else None


K = TypeVar("K", bound=Hashable)


# What one look shows may be about to change, or be known late. What the next one shows again is so.


class SeenTwice(Generic[K]):
    """Compares each look with the one before. The owner serializes the calls.

    :param apart_seconds: the first of the looks in a row that show something must be so long ago.
    """

    def __init__(self, apart_seconds: float = 0.0) -> None:
        self._apart_seconds = apart_seconds
        #: When each was seen for the first time, in looks without a gap.
        self._since: dict[K, float] = {}
        #: Did the last look show anything that the one before did not?
        self.new = False

    def seen_for(self, key: K, now: float) -> float:
        """Seconds since something was seen for the first time, in looks without a gap."""
        return now - self._since.get(key, now)

    def look(self, found: Iterable[K], now: float = 0.0) -> set[K]:
        """Note a look; returns what was seen before, too.

        :param found: all that it shows.
        :param now: seconds; needed only with ``apart_seconds``.
        """
        before = self._since
        self._since = {key: before.get(key, now) for key in found}
        self.new = not self._since.keys() <= before.keys()
        return {key for key, since in self._since.items() if key in before and now - since >= self._apart_seconds}
