# SPDX-License-Identifier: Apache-2.0
"""What operators hold back in a launcher."""

from __future__ import annotations

import socket

import pytest

from nodepool.launcher.pool_registry import MaintenanceState, names_of_this_host
from nodepool.model.maintenance import Maintenance, Mode


class Site:
    """A launcher on l1 at 1000.0."""

    def __init__(self) -> None:
        self.records: dict[tuple[str, str], Maintenance] = {}
        self.now = 1000.0
        self.state = MaintenanceState(lambda: self.records, ["l1", "l1.example.com"], lambda: self.now)

    def put(self, kind: str, name: str, mode: Mode = Mode.PAUSE, until: float | None = None) -> Maintenance:
        record = self.records[kind, name] = Maintenance(kind, name, mode, since=self.now, until=until)
        return record


@pytest.fixture
def site() -> Site:
    return Site()


def test_nothing(site: Site) -> None:
    state = site.state
    assert (state.launcher, state.of_pool("one", "main"), state.of_labels()) == (None, None, {})
    assert not state.ends_when_idle
    assert not state.holds("one", "main", "small")


def test_records(site: Site) -> None:
    """MT-3, MT-5, MT-9."""
    provider, label = site.put("provider", "one", until=1010.0), site.put("label", "gpu")
    assert site.state.of_pool("one", "main") == provider
    assert site.state.holds("one", "main", "small")
    assert site.state.holds("two", "main", "gpu")
    assert not site.state.holds("two", "main", "small")
    assert site.state.of_labels() == {"gpu": label}
    site.now = 1010.0
    assert site.state.of_pool("one", "main") is None


def test_paused_launcher_does_not_end(site: Site) -> None:
    """MT-8."""
    paused = site.put("launcher", "l1")
    assert site.state.launcher == paused
    assert not site.state.ends_when_idle


@pytest.mark.parametrize("name", ["l1", "l1.example.com"])
def test_drained_launcher_ends(site: Site, name: str) -> None:
    """MT-8."""
    drained = site.put("launcher", name, Mode.DRAIN)
    assert site.state.of_pool("one", "main") == drained
    assert site.state.ends_when_idle


def test_record_that_is_older_than_the_launcher(site: Site) -> None:
    """MT-8: it takes nothing, but somebody has started it on purpose."""
    drained = site.put("launcher", "l1", Mode.DRAIN)
    site.state.note_start()
    assert site.state.of_pool("one", "main") == drained
    assert not site.state.ends_when_idle
    site.now = 1001.0
    site.put("launcher", "l1", Mode.DRAIN)
    assert site.state.ends_when_idle


def test_pause_that_is_older_than_the_launcher(site: Site) -> None:
    site.put("launcher", "l1")
    site.state.note_start()
    site.put("launcher", "l1", Mode.DRAIN)
    assert site.state.ends_when_idle


def test_drained_by_a_signal(site: Site) -> None:
    """MT-8: no record is needed, and none ends it."""
    site.put("launcher", "l1")
    site.state.drain("SIGTERM")
    hold = site.state.of_pool("one", "main")
    assert hold is not None
    assert (hold.mode, hold.text, hold.since) == (Mode.DRAIN, "launcher l1 is drained: SIGTERM", 1000.0)
    assert site.state.launcher == hold
    assert site.state.ends_when_idle


def test_names() -> None:
    assert names_of_this_host()[0] == socket.gethostname()
