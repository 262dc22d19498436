# SPDX-License-Identifier: Apache-2.0
"""Orders of many that go to a cloud in few calls: `Batches`, where all orders of a call end alike."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Executor, Future
from typing import Any, Generic, TypeVar

from nodepool.driver.framework.rate import Hold, working_for
from nodepool.exceptions import CloudUnavailableException
from nodepool.guard import settle

K = TypeVar("K", bound=Hashable)


class Batches(Generic[K]):
    """Gathers what is ordered while a call waits for its turn, or is under way. Thread-safe.

    ``_lock`` guards the orders; it is not held during a call. Calls are made one after the other.

    :param send: makes one call: waits for its turn, asks its argument for the orders, and returns what came of each; an
        exception = it failed; nothing = None. What it raises is the error of all of them. Blocks.
    :param executor: runs it.
    :param most: orders in a call.
    """

    def __init__(self, send: Callable[[Callable[[], list[K]]], Mapping[K, Any]], executor: Executor, most: int) -> None:
        self._send = send
        self._executor = executor
        self._most = most
        self._lock = threading.Lock()
        #: Those who ordered wait until their order is sent.
        self._waiting: dict[K, tuple[Future[Any], list[Hold]]] = {}
        self._running = False

    def add(self, order: K) -> Future[Any]:
        """Order something; does not block. Whoever orders the same before it is sent gets the same future."""
        # Not under the lock, because it calls others.
        hold = Hold()
        with self._lock:
            future, holds = self._waiting.setdefault(order, (Future(), []))
            holds.append(hold)
            begin, self._running = not self._running, True
        if begin:
            # For all that order.
            try:
                with working_for(()):
                    self._executor.submit(self._run).add_done_callback(self._ended)
            except RuntimeError:
                # It was shut down, or the system has no more threads.
                self._fail_left()
        return future

    def _run(self) -> None:
        while self._go_on():
            taken: dict[K, Future[Any]] = {}
            outcome: Future[Mapping[K, Any]] = Future()
            settle((outcome,), lambda taken=taken: self._send(lambda: self._take(taken, self._most)))  # type: ignore[misc]
            if not taken:
                # It failed before its turn came: all that wait hear of it.
                self._take(taken, self._most)
            error = outcome.exception()
            for order, future in taken.items():
                answer = error or outcome.result().get(order)
                if isinstance(answer, BaseException):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)

    def _go_on(self) -> bool:
        with self._lock:
            self._running = bool(self._waiting)
            return self._running

    def _take(self, taken: dict[K, Future[Any]], most: int) -> list[K]:
        with self._lock:
            orders = list(self._waiting)[:most]
            held = [self._waiting.pop(order) for order in orders]
        for order, (future, holds) in zip(orders, held, strict=True):
            taken[order] = future
            for hold in holds:
                hold.end()
        return list(taken)

    def _ended(self, run: Future[None]) -> None:
        """Orders that are never sent, because the executor was shut down, must not be waited for."""
        if run.cancelled():
            self._fail_left()

    def _fail_left(self) -> None:
        left: dict[K, Future[Any]] = {}
        # Until there are none: more may be ordered while these are taken.
        while self._go_on():
            self._take(left, sys.maxsize)
        error = CloudUnavailableException("the provider was stopped")
        error.maybe_done = False
        for future in left.values():
            future.set_exception(error)
