# SPDX-License-Identifier: Apache-2.0
"""Passes what the gateway counted of calls of drivers on to the metrics of this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from nodepool.clock import monotonic
from nodepool.driver import gateway
from nodepool.driver.gateway import CallCount
from nodepool.metrics.catalog import DRIVER_CALL_ERRORS, DRIVER_CALL_SECONDS, DRIVER_CALLS
from nodepool.metrics.registry import Registry

#: To look at all counts, dozens for each provider, costs the main thread more than all else that it does in a turn.
PUBLISH_SECONDS: Final = 5.0
_METRICS = (DRIVER_CALLS, DRIVER_CALL_ERRORS, DRIVER_CALL_SECONDS)


class CallMetrics:
    """For the main thread: a call itself is to cost next to nothing, so what was counted is passed on now and then.

    :param counts: all counts so far.
    """

    def __init__(
        self,
        registry: Registry,
        counts: Callable[[], Iterable[CallCount]] = gateway.call_counts,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._registry = registry
        self._counts = counts
        self._clock = clock
        self._due_at = clock()
        #: Hook and provider -> what was passed on.
        self._told: dict[tuple[str, str], tuple[float, ...]] = {}

    def publish(self) -> None:
        """Pass on what was counted since the last time, `PUBLISH_SECONDS` ago or longer. Does not block."""
        if self._clock() < self._due_at:
            return
        self._due_at = self._clock() + PUBLISH_SECONDS
        for count in self._counts():
            place = (count.hook, count.provider)
            values: tuple[float, ...] = (count.calls, count.errors, count.seconds)
            before = self._told.get(place, (0, 0, 0.0))
            if values == before:
                # Most are: there are dozens of methods for each provider.
                continue
            self._told[place] = values
            for metric, value, told in zip(_METRICS, values, before, strict=True):
                if value > told:
                    self._registry.count(metric.series(*place), value - told)
