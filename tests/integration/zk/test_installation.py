# SPDX-License-Identifier: Apache-2.0
"""nodepool.zk.installation against a real ZooKeeper (D-10)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from nodepool.exceptions import ZKException
from nodepool.zk import installation, paths
from nodepool.zk.client import ZooKeeperClient

OLD, OLDER = "0123456789abcdef", "fedcba9876543210"


def test_made_once(client: ZooKeeperClient) -> None:
    """Of launchers and builders that ask at the same time one makes it."""
    assert installation.read(client) is None
    with ThreadPoolExecutor(8) as threads:
        made = {found.result() for found in [threads.submit(installation.get, client) for _ in range(8)]}
    assert made == {installation.read(client)}
    (one,) = made
    assert installation.is_id(one.id)
    assert one.ids == (one.id,)


def test_adopted(client: ZooKeeperClient) -> None:
    """Ids of earlier installations are added once; the first is the id where there is none yet."""
    assert installation.adopt(client, (OLD,)).ids == (OLD,)
    for _ in range(2):
        assert installation.adopt(client, (OLDER, OLD)).ids == (OLD, OLDER)
    assert installation.get(client).ids == (OLD, OLDER)


@pytest.mark.parametrize("data", [b"", b"{", b'{"id": "short"}', b'{"id": "0123456789abcdef", "adopted": [1]}'])
def test_unreadable(client: ZooKeeperClient, data: bytes) -> None:
    """Nothing is guessed: with a wrong id what is ours would be left, or what is not be deleted."""
    client.kazoo.create(paths.INSTALLATION, data, makepath=True)
    with pytest.raises(ZKException, match=f"{paths.INSTALLATION} cannot be read"):
        installation.get(client)
    assert client.kazoo.get(paths.INSTALLATION)[0] == data
