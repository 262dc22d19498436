# SPDX-License-Identifier: Apache-2.0
"""Requests that a pool leaves alone for a while: held by somebody, just given back, or another pool's turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from nodepool.clock import monotonic

#: Seconds after which a request is looked at again whose lock somebody else held.
LOCKED_RETRY_SECONDS: Final = 0.25


class DeferredRequest(NamedTuple):
    """A request that is left alone for now."""

    request_id: str
    #: Monotonic seconds.
    until: float
    delay_seconds: float
    #: Is another look worth nothing even then? Must not block.
    pointless: Callable[[], bool]


class DeferredRequests:
    """Owned by the pool worker's thread."""

    def __init__(self) -> None:
        self._requests: dict[str, DeferredRequest] = {}
        #: Those that are another pool's turn.
        self._turns_of_others: set[str] = set()

    def next_look(self) -> float | None:
        """Seconds until a request must be looked at again, or None."""
        return min((max(0.0, left.until - monotonic()) for left in self._requests.values()), default=None)

    def add(
        self,
        request_id: str,
        delay_seconds: float = LOCKED_RETRY_SECONDS,
        pointless: Callable[[], bool] = lambda: False,
    ) -> None:
        """Somebody holds its lock, or it was just given back.

        :param pointless: asked after the delay; true = leave it alone for as long again. Must not block.
        """
        until = monotonic() + delay_seconds
        self._requests[request_id] = DeferredRequest(request_id, until, delay_seconds, pointless)
        self._turns_of_others.discard(request_id)

    def add_turn_of_another(self, request_id: str, delay_seconds: float) -> None:
        """It is another pool's turn, or its work already; a change of it is looked at all the same."""
        self.add(request_id, delay_seconds)
        self._turns_of_others.add(request_id)

    def discard(self, request_id: str) -> None:
        """It is not left alone any more."""
        self._requests.pop(request_id, None)
        self._turns_of_others.discard(request_id)

    def waits(self, request_id: str) -> bool:
        """Is the request left alone for now, even if it changes? One that is another pool's turn is not."""
        return request_id in self._requests and request_id not in self._turns_of_others

    def take_due(self) -> Iterator[DeferredRequest]:
        """Those whose time has come. Each is let go when it is handed out: after an error the others are still here."""
        now = monotonic()
        for left in [left for left in self._requests.values() if left.until <= now]:
            self.discard(left.request_id)
            yield left
