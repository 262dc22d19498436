# SPDX-License-Identifier: Apache-2.0
"""When is a host checked again? Each host has a back-off of its own, so that those that are down hold up nobody."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from nodepool.driver.static.checks import HostKeysMissing
from nodepool.plan.backoff import Backoff
from nodepool.plan.static_hosts import HostId

#: From a check that failed to the next one.
RETRY: Final = Backoff(1.0, 60.0)


@dataclass
class _Trouble:
    failures: int
    due: float
    reason: str


class RetrySchedule:
    """Owned by the provider's thread. Logs a host's trouble once, not at each attempt.

    Times are seconds of any clock that only goes forward.
    """

    def __init__(self, log: logging.Logger) -> None:
        self.log = log
        self._troubles: dict[HostId, _Trouble] = {}

    def due(self, host: HostId) -> float:
        """Time of the next check; 0 for a host without trouble."""
        trouble = self._troubles.get(host)
        return trouble.due if trouble is not None else 0.0

    def failed(self, host: HostId, error: Exception, now: float) -> None:
        """Note that a host failed its check."""
        before = self._troubles.get(host)
        failures = before.failures + 1 if before is not None else 1
        delay = RETRY.pause(failures)
        if isinstance(error, HostKeysMissing):
            # Somebody must change something; S-3.
            delay = RETRY.longest_seconds
        reason = str(error) or type(error).__name__
        self._troubles[host] = _Trouble(failures, now + delay, reason)
        if before is None or before.reason != reason:
            self.log.warning(
                "Static host %s is not registered: %s. It is tried again, at the latest every %g s",
                host,
                reason,
                RETRY.longest_seconds,
            )

    def worked(self, host: HostId) -> None:
        """Note that a host passed its check."""
        trouble = self._troubles.pop(host, None)
        if trouble is not None:
            self.log.info("Static host %s works again after %d failed check(s)", host, trouble.failures)
