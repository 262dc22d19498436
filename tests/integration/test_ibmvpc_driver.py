# SPDX-License-Identifier: Apache-2.0
"""The IBM VPC driver in a running launcher, in the simulated region (IV, CM)."""

from __future__ import annotations

import pytest

from tests.support.ibmvpc_place import IbmVpcPlace
from tests.support.wait import wait_for


def _without_addresses(ibm: IbmVpcPlace) -> None:
    """Nodes have private addresses only, which nobody reaches here."""
    ibm.section |= {"public-ipv4": False, "host-key-checking": False}


def test_life_of_a_node(ibm: IbmVpcPlace) -> None:
    """IV-3, IV-6, IV-7, CM-8: what the record says, what the instance and its group are called, and that it goes."""
    ibm.launch()
    request = ibm.znodes.submit(["small"])
    (node,) = ibm.fulfilled(request)
    (node_id,) = ibm.znodes.nodes()
    assert node["external_id"] == f"np{node_id}"
    with ibm.simulator.cloud() as cloud:
        instance = cloud.resources.named("instances", f"np{node_id}")
        (address,) = cloud.resources.of("floating_ips")
    assert instance is not None
    assert (instance.group_name, address.group_name, address.name) == ("np_ibm-a_main", "np_ibm-a_main", instance.name)
    assert (node["cloud"], node["region"], node["az"]) == ("IBM", "us-south", "us-south-1")
    assert node["interface_ip"] == node["public_ipv4"] == address.document["address"]
    assert node["private_ipv4"].startswith("10.240.")
    assert node["host_keys"]
    assert {name: node["resources"][name] for name in ("cores", "instances", "ram")} == {
        "cores": 2,
        "instances": 1,
        "ram": 4,
    }
    ibm.give_back(request)
    ibm.wait_empty()


@pytest.mark.parametrize("kind", ["500", "drop"])
def test_lost_answers(ibm: IbmVpcPlace, kind: str) -> None:
    """CM-7, CM-8, IV-13: creations work, their answers are lost, and lists lag: no node has two, no address is lost."""
    ibm.simulator.change(
        errors=[
            {"operation": "vpc.create_*", "kind": kind, "after": True, "count": 5},
            {"operation": "vpc.update_floating_ip", "kind": kind, "after": True, "count": 2},
        ],
        hidden_rate=0.5,
        hidden_seconds=[0.2, 0.6],
        ghost_rate=0.5,
    )
    ibm.pool["max-servers"] = 6
    ibm.launch()
    requests = [ibm.znodes.submit(["small"]) for _ in range(10)]
    ibm.serve_all(requests)
    ibm.wait_empty()
    state = ibm.simulator.state()
    assert state["peak_by_provider"]["ibm-a"] <= 6
    assert state["events"]["instances made"] == 10, "what was made was found"
    assert state["contents"]["floating_ips"] <= 10, "free ones are used again"


def test_calls(ibm: IbmVpcPlace) -> None:
    """One POST and one DELETE a node, and few lists for all of them."""
    _without_addresses(ibm)
    ibm.launch()
    requests = [ibm.znodes.submit(["small"]) for _ in range(20)]
    ibm.serve_all(requests)
    ibm.wait_empty()
    calls = ibm.simulator.state()["calls"]
    assert (calls["vpc.create_instance"], calls["vpc.delete_instance"]) == (20, 20)
    assert calls.get("vpc.get_instance", 0) <= 20
    assert "vpc.create_floating_ip" not in calls


def test_quota_waits(ibm: IbmVpcPlace) -> None:
    """IV-7 (not repeated): with a quota of IBM for two instances, five requests are served, and none fails."""
    _without_addresses(ibm)
    ibm.simulator.change(quotas={"vcpus": 4})
    ibm.launch()
    requests = [ibm.znodes.submit(["small"]) for _ in range(5)]
    ibm.serve_all(requests)
    ibm.wait_empty()
    assert ibm.simulator.state()["peak_instances"] <= 2


def test_failed_instances(ibm: IbmVpcPlace) -> None:
    """IV-4: an instance that failed is deleted, and its volume, which stays, is swept; the next attempt works."""
    _without_addresses(ibm)
    ibm.simulator.change(boots=[{"count": 1, "code": "cannot_start_storage", "leave_volume": True}])
    ibm.launch()
    request = ibm.znodes.submit(["small"])
    ibm.fulfilled(request)
    ibm.give_back(request)

    def swept() -> bool:
        # What was seen twice goes.
        ibm.provider.cleanupLeakedResources()
        return not any(ibm.contents()[kind] for kind in ibm.kinds)

    wait_for("what the first attempt left is deleted", swept)
    ibm.wait_empty()


def test_next_zone(ibm: IbmVpcPlace) -> None:
    """IV-5 (not repeated): an instance finds no room in the first zone after it was accepted; no attempt is spent."""
    _without_addresses(ibm)
    ibm.section |= {
        "launch-retries": 1,
        "zone": ["us-south-1", "us-south-2"],
        "subnet": ["ci-us-south-1", "ci-us-south-2"],
    }
    ibm.simulator.change(capacity=[{"zone": "us-south-1"}])
    ibm.launch()
    request = ibm.znodes.submit(["small"])
    (node,) = ibm.fulfilled(request)
    assert node["az"] == "us-south-2"
    ibm.give_back(request)
    ibm.wait_empty()
