# SPDX-License-Identifier: Apache-2.0
"""The circuit breaker: when is a cloud that keeps failing not called any more, and when is it tried again?

*Closed*: all is well. After `TRIP_FAILURES` calls in a row failed, over at least `TRIP_SECONDS`, it is *open*: nothing
new is begun. When the pause is over one call, the probe, finds out whether the cloud is back. Each probe that fails
doubles the pause.
"""

from __future__ import annotations

from typing import Final

from nodepool.plan.backoff import Backoff

#: Calls that must fail in a row, with no call that worked in between...
TRIP_FAILURES: Final = 5
#: ...and seconds from the first to the last of them: a moment's trouble in many calls at once is no outage.
TRIP_SECONDS: Final = 2.0
#: From a probe that failed, or the failure that opened it, to the next probe.
PROBE: Final = Backoff(2.0, 30.0)


class CircuitBreaker:
    """Pure: each method gets the time, in seconds. The owner serializes the calls."""

    def __init__(self) -> None:
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
                self._plan_probe(now)
            return False
        if not self._failures:
            self._first_failure = now
        self._failures += 1
        if self._failures < TRIP_FAILURES or now - self._first_failure < TRIP_SECONDS:
            return False
        self.reason = reason
        self._plan_probe(now)
        return True

    def _plan_probe(self, now: float) -> None:
        self._probes_failed += 1
        self._probe_at = now + PROBE.pause(self._probes_failed)

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
