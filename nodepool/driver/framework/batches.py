# SPDX-License-Identifier: Apache-2.0
"""`Batches`: orders of many that go to a cloud in one call."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Executor, Future
from typing import Generic, TypeVar

from nodepool.driver.framework.held_time import Hold, working_for
from nodepool.exceptions import CloudUnavailableException
from nodepool.guard import settle

K = TypeVar("K", bound=Hashable)


class Batches(Generic[K]):
    """Gathers what is ordered while a call waits for its turn, or is under way. Thread-safe.

    ``_lock`` guards the orders; it is not held during a call. Calls are made one after the other.

    :param send: makes one call: waits for its turn, asks its argument for the orders, and returns the errors of those
        that failed. What it raises is the error of all of them. Blocks.
    :param executor: runs it.
    :param most: orders in a call.
    """

    def __init__(
        self, send: Callable[[Callable[[], list[K]]], Mapping[K, Exception]], executor: Executor, most: int
    ) -> None:
        self._send = send
        self._executor = executor
        self._most = most
        self._lock = threading.Lock()
        self._waiting: dict[K, Future[None]] = {}
        #: Those who ordered wait until their order is sent.
        self._holds: dict[K, list[Hold]] = {}
        self._running = False

    def add(self, order: K) -> Future[None]:
        """Order something; does not block. Whoever orders the same before it is sent gets the same future."""
        # Not under the lock, because it calls others.
        hold = Hold()
        with self._lock:
            future = self._waiting.setdefault(order, Future())
            self._holds.setdefault(order, []).append(hold)
            begin, self._running = not self._running, True
        if begin:
            # For all that order.
            with working_for(()):
                self._executor.submit(self._run).add_done_callback(self._ended)
        return future

    def _run(self) -> None:
        while self._go_on():
            taken: dict[K, Future[None]] = {}
            outcome: Future[Mapping[K, Exception]] = Future()
            settle((outcome,), lambda taken=taken: self._send(lambda: self._take(taken)))  # type: ignore[misc]
            if not taken:
                # It failed before its turn came: all that wait hear of it.
                self._take(taken)
            error = outcome.exception()
            errors: Mapping[K, BaseException] = {} if error is not None else outcome.result()
            for order, future in taken.items():
                failed = error or errors.get(order)
                if failed is not None:
                    future.set_exception(failed)
                else:
                    future.set_result(None)

    def _go_on(self) -> bool:
        with self._lock:
            self._running = bool(self._waiting)
            return self._running

    def _take(self, taken: dict[K, Future[None]]) -> list[K]:
        with self._lock:
            holds: list[Hold] = []
            for order in list(self._waiting)[: self._most]:
                taken[order] = self._waiting.pop(order)
                holds += self._holds.pop(order, ())
        for hold in holds:
            hold.end()
        return list(taken)

    def _ended(self, run: Future[None]) -> None:
        """Orders that are never sent, because the executor was shut down, must not be waited for."""
        if run.cancelled():
            error = CloudUnavailableException("the provider was stopped")
            error.maybe_done = False
            with self._lock:
                left, self._waiting = self._waiting, {}
                holds, self._holds = self._holds, {}
                self._running = False
            for hold in [hold for held in holds.values() for hold in held]:
                hold.end()
            for future in left.values():
                future.set_exception(error)
