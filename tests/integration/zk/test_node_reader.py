# SPDX-License-Identifier: Apache-2.0
"""nodepool.zk.nodes: read one node, some, and all (reference/zookeeper 5)."""

from __future__ import annotations

import pytest

from nodepool.exceptions import ZKConflict
from nodepool.model.node import Node
from nodepool.zk import paths
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.nodes import NodeStore
from tests.support.pool_znodes import PoolZnodes
from tests.support.records import id_of


@pytest.fixture
def store(nodes: NodeStore) -> NodeStore:
    return nodes


@pytest.fixture
def node(store: NodeStore) -> Node:
    made = Node("small")
    made.provider = "cloud"
    store.create(made)
    return made


def test_reading(store: NodeStore, node: Node, znodes: PoolZnodes, caplog: pytest.LogCaptureFixture) -> None:
    found = store.get(id_of(node))
    assert found is not None
    assert (found.id, found.provider, found.version) == (node.id, "cloud", 0)
    assert found.mzxid > 0
    assert store.get("0000009999") is None
    bad = znodes.create_node(b"garbage")
    assert store.get(bad) is None
    assert f"Ignoring {paths.node(bad)}" in caplog.text


def test_listing(store: NodeStore, node: Node, znodes: PoolZnodes) -> None:
    """Bad records and a child named lock are skipped."""
    znodes.create_node(b"garbage")
    empty = znodes.create_node(b"")
    znodes.kazoo.create(f"{paths.NODES}/lock", b"")
    assert [found.id for found in store.iterate()] == [node.id]
    assert sorted(store.ids()) == [node.id, f"{int(empty) - 1:010}", empty]


def test_nothing_there(client: ZooKeeperClient) -> None:
    store = NodeStore(client, None)
    assert store.ids() == []
    assert list(store.iterate()) == []
    assert store.contenders("0000000001") == []
    assert not store.is_locked("0000000001")
    assert store.locked_ids(["0000000001"]) == set()
    store.remove_raw("0000000001")


def test_refresh(store: NodeStore, node: Node, znodes: PoolZnodes) -> None:
    """The same object with new fields; a lock that is held stays."""
    store.lock(node)
    lock = node.lock
    node.comment = "forgotten"
    znodes.change_node(id_of(node), provider="other")
    store.refresh(node)
    assert (node.provider, node.comment, node.version) == ("other", None, 1)
    assert node.lock is lock
    node.state = "building"
    store.save(node)
    store.remove_raw(id_of(node))
    with pytest.raises(ZKConflict, match="gone"):
        store.refresh(node)


@pytest.mark.parametrize("text", ["", ".", "..", "../nodes", "a/b", "a\0b", "\n", "\ud800", "\ufff0"])
def test_no_name(store: NodeStore, client: ZooKeeperClient, text: str) -> None:
    """What cannot be a znode is not there; no question about it ends the connection."""
    assert store.get(text) is None
    assert store.existing([text]) == set()
    assert client.session_epoch == 0
    assert client.connected


def test_existing(store: NodeStore, node: Node, znodes: PoolZnodes) -> None:
    """Many in one packet; what cannot be read is there, too."""
    znodes.kazoo.create(f"{paths.NODES}/broken", b"[")
    assert store.existing([id_of(node), "broken", "0000000099", "..", "\ud800"]) == {id_of(node), "broken"}
    assert store.existing([]) == set()
