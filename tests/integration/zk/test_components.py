# SPDX-License-Identifier: Apache-2.0
"""nodepool.zk.components: our entries in the registry, and who else is there (reference/zookeeper 7)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss

from nodepool.exceptions import ZKConnectionError, ZKException
from nodepool.model.component import LauncherComponent, PoolComponent
from nodepool.zk import components
from nodepool.zk.caches import NodepoolCache
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.components import Registration
from nodepool.zk.zookeeper import ZooKeeper
from tests.support.pool_znodes import POOLS, PoolZnodes
from tests.support.session_loss import expire_session
from tests.support.wait import wait_for
from tests.support.zookeeper import ZooKeeperServer


def pool(id: str = "pool-id") -> PoolComponent:
    made = PoolComponent("host", "12.0")
    made.id, made.provider_name, made.supported_labels = id, "cloud", ["small"]
    return made


def test_entry(client: ZooKeeperClient, znodes: PoolZnodes) -> None:
    """<hostname><seq>, ephemeral, keys sorted."""
    registration = Registration(client, pool())
    registration.update(state="running")
    [name] = znodes.children(POOLS)
    assert name == "host0000000000"
    data, stat = znodes.kazoo.get(f"{POOLS}/{name}")
    assert stat.ephemeralOwner == client.kazoo.client_id[0]
    found = json.loads(data)
    assert list(found) == sorted(found)
    assert (found["state"], found["id"], found["model_api"]) == ("running", "pool-id", 0)
    registration.unregister()
    registration.unregister()
    assert znodes.children(POOLS) == []


def test_changes_keep_the_entry(client: ZooKeeperClient, znodes: PoolZnodes) -> None:
    """G-12: new labels or priorities appear without a new id; without a change nothing is written."""
    registration = Registration(client, pool())
    for _ in range(2):
        registration.update(paused=True, supported_labels=["b", "a"], priority=7)
    [name] = znodes.children(POOLS)
    assert znodes.kazoo.exists(f"{POOLS}/{name}").version == 0
    registration.update(paused=False)
    [found] = znodes.pools()
    assert (found["paused"], found["supported_labels"], found["priority"]) == (False, ["a", "b"], 7)
    assert znodes.kazoo.exists(f"{POOLS}/{name}").version == 1


def test_several_entries(client: ZooKeeperClient, znodes: PoolZnodes) -> None:
    for id in ("one", "two"):
        Registration(client, pool(id)).update()
    Registration(client, LauncherComponent("host", "12.0")).update()
    assert sorted(found["id"] for found in znodes.pools()) == ["one", "two"]
    assert len(znodes.children("/nodepool/components/launcher")) == 1


def test_lost_session(client: ZooKeeperClient, zookeeper: ZooKeeperServer, znodes: PoolZnodes) -> None:
    """It registers again, once."""
    registration = Registration(client, pool())
    registration.update(state="running")
    expire_session(zookeeper.plain_hosts(), client.kazoo.client_id)
    assert znodes.children(POOLS) == []
    wait_for("the new session", lambda: client.session_epoch == 1 and client.connected)
    registration.ensure()
    registration.ensure()
    [found] = znodes.pools()
    assert (found["id"], found["state"]) == ("pool-id", "running")
    registration.update(paused=True)
    assert [found["paused"] for found in znodes.pools()] == [True]


def test_entry_that_somebody_removed(client: ZooKeeperClient, znodes: PoolZnodes) -> None:
    registration = Registration(client, pool())
    registration.update()
    [name] = znodes.children(POOLS)
    znodes.kazoo.delete(f"{POOLS}/{name}")
    registration.update(paused=True)
    assert [found["paused"] for found in znodes.pools()] == [True]
    znodes.kazoo.delete(f"{POOLS}/{znodes.children(POOLS)[0]}")
    registration.rewrite()
    assert [found["paused"] for found in znodes.pools()] == [True]
    registration.rewrite()
    assert len(znodes.pools()) == 1


@pytest.fixture
def unsure(client: ZooKeeperClient, zookeeper: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch) -> Registration:
    """The session was lost while it was made: its entry is of the present one, but it cannot know that."""
    registration = Registration(client, pool())
    plain = client.kazoo.create

    def create_after_all(*arguments: Any, **options: Any) -> str:
        expire_session(zookeeper.plain_hosts(), client.kazoo.client_id)
        wait_for("the new session", lambda: client.session_epoch == 1 and client.connected)
        made: str = plain(*arguments, **options)
        return made

    with monkeypatch.context() as patch:
        patch.setattr(client.kazoo, "create", create_after_all)
        registration.update(state="running")
    return registration


def test_connection_that_breaks_while_an_old_entry_is_removed(
    client: ZooKeeperClient, unsure: Registration, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If that gives no answer the entry counts as gone."""

    def delete_without_an_answer(path: str) -> None:
        znodes.kazoo.delete(path)
        raise ConnectionLoss

    with monkeypatch.context() as patch:
        patch.setattr(client.kazoo, "delete", delete_without_an_answer)
        with pytest.raises(ZKConnectionError):
            unsure.ensure()
    assert znodes.children(POOLS) == []
    unsure.ensure()
    assert [found["id"] for found in znodes.pools()] == ["pool-id"]


def test_old_entry_that_goes_by_itself_while_it_is_removed(
    client: ZooKeeperClient, unsure: Registration, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its session was over at that moment."""
    plain = client.kazoo.delete

    def delete_too_late(path: str) -> None:
        znodes.kazoo.delete(path)
        plain(path)

    monkeypatch.setattr(client.kazoo, "delete", delete_too_late)
    unsure.ensure()
    assert [found["id"] for found in znodes.pools()] == ["pool-id"]


def test_closed_connection(client: ZooKeeperClient) -> None:
    registration = Registration(client, pool())
    registration.update()
    client.kazoo.stop()
    with pytest.raises(ZKConnectionError):
        registration.update(paused=True)
    with pytest.raises(ZKConnectionError):
        Registration(client, pool()).update()
    with pytest.raises(ZKConnectionError):
        components.read_pools(client)


def test_reading(client: ZooKeeperClient, znodes: PoolZnodes, caplog: pytest.LogCaptureFixture) -> None:
    """Bad entries are logged and skipped; with a cache and without one."""
    assert components.read_pools(client) == components.read_pools_at_once(client) == []
    znodes.kazoo.create(f"{POOLS}/bad", b"garbage", makepath=True)
    Registration(client, pool()).update(state="running")
    cache = NodepoolCache(client)
    assert cache.wait_ready(30)
    for zk in (ZooKeeper(client, None), ZooKeeper(client, cache)):
        [found] = zk.getRegisteredPools()
        assert (found.id, found.provider_name, found.supported_labels) == ("pool-id", "cloud", ["small"])
        assert (found.state, found.priority, found.paused) == ("running", 100, False)
    assert f"Ignoring {POOLS}/bad" in caplog.text
    assert [found.to_dict() for found in components.read_pools_at_once(client)] == [
        found.to_dict() for found in components.read_pools(client)
    ]


def test_cache_follows_the_registry(client: ZooKeeperClient, other: ZooKeeperClient) -> None:
    cache = NodepoolCache(client)
    registration = Registration(other, pool())
    registration.update()
    wait_for("the pool is there", lambda: [found.id for found in cache.pools.values()] == ["pool-id"])
    registration.update(paused=True)
    wait_for("it is paused", lambda: [found.paused for found in cache.pools.values()] == [True])
    other.disconnect()
    wait_for("it is gone", lambda: cache.pools.values() == [])


def test_model_api(client: ZooKeeperClient, znodes: PoolZnodes) -> None:
    """A component older than the running minimum refuses to start."""
    components.check_model_api(client)
    for name, data in (("a", b'{"model_api": 2}'), ("b", b'{"model_api": 1}'), ("c", b"garbage")):
        znodes.kazoo.create(f"/nodepool/components/builder/{name}", data, makepath=True)
    assert components.system_model_api(client) == 1
    with pytest.raises(ZKException, match="at least 1"):
        components.check_model_api(client)
    Registration(client, pool()).update()
    components.check_model_api(client)


def test_hosts(client: ZooKeeperClient, znodes: PoolZnodes) -> None:
    """Of all components of a kind; entries that cannot be read have the name of their znode."""
    assert components.read_hosts(client, "builder") == []
    for name, data in (("x", b'{"hostname": "b"}'), ("y", b'{"hostname": "a"}'), ("z", b"garbage"), ("w", b"{}")):
        znodes.kazoo.create(f"/nodepool/components/builder/{name}", data, makepath=True)
    assert components.read_hosts(client, "builder") == ["a", "b", "w", "z"]
