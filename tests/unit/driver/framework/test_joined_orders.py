# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.framework.orders`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import pytest

from nodepool.driver.framework.orders import GATHER_SECONDS, JoinedOrders
from nodepool.exceptions import CloudUnavailableException
from tests.support.manual_executor import ManualExecutor


class Turn(NamedTuple):
    spare: float


class Order:
    def __init__(self, name: str) -> None:
        self.name = name
        self.future: Future[str] = Future()
        self.refusal: BaseException | None = None

    def permit(self) -> None:
        if self.refusal is not None:
            raise self.refusal


class Cloud:
    """Notes what is sent; ``answer`` says what a call gives, for the names of its orders."""

    def __init__(self, most: int = 3) -> None:
        self.executor = ManualExecutor(eager=False)
        self.orders: JoinedOrders[Order, Turn] = JoinedOrders(
            self.wait_turn, self.send, self.executor, most, self.gather
        )
        self.sent: list[str] = []
        self.spare = 0.0
        self.gathered: list[float] = []
        #: Orders that come while a call waits for more.
        self.late: list[Order] = []
        self.error: Exception | None = None
        self.turns = 0
        self.answer: Callable[[str], Mapping[str, Any]] = lambda names: {name: name.upper() for name in names}

    def wait_turn(self) -> Turn:
        self.turns += 1
        if self.error is not None:
            raise self.error
        return Turn(self.spare)

    def gather(self, seconds: float) -> None:
        self.gathered.append(seconds)
        late, self.late = self.late, []
        for order in late:
            self.orders.add(order, "same")

    def send(self, orders: Sequence[Order], turn: Turn) -> Mapping[Order, Any]:
        names = "".join(order.name for order in orders)
        self.sent.append(names)
        given = self.answer(names)
        return {order: given[order.name] for order in orders if order.name in given}

    def add(self, names: str, common: str = "same") -> list[Order]:
        orders = [Order(name) for name in names]
        for order in orders:
            self.orders.add(order, common)
        return orders

    def run(self) -> None:
        while self.executor.waiting:
            self.executor.run()


def results(orders: Sequence[Order]) -> list[str]:
    return [order.future.result(0) for order in orders]


def test_what_waits_goes_together() -> None:
    cloud = Cloud()
    orders = cloud.add("abcde")
    cloud.run()
    assert cloud.sent == ["abc", "de"]
    assert results(orders) == list("ABCDE")
    assert cloud.turns == 2


def test_each_goes_alone_while_there_is_no_need_to_wait() -> None:
    cloud = Cloud()
    cloud.spare = 1.0
    orders = cloud.add("ab")
    cloud.run()
    assert cloud.sent == ["a", "b"]
    assert results(orders) == ["A", "B"]
    assert cloud.gathered == []


@pytest.mark.parametrize(("spare", "seconds"), [(0.6, 0.4 * GATHER_SECONDS), (0.0, GATHER_SECONDS)])
def test_a_call_waits_for_more_when_calls_are_short(spare: float, seconds: float) -> None:
    """The fewer the cloud still takes, the longer."""
    cloud = Cloud()
    cloud.spare = spare
    cloud.late = [Order("b")]
    cloud.add("a")
    cloud.run()
    assert cloud.sent == ["ab"]
    assert cloud.gathered == [pytest.approx(seconds)]


def test_a_call_that_is_full_waits_for_no_more() -> None:
    cloud = Cloud()
    cloud.add("abc")
    cloud.run()
    assert cloud.sent == ["abc"]
    assert cloud.gathered == []


def test_stopped_while_it_waits_for_more() -> None:
    """All hear of it, as if there had been no turn."""
    cloud = Cloud()
    error = CloudUnavailableException("stopped")

    def stopped(_: float) -> None:
        raise error

    cloud.orders._sleep = stopped
    orders = cloud.add("ab")
    cloud.run()
    assert [order.future.exception(0) for order in orders] == [error] * 2
    assert cloud.sent == []


def test_only_equal_ones() -> None:
    """Groups come in turn: a large one does not hold up the others."""
    cloud = Cloud()
    cloud.add("abcde")
    cloud.add("xy", "other")
    cloud.run()
    assert cloud.sent == ["abc", "xy", "de"]


def test_turns_are_taken_for_what_is_there() -> None:
    """Nothing waits: no turn is wasted; the next order begins anew."""
    cloud = Cloud()
    cloud.add("abc")
    cloud.run()
    assert (cloud.turns, cloud.executor.waiting) == (1, [])
    cloud.add("d")
    cloud.run()
    assert cloud.sent == ["abc", "d"]


def test_next_call_waits_for_its_turn_while_one_is_under_way() -> None:
    """A call that takes long holds up no other; but one thread at a time waits for a turn."""
    cloud = Cloud(most=1)
    seen: list[int] = []

    def answer(names: str) -> Mapping[str, Any]:
        seen.append(len(cloud.executor.waiting))
        return {names: names}

    cloud.answer = answer
    cloud.add("abc")
    cloud.run()
    assert seen == [1, 1, 0]


def test_what_is_not_wanted_any_more() -> None:
    """It is left out of the call, and hears why; others take its place only if nothing is left."""
    cloud = Cloud()
    orders = cloud.add("abcd")
    orders[1].refusal = KeyError("b")
    orders[3].refusal = SystemExit("d")
    cloud.run()
    assert cloud.sent == ["ac"]
    assert isinstance(orders[1].future.exception(0), KeyError)
    assert isinstance(orders[3].future.exception(0), RuntimeError)


def test_errors_of_single_orders() -> None:
    cloud = Cloud()
    refused = ValueError("b")
    cloud.answer = lambda names: {"a": "A", "b": refused}
    orders = cloud.add("ab")
    cloud.run()
    assert orders[0].future.result(0) == "A"
    assert orders[1].future.exception(0) is refused


def test_error_of_a_call() -> None:
    """All of its orders hear of it, and no others."""
    cloud = Cloud()

    def answer(names: str) -> Mapping[str, Any]:
        if "a" in names:
            raise ConnectionResetError("reset")
        return {name: name for name in names}

    cloud.answer = answer
    orders = cloud.add("abcd")
    cloud.run()
    assert [type(order.future.exception(0)) for order in orders[:3]] == [ConnectionResetError] * 3
    assert orders[3].future.result(0) == "d"


def test_part_of_a_call() -> None:
    """What was not carried out goes again, each alone, so that the cloud says why."""
    cloud = Cloud()
    cloud.answer = lambda names: {names[0]: "made"}
    orders = cloud.add("abc")
    cloud.run()
    assert cloud.sent == ["abc", "b", "c"]
    assert results(orders) == ["made"] * 3


def test_single_order_without_an_answer() -> None:
    """It is an error, not sent for ever."""
    cloud = Cloud()
    cloud.answer = lambda names: {}
    (order,) = cloud.add("a")
    cloud.run()
    assert isinstance(order.future.exception(0), RuntimeError)
    assert cloud.sent == ["a"]


def test_no_turn() -> None:
    """All that wait hear of it; later orders are tried again."""
    cloud = Cloud()
    cloud.error = CloudUnavailableException("stopped")
    orders = cloud.add("ab")
    cloud.run()
    assert [order.future.exception(0) for order in orders] == [cloud.error] * 2
    cloud.error = None
    later = cloud.add("d")
    cloud.run()
    assert results(later) == ["D"]


def test_executor_that_was_shut_down() -> None:
    """Orders before, and after it, are not waited for; nothing was sent."""
    executor = ThreadPoolExecutor(1)
    cloud = Cloud()
    busy, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        busy.set()
        go_on.wait(60)

    executor.submit(hold)
    busy.wait(60)
    cloud.orders._executor = executor
    (before,) = cloud.add("a")
    executor.shutdown(wait=False, cancel_futures=True)
    (after,) = cloud.add("b")
    go_on.set()
    executor.shutdown(wait=True)
    for order in (before, after):
        error = order.future.exception(60)
        assert isinstance(error, CloudUnavailableException)
        assert not error.maybe_done
    assert cloud.sent == []


@pytest.mark.parametrize("threads", [1, 8])
def test_many_threads(threads: int) -> None:
    """Each order is carried out once, whoever asks when."""
    cloud = Cloud(most=5)
    orders = [Order(chr(1000 + number)) for number in range(200)]
    with ThreadPoolExecutor(threads) as executor, ThreadPoolExecutor(4) as callers:
        cloud.orders._executor = executor
        list(callers.map(lambda order: cloud.orders.add(order, ord(order.name) % 3), orders))
        assert [order.future.result(60) for order in orders] == [order.name.upper() for order in orders]
    assert sorted("".join(cloud.sent)) == sorted(order.name for order in orders)
    assert max(map(len, cloud.sent)) <= 5
