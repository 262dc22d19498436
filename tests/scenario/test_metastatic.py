# SPDX-License-Identifier: Apache-2.0
"""The metastatic driver in a whole launcher, on nodes of the fake cloud and on static hosts (behaviour.md T)."""

from __future__ import annotations

import json
from typing import Any

from nodepool.driver.fake.cloud import FakeCloud
from tests.scenario.conftest import Launch
from tests.scenario.test_requests import fulfilled, use_and_return
from tests.support.local_launcher import fake_provider
from tests.support.pool_znodes import PoolZnodes
from tests.support.wait import wait_for

OWNER = "NodePool:metastatic:shared"


def shared(*labels: dict[str, Any], **pool: Any) -> dict[str, Any]:
    """A metastatic provider section; each label is on two slots of label ``big`` unless it says otherwise."""
    rules = {"backing-label": "big", "max-parallel-jobs": 2, "grace-time": 0}
    return {
        "name": "shared",
        "driver": "metastatic",
        "pools": [{"name": "main", "labels": [{**rules, **label} for label in labels or [{"name": "small"}]], **pool}],
    }


def cloud_provider(cloud: str, **settings: Any) -> dict[str, Any]:
    return fake_provider("cloud", ("big",), cloud=cloud, **settings)


def backing(znodes: PoolZnodes) -> dict[str, dict[str, Any]]:
    """Backing nodes by id, with what ``user_data`` holds in the place of its text."""
    found = {}
    for node_id, node in znodes.nodes("in-use").items():
        if isinstance(node["user_data"], str):
            found[node_id] = {**node, "user_data": json.loads(node["user_data"])}
    return found


def place(znodes: PoolZnodes, request: dict[str, Any]) -> tuple[str, int]:
    """Backing node and slot of the only node of a request."""
    data = (znodes.node(request["nodes"][0]) or {})["driver_data"]
    return data["backing_node"], data["slot"]


def nothing_left(znodes: PoolZnodes, cloud: FakeCloud) -> bool:
    return not znodes.nodes() and not cloud.instances() and not znodes.children("/nodepool/requests")


def test_two_share_a_backing_node(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud, cloud_name: str) -> None:
    """T-1 to T-3, T-5, T-8: one machine for two nodes; it goes when both have gone."""
    pool = {"node-attributes": {"zone": "of the pool"}}
    launch([cloud_provider(cloud_name, boot_seconds=0.2), shared(**pool)])
    requests = [znodes.submit(["small"]) for _ in range(2)]
    places = {place(znodes, fulfilled(znodes, request_id)) for request_id in requests}
    ((backing_id, node),) = backing(znodes).items()
    assert places == {(backing_id, 0), (backing_id, 1)}
    assert node["allocated_to"].startswith("100-")
    assert node["requestor"] == OWNER
    data = node["user_data"]
    assert (data["owner"], data["label"], data["slots"], data["failed"]) == (OWNER, "small", 2, False)
    (lock,) = znodes.node_lockers(backing_id)
    value, stat = znodes.kazoo.get(f"/nodepool/nodes/{backing_id}/lock/{lock}")
    assert value.decode() == OWNER
    assert stat.ephemeralOwner == 0
    wait_for("the backing request is deleted", lambda: len(znodes.children("/nodepool/requests")) == 2)
    for request_id in requests:
        use_and_return(znodes, request_id)
    wait_for("nothing is left", lambda: nothing_left(znodes, cloud))
