# SPDX-License-Identifier: Apache-2.0
"""nodepool.zk.transactions: all or nothing; fences; errors; many reads in one packet."""

from __future__ import annotations

import pytest
from kazoo import exceptions as kazoo
from kazoo.retry import RetryFailedError

from nodepool.exceptions import ZKConflict, ZKConnectionError, ZKException
from nodepool.model.node import Node
from nodepool.zk import transactions
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.transactions import Transaction, TransactionFailed, translate
from tests.support.kazoo_lock import Competitor
from tests.support.pool_znodes import PoolZnodes


def test_results_in_order(client: ZooKeeperClient, znodes: PoolZnodes) -> None:
    tx = Transaction(client)
    tx.create("/a")
    index = tx.create("/a/", b"x", flags=2)
    tx.check("/a", 0)
    tx.delete("/a/0000000000")
    results = tx.commit()
    assert results[index] == "/a/0000000000", "without the chroot"
    assert (znodes.children("/"), znodes.children("/a")) == (["a"], [])
    with pytest.raises(ZKException, match="never read"):
        Transaction(client).set_record("/a", Node(), b"{}")


@pytest.mark.parametrize(
    ("path", "version", "error"),
    [("/gone", -1, kazoo.NoNodeError), ("/a", 5, kazoo.BadVersionError), ("/full", -1, kazoo.NotEmptyError)],
)
def test_nothing_is_written_when_one_fails(
    client: ZooKeeperClient, znodes: PoolZnodes, path: str, version: int, error: type[Exception]
) -> None:
    for name in ("/a", "/full", "/full/x"):
        znodes.kazoo.create(name)
    tx = Transaction(client)
    tx.create("/new")
    tx.delete(path, version)
    tx.create("/newer")
    with pytest.raises(TransactionFailed) as caught:
        tx.commit()
    assert (caught.value.path, type(caught.value.error)) == (path, error)
    assert caught.value.lock_dir_mismatch is (error is kazoo.NoNodeError)
    assert znodes.children("/") == ["a", "full"]


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize("keep", [True, False])
def test_fence(client: ZooKeeperClient, znodes: PoolZnodes, competitor: Competitor, exists: bool, keep: bool) -> None:
    """It passes and leaves the directory, or does not, as asked; if our view was wrong, or it is held, it says so."""

    def fence(exists: bool) -> None:
        tx = Transaction(client)
        tx.fence_lock("/lock", exists=exists, keep=keep)
        tx.commit()

    if exists:
        znodes.kazoo.create("/lock")
    fence(exists)
    assert znodes.children("/") == (["lock"] if keep else [])
    with pytest.raises(TransactionFailed) as caught:
        fence(not keep)
    assert caught.value.lock_dir_mismatch
    competitor.hold("/lock")
    with pytest.raises(TransactionFailed) as caught:
        fence(True)
    assert (type(caught.value.error), caught.value.lock_dir_mismatch) == (kazoo.NotEmptyError, False)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        *((error(), ZKConnectionError) for error in (kazoo.ConnectionLoss, kazoo.SessionExpiredError, TimeoutError)),
        *((error(), ZKConnectionError) for error in (kazoo.ConnectionClosedError, kazoo.OperationTimeoutError)),
        *((error(), ZKConnectionError) for error in (kazoo.AuthFailedError, RetryFailedError)),
        *((error(), ZKConflict) for error in (kazoo.NoNodeError, kazoo.BadVersionError)),
        (ValueError("x"), ZKException),
    ],
)
def test_errors(error: Exception, kind: type[ZKException]) -> None:
    """A caller can tell "nothing was written" from "nobody knows". A lost session is also Kazoo's error for drivers."""
    found = translate(error)
    assert isinstance(found, kind)
    assert not isinstance(found, tuple({ZKConnectionError, ZKConflict} - {kind}))
    assert isinstance(found, kazoo.SessionExpiredError) is isinstance(error, kazoo.SessionExpiredError)
    assert translate(found) is found


def test_many_reads(client: ZooKeeperClient, znodes: PoolZnodes) -> None:
    """In order; each stands for itself: a missing znode is None, the others are there, empty or not."""
    for name, value in (("a", b"1"), ("b", b""), ("d", b"\x00\xff"), ("a/x", b""), ("a/y", b"")):
        znodes.kazoo.create(f"/{name}", value)
    znodes.kazoo.set("/d", b"two")
    found = list(transactions.read_data(client, ["/d", "/c", "/a", "/b"]))
    assert [one and one[0] for one in found] == [b"two", None, b"1", b""]
    assert found[0] is not None
    assert (found[0][1].version, found[0][1].dataLength) == (1, 3)
    assert list(transactions.read_data(client, [])) == []
    names = list(transactions.read_children(client, ["/a", "/c", "/a/x"]))
    assert [one and sorted(one) for one in names] == [["x", "y"], None, []]
    count = 6 * transactions.BATCH + 1
    assert [one and one[0] for one in transactions.read_data(client, ["/a"] * count)] == [b"1"] * count
