# SPDX-License-Identifier: Apache-2.0
"""`CallWatch`: logs calls of drivers that hang, while they do."""

from __future__ import annotations

import logging
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from nodepool.driver import gateway
from nodepool.driver.framework.running_calls import LateCall
from nodepool.metrics.catalog import LATE_CALLS
from nodepool.metrics.registry import Registry, Series
from nodepool.runtime.worker import PassThread

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
