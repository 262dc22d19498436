# SPDX-License-Identifier: Apache-2.0
"""nodepool.zk.caches: what the writers of status records tell, over a lost connection too."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from nodepool.model.status import LauncherStatus, LimitStatus, PoolStatus
from nodepool.zk import status
from nodepool.zk.caches import StatusCache
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.status import BUILDER, LAUNCHER, POOL, StatusWriter, read_launchers, read_pools
from tests.support.pool_znodes import PoolZnodes
from tests.support.tcp_proxy import TcpProxy

SECONDS = 60.0
MAIN = PoolStatus(id="1", provider="cloud", pool="main", limits=(LimitStatus("pool", "instances", 5),))
SMALL = PoolStatus(id="2", provider="cloud", pool="small")
LAUNCHER_1 = LauncherStatus(host="l1", pid=42)


class Follower:
    """A started cache, and a way to wait for what it shows."""

    def __init__(self, client: ZooKeeperClient) -> None:
        self.cache = StatusCache(client)
        self._changed = threading.Condition()
        self.cache.add_listener(self._on_change)
        self.cache.start()
        assert self.cache.wait_ready(SECONDS)

    def _on_change(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def until(self, is_there: Callable[[StatusCache], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: is_there(self.cache), SECONDS)


@pytest.fixture
def writer(other: ZooKeeperClient) -> Iterator[StatusWriter]:
    """A launcher's or builder's, which does not wait between two writes."""
    made = StatusWriter(other, pause_seconds=0)
    yield made
    made.close()


@pytest.fixture
def follower(client: ZooKeeperClient) -> Follower:
    return Follower(client)


def test_nothing_is_there(follower: Follower) -> None:
    cache = follower.cache
    assert (cache.pools(), cache.launchers(), cache.builders().builds) == ([], [], {})


def test_life(follower: Follower, writer: StatusWriter, client: ZooKeeperClient) -> None:
    """Records appear, change and go; the cache shows what commands read."""
    writer.set(POOL, SMALL.id, SMALL)
    writer.set(POOL, MAIN.id, MAIN)
    writer.set(LAUNCHER, "l1-42", LAUNCHER_1)
    writer.set(BUILDER, "b1-7", {"builds": {"debian/b1": {"step": "bootstrap"}}})
    follower.until(lambda cache: len(cache.pools()) == 2 and bool(cache.launchers()) and bool(cache.builders().builds))
    cache = follower.cache
    assert cache.pools() == [MAIN, SMALL] == read_pools(client)
    assert cache.launchers() == [LAUNCHER_1] == read_launchers(client)
    assert cache.builders().build("debian", "b1").step == "bootstrap"
    assert cache.pools()[0] is cache.pools()[0], "nothing is decoded a second time"
    hosts = tuple(f"host {number}" for number in range(200))
    writer.set(LAUNCHER, "l1-42", LauncherStatus(host="l1", pid=42, pools=hosts))
    follower.until(lambda cache: cache.launchers()[0].pools == hosts)
    writer.remove(POOL, MAIN.id)
    follower.until(lambda cache: cache.pools() == [SMALL])
    writer.close()
    follower.until(lambda cache: not cache.pools() and not cache.launchers() and not cache.builders().builds)


def test_what_is_there_already(writer: StatusWriter, znodes: PoolZnodes, client: ZooKeeperClient) -> None:
    for number in range(3):
        path = status.path_of(POOL, str(number))
        znodes.kazoo.create(path, status.encode(PoolStatus(id=str(number))), makepath=True)
    assert [pool.id for pool in Follower(client).cache.pools()] == ["0", "1", "2"]


def test_bad_record(follower: Follower, znodes: PoolZnodes, caplog: pytest.LogCaptureFixture) -> None:
    """It is told once and hides no other."""
    for name, data in (("bad", b'{"limits": "none"}'), ("worse", b"\x78\x00"), ("2", status.encode(SMALL))):
        znodes.kazoo.create(status.path_of(POOL, name), data, makepath=True)
    follower.until(lambda cache: cache.pools() == [SMALL])
    for _ in range(2):
        assert follower.cache.pools() == [SMALL]
    told = [entry.getMessage() for entry in caplog.records if "Ignoring" in entry.getMessage()]
    assert len(told) == 2
    assert any("Ignoring /nodepool/status/pool/bad: limits is a str" in line for line in told)


def test_lost_connection(shaky: ZooKeeperClient, proxy: TcpProxy, writer: StatusWriter) -> None:
    """What is known stays; what happened meanwhile is read when it is back."""
    writer.set(POOL, MAIN.id, MAIN)
    follower = Follower(shaky)
    follower.until(lambda cache: cache.pools() == [MAIN])
    lost, back = threading.Event(), threading.Event()
    shaky.add_session_listener(lambda state: back.set() if state == "connected" else lost.set())
    proxy.take_down()
    assert lost.wait(SECONDS)
    assert not follower.cache.ready.is_set()
    assert follower.cache.pools() == [MAIN]
    writer.remove(POOL, MAIN.id)
    writer.set(POOL, SMALL.id, SMALL)
    proxy.bring_up()
    assert back.wait(SECONDS)
    follower.until(lambda cache: cache.pools() == [SMALL])
    assert follower.cache.wait_ready(SECONDS)


def test_stop(client: ZooKeeperClient, writer: StatusWriter, znodes: PoolZnodes) -> None:
    """A cache that was stopped keeps what it knew; another one may follow then."""
    writer.set(POOL, MAIN.id, MAIN)
    first = Follower(client)
    first.until(lambda cache: cache.pools() == [MAIN])
    first.cache.stop()
    assert not first.cache.ready.is_set()
    second = Follower(client)
    first.cache.stop()
    writer.remove(POOL, MAIN.id)
    second.until(lambda cache: cache.pools() == [])
    assert first.cache.pools() == [MAIN]
