# SPDX-License-Identifier: Apache-2.0
"""``nodepool explain`` against a real ZooKeeper with TLS (reference/commands 2)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from nodepool.launcher import status
from nodepool.model.status import PoolStatus, WaitingStatus
from tests.support.command_line import CommandLine
from tests.support.openstack_place import Place
from tests.support.pool_znodes import POOLS, PoolZnodes
from tests.support.wait import wait_for

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
    answer = json.loads(nodepool("explain", request_id, "-o", "json").out)
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


def test_with_a_launcher(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """E-1, E-2: what waits for room, what waits behind it, and what failed."""
    for name in ("LOOK_SECONDS", "ALL_SECONDS"):
        monkeypatch.setattr(status, name, 0.1)
    place.pool["max-servers"] = 1
    place.launch()
    place.fulfilled(place.znodes.submit(["small"]))
    first, second = place.znodes.submit(["small"]), place.znodes.submit(["small"])
    never = place.znodes.submit(["small", "small"])
    place.failed(never)
    assert place.launcher is not None
    nodepool = CommandLine(place.launcher.path)
    full = {"limit": 1, "used": 1, "needed": 1}

    def answer(name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(nodepool("explain", name, "-o", "json").out)
        return found

    def told(name: str, code: str) -> bool:
        return bool(answer(name)["code"] == code)

    wait_for("it waits for room", lambda: told(first, "room.instances"))
    wait_for("it waits behind it", lambda: told(second, "wait.pool-paused"))
    wait_for("the cause is known", lambda: told(never, "quota.too-small"))
    assert [answer(name)["numbers"] for name in (first, second)] == [full, full]
    assert [answer(name)["ahead"] for name in (first, second)] == [0, 1]
    assert answer(never)["text"].endswith("2 instances needed, the limit of pool main is 1")


def test_cloud_that_is_away(place: Place, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log of the look-up of an image and the explanation of the provider have the cloud's own words."""
    for name in ("LOOK_SECONDS", "ALL_SECONDS"):
        monkeypatch.setattr(status, name, 0.1)
    place.simulator.change(errors=[{"operation": f"{one}.*", "kind": "503"} for one in ("image", "compute")])
    place.launch()
    place.znodes.submit(["small"])
    assert place.launcher is not None
    nodepool = CommandLine(place.launcher.path)
    words = "503 The server is currently unavailable"
    wait_for("it is explained", lambda: words in nodepool("explain", "cloud-a").out)
    wait_for("it is logged", lambda: "its image could not be looked up: " in caplog.text)
    lines = [record.getMessage() for record in caplog.records if "could not be looked up" in record.getMessage()]
    assert all(words in line and "reports no version" not in line for line in lines)
