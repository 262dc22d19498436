# SPDX-License-Identifier: Apache-2.0
"""What is published when (W-1, W-8)."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nodepool.launcher.status import ALL_SECONDS, StatusWorker
from nodepool.model.event import Event
from nodepool.model.status import LauncherStatus, PoolStatus
from tests.support.manual_clock import ManualClock


class Pool:
    """A pool whose status the test sets."""

    def __init__(self, name: str) -> None:
        self.launcher_id = name
        self.status = self
        self.told = PoolStatus(id=name, provider=name, pool="main", state="running", since=1.0)
        self.looks = 0

    def make(self, now: float) -> PoolStatus:
        self.looks += 1
        if self.told.state == "broken":
            raise RuntimeError("no status")
        return self.told


class Writer:
    """What was written."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, str]] = []

    def set(self, kind: str, name: str, status: Any) -> None:
        self.calls.append((kind, name, status.state))

    def remove(self, kind: str, name: str) -> None:
        self.calls.append((kind, name, "removed"))

    def taken(self) -> list[tuple[str, str, str]]:
        calls, self.calls = self.calls, []
        return calls


class Site:
    """A status worker with two pools, and what it did."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.pools = [Pool("one"), Pool("two")]
        self.launcher = LauncherStatus(host="l1")
        self.writer = Writer()
        self.events: list[Event] = []
        report = SimpleNamespace(name="l1-7", make=lambda: self.launcher)
        self.worker = StatusWorker(
            lambda: self.pools, cast(Any, report), cast(Any, self.writer), self.events.append, self.clock
        )
        self.worker.run_once()
        assert self.writer.taken() == [
            ("pool", "one", "running"),
            ("pool", "two", "running"),
            ("launcher", "l1-7", "running"),
        ]


@pytest.fixture
def site() -> Site:
    return Site()


def test_only_what_changed(site: Site) -> None:
    """W-8: a pool without a pass is not even looked at, and one that is the same is not written."""
    one, two = site.pools
    one.told = replace(one.told, state="paused")
    two.told = replace(two.told, state="paused")
    site.worker.changed("one")
    site.worker.run_once()
    assert site.writer.taken() == [("pool", "one", "paused")]
    assert (one.looks, two.looks) == (2, 1)
    site.worker.changed("one")
    site.worker.run_once()
    assert site.writer.taken() == []


def test_all_in_a_while(site: Site) -> None:
    """W-8: limits and hosts change without a pass."""
    site.pools[1].told = replace(site.pools[1].told, state="paused")
    site.clock.pass_seconds(ALL_SECONDS)
    site.worker.run_once()
    assert site.writer.taken() == [("pool", "two", "paused")]


def test_pool_that_goes(site: Site) -> None:
    """W-1: its record goes, too; another one with the same place has one of its own."""
    site.pools = [site.pools[0], Pool("three")]
    site.worker.run_once()
    assert site.writer.taken() == [("pool", "three", "running"), ("pool", "two", "removed")]


def test_events(site: Site) -> None:
    """W-1: what follows from two records of a pool is an event."""
    one = site.pools[0]
    one.told = replace(one.told, state="unavailable", code="provider.circuit-open", text="HTTP 503", since=9.0)
    site.worker.changed("one")
    site.worker.run_once()
    assert [(event.subject, event.what, event.at) for event in site.events] == [("provider one", "unavailable", 9.0)]


def test_launcher(site: Site) -> None:
    """W-1: also without any pool that changed."""
    site.launcher = replace(site.launcher, state="draining")
    site.worker.changed()
    site.worker.run_once()
    assert site.writer.taken() == [("launcher", "l1-7", "draining")]


def test_error_of_one_pool(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    """W-1: others are published all the same."""
    for pool in site.pools:
        pool.told = replace(pool.told, state="broken" if pool.launcher_id == "one" else "paused")
        site.worker.changed(pool.launcher_id)
    site.worker.run_once()
    assert site.writer.taken() == [("pool", "two", "paused")]
    assert "Status of pool one could not be made" in caplog.text


def test_thread(site: Site) -> None:
    """W-8: it ends at once, also between two looks."""
    site.worker.start()
    site.worker.stop()
    site.worker.join(20)
    assert not site.worker.is_alive()
