# SPDX-License-Identifier: Apache-2.0
"""Waiting for an observable end, with a deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")

#: Generous, because it only costs time when something is broken.
DEADLINE_SECONDS = 45.0
#: Pause between two looks at something that cannot notify us (a process, a znode, a log file).
LOOK_SECONDS = 0.02
#: What takes long is looked at less often: looks at ZooKeeper took a quarter of the processor time of tests.
LONGEST_LOOK_SECONDS = 0.1


def present(found: T | None) -> T:
    """What must be there."""
    assert found is not None
    return found


def wait_for(what: str, look: Callable[[], T], seconds: float = DEADLINE_SECONDS) -> T:
    """Calls ``look`` until it returns something true and returns that.

    :param what: ends up in the failure: what did not happen.
    :param look: must not block. An AssertionError means "not yet"; its text is shown when time is up.
    :param seconds: deadline.
    :raises AssertionError: the deadline passed.
    """
    begun = time.monotonic()
    pause = threading.Event()
    while True:
        reason = ""
        try:
            result = look()
        except AssertionError as error:
            reason = f": {error}"
        else:
            if result:
                return result
        passed = time.monotonic() - begun
        if passed >= seconds:
            raise AssertionError(f"not within {seconds:g} s: {what}{reason}")
        pause.wait(min(max(LOOK_SECONDS, passed / 10), LONGEST_LOOK_SECONDS))


def holds_for(
    what: str, look: Callable[[], object], until: Callable[[], object], seconds: float = DEADLINE_SECONDS
) -> None:
    """Checks that ``look`` stays true until ``until`` becomes true.

    For "nothing happens": ``until`` is an end that the code under test reaches after it could have done wrong.

    :raises AssertionError: ``look`` was false once, or ``until`` did not come within ``seconds``.
    """
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while True:
        done = until()
        assert look(), f"did not hold: {what}"
        if done:
            return
        assert time.monotonic() < deadline, f"the end of the observation did not come within {seconds:g} s: {what}"
        pause.wait(LOOK_SECONDS)


@contextmanager
def watching(look: Callable[[], None], pause_seconds: float = LOOK_SECONDS) -> Iterator[None]:
    """Calls ``look`` again and again meanwhile, in a thread of its own. What it raises is raised at the end."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(pause_seconds):
            look()

    with ThreadPoolExecutor(1, "watching") as pool:
        watcher = pool.submit(run)
        try:
            yield
        finally:
            ended.set()
        watcher.result()
