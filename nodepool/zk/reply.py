# SPDX-License-Identifier: Apache-2.0
"""The answer to one call, in the order in which the server sent it (`Reply`).

Kazoo hands results to a completion thread and events to a callback thread, which loses their order. A cache must see
its own writes and foreign events in the order in which the server sent them. So the connection thread sets a reply.
Then what a watch reports, and how long ZooKeeper takes to answer.
"""

from __future__ import annotations

import bisect
import logging
import threading
from collections.abc import Callable
from typing import Any, Final

from nodepool import log_names
from nodepool.exceptions import ZKConnectionError

log = logging.getLogger(log_names.ZOOKEEPER)


class Reply:
    """The answer to one call, set by the connection thread.

    :param on_done: called in the connection thread with (result, error), before waiters wake. Must be quick, must not
        block and must not wait for another reply.
    """

    __slots__ = ("_done", "_on_done", "_result", "answered", "error")

    def __init__(self, on_done: Callable[[Any, BaseException | None], None] | None = None) -> None:
        # A lock that is released once is the cheapest thing to wait for.
        self._done = threading.Lock()
        self._done.acquire()
        self._on_done = on_done
        self.answered = False
        #: What came instead of an answer.
        self.error: BaseException | None = None
        self._result: Any = None

    def _finish(self, result: Any, error: BaseException | None) -> None:
        # Kazoo may report an error twice (queue and socket): the first answer counts.
        if self.answered:
            return
        self.answered = True
        self._result = result
        self.error = error
        try:
            if self._on_done is not None:
                self._on_done(result, error)
        except ZKConnectionError as closing:
            # Somebody ends the connection at this moment: what was to be asked next is of no use to anybody.
            log.debug("Nothing more is made of a ZooKeeper reply: %s", closing)
        except Exception:
            # An error here would end Kazoo's connection loop.
            log.exception("Error while handling a ZooKeeper reply")
        finally:
            self._done.release()

    def set(self, value: Any = None) -> None:
        self._finish(value, None)

    def set_exception(self, error: BaseException) -> None:
        self._finish(None, error)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until there is an answer, at most ``timeout`` seconds; returns whether there is one."""
        if not self._done.acquire(timeout=-1 if timeout is None else timeout):
            return False
        self._done.release()
        return True

    def get(self, timeout: float | None = None) -> Any:
        """Wait for the answer and return it, or raise the error that came instead.

        :raises TimeoutError: no answer within ``timeout`` seconds.
        """
        if not self.wait(timeout):
            raise TimeoutError("no answer from ZooKeeper")
        if self.error is not None:
            raise self.error
        return self._result


# What a recursive watch reports of a znode.

#: Kinds of events, as ZooKeeper numbers them.
CREATED: Final = 1
DELETED: Final = 2
CHANGED: Final = 3

#: ``on_event(kind, path without chroot)``, called in the connection thread: must be quick and must not block.
WatchFunction = Callable[[int, str], None]


# `Latency`: how long ZooKeeper takes to answer, counted by the connection thread.

#: Upper bounds of the counts, in seconds.
BOUNDS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


class Latency:
    """Written by one thread without a lock; others read, and may miss what is being added."""

    def __init__(self) -> None:
        #: Answers up to each bound, and those above all of them; not cumulative.
        self.counts = [0] * (len(BOUNDS) + 1)
        self.sum_seconds = 0.0

    def add(self, seconds: float) -> None:
        """Count an answer. Does not block."""
        self.counts[bisect.bisect_left(BOUNDS, seconds)] += 1
        self.sum_seconds += seconds
