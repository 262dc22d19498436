# SPDX-License-Identifier: Apache-2.0
"""Tests of dedicated hosts: `nodepool.driver.aws.instances`, `host_client`, and their quota and deletion."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from nodepool.driver.aws.instances import AwsCreation
from nodepool.driver.aws.launch_calls import AwsHost
from nodepool.driver.framework.cloud_errors import CloudAway, CloudNoCapacity, CloudQuota, CloudRefused
from nodepool.exceptions import LaunchStatusException
from tests.unit.driver.aws.support import LOG, METADATA, TAGS, TYPE, Rig, error, host, instance, section

MAC = "L-MACMACMA"
ZONE = "eu-north-1a"
NOW = datetime(2026, 6, 1, tzinfo=UTC)


def rig_of(label: dict[str, Any] | None = None, zones: Any = ZONE) -> Rig:
    wanted = {"instance-type": "mac2.metal", "dedicated-host": True, **(label or {})}
    rig = Rig(section(wanted, pool={"availability-zone": zones}))
    rig.region.answers |= {
        "allocate_hosts": {"HostIds": ["h-1"]},
        "describe_hosts": {"Hosts": [host()]},
        "release_hosts": {"Successful": ["h-1"], "Unsuccessful": []},
        "describe_instance_types": {"InstanceTypes": [{**TYPE, "InstanceType": "mac2.metal"}]},
    }
    return rig


def advance(rig: Rig, creation: AwsCreation, times: int = 1, seconds: float = 6) -> Any:
    made = None
    for _ in range(times):
        made = creation.advance()
        rig.clock.now += seconds
    return made


def test_launch() -> None:
    """AW-5, AW-6: a host, and the instance on it; the record of the node names both as soon as they are known."""
    rig = rig_of()
    rig.region.answers["describe_hosts"] = [{"Hosts": [host(state="pending")]}, {"Hosts": [host()]}]
    creation = rig.creation()
    creation.advance()
    creation.advance()
    assert (creation.external_id, creation.state) == ({"host": "h-1"}, "host")
    allocated = rig.region.last("allocate_hosts")
    tags = allocated.pop("TagSpecifications")
    assert len(allocated.pop("ClientToken")) <= 64
    assert allocated == {
        "InstanceType": "mac2.metal",
        "AvailabilityZone": ZONE,
        "Quantity": 1,
        "AutoPlacement": "off",
        "HostRecovery": "off",
        "HostMaintenance": "off",
    }
    assert [told["ResourceType"] for told in tags] == ["dedicated-host"]
    assert all(tag in tags[0]["Tags"] for tag in TAGS)
    assert rig.region.count("run_instances") == 0
    advance(rig, creation, 5)
    assert creation.external_id == {"instance": "i-1", "host": "h-1"}
    sent = rig.region.last("run_instances")
    assert sent["Placement"] == {"AvailabilityZone": ZONE, "Tenancy": "host", "HostId": "h-1", "Affinity": "host"}
    assert (sent["MinCount"], sent["MaxCount"]) == (1, 1)
    rig.show(instance(InstanceType="mac2.metal", Placement={"HostId": "h-1", "AvailabilityZone": ZONE}))
    made = creation.advance()
    assert made.external_id == {"instance": "i-1", "host": "h-1"}


def test_a_host_is_looked_at_now_and_then() -> None:
    """Not at each step."""
    rig = rig_of()
    rig.region.answers["describe_hosts"] = {"Hosts": [host(state="pending")]}
    creation = rig.creation()
    advance(rig, creation, 10, seconds=0)
    assert rig.region.count("describe_hosts") == 1
    advance(rig, creation, 4)
    assert rig.region.count("describe_hosts") == 3


@pytest.mark.parametrize("state", ["permanent-failure", "released", "released-permanent-failure"])
def test_host_that_will_never_work(state: str) -> None:
    """AW-6: error.status; the host is to be released all the same."""
    rig = rig_of()
    rig.region.answers["describe_hosts"] = {"Hosts": [host(state=state)]}
    creation = rig.creation()
    with pytest.raises(LaunchStatusException, match=f"h-1 is {state}"):
        advance(rig, creation, 5)
    assert creation.external_id == {"host": "h-1"}
    assert rig.region.count("run_instances") == 0


def test_lost_answer() -> None:
    """AW-6: AWS knows the call by its token: sent again it allocates no second host."""
    rig = rig_of()
    rig.region.answers["allocate_hosts"] = [error("InternalError", status=500), {"HostIds": ["h-1"]}]
    creation = rig.creation()
    advance(rig, creation, 5)
    first, second = [arguments for name, arguments in rig.region.calls if name == "allocate_hosts"]
    assert first == second
    assert creation.external_id["host"] == "h-1"


def test_no_answer_at_all() -> None:
    rig = rig_of()
    rig.region.answers["allocate_hosts"] = error("InternalError", status=500)
    creation = rig.creation()
    with pytest.raises(CloudAway):
        advance(rig, creation, 10)
    assert rig.region.count("allocate_hosts") == 3


def test_host_that_is_not_known_yet() -> None:
    """A host may be unknown for a moment; not for ever."""
    rig = rig_of()
    unknown = error("InvalidHostID.NotFound")
    rig.region.answers["describe_hosts"] = [unknown, unknown, {"Hosts": [host()]}]
    creation = rig.creation()
    advance(rig, creation, 8)
    assert creation.external_id == {"instance": "i-1", "host": "h-1"}
    rig.region.answers["describe_hosts"] = unknown
    with pytest.raises(CloudRefused):
        advance(rig, rig.creation(), 10)


def test_limit() -> None:
    """AW-16: waits until hosts are free."""
    rig = rig_of()
    rig.region.answers["allocate_hosts"] = error("HostLimitExceeded")
    with pytest.raises(CloudQuota):
        advance(rig, rig.creation(), 2)


def test_no_host_here() -> None:
    """The next zone is tried; no attempt is spent."""
    rig = rig_of(zones=["a", "b"])
    rig.region.answers["allocate_hosts"] = [error("InsufficientHostCapacity"), {"HostIds": ["h-2"]}]
    creation = rig.creation()
    advance(rig, creation, 5, seconds=0)
    zones = [arguments["AvailabilityZone"] for name, arguments in rig.region.calls if name == "allocate_hosts"]
    assert zones == ["a", "b"]
    assert rig.region.last("run_instances")["Placement"]["AvailabilityZone"] == "b"
    rig.region.answers["allocate_hosts"] = error("InsufficientHostCapacity")
    with pytest.raises(CloudNoCapacity):
        advance(rig, rig.creation(), 3)


def released(rig: Rig) -> list[str]:
    return [host_id for name, given in rig.region.calls if name == "release_hosts" for host_id in given["HostIds"]]


@pytest.mark.parametrize("code", ["InsufficientHostCapacity", "InsufficientCapacityOnHost"])
def test_no_room_on_the_host(code: str) -> None:
    """No attempt is spent: the host is released, and another one is allocated in the next zone. The first one rests."""
    rig = rig_of(zones=["a", "b"])
    rig.region.answers["allocate_hosts"] = [{"HostIds": ["h-1"]}, {"HostIds": ["h-2"]}]
    rig.region.answers["run_instances"] = [error(code), {"Instances": [instance("i-2", "pending")]}]
    creation = rig.creation()
    advance(rig, creation, 10, seconds=0)
    assert creation.external_id == {"instance": "i-2", "host": "h-2"}
    assert released(rig) == ["h-1"]
    first, second = [arguments for name, arguments in rig.region.calls if name == "allocate_hosts"]
    assert (first["AvailabilityZone"], second["AvailabilityZone"]) == ("a", "b")
    assert first["ClientToken"] != second["ClientToken"]
    assert rig.region.last("run_instances")["Placement"]["HostId"] == "h-2"
    assert [place.zone for place in rig.cloud.places.to_try(rig.label)] == ["b"]


def test_no_room_on_the_host_that_shows_later() -> None:
    """The same when AWS ends the instance: it is gone before its host is released."""
    rig = rig_of(zones=["a", "b"])
    rig.region.answers["allocate_hosts"] = [{"HostIds": ["h-1"]}, {"HostIds": ["h-2"]}]
    creation = rig.creation()
    advance(rig, creation, 4, seconds=0)
    assert creation.external_id == {"instance": "i-1", "host": "h-1"}
    reason = {"Code": "Server.InsufficientInstanceCapacity", "Message": "m"}
    rig.show(instance(state="terminated", StateReason=reason))
    rig.region.answers["run_instances"] = {"Instances": [instance("i-2", "pending")]}
    advance(rig, creation, 10, seconds=0)
    assert creation.external_id == {"instance": "i-2", "host": "h-2"}
    assert released(rig) == ["h-1"]


def test_no_room_on_the_only_host() -> None:
    """Without another place it is a failed attempt; the place rests, and the node's record names the host."""
    rig = rig_of()
    rig.region.answers["run_instances"] = error("InsufficientHostCapacity")
    creation = rig.creation()
    with pytest.raises(CloudNoCapacity):
        advance(rig, creation, 5, seconds=0)
    assert creation.external_id == {"host": "h-1"}
    assert released(rig) == []
    assert rig.cloud.places.rests(rig.cloud.places.to_try(rig.label)[0])


def test_deletion() -> None:
    """AW-6: the instance first, then the host."""
    rig = rig_of()
    rig.show(instance())
    deletion = rig.adapter.getDeleteStateMachine({"instance": "i-1", "host": "h-1"}, LOG)
    deletion.clock = rig.clock
    deletion.advance()
    deletion.advance()
    assert rig.region.count("release_hosts") == 0
    rig.show(instance(state="terminated"))
    deletion.advance()
    deletion.advance()
    assert deletion.complete
    assert rig.region.last("release_hosts") == {"HostIds": ["h-1"]}


def test_deletion_of_a_host_without_an_instance() -> None:
    """Its launch ended before there was one."""
    rig = rig_of()
    deletion = rig.adapter.getDeleteStateMachine({"host": "h-1"}, LOG)
    deletion.advance()
    deletion.advance()
    assert deletion.complete
    assert rig.region.last("release_hosts") == {"HostIds": ["h-1"]}


def test_answer_that_looks_like_a_success(caplog: pytest.LogCaptureFixture) -> None:
    """AW-6: failures are told host by host. The node goes; the host is released when AWS lets it go."""
    rig = rig_of()
    text = "mac2.metal hosts must be allocated to your AWS account for at least 24 hour(s)"
    failed = {"ResourceId": "h-1", "Error": {"Code": "HostMinAllocationPeriodUnexpired", "Message": text}}
    rig.region.answers["release_hosts"] = {"Successful": [], "Unsuccessful": [failed]}
    with pytest.raises(CloudRefused, match=r"failed for h-1: HostMinAllocationPeriodUnexpired: mac2"):
        rig.cloud.hosts.release("h-1")
    deletion = rig.adapter.getDeleteStateMachine({"host": "h-1"}, logging.LoggerAdapter(logging.getLogger("here"), {}))
    deletion.advance()
    deletion.advance()
    assert deletion.complete
    assert text in caplog.text


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (host(), True),
        (host(state="under-assessment"), True),
        (host(state="permanent-failure"), True),
        (host(state="released"), False),
        (host(state="pending"), False),
        (host(Instances=[{"InstanceId": "i-1"}]), False),
        (host(AllocationTime=NOW - timedelta(hours=23)), False),
        (host(AllocationTime=NOW - timedelta(hours=25)), True),
        (host(AllocationTime=NOW, HostProperties={"InstanceType": "c5.large"}), True),
    ],
)
def test_what_may_be_released(data: dict[str, Any], expected: bool) -> None:
    """AW-20: the search for leaks asks only for what AWS lets go; hosts of macOS stay 24 hours."""
    found = AwsHost.of(data)
    assert found.may_be_released(NOW) is expected
    assert found.metadata == METADATA


def test_need() -> None:
    """AW-11, AW-13: one instance and one host; instances on hosts of others count by theirs."""
    rig = rig_of()
    assert rig.adapter.getQuotaForLabel(rig.label).get_resources() == {"instances": 1, "cores": 0, "ram": 0, MAC: 1}
    assert rig.adapter.getQuotaLimits().get_resources() == {MAC: 1}
    rig.show(instance(InstanceType="mac2.metal", Placement={"HostId": "h-9"}))
    (found,) = rig.adapter.listInstances()
    assert found.getQuotaInformation().get_resources() == {"instances": 1, "cores": 0, "ram": 0, MAC: 1}
