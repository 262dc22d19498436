# SPDX-License-Identifier: Apache-2.0
"""The AWS driver in a running launcher, on the simulated region (AW, CM)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nodepool.launcher import status_worker
from tests.support.aws_place import AwsPlace
from tests.support.command_line import CommandLine
from tests.support.wait import wait_for

LOST = {"operation": "ec2.RunInstances", "after": True}


def test_life_of_a_node(aws: AwsPlace) -> None:
    """AW-2, AW-10, CM-1, CM-2: what the record says, what the instance is called, and that it goes."""
    aws.label["tags"] = {"team": "ci"}
    aws.launch()
    request = aws.znodes.submit(["small"])
    (node,) = aws.fulfilled(request)
    with aws.simulator.cloud() as cloud:
        (instance,) = cloud.instances.instances.values()
        tags = instance.tags.value
    assert node["external_id"] == {"instance": instance.id}
    assert (node["cloud"], node["region"], node["az"]) == ("AWS", "us-east-1", instance.spec.zone)
    assert node["interface_ip"] == node["public_ipv4"] == instance.public_ipv4
    assert node["private_ipv4"] == instance.private_ipv4
    assert node["host_keys"]
    assert tags == {
        "team": "ci",
        "Name": f"np{node['id']}" if "id" in node else tags["Name"],
        "nodepool_node_id": tags["Name"].removeprefix("np"),
        "nodepool_pool_name": "main",
        "nodepool_provider_name": "region-a",
    }
    aws.give_back(request)
    aws.wait_empty()


@pytest.mark.parametrize("kind", ["500", "drop"])
def test_lost_answers(aws: AwsPlace, kind: str) -> None:
    """Half of the creations work, but their answer is lost, and lists lag: no node gets two, none is left."""
    aws.simulator.change(
        errors=[{**LOST, "kind": kind, "count": 5}],
        hidden_rate=0.5,
        hidden_seconds=[0.3, 0.6],
        tag_lag_rate=0.5,
        tag_lag_seconds=[0.3, 0.6],
        late_tags=True,
    )
    aws.pool["max-servers"] = 6
    aws.launch()
    requests = [aws.znodes.submit(["small"]) for _ in range(10)]
    aws.serve_all(requests)
    aws.wait_empty()
    state = aws.simulator.state()
    assert state["peak_by_provider"]["region-a"] <= 6
    assert state["events"]["instances created"] == 10, "what was made was found"


def test_joined_launches(aws: AwsPlace) -> None:
    """What waits for the bucket of RunInstances goes together, also when the answer is lost (CLOUDS: bursts)."""
    aws.section["rate"] = 2
    aws.simulator.change(errors=[{**LOST, "kind": "drop", "rate": 0.3}], throttles=True, hidden_rate=0.3)
    aws.launch()
    requests = [aws.znodes.submit(["small"]) for _ in range(40)]
    aws.serve_all(requests)
    aws.wait_empty()
    state = aws.simulator.state()
    assert state["events"]["instances created"] == 40
    assert state["calls"]["ec2.RunInstances"] < 30


def test_throttled(aws: AwsPlace) -> None:
    """Calls that AWS puts off are made later; nothing fails."""
    rules = [
        {"operation": "ec2.*", "kind": "503", "code": "RequestLimitExceeded", "count": 4},
        {"operation": "servicequotas.*", "kind": "429", "code": "TooManyRequestsException", "count": 1},
    ]
    aws.simulator.change(errors=rules)
    aws.launch()
    aws.serve_all([aws.znodes.submit(["small"]) for _ in range(4)])
    aws.wait_empty()


def test_other_zones_and_types(aws: AwsPlace) -> None:
    """What has no room rests, the next is tried, and no attempt of the request is spent."""
    aws.section["launch-retries"] = 1
    aws.pool["availability-zone"] = ["us-east-1a", "us-east-1b"]
    aws.label["instance-type"] = ["t3.small", "m5.large"]
    aws.simulator.change(capacity=[{"instance_type": "t3.*"}, {"zone": "us-east-1a"}])
    aws.launch()
    requests = [aws.znodes.submit(["small"]) for _ in range(4)]
    nodes = [node for request in requests for node in aws.fulfilled(request)]
    assert {node["az"] for node in nodes} == {"us-east-1b"}
    with aws.simulator.cloud() as cloud:
        assert {instance.spec.type.name for instance in cloud.instances.instances.values()} == {"m5.large"}
    for request in requests:
        aws.give_back(request)
    aws.wait_empty()
    before = aws.calls("ec2.RunInstances")
    later = aws.znodes.submit(["small"])
    aws.fulfilled(later)
    assert aws.calls("ec2.RunInstances") == before + 1, "the places without room rest"
    aws.give_back(later)
    aws.wait_empty()


def test_spot_fallback(aws: AwsPlace) -> None:
    """Spot falls back to on-demand where the label says so."""
    aws.section["launch-retries"] = 1
    aws.label.update({"use-spot": True, "spot-fallback": True})
    aws.simulator.change(capacity=[{"spot": True, "room": 1}])
    aws.launch()
    requests = [aws.znodes.submit(["small"]) for _ in range(3)]
    nodes = [node for request in requests for node in aws.fulfilled(request)]
    assert sorted(node["node_properties"]["spot"] for node in nodes) == [False, False, True]
    for request in requests:
        aws.give_back(request)
    aws.wait_empty()


def test_instances_that_end_while_they_boot(aws: AwsPlace, caplog: pytest.LogCaptureFixture) -> None:
    """AW-2: the cloud's words are in the log, and the node is launched again."""
    aws.label["use-spot"] = True
    rules: list[dict[str, Any]] = [
        {"kind": "failed", "code": "Server.InternalError", "message": "Internal error on launch", "count": 1},
        {
            "kind": "failed",
            "code": "Server.SpotInstanceTermination",
            "message": "Spot instance termination",
            "count": 1,
        },
    ]
    aws.simulator.change(boots=rules)
    aws.launch()
    request = aws.znodes.submit(["small"])
    aws.fulfilled(request)
    assert "Server.InternalError: Internal error on launch" in caplog.text
    assert "Server.SpotInstanceTermination: Spot instance termination" in caplog.text
    aws.give_back(request)
    aws.wait_empty()


@pytest.mark.parametrize(
    ("quotas", "label", "code"),
    [
        ({"L-1216C47A": 4}, {}, "VcpuLimitExceeded"),
        ({"L-34B43A08": 4}, {"use-spot": True}, "MaxSpotInstanceCountExceeded"),
    ],
)
def test_limits_that_nobody_told_of(
    aws: AwsPlace, monkeypatch: pytest.MonkeyPatch, quotas: dict[str, int], label: dict[str, Any], code: str
) -> None:
    """AW-16: a limit of the account is no failure. The request waits, and ``nodepool explain`` has the cloud's code."""
    for name in ("LOOK_SECONDS", "ALL_SECONDS"):
        monkeypatch.setattr(status_worker, name, 0.1)
    aws.label.update(label)
    aws.section["launch-retries"] = 1
    aws.simulator.change(quotas=quotas, denied=["servicequotas.*"])
    aws.launch()
    requests = [aws.znodes.submit(["small"]) for _ in range(2)]
    for request in requests:
        aws.fulfilled(request)
    third = aws.znodes.submit(["small"])
    assert aws.launcher is not None
    nodepool = CommandLine(aws.launcher.path)

    def told() -> bool:
        answer = json.loads(nodepool("explain", third, "-o", "json").out)
        assert code in json.dumps(answer), answer
        return True

    wait_for("it is explained", told)
    assert aws.znodes.request_state(third) in ("requested", "pending")
    aws.give_back(requests[0])
    aws.fulfilled(third)
    for request in (requests[1], third):
        aws.give_back(request)
    aws.wait_empty()


def test_limits_that_service_quotas_tells(aws: AwsPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    """AW-14: RunInstances is not even tried; the reason names quota, limit and use."""
    for name in ("LOOK_SECONDS", "ALL_SECONDS"):
        monkeypatch.setattr(status_worker, name, 0.1)
    aws.simulator.change(quotas={"L-1216C47A": 4})
    aws.launch()
    requests = [aws.znodes.submit(["small"]) for _ in range(2)]
    for request in requests:
        aws.fulfilled(request)
    third = aws.znodes.submit(["small"])
    assert aws.launcher is not None
    nodepool = CommandLine(aws.launcher.path)

    def told() -> bool:
        answer = json.loads(nodepool("explain", third, "-o", "json").out)
        assert "L-1216C47A" in json.dumps(answer), answer
        return True

    wait_for("it is explained", told)
    for request in requests:
        aws.give_back(request)
    aws.fulfilled(third)
    aws.give_back(third)
    aws.wait_empty()
    assert "refused VcpuLimitExceeded" not in aws.simulator.state()["events"]


def test_ends_that_do_not_happen(aws: AwsPlace) -> None:
    """A termination that was accepted and forgotten is sent again."""
    aws.simulator.change(ends=[{"kind": "swallowed", "count": 2}])
    aws.launch()
    requests = [aws.znodes.submit(["small"]) for _ in range(3)]
    for request in requests:
        aws.fulfilled(request)
    for request in requests:
        aws.give_back(request)
    aws.wait_empty()
    assert aws.simulator.state()["events"]["ends swallowed"] == 2


def test_one_that_vanished_does_not_keep_the_others(aws: AwsPlace) -> None:
    """One unknown id fails a whole call of TerminateInstances; the other instances end nevertheless."""
    aws.launch()
    requests = [aws.znodes.submit(["small"]) for _ in range(6)]
    nodes = [node for request in requests for node in aws.fulfilled(request)]
    with aws.simulator.cloud() as cloud:
        cloud.instances.forget(cloud.instances.instances[nodes[2]["external_id"]["instance"]])
    for request in requests:
        aws.give_back(request)
    aws.wait_empty()


def test_leaks(aws: AwsPlace) -> None:
    """AW-20: an instance and a volume of ours that nobody knows go; what is not ours stays."""
    aws.launch()
    ours = {"nodepool_provider_name": "region-a", "nodepool_node_id": "9999999999", "nodepool_pool_name": "main"}
    with aws.simulator.cloud() as cloud:
        cloud.add_instance(ours)
        cloud.add_volume(metadata=ours)
        foreign = cloud.add_instance({**ours, "nodepool_provider_name": "other"})
        kept = cloud.add_volume()

    def gone() -> bool:
        # The launcher's own sweep may run just now; then this one does nothing.
        aws.provider.cleanupLeakedResources()
        with aws.simulator.cloud() as cloud:
            live = {instance.id for instance in cloud.instances.instances.values() if instance.live}
            free = {volume.id for volume in cloud.volumes.volumes.values() if volume.instance_id is None}
        return live == {foreign.id} and free == {kept.id}

    wait_for("what was leaked is gone", gone)


def test_credentials_that_end(aws: AwsPlace) -> None:
    """Credentials that are no longer valid: nothing fails, and all goes on with those that are."""
    aws.launch()
    first = aws.znodes.submit(["small"])
    aws.fulfilled(first)
    aws.simulator.change(access_key="AKIAOTHER")
    second = aws.znodes.submit(["small"])
    wait_for("the circuit breaker opens", lambda: aws.provider.calls.circuit_open)
    assert aws.znodes.request_state(second) in ("requested", "pending")
    aws.simulator.change(access_key="AKIASIMULATED")
    aws.fulfilled(second)
    for request in (first, second):
        aws.give_back(request)
    aws.wait_empty()


def test_fleet(aws: AwsPlace) -> None:
    """AW-8, AW-9: the type that has room; a lost answer makes no second instance; the template goes with its label."""
    del aws.label["instance-type"]
    types = {"instance-types": ["t3.small", "m5.large"], "allocation-strategy": "prioritized"}
    aws.label["fleet"] = types
    lost = {"operation": "ec2.CreateFleet", "kind": "drop", "after": True, "count": 2}
    aws.simulator.change(errors=[lost], capacity=[{"instance_type": "t3.*"}], hidden_rate=0.5)
    aws.pool["max-servers"] = 3
    aws.launch()
    requests = [aws.znodes.submit(["small"]) for _ in range(4)]
    aws.serve_all(requests)
    aws.wait_empty()
    state = aws.simulator.state()
    assert state["events"]["instances created"] == 4
    assert state["peak_by_provider"]["region-a"] <= 3
    with aws.simulator.cloud() as cloud:
        assert {instance.spec.type.name for instance in cloud.instances.instances.values()} == {"m5.large"}
    assert aws.contents()["templates"] == 1


def test_dedicated_hosts(aws: AwsPlace) -> None:
    """AW-5, AW-6: one instance on each host; a lost answer allocates no second one; both go."""
    aws.label.update({"instance-type": "m5.large", "dedicated-host": True})
    aws.pool["availability-zone"] = "us-east-1a"
    lost = {"kind": "drop", "after": True, "count": 1}
    rules = [{**lost, "operation": f"ec2.{name}"} for name in ("AllocateHosts", "RunInstances", "ReleaseHosts")]
    aws.simulator.change(errors=rules, host_seconds=0.5)
    aws.launch()
    requests = [aws.znodes.submit(["small"]) for _ in range(3)]
    for request in requests:
        aws.fulfilled(request)
    with aws.simulator.cloud() as cloud:
        hosts = {instance.spec.host_id for instance in cloud.instances.instances.values()}
    assert len(hosts) == 3
    assert aws.contents()["hosts"] == 3
    for request in requests:
        aws.give_back(request)
    aws.wait_empty()
    wait_for("the hosts are gone", lambda: aws.contents()["hosts"] == 0)
    assert aws.simulator.state()["events"]["hosts allocated"] == 3


@pytest.mark.parametrize("kind", ["html", "portal", "garbage", "odd", "truncated"])
def test_answers_that_are_none(aws: AwsPlace, caplog: pytest.LogCaptureFixture, kind: str) -> None:
    """A proxy, a sign-in page or a connection that ends in the middle: each call is made again, and nothing is lost."""
    names = ("RunInstances", "Describe*", "TerminateInstances")
    rules = [{"operation": f"ec2.{name}", "kind": kind, "after": True, "count": 2} for name in names]
    aws.simulator.change(errors=rules)
    aws.launch()
    aws.serve_all([aws.znodes.submit(["small"]) for _ in range(4)])
    aws.wait_empty()
    assert aws.simulator.state()["events"]["instances created"] == 4
    assert "Traceback" not in caplog.text


def test_spot_interruption(aws: AwsPlace, caplog: pytest.LogCaptureFixture) -> None:
    """An instance that AWS takes away while a job uses it: the log has node and AWS's words; the node goes as usual."""
    aws.label["use-spot"] = True
    aws.launch()
    first = aws.znodes.submit(["small"])
    (node,) = aws.fulfilled(first)
    with aws.simulator.cloud() as cloud:
        instance = cloud.instances.instances[node["external_id"]["instance"]]
        cloud.instances.interrupt(instance)
        node_id = instance.tags.value["nodepool_node_id"]
    # Lists are made when somebody waits for one.
    second = aws.znodes.submit(["small"])
    aws.fulfilled(second)
    told = f"Instance {instance.id} (spot) of node {node_id} ended: Server.SpotInstanceTermination: "
    wait_for("the log has it", lambda: told in caplog.text)
    for request in (first, second):
        aws.give_back(request)
    aws.wait_empty()


def test_all_nodes_of_a_request_in_one_zone(aws: AwsPlace) -> None:
    """N-7: also where there is no room for all of them in the zone that comes first."""
    with aws.simulator.cloud() as cloud:
        subnets = [subnet.id for subnet in cloud.network.subnets.values()]
    aws.section["launch-retries"] = 1
    aws.pool["subnet-id"] = subnets
    aws.simulator.change(capacity=[{"zone": "us-east-1a"}])
    aws.launch()
    requests = [aws.znodes.submit(["small"] * 3) for _ in range(3)]
    for request in requests:
        assert len({node["az"] for node in aws.fulfilled(request)}) == 1
        aws.give_back(request)
    aws.wait_empty()
