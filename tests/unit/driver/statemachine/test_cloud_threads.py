# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.statemachine.cloud_threads`."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from nodepool.driver.framework.shared_threads import SharedThreads
from nodepool.driver.statemachine.cloud_threads import CloudThreads
from tests.support.wait import DEADLINE_SECONDS


@pytest.fixture
def made() -> Iterator[list[CloudThreads]]:
    found: list[CloudThreads] = []
    yield found
    for threads in found:
        threads.close()


def thread_of(executor: Any) -> threading.Thread:
    thread: threading.Thread = executor.submit(threading.current_thread).result(DEADLINE_SECONDS)
    return thread


def test_nothing_begins_without_work(made: list[CloudThreads]) -> None:
    before = set(threading.enumerate())
    made.append(CloudThreads("cloud", SimpleNamespace()))
    assert set(threading.enumerate()) == before


def test_threads_of_the_adapter(made: list[CloudThreads]) -> None:
    """Calls of the driver and steps of the framework share them, whether one of them runs already or not."""
    shared = SharedThreads("cloud")
    made.append(CloudThreads("cloud", SimpleNamespace(shared_threads=shared, advance_threads=8)))
    assert made[0].shared is shared
    threads = [thread_of(made[0].steps), thread_of(made[0].asks), thread_of(made[0].scans)]
    shared.close()
    assert not any(thread.is_alive() for thread in threads)


def test_driver_that_is_advanced_in_one_thread(made: list[CloudThreads]) -> None:
    """Its library keeps things for the thread that it is called in: that is the same one all the time."""
    made.append(CloudThreads("cloud", SimpleNamespace(advance_threads=1)))
    other = thread_of(made[0].asks)
    steps = {thread_of(made[0].steps) for _ in range(5)}
    assert len(steps) == 1
    assert other not in steps


def test_questions_end_first() -> None:
    """Nobody waits for them; what the launches that run still need goes on."""
    threads = CloudThreads("cloud", SimpleNamespace())
    threads.ask_no_more()
    for executor in (threads.asks, threads.probes):
        with pytest.raises(RuntimeError):
            executor.submit(int)
    step = thread_of(threads.steps)
    threads.close()
    assert not step.is_alive()
