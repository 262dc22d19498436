# SPDX-License-Identifier: Apache-2.0
"""When is a state that lasts logged again? (rule J-6)"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from nodepool.model.reasons import ReasonCode

#: What lasts is told again after so many seconds, and then as often as `LATER_SECONDS` says.
STEPS: Final = (60.0, 300.0, 900.0)
LATER_SECONDS: Final = 3600.0
#: What begins again within so many seconds has not ended.
GAP_SECONDS: Final = 60.0

#: Reasons to wait that are logged. With the others a request is for another pool, or looked at again in a moment.
TOLD: Final = frozenset(
    code
    for code in ReasonCode
    if not code.value.startswith(("turn.", "declined.", "request.", "served.")) and code is not ReasonCode.WAIT_ORDER
)

K = TypeVar("K", bound=Hashable)


def next_reminder(lasted: float) -> float:
    """How long something has lasted when it is told next, in seconds.

    :param lasted: how long it has now.
    """
    later = next((step for step in STEPS if step > lasted), None)
    return (lasted // LATER_SECONDS + 1) * LATER_SECONDS if later is None else later


@dataclass
class _Lasting:
    since: float
    due: float
    seen: float


class Reminders(Generic[K]):
    """Keeps since when each of many things lasts. Times are monotonic seconds.

    :param first: how long something lasts when it is reported for the first time, in seconds.
    """

    def __init__(self, first: float) -> None:
        self._first = first
        self._lasting: dict[K, _Lasting] = {}
        #: When the next of what lasts now is to be told; None = nothing lasts.
        self.next_due: float | None = None

    def due(self, lasting: Iterable[K], now: float) -> list[K]:
        """What is to be told now.

        :param lasting: everything that lasts now.
        """
        found: list[K] = []
        dues: list[float] = []
        for thing in lasting:
            known = self._lasting.get(thing)
            if known is None:
                known = self._lasting[thing] = _Lasting(now, now + self._first, now)
            known.seen = now
            if now >= known.due:
                found.append(thing)
                known.due = known.since + next_reminder(now - known.since)
            dues.append(known.due)
        self.next_due = min(dues, default=None)
        for thing in [thing for thing, known in self._lasting.items() if now - known.seen > GAP_SECONDS]:
            del self._lasting[thing]
        return found
