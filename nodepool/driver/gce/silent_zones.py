# SPDX-License-Identifier: Apache-2.0
"""`SilentZones`: zones that do not answer are left alone for a while, so that the others do not wait for them.

A call without an answer takes its thread for up to a minute and a half. Of a provider with several zones those that do
not answer would soon have all threads. If no zone answers the cloud is away, which is the framework's matter.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Final

from nodepool.clock import monotonic
from nodepool.driver.framework.cloud_errors import CloudAway
from nodepool.plan.backoff import Backoff

log = logging.getLogger("nodepool.driver.gce.silent_zones")

#: A zone is silent after so many calls in a row without an answer.
FAILURES: Final = 3
#: From one call that asks whether it answers again to the next one.
PAUSE: Final = Backoff(15.0, 60.0)


class SilentZones:
    """Of one provider. Thread-safe, does not block; ``_lock`` guards the tables."""

    def __init__(self, provider: str, zones: Iterable[str], clock: Callable[[], float] = monotonic) -> None:
        self._provider = provider
        self._zones = frozenset(zones)
        self._clock = clock
        self._lock = threading.Lock()
        #: Calls in a row without an answer, by zone.
        self._failures: dict[str, int] = {}
        #: When the next call may ask whether a zone answers again. Those that are in it are silent.
        self._ask_at: dict[str, float] = {}

    def silent(self, zone: str) -> bool:
        """Does it not answer, while another one does?"""
        with self._lock:
            return zone in self._ask_at and not self._all_silent()

    def check(self, zone: str) -> None:
        """For each call that begins. Of a silent zone one is let through now and then.

        :raises CloudAway: it is silent; nothing was sent.
        """
        with self._lock:
            ask_at = self._ask_at.get(zone)
            if ask_at is None or self._all_silent():
                return
            now = self._clock()
            if now >= ask_at:
                self._ask_at[zone] = now + self._pause(zone)
                return
        text = f"Provider {self._provider}: zone {zone} does not answer; it is asked again in {ask_at - now:.0f} s"
        raise CloudAway(text, maybe_done=False)

    def answered(self, zone: str) -> None:
        """A call had an answer, of whatever kind."""
        with self._lock:
            self._failures.pop(zone, None)
            again = self._ask_at.pop(zone, None) is not None
        if again:
            log.info("Provider %s: zone %s answers again", self._provider, zone)

    def no_answer(self, zone: str) -> None:
        """A call had none, or an error of the server."""
        with self._lock:
            failures = self._failures[zone] = self._failures.get(zone, 0) + 1
            if failures < FAILURES:
                return
            new = zone not in self._ask_at
            self._ask_at[zone] = self._clock() + self._pause(zone)
        if new:
            log.warning("Provider %s: zone %s does not answer and is left alone", self._provider, zone)

    # -- with the lock --

    def _all_silent(self) -> bool:
        return self._ask_at.keys() >= self._zones

    def _pause(self, zone: str) -> float:
        return PAUSE.pause(max(1, self._failures.get(zone, 0) - FAILURES + 1))
