# SPDX-License-Identifier: Apache-2.0
"""`WaitTimes`: how long requests of the last hour waited, by label, in memory. Longer times are in the metrics."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from nodepool.model import states
from nodepool.plan.queue import MIN_READY_REQUESTOR

if TYPE_CHECKING:
    from nodepool.model.request import NodeRequest

#: Waits that ended longer ago do not count.
WINDOW_SECONDS: Final = 3600.0
#: Waits that are kept of a label, and labels. Both come from other programs: memory must have a bound.
MOST_WAITS: Final = 1000
MOST_LABELS: Final = 1000
#: Ends that are remembered, so that a record that is read again does not count again.
MOST_ENDS: Final = 10_000


@dataclass(frozen=True)
class WaitSummary:
    """Of the requests with a label that were fulfilled in the last hour, or in its last part if there were very many.

    :param count: requests. ``shared``: those of them that wanted other labels, too. Their wait counts as a whole for
        each label, because a record does not tell which of its nodes was there first.
    :param p50: seconds from submission until the request was fulfilled, which half of them did not exceed; ``p95``: 95
        of 100; None = there was no request.
    :param covered_seconds: the part of the hour of which all are known; less than 3,600 if only the last ones are kept.
    """

    count: int
    shared: int
    p50: float | None
    p95: float | None
    covered_seconds: float = WINDOW_SECONDS


@dataclass(frozen=True)
class _EndedWait:
    at: float
    seconds: float
    shared: bool


class WaitTimes:
    """Any thread. Nothing blocks: ``_lock`` is held for dictionary work only."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waits: OrderedDict[str, deque[_EndedWait]] = OrderedDict()
        self._ended: OrderedDict[str, None] = OrderedDict()

    def note(self, request: NodeRequest | None) -> None:
        """Count a request if it was fulfilled. Nobody waits for those of ``min-ready``.

        :param request: as it is now; None = it has gone.
        """
        if request is None or request.state != states.FULFILLED or request.requestor == MIN_READY_REQUESTOR:
            return
        created, at = request.created_time, request.state_time
        if created is None or at is None:
            return
        labels = set(request.node_types)
        wait = _EndedWait(at, max(0.0, at - created), len(labels) > 1)
        with self._lock:
            if request.key in self._ended:
                return
            self._ended[request.key] = None
            if len(self._ended) > MOST_ENDS:
                self._ended.popitem(last=False)
            for label in labels:
                self._waits.setdefault(label, deque(maxlen=MOST_WAITS)).append(wait)
                self._waits.move_to_end(label)
            while len(self._waits) > MOST_LABELS:
                self._waits.popitem(last=False)

    def of_label(self, label: str, now: float) -> WaitSummary:
        """:param now: seconds since the epoch."""
        with self._lock:
            kept = list(self._waits.get(label, ()))
        waits = [one for one in kept if now - WINDOW_SECONDS <= one.at]
        seconds = sorted(one.seconds for one in waits)
        # Those before the oldest one were forgotten.
        all_kept = len(waits) < MOST_WAITS
        covered = WINDOW_SECONDS if all_kept else max(0.0, now - min(one.at for one in waits))
        shared = sum(one.shared for one in waits)
        return WaitSummary(len(waits), shared, percentile(seconds, 50), percentile(seconds, 95), covered)


def percentile(values: Sequence[float], percent: int) -> float | None:
    """The least of sorted values that so many of 100 do not exceed (nearest rank); None = there is none."""
    if not values:
        return None
    return values[max(0, -(-len(values) * percent // 100) - 1)]
