# SPDX-License-Identifier: Apache-2.0
"""`AddressShortages`: zones whose quota of floating IPs is used up (CM-6)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from nodepool.clock import monotonic
from nodepool.driver.framework.cloud_errors import CloudQuota

#: IBM tells no limits. So a refusal counts for so long, unless a floating IP of the zone becomes free before.
SHORT_SECONDS: Final = 60.0


class AddressShortages:
    """Of one provider. Thread-safe, does not block; ``_lock`` guards the table."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        #: Until when, and what IBM said.
        self._zones: dict[str, tuple[float, CloudQuota]] = {}

    def refused(self, zone: str, error: CloudQuota) -> None:
        """IBM made no more in a zone."""
        with self._lock:
            self._zones[zone] = self._clock() + SHORT_SECONDS, error

    def freed(self, zone: str) -> None:
        """A floating IP of a zone is free, or gone."""
        with self._lock:
            self._zones.pop(zone, None)

    def of(self, zone: str) -> CloudQuota | None:
        """Why no instance of a zone gets one now; None = it may."""
        with self._lock:
            until, error = self._zones.get(zone, (float("-inf"), None))
            return error if until > self._clock() else None
