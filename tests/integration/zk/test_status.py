# SPDX-License-Identifier: Apache-2.0
"""What daemons say they are doing, and what operators hold back: their stores and caches."""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest
from kazoo.exceptions import ConnectionLoss

from nodepool.exceptions import ZKConnectionError
from nodepool.model.record import InvalidRecord
from nodepool.model.status import (
    HostStatus,
    LabelStatus,
    LauncherStatus,
    LimitStatus,
    Maintenance,
    MaintenanceRecords,
    Mode,
    PoolStatus,
    znode_name,
)
from nodepool.runtime import worker
from nodepool.runtime.worker import REPORT_PACE_SECONDS, StatusThread
from nodepool.zk import paths, status
from nodepool.zk.caches import MaintenanceCache, StatusCache
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.status import BUILDER, LAUNCHER, POOL, StatusWriter, read_launchers, read_pools
from nodepool.zk.transactions import records_below
from nodepool.zk.zookeeper import MaintenanceStore
from tests.support.manual_clock import monotonic_clock
from tests.support.pool_znodes import PoolZnodes
from tests.support.wait import present, wait_for

Patch = pytest.MonkeyPatch
PATH = "/nodepool/status/builder/host-1"
SECONDS = 60.0
MAIN = PoolStatus(id="1", provider="cloud", pool="main", limits=(LimitStatus("pool", "instances", 5),))
SMALL = PoolStatus(id="2", provider="cloud", pool="small")
LAUNCHER_1 = LauncherStatus(host="l1", pid=42)


def stored(client: ZooKeeperClient, kind: str) -> dict[str, Any]:
    """Name -> what is stored, of all of a kind."""
    return dict(records_below(client, f"/nodepool/status/{kind}", lambda name, data: (name, status.decode(data))))


@pytest.fixture
def writer(other: ZooKeeperClient) -> StatusWriter:
    return StatusWriter(other)


def test_what_is_stored(
    writer: StatusWriter, znodes: PoolZnodes, client: ZooKeeperClient, other: ZooKeeperClient
) -> None:
    """What changes, over what an ended session left; and it goes with the session."""
    znodes.kazoo.create(PATH, b"{}", makepath=True)
    for number, times in ((1, 10), (2, 1)):
        for _ in range(times):
            writer.set("builder", "host-1", {"a": number})
        assert (znodes.read(PATH), znodes.kazoo.exists(PATH).version) == ({"a": number}, number - 1)
    assert znodes.kazoo.exists(PATH).ephemeralOwner == other.kazoo.client_id[0]
    for name in "abcdef":
        znodes.kazoo.create(f"{PATH}-{name}", b"bad")
    assert stored(client, "builder") == {"host-1": {"a": 2}}
    assert stored(client, "launcher") == {}
    writer.close()
    assert not znodes.kazoo.exists(PATH)


def test_what_is_removed(writer: StatusWriter, znodes: PoolZnodes) -> None:
    """One that was removed is written again when it changes, one that we remove is not there until it is set."""
    writer.set("builder", "host-1", {"a": 1})
    znodes.kazoo.delete(PATH)
    writer.set("builder", "host-1", {"a": 3})
    writer.set("builder", "host-2", {"a": 1})
    assert znodes.read(PATH) == {"a": 3}
    writer.remove("builder", "host-1")
    writer.remove("builder", "unknown")
    assert znodes.children("/nodepool/status/builder") == ["host-2"]
    writer.set("builder", "host-1", {"a": 3})
    assert znodes.read(PATH) == {"a": 3}


def test_lost_session(
    writer: StatusWriter, znodes: PoolZnodes, other: ZooKeeperClient, lose_session: Callable[..., None]
) -> None:
    """It is written again in the new session, although nothing has changed."""
    writer.set("builder", "host-1", {"a": 1})
    lose_session(other)
    writer.set("builder", "host-1", {"a": 1})
    assert znodes.kazoo.exists(PATH).ephemeralOwner == other.kazoo.client_id[0]


def test_no_answer(writer: StatusWriter, znodes: PoolZnodes, other: ZooKeeperClient, monkeypatch: Patch) -> None:
    """Whether it was written is not known: the next time it is written."""
    with monkeypatch.context() as patch:
        for name in ("create", "set"):
            patch.setattr(other.kazoo, name, Mock(side_effect=ConnectionLoss))
            with pytest.raises(ZKConnectionError):
                writer.set("builder", "host-1", {"a": 1})
            if name == "create":
                patch.undo()
                writer.set("builder", "host-1", {"a": 0})
    writer.set("builder", "host-1", {"a": 1})
    assert znodes.read(PATH) == {"a": 1}


class Reports(StatusThread):
    """Notes its passes."""

    def __init__(self, client: ZooKeeperClient) -> None:
        super().__init__(client, logging.getLogger("nodepool.test"))
        self.passes = 0

    def run_once(self) -> None:
        self.passes += 1
        self.writer.set("builder", "host-1", {"passes": self.passes})


def test_a_thread_that_reports(
    other: ZooKeeperClient, znodes: PoolZnodes, lose_session: Callable[..., None], monkeypatch: Patch
) -> None:
    """W-8: not for each change, and again in a new session; what it reports goes with it."""
    clock = monotonic_clock(monkeypatch, worker)
    thread = Reports(other)
    thread.start()
    wait_for("the first report", lambda: znodes.read(PATH) == {"passes": 1})
    for _ in range(100):
        thread.wake()
    clock.now += REPORT_PACE_SECONDS
    thread.wake()
    wait_for("the second one", lambda: znodes.read(PATH) == {"passes": 2})
    clock.now += REPORT_PACE_SECONDS
    lose_session(other)
    wait_for("the third one", lambda: thread.passes > 2 and znodes.read(PATH))
    assert znodes.kazoo.exists(PATH).ephemeralOwner == other.kazoo.client_id[0]
    thread.stop()
    thread.join(SECONDS)
    assert not znodes.kazoo.exists(PATH)


def test_what_can_be_written(writer: StatusWriter, znodes: PoolZnodes, client: ZooKeeperClient) -> None:
    """What is long is compressed. Half a character comes from names of files and from errors of clouds."""
    told = PoolStatus(id="1", hosts=(HostStatus("a", nodes=["7"]),), labels={"gpu": LabelStatus("label.broken")})
    records: dict[str, Any] = {"host-1": {"text": "x" * 10_000}, "half": {"text": "\udc80"}, "a": {"a": 1}}
    for name, record in {**records, "pool": told}.items():
        writer.set("builder", name, record)
    found = stored(client, "builder")
    assert PoolStatus.of_record(found.pop("pool")) == replace(told, hosts=(replace(told.hosts[0], nodes=("7",)),))
    assert (found, len(znodes.kazoo.get(PATH)[0]) < 200) == (records, True)
    with pytest.raises(ValueError, match="at most"):
        writer.set("builder", "host-1", {"text": "x" * status.MAX_BYTES})


@pytest.mark.parametrize("data", [b"", b"\x78nothing", b"[]", zlib.compress(b"[]"), zlib.compress(b'{"a": 1}')[:-8]])
def test_what_cannot_be_read(data: bytes) -> None:
    """Also a few bytes that stand for many, which are not unpacked."""
    for odd in (data, zlib.compress(b'{"a": "' + b"x" * 50_000_000 + b'"}')):
        with pytest.raises(InvalidRecord):
            status.decode(odd)


# -- the cache


def started(client: ZooKeeperClient) -> StatusCache:
    cache = StatusCache(client)
    cache.start()
    assert cache.wait_ready(30)
    return cache


def shows(cache: StatusCache, *wanted: PoolStatus) -> None:
    """Waits until the cache has these pools."""
    wait_for("the cache follows", lambda: cache.pools() == list(wanted))


def test_life(writer: StatusWriter, client: ZooKeeperClient) -> None:
    """Records appear, change and go; the cache shows what commands read."""
    cache, heard = started(client), list[bool]()
    cache.add_listener(lambda: heard.append(True))
    assert (cache.pools(), cache.launchers(), cache.builders().builds) == ([], [], {})
    assert (read_pools(client), read_launchers(client)) == ([], [])
    for pool in (SMALL, MAIN):
        writer.set(POOL, pool.id, pool)
    writer.set(LAUNCHER, "l1-42", LAUNCHER_1)
    writer.set(BUILDER, "b1-7", {"builds": {"debian/b1": {"step": "bootstrap"}}})
    wait_for("all are there", lambda: len(cache.pools()) == 2 and cache.launchers() and cache.builders().builds)
    assert heard
    assert cache.pools() == [MAIN, SMALL] == read_pools(client)
    assert cache.launchers() == [LAUNCHER_1] == read_launchers(client)
    assert cache.builders().build("debian", "b1").step == "bootstrap"
    assert cache.pools()[0] is cache.pools()[0], "nothing is decoded a second time"
    hosts = tuple(f"host {number}" for number in range(200))
    writer.set(LAUNCHER, "l1-42", LauncherStatus(host="l1", pid=42, pools=hosts))
    wait_for("the change", lambda: cache.launchers()[0].pools == hosts)
    writer.remove(POOL, MAIN.id)
    shows(cache, SMALL)
    writer.close()
    wait_for("the end", lambda: not (cache.pools() or cache.launchers() or cache.builders().builds))


def test_bad_record(znodes: PoolZnodes, client: ZooKeeperClient, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged once and hides no other, at the start and later."""

    def put(name: str, data: bytes) -> None:
        znodes.kazoo.create(status.path_of(POOL, name), data, makepath=True)

    put("bad", json.dumps({"limits": "none"}).encode())
    put(SMALL.id, status.encode(SMALL))
    cache = started(client)
    put("worse", b"\x78\x00")
    put(MAIN.id, status.encode(MAIN))
    shows(cache, MAIN, SMALL)
    told = [entry.getMessage() for entry in caplog.records if "Ignoring" in entry.getMessage()]
    assert len(told) == 2
    assert any("Ignoring /nodepool/status/pool/bad: limits is a str" in line for line in told)
    assert read_pools(client) == [MAIN, SMALL]


def test_stop(client: ZooKeeperClient, writer: StatusWriter) -> None:
    """A cache that was stopped keeps what it knew; another one may follow then."""
    writer.set(POOL, MAIN.id, MAIN)
    first = started(client)
    shows(first, MAIN)
    first.stop()
    assert not first.ready.is_set()
    second = started(client)
    first.stop()
    writer.remove(POOL, MAIN.id)
    shows(second)
    assert first.pools() == [MAIN]


# -- what operators hold back, and the cache of it


PAUSED = Maintenance("pool", "cloud-1/main", Mode.PAUSE, "network", "alice@desk", 900.0, 2000.0)
HOST = Maintenance("host", "zuul@[fe80::1]:22", Mode.QUARANTINE, "fan")


@pytest.fixture
def store(client: ZooKeeperClient) -> MaintenanceStore:
    return MaintenanceStore(client)


def keyed(*records: Maintenance) -> MaintenanceRecords:
    return {(record.kind, record.name): record for record in records}


def test_written_read_and_removed(store: MaintenanceStore) -> None:
    """MT-1."""
    assert store.read_all() == {}
    store.put(PAUSED)
    store.put(HOST)
    assert store.read_all() == keyed(PAUSED, HOST)
    again = Maintenance("pool", "cloud-1/main", Mode.DRAIN, "network, for good", "bob@desk", 950.0)
    store.put(again)
    assert store.read_all() == keyed(again, HOST)
    assert store.remove("pool", "cloud-1/main")
    assert not store.remove("pool", "cloud-1/main")
    assert not store.remove("label", "gpu")
    assert store.read_all() == keyed(HOST)


FAILING = Maintenance("host", HOST.name, Mode.QUARANTINE, "3 failed checks", "launcher", 100.0, 160.0, automatic=True)


def test_a_launcher_writes_over_no_operator(store: MaintenanceStore, znodes: PoolZnodes) -> None:
    """S-16, MT-1: only over what launchers wrote, what is over, and what nobody can read."""
    assert store.put_automatic(FAILING, 100.0)
    longer = replace(FAILING, until=300.0)
    assert store.put_automatic(longer, 100.0)
    assert store.read_all() == keyed(longer)
    store.put(HOST)
    assert not store.put_automatic(FAILING, 100.0)
    store.put(replace(HOST, until=101.0))
    assert not store.put_automatic(FAILING, 100.0)
    assert store.put_automatic(FAILING, 101.0)
    znodes.kazoo.set(paths.maintenance("host", znode_name(HOST.name)), b"rubbish")
    assert store.put_automatic(FAILING, 100.0)
    assert store.read_all() == keyed(FAILING)


def test_launchers_that_write_at_the_same_time(
    store: MaintenanceStore, client: ZooKeeperClient, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S-16: what came in between is looked at, and not written over."""
    store.put_automatic(FAILING, 100.0)
    path = paths.maintenance("host", znode_name(HOST.name))
    operator = json.dumps(HOST.to_dict()).encode()
    get = client.kazoo.get

    def slow(which: str) -> Any:
        answer = get(which)
        znodes.kazoo.set(path, operator)
        return answer

    monkeypatch.setattr(client.kazoo, "get", slow)
    assert not store.put_automatic(FAILING, 100.0)
    assert store.read_all() == keyed(HOST)


def test_bad_records_hide_no_other(
    store: MaintenanceStore, znodes: PoolZnodes, caplog: pytest.LogCaptureFixture
) -> None:
    """MT-10."""
    store.put(PAUSED)
    for name, data in (("a", b""), ("b", b"\xff"), ("c", b"[]"), ("d", b'{"mode": "explode"}')):
        znodes.kazoo.create(paths.maintenance("label", name), data, makepath=True)
    assert store.read_all() == keyed(PAUSED)
    assert len([entry for entry in caplog.records if "Ignoring" in entry.getMessage()]) == 4


def test_only_what_is_over_is_removed(store: MaintenanceStore, znodes: PoolZnodes) -> None:
    """MT-9."""
    store.put(PAUSED)
    assert not store.remove_if_over(PAUSED, 1999.0)
    longer = Maintenance("pool", "cloud-1/main", Mode.PAUSE, until=3000.0)
    store.put(longer)
    assert not store.remove_if_over(PAUSED, 2000.0), "somebody has made it longer"
    assert store.read_all() == keyed(longer)
    assert store.remove_if_over(longer, 3000.0)
    assert not store.remove_if_over(longer, 3000.0)
    znodes.kazoo.create(paths.maintenance("pool", "cloud-1%2Fmain"), b"{")
    assert not store.remove_if_over(PAUSED, 2000.0)


def test_cache_follows(
    store: MaintenanceStore,
    shaky: ZooKeeperClient,
    cut_off: Callable[[], AbstractContextManager[None]],
    znodes: PoolZnodes,
) -> None:
    """MT-2: the tree need not be there at the start, and may go; so may the connection."""
    cache, heard = MaintenanceCache(shaky), list[bool]()
    assert cache.wait_ready(30)
    cache.add_listener(lambda: heard.append(True))

    def shows(*wanted: Maintenance) -> None:
        wait_for("the cache follows", lambda: cache.snapshot() == keyed(*wanted))

    for record, shown in ((PAUSED, [PAUSED]), (HOST, [PAUSED, HOST])):
        store.put(record)
        shows(*shown)
    store.remove("pool", "cloud-1/main")
    shows(HOST)
    znodes.kazoo.delete(paths.MAINTENANCE, recursive=True)
    shows()
    store.put(PAUSED)
    shows(PAUSED)
    with cut_off():
        store.put(HOST)
        store.remove("pool", "cloud-1/main")
    shows(HOST)
    assert len(heard) >= 6


def test_two_who_write_the_same(client: ZooKeeperClient, other: ZooKeeperClient, znodes: PoolZnodes) -> None:
    stores = [MaintenanceStore(each) for each in (client, other)]
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda store: [store.put(PAUSED) for _ in range(20)], stores))
    assert stores[0].read_all() == keyed(PAUSED)
    assert present(znodes.read(paths.maintenance("pool", "cloud-1%2Fmain")))["by"] == "alice@desk"
