# SPDX-License-Identifier: Apache-2.0
"""`ProviderThreads`: a few threads for each provider, so that a slow cloud delays only itself."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from nodepool.driver.framework.shared_threads import SharedThreads, ThreadShare

#: Of one provider: the clouds bound it anyway, and its API serves other purposes, too.
THREADS: Final = 2


class ProviderThreads:
    """Any thread; nothing blocks. Threads begin with the first work and end without any. ``_lock`` guards the table.

    :param kind: of the work, for the names of the threads.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._lock = threading.Lock()
        self._shares: dict[str, ThreadShare] = {}
        self._closed = False

    @property
    def closed(self) -> bool:
        """Was it closed? What runs may fail then because providers are stopped, too."""
        return self._closed

    def submit(self, provider: str, call: Callable[[], None]) -> bool:
        """Make a call in a thread of the provider, as soon as one is free. It must not raise.

        :return: False = after `close`: it is not made.
        """
        with self._lock:
            if self._closed:
                return False
            share = self._shares.get(provider)
            if share is None:
                threads = SharedThreads(f"{provider}-images", THREADS)
                share = self._shares[provider] = threads.share(self._kind, THREADS, THREADS)
            share.submit(call)
            return True

    def close(self) -> None:
        """Begin nothing more, and forget what waits. What runs ends in the background."""
        with self._lock:
            self._closed = True
            shares = list(self._shares.values())
        for share in shares:
            share.shutdown(wait=False, cancel_futures=True)
