# SPDX-License-Identifier: Apache-2.0
"""nodepool.driver.framework.rate: rate limit and lazy cache (reference/driver 12). The test moves the time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

import pytest

from nodepool.driver.framework.rate import LazyExecutorTTLCache, RateLimiter


class Clock:
    """Seconds that pass only in `sleep` and `advance`."""

    def __init__(self) -> None:
        self.now = 100.0
        self.sleeps: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now += seconds


class Later(Executor):
    """Runs what was submitted when the test says so."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], Any]] = []
        self.closed = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if self.closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        self.calls.append(lambda: fn(*args, **kwargs))
        return Future()

    def run(self) -> None:
        calls, self.calls = self.calls, []
        for call in calls:
            call()


@pytest.fixture
def clock() -> Clock:
    return Clock()


# -- RateLimiter --


def test_first_call_does_not_wait(clock: Clock) -> None:
    with RateLimiter("cloud", 2, clock, clock.sleep):
        pass
    assert clock.sleeps == []


def test_calls_in_a_row_are_spread(clock: Clock) -> None:
    limiter = RateLimiter("cloud", 2, clock, clock.sleep)
    for _ in range(4):
        with limiter:
            pass
    assert clock.sleeps == pytest.approx([0.5, 0.5, 0.5])


def test_time_that_passed_counts(clock: Clock) -> None:
    limiter = RateLimiter("cloud", 2, clock, clock.sleep)
    limiter.wait()
    clock.now += 0.4
    limiter.wait()
    clock.now += 60
    limiter.wait()
    assert clock.sleeps == pytest.approx([0.1])


def test_a_long_pause_allows_no_burst(clock: Clock) -> None:
    limiter = RateLimiter("cloud", 2, clock, clock.sleep)
    limiter.wait()
    clock.now += 60
    limiter.wait()
    limiter.wait()
    assert clock.sleeps == pytest.approx([0.5])


@pytest.mark.parametrize("rate", [0, -1])
def test_zero_means_off(clock: Clock, rate: float) -> None:
    limiter = RateLimiter("cloud", rate, clock, clock.sleep)
    assert [limiter.wait() for _ in range(3)] == [0, 0, 0]
    assert clock.sleeps == []


def test_threads_get_their_turns_in_order() -> None:
    """Each thread that comes gets the next turn, whatever the others do meanwhile."""
    sleeping: list[float] = []
    release = threading.Event()

    def sleep(seconds: float) -> None:
        sleeping.append(seconds)
        release.wait(30)

    limiter = RateLimiter("cloud", 5, lambda: 50.0, sleep)
    limiter.wait()
    with ThreadPoolExecutor(4) as pool:
        turns = []
        for count in range(1, 5):
            turns.append(pool.submit(limiter.wait))
            while len(sleeping) < count:
                threading.Event().wait(0.001)
        release.set()
        assert [turn.result(30) for turn in turns] == pytest.approx([0.2, 0.4, 0.6, 0.8])


def test_callable_logs_name_text_and_seconds(clock: Clock) -> None:
    lines: list[str] = []

    def log(text: str, *args: object) -> None:
        lines.append(text % args)

    limiter = RateLimiter("cloud", 2, clock, clock.sleep)
    with limiter(log, "Listed servers"):
        clock.now += 0.25
    with pytest.raises(KeyError), limiter(log, "Listed volumes"):
        raise KeyError
    assert lines == [
        "cloud: Listed servers in 0.250 s, waited 0.000 s",
        "cloud: Listed volumes failed after 0.000 s, waited 0.250 s",
    ]


# -- LazyExecutorTTLCache --


@pytest.fixture
def later() -> Iterator[Later]:
    executor = Later()
    yield executor
    assert executor.calls == [], "a refresh was not run"


class Cloud:
    """Gives a new answer to each call, unless it is told to fail."""

    def __init__(self) -> None:
        self.calls = 0
        self.error: BaseException | None = None

    def __call__(self, *args: object, **kwargs: object) -> tuple[Any, ...]:
        self.calls += 1
        if self.error is not None:
            raise self.error
        return (self.calls, *args, *kwargs.items())


def test_first_call_is_synchronous_and_kept(clock: Clock, later: Later) -> None:
    cloud = Cloud()
    cached = LazyExecutorTTLCache(10, later, clock)(cloud)
    assert cached() == (1,)
    clock.now += 9.9
    assert cached() == (1,)
    assert later.calls == []


def test_expired_value_is_returned_once_more_and_refreshed_in_the_background(clock: Clock, later: Later) -> None:
    cloud = Cloud()
    cached = LazyExecutorTTLCache(10, later, clock)(cloud)
    cached()
    clock.now += 10
    assert cached() == (1,)
    assert cached() == (1,)
    assert len(later.calls) == 1, "one refresh at a time"
    later.run()
    assert cached() == (2,)


def test_first_error_reaches_the_caller_and_is_not_kept(clock: Clock, later: Later) -> None:
    cloud = Cloud()
    cached = LazyExecutorTTLCache(10, later, clock)(cloud)
    cloud.error = OSError("cloud is down")
    with pytest.raises(OSError, match="cloud is down"):
        cached()
    cloud.error = None
    assert cached() == (2,)


@pytest.mark.parametrize("error", [OSError("cloud is down"), SystemExit("cloud is down")])
def test_error_in_a_refresh_keeps_the_old_value(
    clock: Clock, later: Later, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    cloud = Cloud()
    cached = LazyExecutorTTLCache(10, later, clock)(cloud)
    cached()
    clock.now += 10
    cached()
    cloud.error = error
    later.run()
    assert "cloud is down" in caplog.text
    assert cached() == (1,)
    assert later.calls == [], "a cloud that is down is not asked at once again"
    cloud.error = None
    clock.now += 10
    assert cached() == (1,)
    later.run()
    assert cached() == (3,)


def test_executor_that_was_shut_down(clock: Clock, later: Later, caplog: pytest.LogCaptureFixture) -> None:
    cached = LazyExecutorTTLCache(10, later, clock)(Cloud())
    cached()
    clock.now += 10
    later.closed = True
    assert cached() == (1,)
    assert "not refreshed any more" in caplog.text


def test_arguments_have_results_of_their_own(clock: Clock, later: Later) -> None:
    cached = LazyExecutorTTLCache(10, later, clock)(Cloud())
    assert cached("a") == (1, "a")
    assert cached("b", az=1) == (2, "b", ("az", 1))
    assert cached("a") == (1, "a")


def test_method_has_results_of_each_instance(clock: Clock, later: Later) -> None:
    class Adapter:
        def __init__(self, name: str) -> None:
            self.name = name
            self.calls = 0

        @LazyExecutorTTLCache(10, later, clock)
        def listServers(self) -> str:
            """Servers."""
            self.calls += 1
            return f"{self.name}{self.calls}"

    one, two = Adapter("one"), Adapter("two")
    assert [one.listServers(), two.listServers(), one.listServers()] == ["one1", "two1", "one1"]
    assert Adapter.listServers.__doc__ == "Servers."
    clock.now += 10
    assert one.listServers() == "one1"
    later.run()
    assert [one.listServers(), two.calls] == ["one2", 1]


def test_bound_method_wrapped_in_the_constructor(clock: Clock, later: Later) -> None:
    """The other way in which drivers use it."""

    class Adapter:
        def __init__(self) -> None:
            self.list = LazyExecutorTTLCache(10, later, clock)(self._list)

        def _list(self) -> int:
            return 7

    assert Adapter().list() == 7


def test_first_call_of_several_threads_is_one_call() -> None:
    entered, release = threading.Event(), threading.Event()
    calls = []

    def slow() -> int:
        calls.append(1)
        entered.set()
        release.wait(30)
        return 5

    with ThreadPoolExecutor(4) as pool:
        cached = LazyExecutorTTLCache(1000, pool)(slow)
        first = pool.submit(cached)
        assert entered.wait(30)
        others = [pool.submit(cached) for _ in range(2)]
        release.set()
        assert [call.result(30) for call in (first, *others)] == [5, 5, 5]
    assert calls == [1]
