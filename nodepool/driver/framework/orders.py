# SPDX-License-Identifier: Apache-2.0
"""Orders of many that go to a cloud in few calls.

First `JoinedOrders`, for a cloud that takes few calls, and many orders in each of them: several calls may be under way,
each order gets an answer of its own, and a call may do a part of what was ordered. Then `Batches`, where all orders of
a call end alike.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Executor, Future
from typing import Any, Final, Generic, TypeVar

from nodepool.driver.framework.rate import Call, Hold, working_for
from nodepool.exceptions import CloudUnavailableException
from nodepool.guard import as_exception, settle

#: So long a call waits for more orders when the cloud takes no other call now; less while it takes some.
GATHER_SECONDS: Final = 0.25


class JoinedOrder:
    """One order, for which a caller waits.

    :ivar future: gets the answer to this order; in any thread.
    :ivar permit: is it still wanted? Asked right before the call. Raises an error if not; the future gets it.
    """

    future: Future[Any]
    permit: Callable[[], None]


OrderT = TypeVar("OrderT", bound=JoinedOrder)


class JoinedOrders(Generic[OrderT]):
    """An order is a call of its own as long as the cloud takes as many calls at once as ever. The fewer it still takes,
    the longer a call waits for more orders; those that gather, also while it waits for its turn, go together, if they
    are equal. Thread-safe.

    ``_lock`` guards the orders; it is not held during a call. One thread at a time waits for a turn: a turn is taken
    only for orders that are there.

    :param wait_turn: blocks until a call may begin.
    :param send: makes a call for orders that are equal; blocks. Returns the answers, and errors of single orders; what
        it raises is the error of all. Orders that are missing in what it returns were not carried out: each of them
        goes again, alone.
    :param executor: runs both; as many calls are under way at once as it has threads.
    :param most: orders in a call.
    :param sleep: blocks for some seconds; may raise, as ``wait_turn``.
    """

    def __init__(
        self,
        wait_turn: Callable[[], Call],
        send: Callable[[Sequence[OrderT], Call], Mapping[OrderT, Any]],
        executor: Executor,
        most: int,
        sleep: Callable[[float], None],
    ) -> None:
        self._wait_turn = wait_turn
        self._send = send
        self._executor = executor
        self._most = most
        self._sleep = sleep
        self._lock = threading.Lock()
        #: By what the orders have in common; the group whose turn is next is first.
        self._waiting: dict[Hashable, list[OrderT]] = {}
        #: Those who ordered wait until their order is sent.
        self._holds: dict[OrderT, Hold] = {}
        #: Does a thread wait for a turn, or will one?
        self._gathering = False

    def add(self, order: OrderT, common: Hashable) -> None:
        """Order something; does not block.

        :param common: equal for orders that may go in one call.
        """
        with self._lock:
            known = self._holds.get(order)
        # Not under the lock, because holds and futures call others.
        if known is not None:
            known.begin()
        hold = known or Hold()
        with self._lock:
            self._waiting.setdefault(common, []).append(order)
            self._holds[order] = hold
            begin, self._gathering = not self._gathering, True
        if known is None:
            order.future.add_done_callback(lambda _: self._over(order))
        if begin:
            self._begin()

    def add_alone(self, order: OrderT) -> None:
        """Order something that goes together with nothing else; does not block."""
        self.add(order, object())

    def _over(self, order: OrderT) -> None:
        with self._lock:
            hold = self._holds.pop(order, None)
        if hold is not None:
            hold.end()

    def _begin(self) -> None:
        try:
            # For all that order.
            with working_for(()):
                self._executor.submit(self._run).add_done_callback(self._ended)
        except RuntimeError:
            # The executor was shut down.
            self._fail_all(_stopped())

    def _run(self) -> None:
        """One call."""
        turn: Future[Call] = Future()
        settle((turn,), self._wait)
        error = turn.exception()
        if error is not None:
            self._fail_all(error)
            return
        orders = self._take(self._most if turn.result().spare < 1 else 1)
        with self._lock:
            self._gathering = more = bool(self._waiting)
        if more:
            # While this call is under way the next one waits for its turn.
            self._begin()
        if orders:
            self._call(orders, turn.result())

    def _wait(self) -> Call:
        """For a turn, and then for more orders, unless there are enough, or calls are not short."""
        turn = self._wait_turn()
        with self._lock:
            enough = not self._waiting or len(next(iter(self._waiting.values()))) >= self._most
        if turn.spare < 1 and not enough:
            self._sleep(GATHER_SECONDS * (1 - turn.spare))
        return turn

    def _call(self, orders: list[OrderT], turn: Call) -> None:
        outcome: Future[Mapping[OrderT, Any]] = Future()
        settle((outcome,), lambda: self._send(orders, turn))
        error = outcome.exception()
        if error is not None:
            for order in orders:
                order.future.set_exception(error)
            return
        answers = outcome.result()
        for order in orders:
            if order in answers:
                _tell(order.future, answers[order])
            elif len(orders) > 1:
                self.add_alone(order)
            else:
                order.future.set_exception(RuntimeError("the only order of a call was not carried out"))

    def _take(self, most: int) -> list[OrderT]:
        """Equal orders that are still wanted; those of the others are told. Empty = nothing is left."""
        while True:
            with self._lock:
                if not self._waiting:
                    return []
                common = next(iter(self._waiting))
                group = self._waiting.pop(common)
                taken, rest = group[:most], group[most:]
                if rest:
                    # The other groups come first now.
                    self._waiting[common] = rest
                holds = [self._holds[order] for order in taken if order in self._holds]
            for hold in holds:
                hold.end()
            wanted = [order for order in taken if _permitted(order)]
            if wanted:
                return wanted

    def _fail_all(self, error: BaseException) -> None:
        with self._lock:
            left, self._waiting = self._waiting, {}
            self._gathering = False
        for group in left.values():
            for order in group:
                order.future.set_exception(error)

    def _ended(self, run: Future[None]) -> None:
        """Orders that are never sent, because the executor was shut down, must not be waited for."""
        if run.cancelled():
            self._fail_all(_stopped())


def _stopped(*, maybe_done: bool = False) -> CloudUnavailableException:
    error = CloudUnavailableException("the provider was stopped")
    error.maybe_done = maybe_done
    return error


def _permitted(order: JoinedOrder) -> bool:
    asked: Future[None] = Future()
    settle((asked,), order.permit)
    error = asked.exception()
    if error is not None:
        order.future.set_exception(as_exception(error))
    return error is None


def _tell(future: Future[Any], answer: Any) -> None:
    if isinstance(answer, BaseException):
        future.set_exception(answer)
    else:
        future.set_result(answer)


# `SharedCall`: one call of several who wait for its answer, and who may send it again.

Result = TypeVar("Result")


class SharedCall(Generic[Result]):
    """The same call again is the same call: it is made again only if it failed. Thread-safe.

    ``_lock`` guards the latest future; it is not held during the call.

    :param call: makes it again; blocks.
    :param executor: runs that.
    """

    def __init__(self, call: Callable[[], Result], executor: Executor) -> None:
        self._call = call
        self._executor = executor
        self._lock = threading.Lock()
        self._answer: Future[Result] = Future()

    def make(self, call: Callable[[], Result]) -> Result:
        """Make it for the first time, in this thread; blocks. Raises what it raises."""
        settle((self._answer,), call)
        return self._answer.result()

    def again(self) -> Future[Result]:
        """Its answer: of the call that is under way or was answered, else of a new one. Does not block.

        After the end of the executor there is no other call: what the first one did is not known then.
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
            answer.set_exception(_stopped(maybe_done=True))
        else:
            run.add_done_callback(
                lambda run: answer.set_exception(_stopped(maybe_done=True)) if run.cancelled() else None
            )
        return answer


# `Batches`: orders of many that go to a cloud in one call.

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
                _tell(future, error or outcome.result().get(order))

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
        for future in left.values():
            _tell(future, _stopped())
