# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.aws.adapter` and `check_client`."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.driver.framework.checks import CheckResult
from tests.unit.driver.aws.support import EC2_QUOTAS, IMAGE, Rig, error, quota, section

SUBNET = {
    "SubnetId": "subnet-1",
    "AvailabilityZone": "eu-north-1a",
    "VpcId": "vpc-1",
    "AvailableIpAddressCount": 200,
    "Ipv6CidrBlockAssociationSet": [],
}
POOL = {"subnet-id": "subnet-1", "security-group-id": "sg-1", "max-servers": 10}


def rig_of(label: dict[str, Any] | None = None, pool: dict[str, Any] | None = None, **answers: Any) -> Rig:
    """A region that has what the section names, but for ``answers``."""
    rig = Rig(section(label, pool={**POOL, **(pool or {})}))
    states = {"a": "available", "b": "available", "c": "impaired"}
    zones = [{"ZoneName": f"eu-north-1{letter}", "State": state} for letter, state in states.items()]
    rig.region.answers |= {
        "describe_availability_zones": {"AvailabilityZones": zones},
        "describe_subnets": {"Subnets": [SUBNET]},
        "describe_security_groups": {"SecurityGroups": [{"GroupId": "sg-1", "VpcId": "vpc-1"}]},
        "describe_key_pairs": {"KeyPairs": [{"KeyName": "zuul"}]},
        "describe_instance_type_offerings": {
            "InstanceTypeOfferings": [{"InstanceType": "t3.medium", "Location": "eu-north-1a"}]
        },
        **answers,
    }
    return rig


def results(rig: Rig) -> list[CheckResult]:
    return list(rig.adapter.preflight())


def test_all_is_there() -> None:
    """A line for each thing; nothing is asked that changes something."""
    rig = rig_of()
    assert [(result.subject, result.status, result.text) for result in results(rig)] == [
        ("region eu-north-1", "ok", "the credentials work; zones: eu-north-1a, eu-north-1b"),
        ("label small of pool main", "ok", "instance type, image and key pair are there"),
        ("quota", "ok", "L-1216C47A: 64"),
    ]
    assert {name.partition("_")[0] for name, _ in rig.region.calls} == {"describe", "list"}


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        ("AuthFailure", "check the credentials, and the clock of this machine"),
        ("UnauthorizedOperation", "allow it in the IAM policy of the credentials"),
    ],
)
def test_credentials(code: str, remedy: str) -> None:
    """Without them nothing else is asked."""
    rig = rig_of(describe_availability_zones=error(code))
    (found,) = results(rig)
    assert (found.subject, found.status, found.remedy) == ("region eu-north-1", "failed", remedy)
    assert f"DescribeAvailabilityZones failed: {code}" in found.text
    assert "Provider" not in found.text
    assert len(rig.region.calls) == 1


@pytest.mark.parametrize(
    ("rig", "subject", "says", "remedy"),
    [
        (
            rig_of(pool={"subnet-id": None, "availability-zone": "eu-north-1c"}),
            "pool main",
            "no zone 'eu-north-1c' that can be used (it has: eu-north-1a, eu-north-1b)",
            "correct availability-zone of the pool",
        ),
        (rig_of(describe_subnets={}), "pool main", "no subnet 'subnet-1'", "correct subnet-id of the pool"),
        (
            rig_of(pool={"subnet-id": None}, describe_subnets={}),
            "pool main",
            "no default VPC with subnets",
            "add subnet-id to the pool",
        ),
        (
            rig_of(describe_subnets={"Subnets": [{**SUBNET, "AvailableIpAddressCount": 0}]}),
            "pool main",
            "subnet-1 has no free addresses",
            "add another subnet to subnet-id",
        ),
        (
            rig_of(pool={"public-ipv6": True}),
            "pool main",
            "subnet-1 has no IPv6 addresses",
            "give it an IPv6 block, or set public-ipv6: false",
        ),
        (
            rig_of(pool={"availability-zone": "eu-north-1b"}),
            "pool main",
            "subnet-1 is in zone eu-north-1a, not in eu-north-1b",
            "remove availability-zone of the pool: the subnet says it",
        ),
        (
            rig_of(describe_security_groups={"SecurityGroups": []}),
            "pool main",
            "no security group 'sg-1'",
            "correct security-group-id of the pool",
        ),
        (
            rig_of(describe_security_groups={"SecurityGroups": [{"GroupId": "sg-1", "VpcId": "vpc-2"}]}),
            "pool main",
            "sg-1 is in vpc-2, and the subnets are in vpc-1",
            "choose a group of the VPC of the subnets",
        ),
        (
            rig_of(describe_subnets=error("UnauthorizedOperation")),
            "pool main",
            "DescribeSubnets failed: UnauthorizedOperation",
            "allow it in the IAM policy of the credentials",
        ),
        (
            rig_of(describe_key_pairs={"KeyPairs": []}),
            "label small of pool main",
            "no key pair 'zuul'",
            "correct key-name of the label, or import the key pair in this region",
        ),
        (
            rig_of(describe_images={"Images": []}),
            "label small of pool main",
            "there is no image ami-1",
            "correct image-id",
        ),
        (
            rig_of(describe_images={"Images": [{**IMAGE, "State": "failed"}]}),
            "label small of pool main",
            "the image ami-1 is failed",
            "correct image-id of cloud image debian",
        ),
        (
            rig_of(describe_instance_types=error("InvalidInstanceType")),
            "label small of pool main",
            "no instance type 't3.medium'",
            "correct instance-type",
        ),
        (
            rig_of(describe_instance_type_offerings={"InstanceTypeOfferings": [{"Location": "eu-north-1b"}]}),
            "label small of pool main",
            "t3.medium is not offered in eu-north-1a, but in eu-north-1b",
            "choose another instance type, or a subnet or zone that has it",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_missing(rig: Rig, subject: str, says: str, remedy: str) -> None:
    """Cause and remedy; the rest is looked at all the same."""
    found = results(rig)
    (bad,) = [result for result in found if result.status != "ok"]
    assert (bad.subject, bad.status, bad.remedy) == (subject, "failed", remedy)
    assert says in bad.text
    assert found[-1].subject == "quota"


def test_one_of_several_types() -> None:
    """One that is there will do: of the other there is a warning."""

    def offered(arguments: dict[str, Any]) -> dict[str, Any]:
        (name,) = arguments["Filters"][0]["Values"]
        return {"InstanceTypeOfferings": [{"Location": "eu-north-1a"}] if name == "t3.medium" else []}

    rig = rig_of({"instance-type": ["t3.medium", "t3.large"]}, describe_instance_type_offerings=offered)
    (found,) = [result for result in results(rig) if result.status != "ok"]
    assert (found.status, found.text) == ("warning", "t3.large is not offered in eu-north-1a")


@pytest.mark.parametrize(
    ("limit", "max_servers", "status", "says"),
    [
        (20.0, 10, "ok", "L-1216C47A: 20"),
        (19.0, 10, "warning", "it allows 9 nodes of label small, max-servers of pool main allows 10"),
        (1.0, 10, "failed", "it allows 0 nodes of label small"),
    ],
)
def test_limits(limit: float, max_servers: int, status: str, says: str) -> None:
    """With what ``max-servers`` allows; a label that has no place at all fails."""
    answer = {"Quotas": [quota(EC2_QUOTAS[0]["QuotaCode"], EC2_QUOTAS[0]["QuotaName"], limit)]}
    rig = rig_of(pool={"max-servers": max_servers}, list_service_quotas=answer)
    found = [result for result in results(rig) if result.subject == "quota"]
    assert [result.status for result in found] == [status]
    assert says in found[0].text


def test_limits_are_not_told() -> None:
    """Launches go on without them: a warning."""
    rig = rig_of(list_service_quotas=error("AccessDeniedException"))
    assert results(rig)[-1].status == "warning"
    assert results(rig)[-1].remedy == "allow servicequotas:ListServiceQuotas"
