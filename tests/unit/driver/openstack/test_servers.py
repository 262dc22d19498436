# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.openstack.servers`: the list that all share (O-8)."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterable

import pytest

from nodepool.driver.openstack import servers as module
from nodepool.driver.openstack.errors import CloudAway, CloudRefused
from nodepool.driver.openstack.servers import ServerList
from nodepool.driver.openstack.views import Server
from tests.support.manual_clock import ManualClock
from tests.unit.driver.openstack.support import QuietList, view


class Cloud:
    """What is listed, and what was asked."""

    def __init__(self) -> None:
        self.servers: list[Server] = []
        self.asked: list[str | None] = []
        self.error: Exception | None = None

    def fetch(self, since: str | None) -> Iterable[Server]:
        self.asked.append(since)
        if self.error is not None:
            raise self.error
        return list(self.servers)


@pytest.fixture
def cloud() -> Cloud:
    return Cloud()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def known(cloud: Cloud, clock: ManualClock) -> QuietList:
    return QuietList("cloud-a", cloud.fetch, clock)


def test_changes_are_asked_for(known: QuietList, cloud: Cloud, clock: ManualClock) -> None:
    """DESIGN 4: after a complete list only what changed, from a little before the latest change."""
    cloud.servers = [view("a", updated="2026-01-01T12:00:00Z"), view("b", updated="2026-01-01T12:00:30Z")]
    known.refresh(complete=False)
    clock.now += 1
    cloud.servers = [view("b", "DELETED", updated="2026-01-01T12:00:31Z")]
    known.refresh(complete=False)
    assert cloud.asked == [None, "2026-01-01T12:00:25Z"]
    assert (known.get("a"), known.get("b")) == (view("a"), None)
    assert known.is_gone("b")
    assert not known.is_gone("a")


def test_absence_from_a_complete_list(known: QuietList, cloud: Cloud, clock: ManualClock) -> None:
    """A server that a complete list lacks is not shown, but that does not prove that it is gone."""
    cloud.servers = [view("a")]
    known.refresh(complete=True)
    clock.now += 1
    cloud.servers = []
    known.refresh(complete=True)
    assert known.get("a") is None
    assert not known.is_gone("a")


def test_absence_is_certain(known: QuietList, cloud: Cloud, clock: ManualClock) -> None:
    """After a complete list and one of changes; after two complete ones where somebody needs just these."""
    cloud.servers = [view("a")]
    known.refresh(complete=True)
    for lists in ((True, False), (True, True)):
        since = clock.now = clock.now + 1
        assert not known.absence_is_certain(since)
        for complete in lists:
            assert not known.absence_is_certain(since)
            clock.now += 1
            known.refresh(complete)
        assert known.absence_is_certain(since)


def test_an_overtaken_list_changes_nothing(known: QuietList, cloud: Cloud, clock: ManualClock) -> None:
    """A slow complete list that began before a newer one must not hide or revive what that one showed."""
    clock.now = 100
    known._take([view("new", "ACTIVE")], started=50, complete=False)
    known._take([view("new", "BUILD"), view("old")], started=40, complete=True)
    assert known.get("new") == view("new", "ACTIVE")
    assert known.get("old") == view("old")


def test_a_server_that_is_gone_stays_gone(known: QuietList, cloud: Cloud) -> None:
    """Lists of an eventually consistent cloud show it for a while."""
    known.set_gone("a")
    cloud.servers = [view("a")]
    known.refresh(complete=True)
    assert known.get("a") is None


def test_cloud_without_changes(known: QuietList, cloud: Cloud, clock: ManualClock) -> None:
    """A cloud that refuses changes-since is asked for everything from then on."""
    cloud.servers = [view("a")]
    known.refresh(complete=True)

    def fetch(since: str | None) -> Iterable[Server]:
        cloud.asked.append(since)
        if since:
            raise CloudRefused("bad request", 400)
        return [view("a"), view("b")]

    known._fetch = fetch
    clock.now += 1
    known.refresh(complete=False)
    known.refresh(complete=False)
    assert cloud.asked == [None, "2026-01-01T11:59:55Z", None, None]
    assert known.get("b") is not None


def test_wakes_whom_it_concerns(known: QuietList, cloud: Cloud, clock: ManualClock) -> None:
    """300 launches are not all looked at because one of them goes on."""
    woken: list[str] = []
    watches = {name: known.watch("boot", functools.partial(woken.append, name)) for name in ("a", "b", "c")}
    for name, watch in watches.items():
        watch.server_id = name
    anything = known.watch("search", lambda: woken.append("any"))
    cloud.servers = [view("a", "BUILD"), view("b", "BUILD")]
    known.refresh(complete=True)
    assert sorted(woken) == ["a", "any", "b"]
    woken.clear()
    cloud.servers = [view("a", "BUILD"), view("b", "ACTIVE")]
    clock.now += 1
    known.refresh(complete=True)
    known.done(anything)
    assert sorted(woken) == ["any", "b"]


def test_pace(known: QuietList, cloud: Cloud, clock: ManualClock) -> None:
    """Prompt at first, slower for what takes long, and quiet when nobody waits."""
    assert known._pause() == float("inf")
    watch = known.watch("boot", lambda: None)
    assert known._pause() <= 0
    known.poll(complete=False)
    assert known._pause() == pytest.approx(module.SHORTEST_PAUSE_SECONDS)
    clock.now += 20
    known.touch(watch)
    known.poll(complete=False)
    assert known._pause() == pytest.approx(20 * module.PAUSE_SHARE)
    clock.now += 300
    known.touch(watch)
    known.poll(complete=False)
    assert known._pause() == pytest.approx(module.LONGEST_PAUSE_SECONDS)
    known.done(watch)
    assert known._pause() == float("inf")


def test_slow_lists(known: QuietList, cloud: Cloud, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """An API that takes 4 s for a list has as much time for itself before the next."""
    watch = known.watch("boot", lambda: None)

    def fetch(since: str | None) -> list[Server]:
        clock.now += 4
        return []

    monkeypatch.setattr(known, "_fetch", fetch)
    known.poll(complete=False)
    assert known._pause() == pytest.approx(4)
    known.done(watch)


def test_crowd(known: QuietList, clock: ManualClock) -> None:
    """Many share the cost of a list: the more wait, the sooner the next one; and so for the last of them."""

    def pause() -> float:
        known.poll(complete=False)
        return known._pause()

    crowd = [known.watch("boot", lambda: None) for _ in range(300)]
    assert pause() == pytest.approx(module.SHORTEST_PAUSE_SECONDS * module.SHORTEST_PART)
    for watch in crowd[1:]:
        known.done(watch)
    assert pause() == pytest.approx(module.SHORTEST_PAUSE_SECONDS * module.SHORTEST_PART)
    pauses = [pause() for _ in range(60)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == pytest.approx(module.SHORTEST_PAUSE_SECONDS)
    known.done(crowd[0])


def test_learns_how_long_it_takes(known: QuietList, clock: ManualClock) -> None:
    """A cloud that needs 20 s for a server is not asked every moment from the first second on."""
    watch = known.watch("boot", lambda: None)
    clock.now += 20
    known.done(watch)
    known.listed_at = clock.now
    kept = known.watch("boot", lambda: None)
    for _ in range(4):
        # It may be quicker than it was.
        assert known._pause() == pytest.approx(module.LONGEST_PAUSE_SECONDS)
        clock.now += module.LONGEST_PAUSE_SECONDS
        known.poll(complete=False)
    assert known._pause() == pytest.approx(2), "14 s are over"
    other = known.watch("delete", lambda: None)
    assert known._pause() == pytest.approx(module.SHORTEST_PAUSE_SECONDS)
    known.done(other, happened=False)
    known.done(kept, happened=False)


def test_errors(known: QuietList, cloud: Cloud, clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    """A cloud that is away is asked less and less often; what was known stays."""
    cloud.servers = [view("a")]
    known.refresh(complete=True)
    watch = known.watch("boot", lambda: None)
    cloud.error = CloudAway("no answer")
    pauses = []
    for _ in range(6):
        known.touch(watch)
        known.poll(complete=False)
        pauses.append(known._pause())
        clock.now += pauses[-1]
    assert pauses == [1, 2, 4, 8, 15, 15]
    assert known.get("a") == view("a")
    assert "no answer; listed again in 1 s" in caplog.text
    cloud.error = None
    known.poll(complete=False)
    assert known._pause() <= module.LONGEST_PAUSE_SECONDS


def test_forgotten_watch(known: QuietList, clock: ManualClock) -> None:
    """A launch that nobody drives any more does not keep the list going."""
    watch = known.watch("boot", lambda: None)
    clock.now += module.FORGOTTEN_SECONDS + 1
    assert known._pause() == float("inf")
    known.touch(watch)
    assert known._pause() <= 0


def test_thread(cloud: Cloud) -> None:
    """It begins with the first watch, lists while somebody waits, and ends."""
    known = ServerList("cloud-a", cloud.fetch)
    assert known._thread is None
    seen = threading.Event()
    cloud.servers = [view("a")]
    watch = known.watch("boot", seen.set)
    assert seen.wait(30)
    assert known.get("a") == view("a")
    known.done(watch)
    known.stop()
    known.join()
    known.watch("boot", seen.set)
    known.join()


def test_all(known: QuietList, cloud: Cloud, clock: ManualClock) -> None:
    """A list of some age may do, if the caller says so."""
    known.all(max_age=0)
    known.all(max_age=5)
    assert len(cloud.asked) == 1
    clock.now += 6
    cloud.servers = [view("a")]
    assert known.all(max_age=5) == [view("a")]
    cloud.error = CloudAway("no answer")
    clock.now += 6
    with pytest.raises(CloudAway):
        known.all(max_age=5)
