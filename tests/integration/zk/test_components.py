# SPDX-License-Identifier: Apache-2.0
"""Entries in the registry, and who else is there (reference/zookeeper 7); installations; locks and elections (3)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss

from nodepool.exceptions import ZKConnectionError, ZKException, ZKLockException, ZKLockTimeout
from nodepool.model.status import LauncherComponent, PoolComponent
from nodepool.zk import components, paths, transactions
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.components import Registration
from nodepool.zk.connection import Reply
from nodepool.zk.nodes import NodepoolCache
from nodepool.zk.transactions import Election, LockOwners, Transaction, ZkLock
from nodepool.zk.zookeeper import ZooKeeper
from tests.support.kazoo_lock import Competitor
from tests.support.pool_znodes import POOLS, PoolZnodes
from tests.support.tables import rows
from tests.support.wait import DEADLINE_SECONDS, wait_for

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
    client: ZooKeeperClient, unsure: Registration, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch, answered: bool
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


# -- locks: the wire of Kazoo's Lock recipe (reference/zookeeper 3), who holds one, and elections


NODE = "/nodepool/nodes/0000000077"
DIR = f"{NODE}/lock"
STATS = "/nodepool/elections/stats"


def take_in_transaction(client: ZooKeeperClient, *, exists: bool) -> ZkLock:
    tx = Transaction(client)
    tx.fence_lock(DIR, exists=exists, keep=True)
    index = tx.create_contender(DIR, "ours")
    return ZkLock(DIR, tx.commit()[index], client.session_epoch)


@pytest.fixture(autouse=True)
def node(client: ZooKeeperClient) -> None:
    client.kazoo.ensure_path(NODE)


def test_names_of_contenders(client: ZooKeeperClient, znodes: PoolZnodes) -> None:
    """<32 hex>__lock__<10 digits>, the identifier as its data, ephemeral. To release it twice is fine."""
    for lock in (take_in_transaction(client, exists=False), None):
        lock = lock or transactions.acquire(client, DIR, identifier="ours")
        [name] = znodes.children(DIR)
        assert re.fullmatch(r"[0-9a-f]{32}__lock__[0-9]{10}", name)
        assert lock.contender == f"{DIR}/{name}"
        data, stat = znodes.kazoo.get(lock.contender)
        assert (data, stat.ephemeralOwner) == (b"ours", client.kazoo.client_id[0])
        for _ in range(2):
            transactions.release(client, lock)
            assert znodes.children(DIR) == []


def test_kazoo_blocks_us_and_we_block_kazoo(client: ZooKeeperClient, competitor: Competitor) -> None:
    for exists in (False, True):
        lock = take_in_transaction(client, exists=exists)
        assert not competitor.may_take(DIR)
        transactions.release(client, lock)
        assert competitor.may_take(DIR)
    held = competitor.hold(DIR)
    with pytest.raises(ZKLockException, match="locked by another process"):
        transactions.acquire(client, DIR, blocking=False)
    with pytest.raises(ZKLockTimeout, match=r"waited 0\.05 s"):
        transactions.acquire(client, DIR, timeout=0.05)
    with pytest.raises(Exception, match="NotEmpty"):
        take_in_transaction(client, exists=True)
    held.release()
    transactions.release(client, transactions.acquire(client, DIR, blocking=False))


def test_first_come_first_served(client: ZooKeeperClient, competitor: Competitor, znodes: PoolZnodes) -> None:
    """FIFO with Kazoo's contenders before and behind us."""
    held = competitor.hold(DIR)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(transactions.acquire, client, DIR, timeout=60)
        wait_for("we are in the queue", lambda: len(znodes.children(DIR)) == 2)
        last = competitor.wait_for_lock(DIR)
        assert not waiting.done()
        held.release()
        ours = waiting.result(30)
        assert not last.is_set()
        transactions.release(client, ours)
        assert last.wait(30)


@pytest.mark.parametrize("ephemeral", [True, False])
def test_end_of_the_session(
    client: ZooKeeperClient, lose_session: Callable[..., None], competitor: Competitor, ephemeral: bool
) -> None:
    """A lock ends with it, but not that of a metastatic backing node."""
    lock = transactions.acquire(client, DIR, ephemeral=ephemeral, identifier="NodePool:metastatic:cloud")
    lose_session(client)
    assert competitor.may_take(DIR) is ephemeral
    transactions.release(client, lock)
    assert competitor.may_take(DIR)


def test_held_since(client: ZooKeeperClient, znodes: PoolZnodes) -> None:
    """The number of the holder's contender; that of one who waits does not matter."""
    assert transactions.held_since(client, DIR) is None
    lock = take_in_transaction(client, exists=False)
    held = transactions.held_since(client, DIR)
    assert held == znodes.kazoo.exists(lock.contender).czxid
    _, before = znodes.kazoo.get(NODE)
    znodes.kazoo.create(f"{DIR}/{'f' * 32}__lock__", b"", sequence=True)
    assert transactions.held_since(client, DIR) == held
    znodes.kazoo.set(NODE, b"{}")
    _, after = znodes.kazoo.get(NODE)
    assert held is not None
    assert before.mzxid < held < after.mzxid


def test_contender_that_goes_while_it_is_given_back(
    client: ZooKeeperClient, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not looked for any more."""
    path = znodes.kazoo.create(f"{DIR}/ours__lock__", sequence=True, makepath=True)
    call, delete = client.kazoo.call, client.kazoo.operations.delete("/any")

    def too_late(request: Any, reply: Reply) -> Reply:
        if isinstance(request, type(delete)):
            znodes.kazoo.delete(path)
        return call(request, reply)

    monkeypatch.setattr(client.kazoo, "call", too_late)
    client.orphans.add(f"{DIR}/ours__lock__")
    wait_for("nothing is looked for any more", lambda: not client.orphans)


# -- who holds the lock of a node


@rows(__file__, "owners_that_are_registered")
def test_owner_that_is_registered(
    client: ZooKeeperClient, znodes: PoolZnodes, competitor: Competitor, path: str, record: object, owner: str
) -> None:
    """Its entry and its lock are of one session; the lock needs no identifier."""
    znodes.kazoo.create(path, json.dumps(record).encode(), ephemeral=True, makepath=True)
    competitor.hold(DIR, "")
    assert LockOwners(client).of_node("0000000077") == owner


def test_other_owners(client: ZooKeeperClient, znodes: PoolZnodes, competitor: Competitor) -> None:
    named, nameless, free = (znodes.add_node("in-use") for _ in range(3))
    competitor.hold(f"/nodepool/nodes/{named}/lock", "alice")
    competitor.hold(f"/nodepool/nodes/{nameless}/lock", "")
    owners = LockOwners(client).of_nodes([named, nameless, free, "0000009999"])
    assert (set(owners), owners[named]) == ({named, nameless}, "alice")
    assert owners[nameless].startswith("session 0x")


# -- elections


def test_one_leader(client: ZooKeeperClient, other: ZooKeeperClient, znodes: PoolZnodes) -> None:
    first, second = Election(client, "stats", "one-1"), Election(other, "stats", "two-2")
    assert [first.is_leader(), second.is_leader(), first.is_leader()] == [True, False, True]
    assert Election(other, "min-ready", "b").is_leader(), "elections are independent"
    [name] = znodes.children(STATS)
    assert znodes.kazoo.get(f"{STATS}/{name}")[0] == b"one-1"
    client.kazoo.stop()
    assert [first.is_leader(), second.is_leader()] == [False, True]


def test_leader_that_loses_its_session(
    client: ZooKeeperClient, other: ZooKeeperClient, lose_session: Callable[..., None]
) -> None:
    """It knows that it leads no more, as soon as it can know."""
    first, second = Election(client, "stats", "one"), Election(other, "stats", "two")
    assert first.is_leader()
    lose_session(client)
    assert [second.is_leader(), first.is_leader()] == [True, False]


def test_leader_without_a_connection(
    shaky: ZooKeeperClient, client: ZooKeeperClient, cut_off: Callable[[], AbstractContextManager[None]]
) -> None:
    """It does not lead; the lock is still its own later."""
    election, second = Election(shaky, "stats", "one"), Election(client, "stats", "two")
    assert election.is_leader()
    with cut_off():
        assert not election.is_leader()
        assert not second.is_leader()
    assert election.is_leader()


def test_mutex_of_a_provider(client: ZooKeeperClient, other: ZooKeeperClient) -> None:
    """Two launchers register static hosts one after the other; an error inside frees it, too."""
    first, second = ZooKeeper(client, None), ZooKeeper(other, None)
    with first.providerMutex("static/lab") as lock:
        assert lock.path == "/nodepool/elections/static-static_lab"
        with pytest.raises(ZKLockException), second.providerMutex("static/lab", timeout=0.05):
            pass
        with second.providerMutex("another", timeout=DEADLINE_SECONDS):
            pass
    for zk in (second, first):
        with pytest.raises(KeyError), zk.providerMutex("static/lab", timeout=DEADLINE_SECONDS):
            raise KeyError
