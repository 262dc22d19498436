# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.framework.orders`."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from nodepool.driver.framework.orders import SharedCall
from nodepool.exceptions import CloudUnavailableException
from tests.support.manual_executor import ManualExecutor


def fail() -> str:
    raise ConnectionResetError("reset")


def test_answered() -> None:
    """It is not made again."""
    call = SharedCall(fail, ManualExecutor())
    assert call.make(lambda: "a") == "a"
    assert call.again().result(0) == "a"


def test_failed() -> None:
    """It is made again, once for all who ask meanwhile; what worked then is the answer for ever."""
    executor = ManualExecutor(eager=False)
    answers = iter(["b"])
    call = SharedCall(lambda: next(answers), executor)
    with pytest.raises(ConnectionResetError):
        call.make(fail)
    first, second = call.again(), call.again()
    assert first is second
    assert len(executor.waiting) == 1
    executor.run()
    assert first.result(0) == "b"
    assert call.again() is first


def test_fails_again() -> None:
    call = SharedCall(fail, ManualExecutor())
    with pytest.raises(ConnectionResetError):
        call.make(fail)
    for _ in range(2):
        assert isinstance(call.again().exception(0), ConnectionResetError)


def test_asked_during_the_first() -> None:
    """The answer under way is that of all."""
    executor = ManualExecutor(eager=False)
    call = SharedCall(fail, executor)
    asked: list[Future[str]] = []

    def ask() -> str:
        asked.append(call.again())
        return "a"

    call.make(ask)
    assert asked[0].result(0) == "a"
    assert executor.waiting == []


def test_executor_that_is_shut_down() -> None:
    """Nobody waits for a call that is never made, whether it waits already or is asked for later."""
    executor = ThreadPoolExecutor(1)
    call = SharedCall(fail, executor)
    with pytest.raises(ConnectionResetError):
        call.make(fail)
    waiting: list[Future[str]] = []

    def end() -> None:
        waiting.append(call.again())
        executor.shutdown(wait=False, cancel_futures=True)

    executor.submit(end).result(60)
    for answer in (waiting[0], call.again()):
        error = answer.exception(60)
        assert isinstance(error, CloudUnavailableException)
        assert error.maybe_done, "what the first call did is not known"
