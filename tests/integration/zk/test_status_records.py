# SPDX-License-Identifier: Apache-2.0
"""nodepool.zk.status: what commands read of launchers and their pools."""

from __future__ import annotations

import json

import pytest

from nodepool.model.status import LauncherStatus, PoolStatus
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.status import read_launchers, read_pools
from tests.support.pool_znodes import PoolZnodes


def store(znodes: PoolZnodes, path: str, record: object) -> None:
    znodes.kazoo.create(f"/nodepool/status/{path}", json.dumps(record).encode(), makepath=True)


def test_without_any_launcher(client: ZooKeeperClient) -> None:
    assert read_pools(client) == []
    assert read_launchers(client) == []


def test_in_order_and_without_bad_ones(
    client: ZooKeeperClient, znodes: PoolZnodes, caplog: pytest.LogCaptureFixture
) -> None:
    pools = [PoolStatus(id="1", provider="b", pool="main"), PoolStatus(id="2", provider="a", pool="main")]
    for pool in pools:
        store(znodes, f"pool/{pool.id}", pool.to_dict())
    store(znodes, "pool/3", {"limits": "none"})
    store(znodes, "launcher/l1-42", LauncherStatus(host="l1", pid=42).to_dict())
    assert read_pools(client) == pools[::-1]
    assert read_launchers(client) == [LauncherStatus(host="l1", pid=42)]
    assert "Ignoring /nodepool/status/pool/3: limits is a str" in caplog.text
