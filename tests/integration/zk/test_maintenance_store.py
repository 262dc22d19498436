# SPDX-License-Identifier: Apache-2.0
"""nodepool.zk.zookeeper and the cache beside it, against a real ZooKeeper."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import pytest

from nodepool.model.status import Maintenance, MaintenanceRecords, Mode, znode_name
from nodepool.zk import paths
from nodepool.zk.caches import MaintenanceCache
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.zookeeper import MaintenanceStore
from tests.support.pool_znodes import PoolZnodes
from tests.support.wait import wait_for

POOL = Maintenance("pool", "cloud-1/main", Mode.PAUSE, "network", "alice@desk", 900.0, 2000.0)
HOST = Maintenance("host", "zuul@[fe80::1]:22", Mode.QUARANTINE, "fan")


@pytest.fixture
def store(client: ZooKeeperClient) -> MaintenanceStore:
    return MaintenanceStore(client)


def keyed(*records: Maintenance) -> MaintenanceRecords:
    return {(record.kind, record.name): record for record in records}


def test_written_read_and_removed(store: MaintenanceStore) -> None:
    """MT-1."""
    assert store.read_all() == {}
    store.put(POOL)
    store.put(HOST)
    assert store.read_all() == keyed(POOL, HOST)
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
    store.put(POOL)
    for name, data in (("a", b""), ("b", b"\xff"), ("c", b"[]"), ("d", b'{"mode": "explode"}')):
        znodes.kazoo.create(paths.maintenance("label", name), data, makepath=True)
    assert store.read_all() == keyed(POOL)
    assert len([entry for entry in caplog.records if "Ignoring" in entry.getMessage()]) == 4


def test_only_what_is_over_is_removed(store: MaintenanceStore, znodes: PoolZnodes) -> None:
    """MT-9."""
    store.put(POOL)
    assert not store.remove_if_over(POOL, 1999.0)
    longer = Maintenance("pool", "cloud-1/main", Mode.PAUSE, until=3000.0)
    store.put(longer)
    assert not store.remove_if_over(POOL, 2000.0), "somebody has made it longer"
    assert store.read_all() == keyed(longer)
    assert store.remove_if_over(longer, 3000.0)
    assert not store.remove_if_over(longer, 3000.0)
    znodes.kazoo.create(paths.maintenance("pool", "cloud-1%2Fmain"), b"{")
    assert not store.remove_if_over(POOL, 2000.0)


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

    for record, there in ((POOL, [POOL]), (HOST, [POOL, HOST])):
        store.put(record)
        shows(*there)
    store.remove("pool", "cloud-1/main")
    shows(HOST)
    znodes.kazoo.delete(paths.MAINTENANCE, recursive=True)
    shows()
    store.put(POOL)
    shows(POOL)
    with cut_off():
        store.put(HOST)
        store.remove("pool", "cloud-1/main")
    shows(HOST)
    assert len(heard) >= 6


def test_two_who_write_the_same(client: ZooKeeperClient, other: ZooKeeperClient, znodes: PoolZnodes) -> None:
    stores = [MaintenanceStore(each) for each in (client, other)]
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda store: [store.put(POOL) for _ in range(20)], stores))
    assert stores[0].read_all() == keyed(POOL)
    stored = znodes.read(paths.maintenance("pool", "cloud-1%2Fmain"))
    assert stored is not None
    assert stored["by"] == "alice@desk"
