# SPDX-License-Identifier: Apache-2.0
"""The Azure driver in a running launcher, on the simulated subscription (AZ, CM)."""

from __future__ import annotations

import pytest

from nodepool.driver.azure.adapter import AzureAdapter
from tests.support.azure_place import AzurePlace
from tests.support.wait import wait_for


def test_life_of_a_node(azure: AzurePlace) -> None:
    """AZ-8, CM-1, CM-8: what the record says, what the VM is called, and that all of it goes."""
    azure.label["tags"] = {"team": "ci"}
    azure.launch()
    request = azure.znodes.submit(["small"])
    (node,) = azure.fulfilled(request)
    (node_id,) = azure.znodes.nodes()
    with azure.simulator.cloud() as cloud:
        tags = cloud.resources.get("virtualMachines", f"np{node_id}").tags
    assert node["external_id"] == f"np{node_id}"
    assert (node["cloud"], node["region"], node["az"]) == ("Azure", "northeurope", "")
    assert node["interface_ip"] == node["public_ipv4"]
    assert node["private_ipv4"].startswith("10.0.")
    assert node["host_keys"]
    assert node["resources"] == {
        "cores": 1,
        "instances": 1,
        "ram": 1024,
        "regularCores": 1,
        "standardBSFamily": 1,
        "StandardSkuPublicIPAddresses": 1,
    }
    assert tags == {
        "team": "ci",
        "nodepool_node_id": node_id,
        "nodepool_pool_name": "main",
        "nodepool_provider_name": "azure-a",
    }
    azure.give_back(request)
    azure.wait_empty()


@pytest.mark.parametrize("kind", ["500", "drop"])
def test_lost_answers(azure: AzurePlace, kind: str) -> None:
    """CM-7, CM-8: creations work, but their answers are lost, and lists lag: no node gets two, none is left."""
    azure.simulator.change(
        errors=[{"operation": "virtualMachines.put", "kind": kind, "after": True, "count": 5}],
        hidden_rate=0.5,
        ghost_rate=0.5,
        other_case=True,
    )
    azure.pool["max-servers"] = 6
    azure.launch()
    requests = [azure.znodes.submit(["small"]) for _ in range(10)]
    azure.serve_all(requests)
    azure.wait_empty()
    state = azure.simulator.state()
    assert state["peak_by_provider"]["azure-a"] <= 6
    assert state["events"]["VMs made"] == 10, "what was made was found"


def test_calls(azure: AzurePlace) -> None:
    """One PUT and one DELETE a node, and few lists for all of them."""
    azure.launch()
    requests = [azure.znodes.submit(["small"]) for _ in range(20)]
    azure.serve_all(requests)
    azure.wait_empty()
    calls = azure.simulator.state()["calls"]
    assert (calls["virtualMachines.put"], calls["virtualMachines.delete"]) == (20, 20)
    assert calls.get("operations.get", 0) == 0


def test_quota_waits(azure: AzurePlace) -> None:
    """AZ-10 (not repeated): with a quota of two VMs, five requests are served one after the other, and none fails."""
    azure.simulator.change(quotas={"virtualMachines": 2, "cores": 2})
    azure.launch()
    requests = [azure.znodes.submit(["small"]) for _ in range(5)]
    azure.serve_all(requests)
    azure.wait_empty()


def test_failed_vms(azure: AzurePlace) -> None:
    """AZ-7, AZ-11: a VM that failed is deleted, the next attempt has another name, and what it leaves is swept."""
    azure.simulator.change(boots=[{"count": 1}], nic_reserved_seconds=0)
    azure.launch()
    request = azure.znodes.submit(["small"])
    (node,) = azure.fulfilled(request)
    assert node["external_id"].endswith("-2")
    azure.give_back(request)

    def swept() -> bool:
        # What was seen twice goes, and the address after its interface.
        azure.provider.cleanupLeakedResources()
        return not any(azure.contents()[kind] for kind in azure.kinds)

    wait_for("what the first attempt left is deleted", swept)
    azure.wait_empty()


def test_next_zone(azure: AzurePlace) -> None:
    """AZ-10 (not repeated): no attempt is spent on a zone without capacity."""
    azure.section["launch-retries"] = 1
    azure.pool["availability-zones"] = ["1", "2"]
    azure.simulator.change(capacity=[{"zone": "1"}])
    azure.launch()
    request = azure.znodes.submit(["small"])
    (node,) = azure.fulfilled(request)
    assert node["az"] == "2"
    azure.give_back(request)
    azure.wait_empty()


def test_evicted_in_use(azure: AzurePlace, monkeypatch: pytest.MonkeyPatch) -> None:
    """A spot VM that Azure takes away while a job uses it is named in the log, counted, and among the events."""
    monkeypatch.setattr(AzureAdapter, "lag_seconds", 0.0)
    azure.label["use-spot"] = True
    azure.launch()
    request = azure.znodes.submit(["small"])
    (node,) = azure.fulfilled(request)
    (node_id,) = azure.znodes.nodes()
    with azure.simulator.cloud() as cloud:
        cloud.machines.evict(cloud.resources.get("virtualMachines", node["external_id"]))
    for _ in range(2):
        azure.provider.cleanupLeakedResources()
    assert azure.launcher is not None
    nodepool = azure.launcher.nodepool
    nodepool.deletion.current.node_changed("")

    def told() -> bool:
        return any(
            (event.subject, event.what, event.code) == (f"node {node_id}", "instance lost", "SpotEviction")
            for event in nodepool.events.last(20)
        )

    wait_for("it is an event", told)
    azure.give_back(request)
    azure.wait_empty()


def test_capacity_that_shows_late(azure: AzurePlace) -> None:
    """AZ-10 (not repeated): Azure accepts a VM and finds no capacity then: the next zone, and no attempt is spent."""
    azure.section["launch-retries"] = 1
    azure.pool["availability-zones"] = ["1", "2"]
    azure.simulator.change(capacity=[{"zone": "1", "late": True}], nic_reserved_seconds=0)
    azure.launch()
    request = azure.znodes.submit(["small"])
    (node,) = azure.fulfilled(request)
    assert node["az"] == "2"
    azure.give_back(request)
