# SPDX-License-Identifier: Apache-2.0
"""Answers of a cloud that may be a little old."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

import pytest

from nodepool.driver.statemachine.known import ERROR_SECONDS, Known, NotKnown, Patience
from nodepool.exceptions import RuntimeConfigurationException


class Later(Executor):
    """Runs what it is given when the test says so."""

    def __init__(self) -> None:
        self.work: list[Callable[[], Any]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.work.append(lambda: fn(*args, **kwargs))
        return Future()

    def run(self) -> None:
        work, self.work = self.work, []
        for call in work:
            call()


class Cloud:
    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.asked = 0

    def ask(self) -> Any:
        self.asked += 1
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def cloud() -> Cloud:
    return Cloud()


@pytest.fixture
def now() -> list[float]:
    return [100.0]


@pytest.fixture
def later() -> Later:
    return Later()


def known_of(cloud: Cloud, later: Later, now: list[float], **settings: Any) -> Known[Any]:
    return Known(cloud.ask, 300.0, later, clock=lambda: now[0], patience=Patience(0.0), **settings)


def test_old_answers_are_refreshed_in_the_background(cloud: Cloud, later: Later, now: list[float]) -> None:
    """Q-5: nobody waits for the second answer."""
    known = known_of(cloud, later, now)
    cloud.answers = [1, 2]
    with pytest.raises(NotKnown):
        known.get()
    later.run()
    assert known.get() == 1
    now[0] += 299
    assert known.get() == 1
    assert not later.work
    now[0] += 1
    assert known.get() == 1
    assert known.get() == 1
    later.run()
    assert known.get() == 2
    assert cloud.asked == 2


def test_errors_keep_the_old_answer(cloud: Cloud, later: Later, now: list[float]) -> None:
    """Q-5, F-5: and the cloud is asked again soon, but not at once."""
    known = known_of(cloud, later, now)
    cloud.answers = [OSError("away"), 1, OSError("away"), 2]
    known.refresh()
    later.run()
    with pytest.raises(NotKnown, match="away"):
        known.get()
    assert not later.work
    for expected in (1, 1, 2):
        now[0] += max(ERROR_SECONDS, 300)
        known.refresh()
        later.run()
        assert known.get() == expected


def test_expire(cloud: Cloud, later: Later, now: list[float]) -> None:
    """What was asked before something changed is asked once more."""
    known = known_of(cloud, later, now)
    cloud.answers = [1, 2, 3]
    known.refresh()
    later.run()
    known.expire()
    known.refresh()
    known.expire()
    later.run()
    assert known.get() == 2
    later.run()
    assert known.get() == 3


def test_permanent_errors(cloud: Cloud, later: Later, now: list[float]) -> None:
    """Q-14: that a label can never work is an answer."""
    known = known_of(cloud, later, now, permanent=(RuntimeConfigurationException,))
    cloud.answers = [RuntimeConfigurationException("no such flavor"), 1]
    known.refresh()
    later.run()
    for _ in range(2):
        with pytest.raises(RuntimeConfigurationException, match="flavor"):
            known.get()
    assert not later.work
    now[0] += 300
    known.refresh()
    later.run()
    assert known.get() == 1


def test_the_first_answer_is_waited_for(cloud: Cloud) -> None:
    later = Later()
    known = Known(cloud.ask, 300.0, later, patience=Patience(60.0))
    cloud.answers = [1]
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(known.get()))
    thread.start()
    while not later.work:
        thread.join(0.001)
    later.run()
    thread.join(30)
    assert found == [1]


def test_a_cloud_that_hangs_is_waited_for_once() -> None:
    """F-5: a pool that asks many questions is not held up by each; when the cloud answers there is new patience."""
    time = [0.0]
    waits: list[float | None] = []

    class Clock(threading.Condition):
        """Nothing ever happens but that time passes."""

        def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
            waits.append(timeout)
            time[0] += timeout or 0.0
            return predicate()

    patience = Patience(5.0, clock=lambda: time[0])
    condition = Clock()
    with condition:
        for _ in range(3):
            patience.wait(condition, lambda: False)
        patience.restore()
        patience.wait(condition, lambda: False)
    assert waits == [5.0, 0.0, 0.0, 5.0]


def test_who_comes_later_does_not_wait(cloud: Cloud, later: Later) -> None:
    """One question is waited for once, whatever else the cloud answers."""
    known = Known(cloud.ask, 300.0, later, patience=Patience(0.01))
    with pytest.raises(NotKnown):
        known.get()
    known._patience = Patience(1000.0)
    with pytest.raises(NotKnown, match="not answered yet"):
        known.get()
    cloud.answers = [1]
    later.run()
    assert known.get() == 1


def test_stopped(cloud: Cloud) -> None:
    """After the executor was shut down nothing is asked, and nobody waits."""

    class Closed(Later):
        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            raise RuntimeError("cannot schedule new futures after shutdown")

    known = Known(cloud.ask, 300.0, Closed(), patience=Patience(60.0))
    with pytest.raises(NotKnown):
        known.get()
