# SPDX-License-Identifier: Apache-2.0
"""``nodepool explain`` against a real ZooKeeper with TLS (reference/commands 2)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest

from nodepool.model.pool_status import PoolStatus, WaitingStatus
from tests.support.command_line import CommandLine
from tests.support.pool_znodes import POOLS, PoolZnodes

POOL = "l1-PoolWorker.cloud-1-main-0123"
FULL = {"limit": 2, "used": 2, "needed": 1}


@pytest.fixture
def pool(znodes: PoolZnodes) -> None:
    """A registered pool in front of whose limit requests wait."""
    entry: dict[str, object] = {
        "id": POOL,
        "hostname": "l1",
        "version": "12.0.0",
        "provider_name": "cloud-1",
        "name": "main",
    }
    entry |= {"supported_labels": ["small"], "priority": 100, "state": "running", "paused": True}
    znodes.kazoo.create(f"{POOLS}/l1-0000000001", json.dumps(entry).encode(), makepath=True)
    text = "quota: 2 of 2 instances of pool main in use"
    kind = WaitingStatus(("small",), None, "tenant", 1, time.time(), "room.instances", text, FULL, time.time())
    told = PoolStatus(id=POOL, host="l1", provider="cloud-1", pool="main", state="paused", waiting=[kind])
    path = f"/nodepool/status/pool/{POOL}"
    znodes.kazoo.create(path, json.dumps(told.to_dict()).encode(), makepath=True)


@pytest.mark.usefixtures("pool")
def test_request(nodepool: CommandLine, znodes: PoolZnodes) -> None:
    request_id = znodes.submit(["small"])
    found = nodepool("explain", request_id)
    assert (found.status, found.err) == (0, "")
    assert found.out.startswith(
        f"Request {request_id} waits for room in cloud-1/main: quota: 2 of 2 instances of pool main in use.\n"
    )
    answer = json.loads(nodepool("explain", request_id, "-f", "json").out)
    assert (answer["kind"], answer["code"], answer["numbers"], answer["job"]) == (
        *("request", "room.instances", FULL, "job"),
    )


@pytest.mark.usefixtures("pool")
def test_node_label_and_provider(nodepool: CommandLine, znodes: PoolZnodes, add_node: Callable[..., str]) -> None:
    """It decides by itself what it is asked about."""
    request_id = znodes.submit(["small"], state="fulfilled")
    node_id = add_node(provider="cloud-1", pool="main", type=["small"], state="in-use", allocated_to=request_id)
    lock = znodes.kazoo.Lock(f"/nodepool/nodes/{node_id}/lock", "zuul")
    lock.acquire()
    try:
        node = json.loads(nodepool("explain", node_id, "--format", "json").out)
    finally:
        lock.release()
    assert (node["kind"], node["request"], node["locked"], node["job"]) == ("node", request_id, True, "job")
    label, provider = nodepool("explain", "small"), nodepool("explain", "cloud-1")
    assert label.out.startswith("Label small is served by cloud-1/main; 0 free nodes; 0 requests want it")
    assert provider.out.startswith("Provider cloud-1 pool main is paused")


@pytest.mark.usefixtures("pool")
def test_unknown_name(nodepool: CommandLine) -> None:
    """E-3"""
    found = nodepool("explain", "cloud-2")
    assert (found.status, found.out) == (1, "")
    assert found.err == "there is no request, node, label or provider 'cloud-2', did you mean 'cloud-1'?\n"
