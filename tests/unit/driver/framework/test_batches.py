# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.framework.orders`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future

import pytest

from nodepool.driver.framework.orders import Batches
from nodepool.exceptions import CloudUnavailableException
from tests.support.manual_executor import ManualExecutor


class Orders:
    """What is sent, and what fails."""

    def __init__(self, most: int = 3) -> None:
        self.executor = ManualExecutor(eager=False)
        self.batches: Batches[str] = Batches(self.send, self.executor, most)
        self.sent: list[list[str]] = []
        self.errors: dict[str, Exception] = {}
        self.error: Exception | None = None
        self.meanwhile: list[str] = []
        self.before_its_turn = False

    def send(self, take: Callable[[], list[str]]) -> Mapping[str, Exception]:
        if self.before_its_turn and self.error is not None:
            raise self.error
        self.sent.append(take())
        for order in self.meanwhile:
            self.batches.add(order)
        self.meanwhile = []
        if self.error is not None:
            raise self.error
        return self.errors


def test_what_waits_goes_together() -> None:
    orders = Orders()
    futures = [orders.batches.add(order) for order in "abcde"]
    assert len(orders.executor.waiting) == 1
    orders.executor.run()
    assert orders.sent == [["a", "b", "c"], ["d", "e"]]
    assert [future.result(0) for future in futures] == [None] * 5


def test_what_comes_during_a_call_goes_with_the_next() -> None:
    orders = Orders()
    orders.meanwhile = ["b", "c"]
    orders.batches.add("a")
    orders.executor.run()
    assert orders.sent == [["a"], ["b", "c"]]
    orders.batches.add("d")
    orders.executor.run()
    assert orders.sent[-1] == ["d"]


def test_the_same_order_twice() -> None:
    """Both wait for one; after it was sent it is sent again."""
    orders = Orders()
    assert orders.batches.add("a") is orders.batches.add("a")
    orders.executor.run()
    again = orders.batches.add("a")
    orders.executor.run()
    assert again.done()
    assert orders.sent == [["a"], ["a"]]


def test_errors_of_single_ones() -> None:
    orders = Orders()
    orders.errors = {"b": ValueError("b")}
    good, bad = orders.batches.add("a"), orders.batches.add("b")
    orders.executor.run()
    assert good.result(0) is None
    assert isinstance(bad.exception(0), ValueError)


@pytest.mark.parametrize("before_its_turn", [False, True])
def test_error_of_a_call(before_its_turn: bool) -> None:
    """All whose call it was hear of it; the next ones are sent."""
    orders = Orders()
    orders.error, orders.before_its_turn = ValueError("no"), before_its_turn
    futures = [orders.batches.add(order) for order in "ab"]
    orders.executor.run()
    assert all(isinstance(future.exception(0), ValueError) for future in futures)
    orders.error = None
    later = orders.batches.add("c")
    orders.executor.run()
    assert later.result(0) is None


def test_stopped() -> None:
    """Orders that are never sent are not waited for."""
    orders = Orders()
    future: Future[None] = orders.batches.add("a")
    run, _ = orders.executor.waiting[0]
    run.cancel()
    error = future.exception(0)
    assert isinstance(error, CloudUnavailableException)
    assert not error.maybe_done
