# SPDX-License-Identifier: Apache-2.0
"""Requests whose nodes come from several pools (rules MN)."""

from __future__ import annotations

import pytest

from nodepool.driver.fake.cloud import FakeCloud
from tests.scenario.conftest import Launch
from tests.support.local_launcher import fake_provider
from tests.support.pool_znodes import PoolZnodes
from tests.support.wait import wait_for

LABELS = {"a": {}, "b": {"mixed-nodesets": True}}


@pytest.mark.parametrize("launchers", [1, 2])
def test_nodes_of_two_pools(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud, launchers: int) -> None:
    """MN-1, MN-2: in the order of the labels, allocated to the request; no other record of it is left."""
    pools = [fake_provider(name, (label,), cloud=cloud.name) for name, label in (("one", "a"), ("two", "b"))]
    for number in range(launchers):
        launch(pools if launchers == 1 else [pools[number]], labels=LABELS)
    wait_for("both are there", lambda: len(znodes.pools()) == 2)
    request_id = znodes.submit(["b", "a", "b"])
    request = znodes.fulfilled(request_id)
    nodes = [znodes.node(node_id) or {} for node_id in request["nodes"]]
    assert [(node["type"], node["provider"]) for node in nodes] == [(["b"], "two"), (["a"], "one"), (["b"], "two")]
    assert {node["allocated_to"] for node in nodes} == {request_id}
    assert request["declined_by"] == []
    znodes.use_and_return(request_id)
    wait_for("nothing is left", lambda: not znodes.nodes() and not cloud.instances())
    wait_for("no request is left", lambda: not znodes.children("/nodepool/requests"))
    wait_for("no lock directory is left", lambda: not znodes.children("/nodepool/requests-lock"))


@pytest.mark.parametrize("end", ["failed", "cancelled", "too large"])
def test_what_is_not_served_gives_everything_back(
    launch: Launch, znodes: PoolZnodes, cloud: FakeCloud, end: str
) -> None:
    """MN-3: a part that no pool can make fails the whole; so do nodes that are too large for one write.

    A request that is withdrawn lets go of its parts.
    """
    attributes = {"pool_node_attributes": {"text": "x" * 600_000}} if end == "too large" else {}
    two = fake_provider("two", ("b",), cloud=cloud.name, launch_retries=1, **attributes)
    launch([fake_provider("one", ("a",), cloud=f"{cloud.name}-one", **attributes), two], labels=LABELS)
    cloud.set(fail_launches=1 if end == "failed" else 0, hang=end == "cancelled")
    request_id = znodes.submit(["a", "b"])
    if end == "failed":
        wait_for("it fails", lambda: znodes.request_state(request_id) == "failed")
        assert sorted((znodes.request(request_id) or {})["declined_by"]) == sorted(
            pool["id"] for pool in znodes.pools()
        )
    elif end == "too large":
        wait_for("it fails", lambda: znodes.request_state(request_id) == "failed")
    else:
        wait_for("one is ready", lambda: "ready" in [node["state"] for node in znodes.nodes().values()])
        cloud.set(hang=False)
    znodes.delete_request(request_id)
    wait_for("no request is left", lambda: not znodes.children("/nodepool/requests"))
    wait_for("all are free", lambda: znodes.free_nodes() == znodes.nodes() != {})
    wait_for("no lock directory is left", lambda: not znodes.children("/nodepool/requests-lock"))
