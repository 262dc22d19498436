# SPDX-License-Identifier: Apache-2.0
"""nodepool.zk.locks and the mutex of a provider: one of several launchers does it."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from nodepool.exceptions import ZKLockException
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.locks import Election
from nodepool.zk.zookeeper import ZooKeeper
from tests.support.kazoo_lock import Competitor
from tests.support.pool_znodes import PoolZnodes
from tests.support.session_loss import expire_session
from tests.support.tcp_proxy import TcpProxy
from tests.support.wait import DEADLINE_SECONDS, wait_for
from tests.support.zookeeper import ZooKeeperServer


def test_one_leader(client: ZooKeeperClient, other: ZooKeeperClient, znodes: PoolZnodes) -> None:
    first, second = Election(client, "stats", "one-1"), Election(other, "stats", "two-2")
    assert [first.is_leader(), second.is_leader(), first.is_leader()] == [True, False, True]
    [name] = znodes.children("/nodepool/elections/stats")
    assert znodes.kazoo.get(f"/nodepool/elections/stats/{name}")[0] == b"one-1"
    first.resign()
    assert [second.is_leader(), first.is_leader()] == [True, False]
    second.resign()
    second.resign()
    assert znodes.children("/nodepool/elections/stats") == []


def test_elections_are_independent(client: ZooKeeperClient, other: ZooKeeperClient) -> None:
    assert Election(client, "stats", "a").is_leader()
    assert Election(other, "min-ready", "b").is_leader()


def test_leader_that_loses_its_session(
    client: ZooKeeperClient, other: ZooKeeperClient, zookeeper: ZooKeeperServer
) -> None:
    """It knows that it leads no more, as soon as it can know."""
    first, second = Election(client, "stats", "one"), Election(other, "stats", "two")
    assert first.is_leader()
    expire_session(zookeeper.plain_hosts(), client.kazoo.client_id)
    assert second.is_leader()
    wait_for("the new session", lambda: client.session_epoch == 1 and client.connected)
    assert not first.is_leader()
    second.resign()
    assert first.is_leader()


def test_leader_that_lost_its_connection(shaky: ZooKeeperClient, proxy: TcpProxy) -> None:
    """Without a connection nobody leads; the lock is still ours when it is back."""
    election = Election(shaky, "stats", "one")
    assert election.is_leader()
    proxy.take_down()
    wait_for("the loss is seen", lambda: shaky.suspended)
    assert not election.is_leader()
    proxy.bring_up()
    assert shaky.wait_connected(30)
    assert election.is_leader()


def test_resigning_without_a_connection(shaky: ZooKeeperClient, client: ZooKeeperClient, proxy: TcpProxy) -> None:
    """It is not waited for, and nobody leads until it is back; the session goes on."""
    election = Election(shaky, "stats", "one")
    assert election.is_leader()
    proxy.take_down()
    wait_for("the loss is seen", lambda: shaky.suspended)
    election.resign()
    proxy.bring_up()
    wait_for("somebody else leads", Election(client, "stats", "two").is_leader)


def test_closed_connection(client: ZooKeeperClient) -> None:
    client.kazoo.stop()
    assert not Election(client, "stats", "one").is_leader()


def test_resigning_leaves_the_queue(client: ZooKeeperClient, competitor: Competitor) -> None:
    """Older launchers wait for the lock with Kazoo's recipe."""
    election = Election(client, "stats", "one")
    assert election.is_leader()
    taken = competitor.wait_for_lock("/nodepool/elections/stats")
    assert not taken.is_set()
    election.resign()
    assert taken.wait(30)
    assert not election.is_leader()


# -- provider mutex


def test_mutex_of_a_provider(make_client: Callable[..., ZooKeeperClient]) -> None:
    """Two launchers register static hosts one after the other."""
    inside: list[str] = []
    entered, leave = threading.Event(), threading.Event()
    first, second = ZooKeeper(make_client(), None), ZooKeeper(make_client(), None)

    def register() -> None:
        with first.providerMutex("static/lab"):
            inside.append("first in")
            entered.set()
            leave.wait(30)
            inside.append("first out")

    thread = threading.Thread(target=register)
    thread.start()
    assert entered.wait(30)
    with pytest.raises(ZKLockException), second.providerMutex("static/lab", timeout=0.05):
        inside.append("never")
    with second.providerMutex("another", timeout=DEADLINE_SECONDS):
        inside.append("another")
    leave.set()
    with second.providerMutex("static/lab"):
        inside.append("second in")
    thread.join(30)
    assert inside == ["first in", "another", "first out", "second in"]


def test_mutex_is_free_after_an_error(zk: ZooKeeper, competitor: Competitor) -> None:
    with pytest.raises(KeyError), zk.providerMutex("lab"):
        raise KeyError
    assert competitor.may_take("/nodepool/elections/static-lab")
