# SPDX-License-Identifier: Apache-2.0
"""nodepool.zk.locks: who holds the lock of a node."""

from __future__ import annotations

import json

import pytest

from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.locks import LockOwners
from tests.support.pool_znodes import PoolZnodes


def lock(znodes: PoolZnodes, node_id: str, identifier: str = "") -> None:
    znodes.kazoo.Lock(f"/nodepool/nodes/{node_id}/lock", identifier).acquire()


@pytest.mark.parametrize(
    ("path", "record", "owner"),
    [
        ("/nodepool/components/launcher/l1", {"hostname": "l1"}, "launcher l1"),
        ("/nodepool/components/pool/l1", {"hostname": "l1"}, "launcher l1"),
        ("/zuul/components/executor/e1", {"hostname": "e1"}, "Zuul executor e1"),
        ("/zuul/components/executor/e1", "odd", "Zuul executor e1"),
    ],
)
def test_a_process_that_is_registered(
    client: ZooKeeperClient, znodes: PoolZnodes, path: str, record: object, owner: str
) -> None:
    """Its entry and its lock are of one session; the lock needs no identifier."""
    znodes.kazoo.create(path, json.dumps(record).encode(), ephemeral=True, makepath=True)
    node_id = znodes.add_node("in-use")
    lock(znodes, node_id)
    assert LockOwners(client).of_node(node_id) == owner


def test_others(client: ZooKeeperClient, znodes: PoolZnodes) -> None:
    named, nameless, free = (znodes.add_node("in-use") for _ in range(3))
    lock(znodes, named, "somebody")
    lock(znodes, nameless)
    owners = LockOwners(client).of_nodes([named, nameless, free, "0000009999"])
    assert owners[named] == "somebody"
    assert owners[nameless].startswith("session 0x")
    assert set(owners) == {named, nameless}
