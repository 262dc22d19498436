# SPDX-License-Identifier: Apache-2.0
"""`History`: numbers of the last hours for charts, in memory. Metrics (Prometheus) are for longer times."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread

from nodepool.guard import Guard
from nodepool.model import states

if TYPE_CHECKING:
    from nodepool.web.site import Snapshots
    from nodepool.web.snapshot import WebSnapshot

log = logging.getLogger("nodepool.web")

#: Between two samples.
INTERVAL_SECONDS: Final = 15.0
#: Samples that are kept: four hours.
MOST_SAMPLES: Final = 960
WAITING: Final = "waiting"
OLDEST_SECONDS: Final = "oldest_seconds"
LAUNCHED: Final = "launched"
FAILED: Final = "launches_failed"
#: States of nodes that have a curve of their own.
NODE_STATES: Final = (states.READY, states.IN_USE, states.BUILDING, states.DELETING, states.HOLD)


@dataclass(frozen=True)
class Sample:
    """:param at: seconds since the epoch. ``values``: by the constants above, and by state of nodes."""

    at: float
    values: Mapping[str, float]


class History:
    """The last samples. Written by one thread, read by any: what is read at a time is of one moment."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=MOST_SAMPLES)

    def add(self, sample: Sample) -> None:
        self._samples.append(sample)

    def samples(self) -> Sequence[Sample]:
        """The oldest first."""
        return list(self._samples.copy())


def sample_of(snapshot: WebSnapshot) -> Sample:
    """The numbers of one moment."""
    seen = snapshot.observed
    waiting = seen.waiting
    oldest = min((one.created_time for one in waiting if one.created_time is not None), default=seen.now)
    nodes = Counter(node.state for node in seen.nodes.values())
    return Sample(
        seen.now,
        {
            WAITING: len(waiting),
            OLDEST_SECONDS: max(0.0, seen.now - oldest),
            LAUNCHED: sum(status.launches.ok_15m for status in seen.statuses),
            FAILED: sum(status.launches.failed_15m for status in seen.statuses),
            **{state: nodes[state] for state in NODE_STATES},
        },
    )


@asynccontextmanager
async def sampling(history: History, snapshots: Snapshots) -> AsyncIterator[None]:
    """A task that takes samples meanwhile, of what ZooKeeper has completely told."""
    task: asyncio.Task[Any] = asyncio.create_task(_take(history, snapshots), name="History")
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _take(history: History, snapshots: Snapshots) -> None:
    def take() -> None:
        if snapshots.complete:
            history.add(sample_of(snapshots.latest()))

    while True:
        with Guard(log, "Error in the history of web pages; trying again in %g s", INTERVAL_SECONDS):
            await anyio.to_thread.run_sync(take)
        await anyio.sleep(INTERVAL_SECONDS)
