# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.web.snapshot`: who has a lock is asked for seldom, and by one thread at a time."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nodepool.exceptions import ZKConnectionError
from nodepool.web import snapshot
from nodepool.web.snapshot import KNOWN_SECONDS, MOST_KNOWN, PROCESSES_SECONDS, LockNames
from tests.support.manual_clock import ManualClock
from tests.support.wait import DEADLINE_SECONDS, wait_for


class Owners:
    """Stands for `nodepool.zk.locks.LockOwners`."""

    def __init__(self) -> None:
        self.made = 0
        self.asked: list[str] = []
        self.name: str | None = "launcher l1"
        self.error: Exception | None = None

    def make(self, _client: Any) -> Any:
        self.made += 1
        return self

    def of_node(self, node_id: str) -> str | None:
        self.asked.append(node_id)
        if self.error is not None:
            raise self.error
        return self.name


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine may be slow."""
    monkeypatch.setattr(snapshot, "WAIT_SECONDS", DEADLINE_SECONDS)


@pytest.fixture
def owners() -> Owners:
    return Owners()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def names(owners: Any, clock: ManualClock, *, connected: bool = True) -> LockNames:
    return LockNames(cast(Any, SimpleNamespace(connected=connected)), owners.make, clock)


def test_asked_once_for_all_viewers(owners: Owners, clock: ManualClock) -> None:
    """WP-100"""
    known = names(owners, clock)
    assert [known.of_node("1") for _ in range(3)] == ["launcher l1"] * 3
    assert owners.asked == ["1"]
    owners.name = None
    clock.pass_seconds(KNOWN_SECONDS)
    assert known.of_node("1") is None
    assert owners.made == 1
    clock.pass_seconds(PROCESSES_SECONDS)
    known.of_node("1")
    assert owners.made == 2


def test_without_a_connection_the_last_answer_holds(owners: Owners, clock: ManualClock) -> None:
    assert names(owners, clock, connected=False).of_node("1") is None
    assert owners.asked == []
    known = names(owners, clock)
    known.of_node("1")
    clock.pass_seconds(KNOWN_SECONDS)
    owners.error = ZKConnectionError("away")
    assert known.of_node("1") == "launcher l1"
    owners.error = None
    assert known.of_node("1") == "launcher l1"
    assert len(owners.asked) == 3


def test_one_thread_at_a_time(owners: Owners, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """WP-100: the others do not wait for a ZooKeeper that is slow."""
    entered, go_on = threading.Event(), threading.Event()
    known = names(owners, clock)
    monkeypatch.setattr(snapshot, "WAIT_SECONDS", 0.01)

    def slow(node_id: str) -> str | None:
        entered.set()
        go_on.wait(DEADLINE_SECONDS)
        assert node_id == "1"
        return "launcher l1"

    monkeypatch.setattr(owners, "of_node", slow)
    assert known.of_node("1") is None
    assert entered.wait(DEADLINE_SECONDS)
    assert known.of_node("2") is None
    go_on.set()
    wait_for("the answer is there", lambda: known.of_node("1") == "launcher l1")


def test_bounded(owners: Owners, clock: ManualClock) -> None:
    known = names(owners, clock)
    for number in range(2 * MOST_KNOWN):
        known.of_node(str(number))
    assert len(known._known) <= MOST_KNOWN
