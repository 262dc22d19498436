# SPDX-License-Identifier: Apache-2.0
"""The driver of Google Compute Engine in a running launcher, on the simulated project (GC, CM)."""

from __future__ import annotations

import pytest

from tests.support.gce_place import GcePlace
from tests.support.wait import wait_for


def test_life_of_a_node(gce: GcePlace) -> None:
    """GC-3, GC-6, CM-1, CM-8: what the record says, what the instance is called and has, and that all of it goes."""
    gce.launch()
    request = gce.znodes.submit(["small"])
    (node,) = gce.fulfilled(request)
    (node_id,) = gce.znodes.nodes()
    with gce.simulator.cloud() as cloud:
        (instance,) = cloud.instances.all()
        address = instance.document["networkInterfaces"][0]
        items = dict(instance.spec.metadata)
    assert node["external_id"] == instance.name == f"np{node_id}"
    assert (node["cloud"], node["region"], node["az"]) == ("Google", "us-central1", "us-central1-a")
    assert node["private_ipv4"] == address["networkIP"]
    assert node["interface_ip"] == node["public_ipv4"] == address["accessConfigs"][0]["natIP"]
    assert node["host_keys"]
    assert items["ssh-keys"] == "zuul:ssh-ed25519 AAAA"
    assert items["nodepool_node_id"] == node_id
    assert (items["nodepool_pool_name"], items["nodepool_provider_name"]) == ("main", "gce-a")
    gce.give_back(request)
    gce.wait_empty()


@pytest.mark.parametrize("kind", ["500", "drop"])
def test_lost_answers(gce: GcePlace, kind: str) -> None:
    """CM-7, CM-8: creations work, but their answers are lost, and lists lag: no node gets two, none is left."""
    lost = {"operation": "instances.insert", "kind": kind, "after": True, "count": 5}
    gce.simulator.change(errors=[lost], hidden_rate=0.5, ghost_rate=0.5)
    gce.pool["max-servers"] = 6
    gce.launch()
    requests = [gce.znodes.submit(["small"]) for _ in range(10)]
    gce.serve_all(requests)
    gce.wait_empty()
    state = gce.simulator.state()
    assert state["peak_by_provider"]["gce-a"] <= 6
    assert state["events"]["instances made"] == 10, "what was made was found"


def test_calls(gce: GcePlace) -> None:
    """One insert and one deletion a node, and few lists for all of them."""
    gce.launch()
    requests = [gce.znodes.submit(["small"]) for _ in range(20)]
    gce.serve_all(requests)
    gce.wait_empty()
    calls = gce.simulator.state()["calls"]
    assert (calls["instances.insert"], calls["instances.delete"]) == (20, 20)
    assert calls.get("zoneOperations.get", 0) == 0


@pytest.mark.parametrize("late", [True, False])
def test_quota_waits(gce: GcePlace, late: bool) -> None:
    """GC-5, GC-7 (not repeated): with a quota of two cores, five requests are served one after the other, and none
    fails, whether the call or its operation is refused.
    """
    gce.simulator.change(quotas={"CPUS": 2}, late_quotas=late)
    gce.section["launch-retries"] = 1
    gce.launch()
    requests = [gce.znodes.submit(["small"]) for _ in range(5)]
    gce.serve_all(requests)
    gce.wait_empty()


@pytest.mark.parametrize("late", [True, False])
def test_next_zone(gce: GcePlace, late: bool) -> None:
    """GC-5 (not repeated): no attempt is spent on a zone without capacity."""
    gce.section["launch-retries"] = 1
    gce.section["zone"] = ["us-central1-a", "us-central1-b"]
    gce.simulator.change(capacity=[{"zone": "us-central1-a", "late": late, "details": True}])
    gce.launch()
    request = gce.znodes.submit(["small"])
    (node,) = gce.fulfilled(request)
    assert node["az"] == "us-central1-b"
    gce.give_back(request)
    gce.wait_empty()


def test_next_machine_type(gce: GcePlace) -> None:
    """The second type of the list when no zone has the first."""
    gce.section["launch-retries"] = 1
    gce.label["instance-type"] = ["c2-standard-4", "n1-standard-1"]
    gce.simulator.change(capacity=[{"machine_type": "c2-*"}])
    gce.launch()
    request = gce.znodes.submit(["small"])
    gce.fulfilled(request)
    with gce.simulator.cloud() as cloud:
        assert [one.spec.type.name for one in cloud.instances.all()] == ["n1-standard-1"]
    gce.give_back(request)
    gce.wait_empty()


def test_spot_fallback(gce: GcePlace) -> None:
    """A standard instance when there is no capacity for spot instances."""
    gce.section["launch-retries"] = 1
    gce.label.update({"use-spot": True, "spot-fallback": True})
    gce.simulator.change(capacity=[{"spot": True}])
    gce.launch()
    request = gce.znodes.submit(["small"])
    gce.fulfilled(request)
    with gce.simulator.cloud() as cloud:
        assert [one.spec.spot for one in cloud.instances.all()] == [False]
    gce.give_back(request)
    gce.wait_empty()


def test_too_many_at_once(gce: GcePlace) -> None:
    """Operations over the region's limit are begun again, and no attempt is spent."""
    gce.section["launch-retries"] = 1
    gce.simulator.change(concurrent_operations=2)
    gce.launch()
    gce.serve_all([gce.znodes.submit(["small"]) for _ in range(6)])
    gce.wait_empty()


def test_failed_operation(gce: GcePlace) -> None:
    """GC-5: an operation that fails is a failed attempt, at once; the next one has the node."""
    gce.simulator.change(boots=[{"count": 1}])
    gce.launch()
    request = gce.znodes.submit(["small"])
    gce.fulfilled(request)
    gce.give_back(request)
    gce.wait_empty()


def test_vanished_instance(gce: GcePlace) -> None:
    """GC-9 (not repeated): a node whose instance is gone goes, too."""
    gce.launch()
    request = gce.znodes.submit(["small"])
    (node,) = gce.fulfilled(request)
    with gce.simulator.cloud() as cloud:
        (instance,) = cloud.instances.all()
        cloud.instances.forget(instance)
    assert node["external_id"] == instance.name
    gce.give_back(request)
    gce.wait_empty()


def test_left_disk(gce: GcePlace) -> None:
    """GC-8: a boot disk that stayed when its instance went is swept, by its labels."""
    gce.simulator.change(leak_rate=1.0)
    gce.launch()
    request = gce.znodes.submit(["small"])
    gce.fulfilled(request)
    gce.give_back(request)
    wait_for("the instance is gone", lambda: not gce.contents()["instances"])

    def swept() -> bool:
        # What was seen twice goes.
        gce.provider.cleanupLeakedResources()
        return not gce.contents()["disks"]

    wait_for("the disk is deleted", swept)
    gce.wait_empty()


def test_rate_limit(gce: GcePlace) -> None:
    """403 rateLimitExceeded and 429 are no refusals: the calls are made again, and no attempt is spent."""
    gce.section["launch-retries"] = 1
    rate = {"operation": "instances.insert", "kind": "403", "reason": "rateLimitExceeded", "count": 1}
    gce.simulator.change(errors=[rate, {"operation": "instances.list", "kind": "429", "count": 1}])
    gce.launch()
    gce.serve_all([gce.znodes.submit(["small"]) for _ in range(3)])
    gce.wait_empty()
