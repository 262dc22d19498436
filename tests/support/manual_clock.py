# SPDX-License-Identifier: Apache-2.0
"""A clock that tests move."""

from __future__ import annotations

import time
from types import ModuleType, SimpleNamespace

import pytest

from nodepool import clock as nodepool_clock


class ManualClock:
    """A clock that only goes when a test says so.

    :param now: where it starts, in seconds.
    """

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def pass_seconds(self, seconds: float) -> None:
        """Lets time pass."""
        self.now += seconds


def monotonic_clock(monkeypatch: pytest.MonkeyPatch, *modules: ModuleType, now: float = 1000.0) -> ManualClock:
    """What ``nodepool.clock.monotonic()`` says in these modules from now on.

    :param now: where it starts; what was asked for the time before must have had an earlier one.
    """
    clock = ManualClock(now)
    for module in modules:
        monkeypatch.setattr(module, "monotonic", clock)
    return clock


def package_clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """What the whole package takes for monotonic time from now on."""
    clock = ManualClock()
    monkeypatch.setattr(nodepool_clock, "time", SimpleNamespace(**{**vars(time), "monotonic": clock}))
    return clock
