# SPDX-License-Identifier: Apache-2.0
"""nodepool.zk.transactions: all or nothing; fences; errors."""

from __future__ import annotations

import pytest
from kazoo import exceptions as kazoo
from kazoo.retry import RetryFailedError

from nodepool.exceptions import ZKConflict, ZKConnectionError, ZKException
from nodepool.model.node import Node
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.transactions import Transaction, TransactionFailed, translate, translated
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
    assert znodes.children("/") == ["a"]
    assert znodes.children("/a") == []


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
    assert caught.value.path == path
    assert isinstance(caught.value.error, error)
    assert caught.value.lock_dir_mismatch is (error is kazoo.NoNodeError)
    assert znodes.children("/") == ["a", "full"]


def test_record_that_was_never_read(client: ZooKeeperClient) -> None:
    with pytest.raises(ZKException, match="never read"):
        Transaction(client).set_record("/a", Node(), b"{}")


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize("keep", [True, False])
def test_fence_of_a_free_lock(client: ZooKeeperClient, znodes: PoolZnodes, exists: bool, keep: bool) -> None:
    """It passes and leaves the directory, or does not, as asked; if our view was wrong it says so."""
    if exists:
        znodes.kazoo.create("/lock")
    tx = Transaction(client)
    tx.fence_lock("/lock", exists=exists, keep=keep)
    tx.commit()
    assert znodes.children("/") == (["lock"] if keep else [])
    if keep:
        wrong = Transaction(client)
        wrong.fence_lock("/lock", exists=False, keep=keep)
    else:
        wrong = Transaction(client)
        wrong.fence_lock("/lock", exists=True, keep=keep)
    with pytest.raises(TransactionFailed) as caught:
        wrong.commit()
    assert caught.value.lock_dir_mismatch


@pytest.mark.parametrize("keep", [True, False])
def test_fence_of_a_lock_that_is_held(client: ZooKeeperClient, competitor: Competitor, keep: bool) -> None:
    competitor.hold("/lock")
    tx = Transaction(client)
    tx.fence_lock("/lock", exists=True, keep=keep)
    with pytest.raises(TransactionFailed) as caught:
        tx.commit()
    assert isinstance(caught.value.error, kazoo.NotEmptyError)
    assert not caught.value.lock_dir_mismatch


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (kazoo.ConnectionLoss(), ZKConnectionError),
        (kazoo.SessionExpiredError(), ZKConnectionError),
        (kazoo.ConnectionClosedError(), ZKConnectionError),
        (kazoo.OperationTimeoutError(), ZKConnectionError),
        (kazoo.AuthFailedError(), ZKConnectionError),
        (RetryFailedError(), ZKConnectionError),
        (TimeoutError(), ZKConnectionError),
        (kazoo.NoNodeError(), ZKConflict),
        (kazoo.BadVersionError(), ZKConflict),
        (ValueError("x"), ZKException),
    ],
)
def test_errors(error: Exception, kind: type[ZKException]) -> None:
    """A caller can tell "nothing was written" from "nobody knows"."""
    translated = translate(error)
    assert isinstance(translated, kind)
    other_kinds = {ZKConnectionError, ZKConflict} - {kind}
    assert not isinstance(translated, tuple(other_kinds))
    known = ZKConflict("x")
    assert translate(known) is known


def test_errors_of_kazoos_own_methods(client: ZooKeeperClient) -> None:
    with pytest.raises(ZKConflict, match="NoNodeError"), translated():
        client.kazoo.get("/gone")
    with pytest.raises(ValueError, match="ours"), translated():
        raise ValueError("ours")


def test_closed_connection(client: ZooKeeperClient) -> None:
    tx = Transaction(client)
    tx.create("/a")
    client.kazoo.stop()
    with pytest.raises(ZKConnectionError):
        tx.commit()
