# SPDX-License-Identifier: Apache-2.0
"""`ClosedConnections`: connections of clients that the web server closed to protect itself: a metric and a log line."""

from __future__ import annotations

import enum
import logging
from collections import Counter
from collections.abc import Callable
from typing import Final

from nodepool.clock import monotonic
from nodepool.metrics.catalog import WEB_CLOSED
from nodepool.metrics.statsd import REGISTRY

log = logging.getLogger("nodepool.web")

#: An attack must not fill the log.
TELL_SECONDS: Final = 60.0


class ClosedFor(enum.StrEnum):
    """Why a connection was closed. Values stand in metrics and in the log."""

    #: There are too many of all clients, and none could go for it.
    TOO_MANY = "too many"
    #: Its client has too many.
    CLIENT = "too many of one client"
    #: Its TLS handshake did not end, in time or before others needed the room.
    HANDSHAKE = "handshake"
    #: It waited longest for a request, or took its answer slowest, when there were too many.
    IDLE = "room for others"


class ClosedConnections:
    """For the event loop of the server.

    :param clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._told_at = -TELL_SECONDS
        self._untold: Counter[ClosedFor] = Counter()

    def note(self, cause: ClosedFor) -> None:
        """One was closed. It is counted at once, and logged with others that follow soon."""
        REGISTRY.count(WEB_CLOSED.series(cause.value))
        self._untold[cause] += 1
        now = self._clock()
        if now - self._told_at >= TELL_SECONDS:
            self._told_at = now
            told = ", ".join(f"{count} ({one.value})" for one, count in sorted(self._untold.items()))
            self._untold.clear()
            log.warning("Connections of web clients were closed since the last message: %s", told)
