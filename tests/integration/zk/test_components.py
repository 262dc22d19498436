# SPDX-License-Identifier: Apache-2.0
"""nodepool.zk.components: our entries in the registry, and who else is there (reference/zookeeper 7). Installations."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss

from nodepool.exceptions import ZKConnectionError, ZKException
from nodepool.model.status import LauncherComponent, PoolComponent
from nodepool.zk import components, paths
from nodepool.zk.caches import NodepoolCache
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.components import Registration
from nodepool.zk.zookeeper import ZooKeeper
from tests.support.pool_znodes import POOLS, PoolZnodes
from tests.support.wait import wait_for

BUILDERS = "/nodepool/components/builder"
OLD, OLDER = "0123456789abcdef", "fedcba9876543210"


def pool(id: str = "pool-id") -> PoolComponent:
    made = PoolComponent("host", "12.0")
    made.id, made.provider_name, made.supported_labels = id, "cloud", ["small"]
    return made


@pytest.fixture
def registration(client: ZooKeeperClient) -> Registration:
    made = Registration(client, pool())
    made.update(state="running")
    return made


def paused(znodes: PoolZnodes) -> list[object]:
    """Of each registered pool."""
    return [found["paused"] for found in znodes.pools()]


def test_entry(client: ZooKeeperClient, registration: Registration, znodes: PoolZnodes) -> None:
    """<hostname><seq>, ephemeral, keys sorted."""
    assert znodes.children(POOLS) == ["host0000000000"]
    data, stat = znodes.kazoo.get(f"{POOLS}/host0000000000")
    assert stat.ephemeralOwner == client.kazoo.client_id[0]
    found = json.loads(data)
    assert list(found) == sorted(found)
    assert (found["state"], found["id"], found["model_api"]) == ("running", "pool-id", 0)
    for _ in range(2):
        registration.unregister()
        assert znodes.children(POOLS) == []
    for id in ("one", "two"):
        Registration(client, pool(id)).update()
    Registration(client, LauncherComponent("host", "12.0")).update()
    assert sorted(found["id"] for found in znodes.pools()) == ["one", "two"]
    assert len(znodes.children("/nodepool/components/launcher")) == 1


def test_changes_keep_the_entry(registration: Registration, znodes: PoolZnodes) -> None:
    """G-12: new labels or priorities appear without a new id; without a change nothing is written."""
    [name] = znodes.children(POOLS)
    for is_paused, version in ((True, 1), (True, 1), (False, 2)):
        registration.update(paused=is_paused, supported_labels=["b", "a"], priority=7)
        [found] = znodes.pools()
        assert (found["paused"], found["supported_labels"], found["priority"]) == (is_paused, ["a", "b"], 7)
        assert znodes.kazoo.exists(f"{POOLS}/{name}").version == version


def test_lost_session(
    client: ZooKeeperClient, registration: Registration, lose_session: Callable[..., None], znodes: PoolZnodes
) -> None:
    """It registers again, once."""
    lose_session(client)
    assert znodes.children(POOLS) == []
    for _ in range(2):
        registration.ensure()
    [found] = znodes.pools()
    assert (found["id"], found["state"]) == ("pool-id", "running")
    registration.update(paused=True)
    assert paused(znodes) == [True]


def test_entry_that_was_removed(registration: Registration, znodes: PoolZnodes) -> None:
    writes: list[Callable[[], None]] = [lambda: registration.update(paused=True), registration.rewrite]
    for write in writes:
        znodes.kazoo.delete(f"{POOLS}/{znodes.children(POOLS)[0]}")
        write()
        assert paused(znodes) == [True]
    registration.rewrite()
    assert len(znodes.pools()) == 1


@pytest.fixture
def unsure(client: ZooKeeperClient, lose_session: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> Registration:
    """The session was lost while it was made: its entry is of the present one, but it cannot know that."""
    registration = Registration(client, pool())
    plain = client.kazoo.create

    def create_after_all(*arguments: Any, **options: Any) -> str:
        lose_session(client)
        made: str = plain(*arguments, **options)
        return made

    with monkeypatch.context() as patch:
        patch.setattr(client.kazoo, "create", create_after_all)
        registration.update(state="running")
    return registration


@pytest.mark.parametrize("answered", [True, False])
def test_old_entry_that_goes_while_it_is_removed(
    client: ZooKeeperClient,
    unsure: Registration,
    znodes: PoolZnodes,
    monkeypatch: pytest.MonkeyPatch,
    answered: bool,
) -> None:
    """By itself, its session was over at that moment; or the connection breaks, and it counts as gone."""
    plain = client.kazoo.delete

    def delete(path: str) -> None:
        znodes.kazoo.delete(path)
        if not answered:
            raise ConnectionLoss
        plain(path)

    with monkeypatch.context() as patch:
        patch.setattr(client.kazoo, "delete", delete)
        if not answered:
            with pytest.raises(ZKConnectionError):
                unsure.ensure()
            assert znodes.children(POOLS) == []
        unsure.ensure()
    assert [found["id"] for found in znodes.pools()] == ["pool-id"]


def test_reading(client: ZooKeeperClient, znodes: PoolZnodes, caplog: pytest.LogCaptureFixture) -> None:
    """Bad entries are logged and skipped; with a cache and without one."""
    assert components.read_pools(client) == []
    znodes.kazoo.create(f"{POOLS}/bad", b"garbage", makepath=True)
    Registration(client, pool()).update(state="running")
    cache = NodepoolCache(client)
    assert cache.wait_ready(30)
    for zk in (ZooKeeper(client, None), ZooKeeper(client, cache)):
        [found] = zk.getRegisteredPools()
        assert (found.id, found.provider_name, found.supported_labels) == ("pool-id", "cloud", ["small"])
        assert (found.state, found.priority, found.paused, found.version) == ("running", 100, False, "12.0")
    assert f"Ignoring {POOLS}/bad" in caplog.text


def test_cache_follows_the_registry(cache: NodepoolCache, other: ZooKeeperClient) -> None:
    registration = Registration(other, pool())
    for wanted in (False, True):
        registration.update(paused=wanted)
        wait_for("it is known", lambda wanted=wanted: [found.paused for found in cache.pools.values()] == [wanted])  # type: ignore[misc]
    other.disconnect()
    wait_for("it is gone", lambda: cache.pools.values() == [])


def test_other_components(client: ZooKeeperClient, znodes: PoolZnodes) -> None:
    """A component older than the running minimum refuses to start. Entries that cannot be read have their name."""
    components.check_model_api(client)
    assert components.read_hosts(client, "builder") == []
    for name, data in (
        *(("a", b'{"model_api": 2, "hostname": "z"}'), ("b", b'{"model_api": 1, "hostname": "y"}')),
        *(("c", b"garbage"), ("w", b"{}")),
    ):
        znodes.kazoo.create(f"{BUILDERS}/{name}", data, makepath=True)
    assert components.read_hosts(client, "builder") == ["c", "w", "y", "z"]
    znodes.kazoo.delete(f"{BUILDERS}/w")
    assert components.system_model_api(client) == 1
    with pytest.raises(ZKException, match="at least 1"):
        components.check_model_api(client)
    Registration(client, pool()).update()
    components.check_model_api(client)


# -- ids of the installation (D-10)


def test_installation(client: ZooKeeperClient) -> None:
    """D-10: of launchers and builders that ask at the same time one makes it. Ids of earlier ones are added once."""
    assert components.read_installation(client) is None
    with ThreadPoolExecutor(8) as threads:
        made = {found.result() for found in [threads.submit(components.get_installation, client) for _ in range(8)]}
    assert made == {components.read_installation(client)}
    (one,) = made
    assert (components.is_installation_id(one.id), one.ids) == (True, (one.id,))
    client.kazoo.delete(paths.INSTALLATION)
    assert components.adopt(client, (OLD,)).ids == (OLD,), "the first is the id where there is none yet"
    for _ in range(2):
        assert components.adopt(client, (OLDER, OLD)).ids == (OLD, OLDER)
    assert components.get_installation(client).ids == (OLD, OLDER)


@pytest.mark.parametrize("data", [b"", b"{", b'{"id": "short"}', b'{"id": "0123456789abcdef", "adopted": [1]}'])
def test_unreadable_installation(client: ZooKeeperClient, data: bytes) -> None:
    """Nothing is guessed: with a wrong id what is ours would be left, or what is not be deleted."""
    client.kazoo.create(paths.INSTALLATION, data, makepath=True)
    with pytest.raises(ZKException, match=f"{paths.INSTALLATION} cannot be read"):
        components.get_installation(client)
    assert client.kazoo.get(paths.INSTALLATION)[0] == data
