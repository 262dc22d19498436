# SPDX-License-Identifier: Apache-2.0
"""`CloudThreads`: what the threads of one provider are for."""

from __future__ import annotations

import threading
from typing import Any, Final

from nodepool.driver.framework.shared_threads import MAX_THREADS, SharedThreads
from nodepool.driver.statemachine.adapter import Adapter
from nodepool.driver.statemachine.scans import EXCHANGE_THREADS

#: Steps at once that the provider has threads for; an adapter that wants more gets as many more.
STEP_THREADS: Final = 8
#: Of the provider's threads: for questions to the cloud that nobody waits for; and how many are reserved for them, for
#: steps of launches and deletions, and for key exchanges.
ASK_THREADS: Final = 4
RESERVED_ASK_THREADS: Final = 1
RESERVED_STEP_THREADS: Final = 4
RESERVED_EXCHANGE_THREADS: Final = 2


class CloudThreads:
    """Executors of one provider, which share its threads. None of them begins before there is work.

    :param name: of the provider.
    :param adapter: may have ``shared_threads`` of its own, which are used then, and ``advance_threads``.
    """

    def __init__(self, name: str, adapter: Any) -> None:
        steps = getattr(adapter, "advance_threads", Adapter.advance_threads)
        extra = max(0, steps - STEP_THREADS)
        shared: SharedThreads | None = getattr(adapter, "shared_threads", None)
        self.shared = shared if shared is not None else SharedThreads(name, MAX_THREADS + extra)
        #: Questions to the cloud that nobody waits for.
        self.asks = self.shared.share("ask", ASK_THREADS, RESERVED_ASK_THREADS)
        #: One call at a time that finds out whether a cloud that was away answers again.
        self.probes = self.shared.share("probe", 1, 1)
        self.scans = self.shared.share("keyscan", EXCHANGE_THREADS, RESERVED_EXCHANGE_THREADS)
        # One that is the same all the time: libraries keep things for the thread that they are called in.
        self._of_steps = self.shared if steps > 1 else SharedThreads(name, 1, threading.TIMEOUT_MAX)
        #: Steps of launches and deletions.
        self.steps = self._of_steps.share("step", steps, min(steps, RESERVED_STEP_THREADS))

    def ask_no_more(self) -> None:
        """Begin no question to the cloud any more. Does not block."""
        for executor in (self.asks, self.probes):
            executor.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        """Take no more work, and end the threads; blocks until what runs has ended."""
        for executor in (self.asks, self.probes):
            executor.shutdown(wait=True)
        self._of_steps.close()
        self.shared.close()
