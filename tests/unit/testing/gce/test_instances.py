# SPDX-License-Identifier: Apache-2.0
"""Instances of the simulated project: from the insert to their end, and what may go wrong on the way."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.testing.gce import GceBootRule, GceDeleteRule, ZoneCapacity
from nodepool.testing.simulator.messages import new_id
from tests.unit.testing.gce.conftest import BOOT, DELETE, ZONE, Caller

METADATA = {"nodepool_node_id": "0000000042", "nodepool_provider_name": "p"}
SPOT = {"provisioningModel": "SPOT", "instanceTerminationAction": "STOP"}


def failure(operation: Any) -> Any:
    """The only error of an operation that has ended."""
    assert operation["status"] == "DONE"
    (found,) = operation["error"]["errors"]
    return found


def reason(content: Any) -> Any:
    (found,) = content["error"]["errors"]
    return found["reason"]


def test_states(caller: Caller) -> None:
    """The operation and the instance go through their states; the external address comes with the boot."""
    operation = caller.insert("np1", labels={"a": "b"})
    assert (operation["status"], operation["operationType"]) == ("PENDING", "insert")
    assert caller.status("np1") == "PROVISIONING"
    caller.clock.pass_seconds(BOOT * 0.3)
    assert caller.operation(operation)["status"] == "RUNNING"
    caller.clock.pass_seconds(BOOT * 0.3)
    assert caller.status("np1") == "STAGING"
    assert "natIP" not in caller.get(f"zones/{ZONE}/instances/np1")["networkInterfaces"][0]["accessConfigs"][0]
    caller.clock.pass_seconds(BOOT * 0.4)
    instance = caller.get(f"zones/{ZONE}/instances/np1")
    assert instance["status"] == "RUNNING"
    assert instance["networkInterfaces"][0]["accessConfigs"][0]["natIP"].startswith("127.64.")
    assert instance["labels"] == {"a": "b"}
    done = caller.operation(operation)
    assert done["status"] == "DONE"
    assert "error" not in done


def test_deletion(caller: Caller) -> None:
    """STOPPING, then gone with its disk; what is gone is 404."""
    caller.insert("np1")
    caller.clock.pass_seconds(BOOT)
    status, operation = caller.call("DELETE", f"zones/{ZONE}/instances/np1")
    assert (status, operation["status"], caller.status("np1")) == (200, "RUNNING", "STOPPING")
    caller.clock.pass_seconds(DELETE)
    assert caller.operation(operation)["status"] == "DONE"
    assert caller.status("np1") is None
    status, content = caller.call("DELETE", f"zones/{ZONE}/instances/np1")
    assert (status, reason(content)) == (404, "notFound")
    assert not any(caller.simulator.state()["contents"].values())


def test_deletion_while_it_boots(caller: Caller) -> None:
    operation = caller.insert("np1")
    caller.call("DELETE", f"zones/{ZONE}/instances/np1")
    caller.clock.pass_seconds(BOOT)
    assert caller.status("np1") is None
    assert failure(caller.operation(operation))["code"] == "OPERATION_CANCELED_BY_USER"


def test_same_request_again(caller: Caller) -> None:
    """The same ``requestId`` is the same operation, also when it has failed; another one meets the name."""
    request_id = new_id()
    first = caller.insert("np1", request_id)
    assert first["clientOperationId"] == request_id
    assert caller.insert("np1", request_id)["name"] == first["name"]
    status, content = caller.call("POST", f"zones/{ZONE}/instances", caller.body("np1"), requestId=new_id())
    assert (status, reason(content)) == (409, "alreadyExists")
    status, content = caller.call("POST", f"zones/{ZONE}/instances", caller.body("np2"), requestId="x")
    assert (status, reason(content)) == (400, "invalid")
    assert caller.simulator.state()["events"]["instances made"] == 1


@pytest.mark.parametrize(
    ("settings", "changes", "metric", "limit"),
    [
        ({"quotas": {"INSTANCES": 0}}, {}, "INSTANCES", 0),
        ({"quotas": {"CPUS": 0}}, {}, "CPUS", 0),
        ({"quotas": {"N2_CPUS": 1}}, {"machineType": f"zones/{ZONE}/machineTypes/n2-standard-2"}, "N2_CPUS", 1),
        ({"quotas": {"PREEMPTIBLE_CPUS": 0.5}}, {"scheduling": SPOT}, "PREEMPTIBLE_CPUS", 0.5),
        ({"quotas": {"IN_USE_ADDRESSES": 0}}, {}, "IN_USE_ADDRESSES", 0),
        ({"quotas": {"DISKS_TOTAL_GB": 10}}, {}, "DISKS_TOTAL_GB", 10),
        ({"project_quotas": {"CPUS_ALL_REGIONS": 0}}, {}, "CPUS_ALL_REGIONS", 0),
    ],
)
def test_quotas(caller: Caller, settings: dict[str, Any], changes: dict[str, Any], metric: str, limit: float) -> None:
    """The operation says which quota has no room; the call itself does it if the cloud is quick."""
    caller.simulator.change(**settings)
    operation = caller.insert("np1", **changes)
    caller.clock.pass_seconds(DELETE)
    found = failure(caller.operation(operation))
    assert found["code"] == "QUOTA_EXCEEDED"
    assert found["message"].startswith(f"Quota '{metric}' exceeded.  Limit: {limit:.1f}")
    assert found["errorDetails"][0]["quotaInfo"]["limit"] == limit
    assert caller.status("np1") is None
    caller.simulator.change(late_quotas=False)
    status, content = caller.call("POST", f"zones/{ZONE}/instances", caller.body("np1", **changes))
    assert (status, reason(content)) == (403, "quotaExceeded")
    assert content["error"]["errors"][0]["domain"] == "usageLimits"


def test_what_is_used(caller: Caller) -> None:
    """Regions and the project tell it; spot instances have a quota of their own, what has stopped no cores."""
    caller.insert("np1")
    caller.insert("np2", scheduling=SPOT)
    caller.clock.pass_seconds(BOOT)

    def usage(path: str) -> dict[str, float]:
        return {entry["metric"]: entry["usage"] for entry in caller.get(path)["quotas"] if entry["usage"]}

    disks = {"DISKS_TOTAL_GB": 40.0}
    cores = {"CPUS": 1.0, "PREEMPTIBLE_CPUS": 1.0}
    assert usage("regions/us-central1") == {"INSTANCES": 2.0, "IN_USE_ADDRESSES": 2.0, **cores, **disks}
    assert usage("regions/europe-west1") == {}
    assert usage("") == {"CPUS_ALL_REGIONS": 1.0}
    with caller.simulator.cloud() as cloud:
        for instance in list(cloud.instances.all()):
            cloud.instances.terminate(instance)
    assert usage("regions/us-central1") == {"INSTANCES": 2.0, "IN_USE_ADDRESSES": 2.0, **disks}


@pytest.mark.parametrize(
    ("details", "code"), [(False, "ZONE_RESOURCE_POOL_EXHAUSTED"), (True, "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS")]
)
def test_no_capacity(caller: Caller, details: bool, code: str) -> None:
    """The instance is there for a while, and gone when its operation ends with an error."""
    caller.simulator.change(capacity=[ZoneCapacity(zone=ZONE, details=details)])
    operation = caller.insert("np1")
    assert caller.status("np1") == "PROVISIONING"
    caller.clock.pass_seconds(BOOT)
    done = caller.operation(operation)
    assert failure(done)["code"] == code
    assert (done["httpErrorStatusCode"], done["httpErrorMessage"]) == (503, "SERVICE UNAVAILABLE")
    assert {key for entry in failure(done)["errorDetails"] for key in entry} == {
        "help",
        "localizedMessage",
        "errorInfo",
    }
    assert not any(caller.simulator.state()["contents"].values())
    caller.simulator.change(capacity=[ZoneCapacity(zone=ZONE, late=False)])
    status, content = caller.call("POST", f"zones/{ZONE}/instances", caller.body("np1"))
    assert (status, reason(content)) == (503, "insufficientCapacity")


def test_many_at_once(caller: Caller) -> None:
    """As many operations as the region takes; there is room again when they have ended."""
    caller.simulator.change(concurrent_operations=1)
    caller.insert("np1")
    second = caller.insert("np2")
    caller.clock.pass_seconds(BOOT)
    assert failure(caller.operation(second))["code"] == "CONCURRENT_OPERATIONS_QUOTA_EXCEEDED"
    caller.insert("np2")
    caller.clock.pass_seconds(BOOT)
    assert caller.status("np2") == "RUNNING"


@pytest.mark.parametrize(("action", "left"), [("STOP", "TERMINATED"), ("DELETE", None)])
def test_preemption(caller: Caller, action: str, left: str | None) -> None:
    """An operation of Google's own tells it."""
    caller.simulator.change(boots=[GceBootRule(kind="preempted", seconds=3.0)])
    caller.insert("np1", scheduling={**SPOT, "instanceTerminationAction": action})
    caller.clock.pass_seconds(BOOT)
    assert caller.status("np1") == "RUNNING"
    caller.clock.pass_seconds(3.0)
    assert caller.status("np1") == left
    query = {"filter": "operationType=compute.instances.preempted"}
    (operation,) = caller.get(f"zones/{ZONE}/operations", **query)["items"]
    assert (operation["user"], operation["status"]) == ("system", "DONE")
    assert operation["targetLink"].endswith("/instances/np1")


def test_instances_that_do_not_boot(caller: Caller) -> None:
    failed = GceBootRule(code="INTERNAL_ERROR", count=1)
    caller.simulator.change(boots=[failed, GceBootRule(kind="stuck", count=1), GceBootRule(kind="terminated")])
    first = caller.insert("np1")
    caller.insert("np2")
    caller.insert("np3")
    caller.clock.pass_seconds(BOOT)
    assert failure(caller.operation(first))["code"] == "INTERNAL_ERROR"
    assert [caller.status(name) for name in ("np1", "np2", "np3")] == [None, "PROVISIONING", "RUNNING"]
    caller.clock.pass_seconds(1.0)
    assert caller.status("np3") == "TERMINATED"


def test_deletions_that_do_not_happen(caller: Caller) -> None:
    caller.simulator.change(deletes=[GceDeleteRule(count=1), GceDeleteRule(kind="stuck", count=1)])
    caller.insert("np1")
    caller.clock.pass_seconds(BOOT)
    _status, operation = caller.call("DELETE", f"zones/{ZONE}/instances/np1")
    caller.clock.pass_seconds(DELETE)
    assert failure(caller.operation(operation))["code"] == "INTERNAL_ERROR"
    assert caller.status("np1") == "RUNNING"
    caller.call("DELETE", f"zones/{ZONE}/instances/np1")
    caller.clock.pass_seconds(1000.0)
    assert caller.status("np1") == "STOPPING"
    with caller.simulator.cloud() as cloud:
        cloud.instances.release_stuck()
    assert caller.status("np1") is None


def test_leaked_disk(caller: Caller) -> None:
    """What is used is not deleted; what stays behind is."""
    caller.simulator.change(leak_rate=1.0)
    caller.insert("np1")
    status, content = caller.call("DELETE", f"zones/{ZONE}/disks/np1")
    assert (status, reason(content)) == (400, "resourceInUseByAnotherResource")
    caller.call("DELETE", f"zones/{ZONE}/instances/np1")
    caller.clock.pass_seconds(DELETE)
    assert caller.simulator.state()["contents"]["disks"] == 1
    assert caller.call("DELETE", f"zones/{ZONE}/disks/np1")[0] == 200
    assert caller.simulator.state()["contents"]["disks"] == 0


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"name": "Np1"}, "resource.name"),
        ({"machineType": f"zones/{ZONE}/machineTypes/x9-huge"}, "resource.machineType"),
        ({"machineType": "zones/us-central1-b/machineTypes/e2-micro"}, "resource.machineType"),
        ({"labels": {"Upper": "x"}}, "resource.labels"),
        ({"labels": {"a": "Upper"}}, "resource.labels"),
        ({"metadata": {"items": [{"key": "a b", "value": ""}]}}, "resource.metadata"),
        ({"metadata": {"items": [{"key": "a", "value": ""}] * 2}}, "resource.metadata"),
        ({"disks": []}, "resource.disks"),
        ({"networkInterfaces": []}, "resource.networkInterfaces"),
        ({"networkInterfaces": [{"network": "global/networks/other"}]}, "resource.networkInterfaces[0].network"),
        ({"scheduling": {"preemptible": True, "automaticRestart": True}}, "resource.scheduling"),
    ],
)
def test_bad_orders(caller: Caller, changes: dict[str, Any], field: str) -> None:
    status, content = caller.call("POST", f"zones/{ZONE}/instances", caller.body("np1") | changes)
    assert (status, reason(content)) == (400, "invalid")
    assert content["error"]["message"].startswith(f"Invalid value for field '{field}'")


def test_who_has_two(caller: Caller) -> None:
    """CM-1: the observer reads the items of the metadata."""
    items = {"items": [{"key": key, "value": value} for key, value in METADATA.items()]}
    caller.insert("np1", metadata=items)
    caller.insert("np2", metadata=items)
    state = caller.simulator.state()
    assert (state["double_nodes"], state["peak_by_provider"]) == (["0000000042"], {"p": 2})


def test_console(caller: Caller) -> None:
    caller.insert("np1")
    caller.clock.pass_seconds(BOOT)
    output = caller.get(f"zones/{ZONE}/instances/np1/serialPort")
    assert output["contents"].endswith("np1 login: \n")
    assert caller.get(f"zones/{ZONE}/instances/np1/serialPort", start=output["next"])["contents"] == ""


def test_calls_of_a_minute(caller: Caller) -> None:
    """More are refused until the next minute begins, and others are not concerned."""
    caller.simulator.change(throttles=True)
    limits = caller.simulator.application.compute.limits
    for _ in range(1500):
        limits.take("instances.insert", "us-central1")
    status, content = caller.call("POST", f"zones/{ZONE}/instances", caller.body("np1"))
    assert (status, reason(content), content["error"]["status"]) == (403, "rateLimitExceeded", "PERMISSION_DENIED")
    assert caller.call("GET", f"zones/{ZONE}/instances")[0] == 200
    caller.clock.pass_seconds(60.0)
    assert caller.call("POST", f"zones/{ZONE}/instances", caller.body("np1"))[0] == 200
