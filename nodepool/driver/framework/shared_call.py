# SPDX-License-Identifier: Apache-2.0
"""`SharedCall`: one call of several who wait for its answer, and who may send it again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Generic, TypeVar

from nodepool.exceptions import CloudUnavailableException
from nodepool.guard import settle

T = TypeVar("T")


class SharedCall(Generic[T]):
    """The same call again is the same call: it is made again only if it failed. Thread-safe.

    ``_lock`` guards the latest future; it is not held during the call.

    :param call: makes it again; blocks.
    :param executor: runs that.
    """

    def __init__(self, call: Callable[[], T], executor: Executor) -> None:
        self._call = call
        self._executor = executor
        self._lock = threading.Lock()
        self._answer: Future[T] = Future()

    def make(self, call: Callable[[], T]) -> T:
        """Make it for the first time, in this thread; blocks. Raises what it raises."""
        settle((self._answer,), call)
        return self._answer.result()

    def again(self) -> Future[T]:
        """Its answer: of the call that is under way or was answered, else of a new one. Does not block.

        After the end of the executor there is no other call: the answer is an error then.
        """
        with self._lock:
            answer = self._answer
            if not answer.done() or answer.exception() is None:
                return answer
            self._answer = answer = Future()
        try:
            run = self._executor.submit(settle, (answer,), self._call)
        except RuntimeError:
            # The executor was shut down.
            answer.set_exception(_stopped())
        else:
            run.add_done_callback(lambda run: answer.set_exception(_stopped()) if run.cancelled() else None)
        return answer


def _stopped() -> CloudUnavailableException:
    """It was not made again: what the first one did is not known."""
    return CloudUnavailableException("the provider was stopped")
