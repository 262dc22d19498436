# SPDX-License-Identifier: Apache-2.0
"""Calls of drivers, as the gateway counted them: first to the metrics of the process, then to the log if they hang."""

from __future__ import annotations

import logging
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from nodepool.clock import monotonic
from nodepool.driver import gateway
from nodepool.driver.gateway import CallCount
from nodepool.driver.hooks import LateCall
from nodepool.metrics.catalog import DRIVER_CALL_ERRORS, DRIVER_CALL_SECONDS, DRIVER_CALLS, LATE_CALLS
from nodepool.metrics.registry import Registry, Series
from nodepool.runtime.worker import PassThread

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


# `CallWatch`: logs calls of drivers that hang, while they do.

log = logging.getLogger("nodepool.driver.gateway")

#: So often it looks.
LOOK_SECONDS: Final = 1.0
#: From so many seconds on it is a warning.
WARNING_SECONDS: Final = 10.0
#: Calls of one hook that are told of in one line.
MAX_TOLD: Final = 5
#: The group of gauges.
GROUP: Final = "late calls"


class CallWatch(PassThread):
    """One for the process. It asks no driver anything, and does not need ZooKeeper.

    :param registry: is informed how many calls are late.
    :param late: all calls that are late.
    """

    def __init__(self, registry: Registry, late: Callable[[], Sequence[LateCall]] = gateway.RUNNING.late) -> None:
        super().__init__("CallWatch", log, LOOK_SECONDS)
        self._registry = registry
        self._late = late
        self._hostname = socket.gethostname()

    def run_once(self) -> float | None:
        """Look once. Does not block."""
        late = self._late()
        counts = Counter((call.provider, call.hook) for call in late)
        values: dict[Series, float] = {LATE_CALLS.series(self._hostname, *key): n for key, n in counts.items()}
        self._registry.replace(GROUP, values)
        for provider, hook in counts:
            self._tell(provider, hook, [call for call in late if (call.provider, call.hook) == (provider, hook)])
        return None

    def _tell(self, provider: str, hook: str, late: list[LateCall]) -> None:
        """One line for the calls of a hook whose time it is."""
        told = [call for call in late if call.tell]
        if not told:
            return
        longest = max(call.seconds for call in told)
        level = logging.INFO if longest < WARNING_SECONDS and told[0].blocks else logging.WARNING
        about = "; ".join(f"{call.about or 'no id'}, thread {call.thread}" for call in told[:MAX_TOLD])
        more = f"; and {len(told) - MAX_TOLD} more" if len(told) > MAX_TOLD else ""
        log.log(level, "Provider %s: %s() has not returned after %.0f s: %s%s", provider, hook, longest, about, more)
