# SPDX-License-Identifier: Apache-2.0
"""Orders of many that go to a cloud in one call, the threads that make calls, and calls that do not return."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from nodepool.driver.framework.rate import SharedThreads, ThreadShare
from nodepool.driver.gateway import AT_ONCE, OF_THE_CLOUD, RunningCalls, TimeBound
from nodepool.driver.statemachine.inventory import Batches
from nodepool.exceptions import CloudUnavailableException
from tests.support.manual_clock import ManualClock
from tests.support.manual_executor import ManualExecutor
from tests.support.wait import DEADLINE_SECONDS

REFUSED = ValueError("refused")


def outcome(future: Future[Any]) -> Any:
    """Its error, or its result; it is there."""
    return future.exception(0) or future.result(0)


# -- batches: one call after the other --


@pytest.mark.parametrize(
    ("ordered", "meanwhile", "errors", "sent"),
    [
        ("abcde", "", {}, ["abc", "de"]),
        ("a", "bc", {}, ["a", "bc"]),
        # The same order twice waits for one; after it was sent it is sent again.
        ("aab", "a", {}, ["ab", "a"]),
        ("ab", "", {"b": REFUSED}, ["ab"]),
    ],
)
def test_batches(ordered: str, meanwhile: str, errors: dict[str, Exception], sent: list[str]) -> None:
    """:param meanwhile: what is ordered while the first call is under way."""
    executor, calls = ManualExecutor(eager=False), list[str]()

    def send(take: Callable[[], list[str]]) -> Mapping[str, Exception]:
        calls.append("".join(take()))
        for order in meanwhile if len(calls) == 1 else "":
            batches.add(order)
        return errors

    batches: Batches[str] = Batches(send, executor, 3)
    futures = [batches.add(order) for order in ordered]
    assert len(executor.waiting) == 1
    executor.run()
    assert calls == sent
    assert [outcome(future) for future in futures] == [errors.get(order) for order in ordered]
    batches.add("later")
    executor.run()
    assert calls[-1] == "later"


@pytest.mark.parametrize("before_its_turn", [False, True])
def test_error_of_a_batch(before_its_turn: bool) -> None:
    """All whose call it was hear of it; the next ones are sent. Those that are never sent are not waited for."""
    executor, errors = ManualExecutor(eager=False), [REFUSED]

    def send(take: Callable[[], list[str]]) -> Mapping[str, Exception]:
        if errors and not before_its_turn:
            take()
        if errors:
            raise errors.pop()
        take()
        return {}

    batches: Batches[str] = Batches(send, executor, 3)
    futures = [batches.add(order) for order in "ab"]
    executor.run()
    assert [outcome(future) for future in futures] == [REFUSED] * 2
    later = batches.add("c")
    executor.run()
    assert outcome(later) is None
    never = batches.add("d")
    executor.waiting[0][0].cancel()
    error = outcome(never)
    assert isinstance(error, CloudUnavailableException)
    assert not error.maybe_done


def test_calls_at_once() -> None:
    """What has nothing in common goes apart. Who gets no permit hears why, and takes nothing from the others."""
    executor, calls = ManualExecutor(eager=False), list[str]()

    def send(take: Callable[[], list[str]]) -> Mapping[str, Any]:
        calls.append("".join(take()))
        return {}

    def permit(order: str) -> None:
        if order == "x":
            raise REFUSED

    batches: Batches[str] = Batches(send, executor, 2, common=str.isupper, permit=permit, at_once=True)
    for ordered, sent in (("aAbcxB", ["ab", "AB", "c"]), ("x", [""]), ("y", ["y"])):
        calls.clear()
        futures = [batches.add(order) for order in ordered]
        while executor.waiting:
            executor.run()
        assert calls == sent
        assert [outcome(future) for future in futures] == [REFUSED if order == "x" else None for order in ordered]


# -- threads of a provider --


class Holds:
    """Calls that run until they are released."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.begun = threading.Semaphore(0)

    def __call__(self) -> str:
        self.begun.release()
        assert self.go.wait(DEADLINE_SECONDS)
        return threading.current_thread().name

    def begin(self, share: ThreadShare, count: int, running: int | None = None) -> list[Future[str]]:
        """Submit ``count``, and wait until as many run."""
        futures = [share.submit(self) for _ in range(count)]
        for _ in range(count if running is None else running):
            assert self.begun.acquire(timeout=DEADLINE_SECONDS)
        return futures


@pytest.fixture
def holds() -> Iterator[Holds]:
    made = Holds()
    yield made
    made.go.set()


@pytest.fixture
def threads(holds: Holds) -> Iterator[SharedThreads]:
    made = SharedThreads("cloud-a", 6, idle_seconds=3600.0)
    yield made
    holds.go.set()
    made.close()


def test_limits_of_shares(threads: SharedThreads, holds: Holds) -> None:
    """Whatever one kind of work does, the others have their reserved threads; there are never more than the maximum."""
    greedy, small, other = threads.share("a", 99, 1), threads.share("b", 1, 1), threads.share("c", 3, 2)
    holds.begin(small, 3, running=1)
    first = holds.begin(greedy, 10, running=3)
    assert (greedy.running, len(greedy.queue), threads.count) == (3, 7, 4)
    holds.begin(other, 3, running=2)
    assert [share.running for share in (greedy, small, other)] == [3, 1, 2]
    assert threads.count == 6
    holds.go.set()
    assert {future.result(DEADLINE_SECONDS) for future in first} == {"cloud-a-a"}
    assert threads.count <= 6


# -- calls of drivers that have not returned --


@pytest.mark.parametrize(
    ("bound", "seconds"),
    [(AT_ONCE, [1, 10, 60, 600, 3600, 7200, 10800]), (OF_THE_CLOUD, [60, 600, 3600, 7200, 10800])],
)
def test_late_calls(bound: TimeBound, seconds: list[int]) -> None:
    """G-16: logged again and again, less and less often, each call for itself; until it returns."""
    clock = ManualClock().rules()
    calls = RunningCalls()
    numbers = [calls.begin("launch", "cloud", clock(), bound, SimpleNamespace(), ("small",))]
    found: dict[int, list[int]] = {0: [], 7: []}
    for second in range(1, 10_900):
        clock.pass_seconds(1.0)
        for number, late in enumerate(calls.late()):
            found[number * 7] += [second - number * 7] * late.tell
        if second == 7:
            numbers.append(calls.begin("launch", "cloud", clock(), bound, SimpleNamespace(), ()))
    assert found == {0: seconds, 7: seconds}
    late = calls.late()[0]
    assert (late.provider, late.hook, late.about, late.blocks) == ("cloud", "launch", "small", bound.blocks)
    assert (late.seconds, late.thread) == (10_899, threading.current_thread().name)
    assert calls.of_provider("cloud") == {"launch": 10_899}
    for number in numbers:
        calls.end(number)
    assert calls.late() == []
