# SPDX-License-Identifier: Apache-2.0
"""nodepool.zk.transactions: many reads in one packet, against a real ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nodepool.exceptions import ZKConnectionError
from nodepool.zk import transactions
from nodepool.zk.client import ZooKeeperClient
from tests.support.pool_znodes import PoolZnodes
from tests.support.zookeeper import ZooKeeperServer


@pytest.fixture
def client(zookeeper: ZooKeeperServer, chroot: str) -> Iterator[ZooKeeperClient]:
    made = ZooKeeperClient(zookeeper.plain_hosts(chroot))
    made.connect(timeout=30)
    yield made
    made.disconnect()


def test_data_in_order_with_gaps(client: ZooKeeperClient, znodes: PoolZnodes) -> None:
    """Each read stands for itself: a missing znode is None, the others are there, empty or not."""
    for name, value in (("a", b"1"), ("b", b""), ("d", b"\x00\xff")):
        znodes.kazoo.create(f"/{name}", value)
    znodes.kazoo.set("/d", b"two")
    found = list(transactions.read_data(client, ["/d", "/c", "/a", "/b"]))
    assert [None if one is None else one[0] for one in found] == [b"two", None, b"1", b""]
    assert found[0] is not None
    assert (found[0][1].version, found[0][1].dataLength) == (1, 3)


def test_children(client: ZooKeeperClient, znodes: PoolZnodes) -> None:
    znodes.kazoo.create("/a/x", b"", makepath=True)
    znodes.kazoo.create("/a/y", b"")
    found = list(transactions.read_children(client, ["/a", "/b", "/a/x"]))
    assert found[0] is not None
    assert (sorted(found[0]), found[1], found[2]) == (["x", "y"], None, [])


def test_nothing_to_read(client: ZooKeeperClient) -> None:
    assert list(transactions.read_data(client, [])) == []


def test_more_than_fit_in_the_window(client: ZooKeeperClient, znodes: PoolZnodes) -> None:
    znodes.kazoo.create("/a", b"1")
    count = 6 * transactions.BATCH + 1
    found = list(transactions.read_data(client, ["/a"] * count))
    assert len(found) == count
    assert {one and one[0] for one in found} == {b"1"}


def test_closed_connection(zookeeper: ZooKeeperServer, chroot: str) -> None:
    client = ZooKeeperClient(zookeeper.plain_hosts(chroot))
    client.connect(timeout=30)
    reads = transactions.read_data(client, ["/a"])
    client.kazoo.stop()
    with pytest.raises(ZKConnectionError):
        next(reads)
    client.disconnect()
