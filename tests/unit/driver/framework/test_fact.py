# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.framework.fact`."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from nodepool.driver.framework.fact import Fact
from nodepool.exceptions import CloudUnavailableException
from tests.support.manual_clock import ManualClock


def test_one_call_for_all_who_ask() -> None:
    """300 launches at once ask for the flavors once; an error is told to all and forgotten."""
    asked = threading.Event()
    go = threading.Event()
    calls: list[int] = []

    def ask() -> str:
        calls.append(1)
        asked.set()
        go.wait(30)
        if len(calls) == 1:
            raise CloudUnavailableException("away")
        return "answer"

    fact = Fact(ask)
    errors: list[Exception] = []

    def get() -> None:
        try:
            fact.get()
        except CloudUnavailableException as error:
            errors.append(error)

    threads = [threading.Thread(target=get) for _ in range(5)]
    threads[0].start()
    assert asked.wait(30)
    for thread in threads[1:]:
        thread.start()
    waiting = fact._answer
    go.set()
    for thread in threads:
        thread.join(30)
    assert waiting is not None
    assert fact.get() == "answer"
    assert 1 <= len(errors) <= 5


def test_new_answer() -> None:
    """One that was asked for before the call is too old, also when it comes after; all who wait share the next."""
    clock, begun, go = ManualClock(), threading.Semaphore(0), threading.Semaphore(0)
    answers = iter(range(1, 10))

    def ask() -> int:
        begun.release()
        assert go.acquire(timeout=10)
        return next(answers)

    fact = Fact(ask, clock)
    with ThreadPoolExecutor(4) as pool:
        old = pool.submit(fact.get)
        assert begun.acquire(timeout=10)
        clock.now += 1
        new = [pool.submit(fact.get_new) for _ in range(3)]
        go.release()
        assert old.result(10) == 1
        assert begun.acquire(timeout=10)
        go.release()
        assert [answer.result(10) for answer in new] == [2, 2, 2]
        assert fact.get() == 2


def test_new_answer_after_an_error() -> None:
    """Somebody else's question failed: that is not our answer."""
    clock = ManualClock()
    outcomes: list[Any] = [CloudUnavailableException("503"), 1]

    def ask() -> int:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return int(outcome)

    fact = Fact(ask, clock)
    with pytest.raises(CloudUnavailableException):
        fact.get_new()
    assert fact.get_new() == 1
    clock.now += 1
    outcomes.append(2)
    assert fact.get() == 1
    assert fact.get_new() == 2
