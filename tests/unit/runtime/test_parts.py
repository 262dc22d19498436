# SPDX-License-Identifier: Apache-2.0
"""The table of a daemon's threads."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from nodepool.runtime.parts import Part, Parts, stop_all

log = logging.getLogger("test.parts")


class Thread:
    """Notes what is called.

    :param hangs: it does not end when it is told to.
    """

    def __init__(self, name: str, calls: list[str], *, hangs: bool = False) -> None:
        self.name = name
        self.calls = calls
        self.hangs = hangs
        self.alive = False
        self.waits: list[float | None] = []

    def start(self) -> None:
        self.calls.append(f"start {self.name}")
        self.alive = True

    def is_alive(self) -> bool:
        return self.alive

    def stop(self) -> None:
        self.calls.append(f"stop {self.name}")
        self.alive = self.hangs

    def join(self, timeout: float | None = None) -> None:
        self.calls.append(f"join {self.name}")
        self.waits.append(timeout)


@pytest.fixture
def calls() -> list[str]:
    return []


@pytest.fixture
def table(calls: list[str]) -> list[Part[Any]]:
    numbers = iter(range(100))
    return [
        Part(name, lambda name=name: Thread(f"{name}{next(numbers)}", calls))  # type: ignore[misc]
        for name in ("one", "two")
    ]


def test_start_and_stop_follow_from_the_table(table: list[Part[Any]], calls: list[str]) -> None:
    """All are made at once, started in order and stopped in the opposite order."""
    parts = Parts(table, log)
    assert [part.current.name for part in table] == ["one0", "two1"]
    assert calls == []
    parts.start()
    stop_all(parts.threads(), 1.0, log)
    assert calls == ["start one0", "start two1", "stop two1", "stop one0"]


def test_dead_thread(table: list[Part[Any]], calls: list[str], caplog: pytest.LogCaptureFixture) -> None:
    """G-1: another one takes its place, and who uses the part has it; the others stay."""
    parts = Parts(table, log)
    parts.start()
    kept = table[0].current
    table[1].current.alive = False
    parts.revive()
    parts.revive()
    assert calls == ["start one0", "start two1", "start two2"]
    assert table[1].current.name == "two2"
    assert table[0].current is kept
    assert caplog.messages == ["Thread two died, starting another"]


def test_a_stop_is_bounded(calls: list[str], caplog: pytest.LogCaptureFixture) -> None:
    """A thread that hangs does not keep the others from being stopped, nor the daemon from ending."""
    hanging, other = Thread("hanging", calls, hangs=True), Thread("other", calls)
    hanging.start()
    other.start()
    stop_all([hanging, other], 0.2, log)
    assert calls[2:] == ["stop hanging", "stop other", "join hanging"]
    assert all(wait is not None and 0 <= wait <= 0.2 for wait in hanging.waits)
    assert caplog.messages == ["hanging does not end, going on without it"]
