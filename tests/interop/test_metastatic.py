# SPDX-License-Identifier: Apache-2.0
"""What Zuul sees of nodes that share a backing node (rules T, reference/zookeeper 5.6)."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from tests.support.launcher_config import FakeProvider, MetastaticProvider, StaticHost, StaticProvider
from tests.support.pool_znodes import PoolZnodes
from tests.support.wait import wait_for
from tests.support.workplace import Workplace

if TYPE_CHECKING:
    from tests.support.zuul_client import ZuulClient

HOST = StaticHost("127.1.5.1", ["big"], username="worker", host_keys=["ssh-ed25519 AAAA"])
LAB = StaticProvider([HOST], name="lab", pool_settings={"node-attributes": {"rack": "1", "executor-zone": "lab"}})
GRACE_SECONDS = 2


def shared(grace_seconds: int = GRACE_SECONDS) -> MetastaticProvider:
    rules = {"max-parallel-jobs": 3, "grace-time": grace_seconds}
    pool = {"node-attributes": {"executor-zone": "shared"}}
    return MetastaticProvider(["small"], "big", rules=rules, pool_settings=pool)


def backing_node(znodes: PoolZnodes) -> dict[str, Any]:
    (node,) = [node for node in znodes.nodes().values() if node["provider"] == "lab"]
    return node


def test_two_slots_of_one_backing_node(workplace: Workplace, zuul: ZuulClient) -> None:
    """T-5, T-8: a job uses two slots and returns them; the backing node goes after the grace time, not before."""
    workplace.launch([LAB, shared()])
    znodes = workplace.znodes
    nodeset = zuul.accept(zuul.submit_and_wait(["small", "small"]))
    first, second = nodes = nodeset.getNodes()
    assert {first.slot, second.slot} == {0, 1}
    for node in nodes:
        assert node.interface_ip == node.public_ipv4 == "127.1.5.1"
        assert (node.username, node.connection_type, node.connection_port) == ("worker", "ssh", 22)
        assert node.host_keys == ["ssh-ed25519 AAAA"]
        assert node.python_path == "auto"
        assert node.attributes == {"rack": "1", "executor-zone": "shared"}
        assert node.provider == "shared"
        assert node.external_id == node.id
        assert node.resources == {"cores": 0, "instances": 1, "ram": 0}
    zuul.use(nodeset)
    backing = backing_node(znodes)
    assert backing["state"] == "in-use"
    assert json.loads(backing["user_data"])["nodes"].count(None) == 1
    third = zuul.accept(zuul.submit_and_wait(["small"]))
    assert [node.slot for node in third.getNodes()] == [2]
    zuul.use(third)
    zuul.give_back(nodeset)
    wait_for("two are gone", lambda: len(znodes.nodes()) == 2)
    assert backing_node(znodes)["state"] == "in-use"
    returned = time.monotonic()
    zuul.give_back(third)
    workplace.wait_nodes(LAB)
    assert time.monotonic() - returned >= GRACE_SECONDS
    assert not znodes.children("/nodepool/requests")


def test_slot_is_used_again(workplace: Workplace, zuul: ZuulClient) -> None:
    """T-7: within the grace time the next job gets the lowest slot of the same backing node."""
    workplace.launch([LAB, shared(grace_seconds=1000)])
    backing_ids = set()
    for _ in range(5):
        nodeset = zuul.accept(zuul.submit_and_wait(["small"]))
        (node,) = nodeset.getNodes()
        assert node.slot == 0
        backing_ids.add((workplace.znodes.node(node.id) or {})["driver_data"]["backing_node"])
        zuul.use(nodeset)
        zuul.give_back(nodeset)
        wait_for("it is gone", lambda: len(workplace.znodes.nodes()) == 1)
    assert len(backing_ids) == 1


def test_hold(workplace: Workplace, zuul: ZuulClient) -> None:
    """A held node keeps its slot, and with it the backing node, until the hold ends."""
    workplace.launch([LAB, shared(grace_seconds=0)])
    nodeset = zuul.accept(zuul.submit_and_wait(["small"]))
    zuul.use(nodeset)
    hold = zuul.hold(nodeset)
    other = zuul.accept(zuul.submit_and_wait(["small"]))
    assert [node.slot for node in other.getNodes()] == [1]
    zuul.use(other)
    zuul.give_back(other)
    wait_for("the other one is gone", lambda: len(workplace.znodes.nodes()) == 2)
    assert backing_node(workplace.znodes)["state"] == "in-use"
    zuul.delete_hold(hold)
    workplace.wait_nodes(LAB)


def test_cancelled_while_waiting(workplace: Workplace, zuul: ZuulClient) -> None:
    """L-11: cancelled while the backing node boots: its node is free for the next job."""
    cloud = FakeProvider(["big"], name="cloud", settings={"boot-seconds": 1.0})
    workplace.launch([cloud, shared(grace_seconds=0)])
    znodes = workplace.znodes
    submitted = zuul.submit(["small"])
    wait_for("the backing node is built", lambda: len(znodes.nodes("building")) == 2)
    zuul.cancel(submitted)
    (node_id,) = wait_for("its node is free", znodes.free_nodes)
    nodeset = zuul.accept(zuul.submit_and_wait(["small"]))
    assert [node.id for node in nodeset.getNodes()] == [node_id]
    zuul.use(nodeset)
    zuul.give_back(nodeset)
    wait_for("nothing is left", lambda: not znodes.nodes() and not znodes.children("/nodepool/requests"))
