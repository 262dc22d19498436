# SPDX-License-Identifier: Apache-2.0
"""A clock that tests move."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Self

import pytest

from nodepool import clock as nodepool_clock


class ManualClock:
    """A clock that only goes when a test says so. Only who looks at it sees it, until it `rules`.

    :param now: where it starts, in seconds.
    """

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def pass_seconds(self, seconds: float) -> None:
        """Lets time pass."""
        self.now += seconds

    def rules(self, name: str = "monotonic") -> Self:
        """The whole package goes by it until the test ends. :param name: of a function of `time`."""
        known = vars(vars(nodepool_clock)["time"])
        setattr(nodepool_clock, "time", SimpleNamespace(**{**known, name: self}))  # noqa: B010 - it is a module
        return self


class ManualStop(threading.Event):
    """Time passes at once when it is waited for. :ivar pauses: how long that was."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.clock = clock
        self.pauses: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.pauses.append(timeout or 0)
        self.clock.now += timeout or 0
        return self.is_set()


def monotonic_clock(monkeypatch: pytest.MonkeyPatch, *modules: ModuleType, now: float = 1000.0) -> ManualClock:
    """What ``nodepool.clock.monotonic()`` says in these modules from now on.

    :param now: where it starts; what was asked for the time before must have had an earlier one.
    """
    clock = ManualClock(now)
    for module in modules:
        monkeypatch.setattr(module, "monotonic", clock)
    return clock


@contextmanager
def kept_time() -> Iterator[None]:
    """The package goes by the clocks of before afterwards."""
    known = vars(nodepool_clock)["time"]
    try:
        yield
    finally:
        setattr(nodepool_clock, "time", known)  # noqa: B010 - it is a module
