# SPDX-License-Identifier: Apache-2.0
"""``nodepool check``: cause and remedy of each thing that is missing; nothing is asked that changes something."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from nodepool.driver.framework.checks import CheckResult
from tests.unit.driver.aws.support import IMAGE, LIMITS, ImageRig, Rig, error, quotas, section

#: All that the section names.
THERE: dict[str, Any] = yaml.safe_load("""
{describe_availability_zones: {AvailabilityZones: [{ZoneName: eu-north-1a, State: available},
  {ZoneName: eu-north-1b, State: available}, {ZoneName: eu-north-1c, State: impaired}]},
 describe_subnets: {Subnets: [{SubnetId: subnet-1, AvailabilityZone: eu-north-1a, VpcId: vpc-1,
  AvailableIpAddressCount: 200, Ipv6CidrBlockAssociationSet: []}]},
 describe_security_groups: {SecurityGroups: [{GroupId: sg-1, VpcId: vpc-1}]},
 describe_key_pairs: {KeyPairs: [{KeyName: zuul}]},
 describe_instance_type_offerings: {InstanceTypeOfferings: [{InstanceType: t3.medium, Location: eu-north-1a}]}}
""")
(SUBNET,) = THERE["describe_subnets"]["Subnets"]
DENIED = error("UnauthorizedOperation")
POLICY = "allow it in the IAM policy of the credentials"


def rig_of(label: dict[str, Any] | None = None, pool: dict[str, Any] | None = None, **answers: Any) -> Rig:
    wanted = {"subnet-id": "subnet-1", "security-group-id": "sg-1", "max-servers": 10, **(pool or {})}
    return Rig(section(label, pool=wanted), **{**THERE, **answers})


def results(rig: Rig) -> list[CheckResult]:
    return list(rig.adapter.preflight())


@pytest.mark.parametrize(
    ("code", "remedy"),
    [("AuthFailure", "check the credentials, and the clock of this machine"), ("UnauthorizedOperation", POLICY)],
)
def test_credentials(tmp_path: Path, code: str, remedy: str) -> None:
    """AW-1: without them nothing else is asked, of images neither."""
    rig = ImageRig(tmp_path)
    rig.region.answers |= {"describe_availability_zones": error(code)}
    (found,) = results(rig)
    assert (found.subject, found.status, found.remedy) == ("region eu-north-1", "failed", remedy)
    assert f"DescribeAvailabilityZones failed: {code}" in found.text
    assert "Provider" not in found.text
    assert len(rig.region.calls) == 1


def subnet(**more: Any) -> dict[str, Any]:
    return {"describe_subnets": {"Subnets": [{**SUBNET, **more}]}}


OFFERED = {"describe_instance_type_offerings": {"InstanceTypeOfferings": [{"Location": "eu-north-1b"}]}}
OTHER_VPC = {"describe_security_groups": {"SecurityGroups": [{"GroupId": "sg-1", "VpcId": "vpc-2"}]}}
FAILED = {"describe_images": {"Images": [{**IMAGE, "State": "failed"}]}}
NO_TYPE = {"describe_instance_types": error("InvalidInstanceType")}
NO_ZONE = "no zone 'eu-north-1c' that can be used (it has: eu-north-1a, eu-north-1b)"
KEY = "correct key-name of the label, or import the key pair in this region"


@pytest.mark.parametrize(
    ("pool", "answers", "text"),
    [
        ({"subnet-id": None, "availability-zone": "eu-north-1c"}, {}, f"{NO_ZONE} -> correct availability-zone"),
        ({}, {"describe_subnets": {}}, "no subnet 'subnet-1' -> correct subnet-id of the pool"),
        ({"subnet-id": None}, {"describe_subnets": {}}, "no default VPC with subnets -> add subnet-id to the pool"),
        ({}, subnet(AvailableIpAddressCount=0), "has no free addresses -> add another subnet to subnet-id"),
        ({"public-ipv6": True}, {}, "no IPv6 addresses -> give it an IPv6 block, or set public-ipv6: false"),
        (
            {"availability-zone": "eu-north-1b"},
            {},
            "in zone eu-north-1a, not in eu-north-1b -> remove availability-zone of the pool: the subnet says it",
        ),
        ({}, {"describe_security_groups": {}}, "no security group 'sg-1' -> correct security-group-id of the pool"),
        ({}, OTHER_VPC, "in vpc-2, and the subnets are in vpc-1 -> choose a group of the VPC of the subnets"),
        ({}, {"describe_subnets": DENIED}, f"DescribeSubnets failed: UnauthorizedOperation -> {POLICY}"),
        (None, {"describe_key_pairs": {"KeyPairs": []}}, f"no key pair 'zuul' -> {KEY}"),
        (None, {"describe_images": {"Images": []}}, "there is no image ami-1 -> correct image-id"),
        (None, FAILED, "the image ami-1 is failed -> correct image-id of cloud image debian"),
        (None, NO_TYPE, "no instance type 't3.medium' -> correct instance-type"),
        (None, OFFERED, "not offered in eu-north-1a, but in eu-north-1b -> choose another instance type, or a"),
    ],
)  # fmt: skip
def test_what_is_missing(pool: dict[str, Any] | None, answers: dict[str, Any], text: str) -> None:
    """AW-16: cause and remedy; the rest is looked at all the same; None = it is something of the label."""
    found = results(rig_of(None, pool, **answers))
    (bad,) = [result for result in found if result.status != "ok"]
    words, _, remedy = text.partition(" -> ")
    assert (bad.subject, bad.status) == ("label small of pool main" if pool is None else "pool main", "failed")
    assert words in bad.text
    assert bad.remedy.startswith(remedy)
    assert found[-1].subject == "quota"


def test_all_is_there() -> None:
    """A line for each thing; nothing is asked that changes something."""
    rig = rig_of()
    assert [(result.subject, result.status, result.text) for result in results(rig)] == [
        ("region eu-north-1", "ok", "the credentials work; zones: eu-north-1a, eu-north-1b"),
        ("label small of pool main", "ok", "instance type, image and key pair are there"),
        ("quota", "ok", "L-1216C47A: 64"),
    ]
    assert rig.region.changes() == []


def test_one_of_several_types() -> None:
    """One that is there will do: of the other there is a warning."""

    def offered(arguments: dict[str, Any]) -> dict[str, Any]:
        (name,) = arguments["Filters"][0]["Values"]
        return {"InstanceTypeOfferings": [{"Location": "eu-north-1a"}] if name == "t3.medium" else []}

    rig = rig_of({"instance-type": ["t3.medium", "t3.large"]}, describe_instance_type_offerings=offered)
    (found,) = [result for result in results(rig) if result.status != "ok"]
    assert (found.status, found.text) == ("warning", "t3.large is not offered in eu-north-1a")


@pytest.mark.parametrize(
    ("answer", "status", "words", "remedy"),
    [
        (20.0, "ok", "L-1216C47A: 20", ""),
        (19.0, "warning", "it allows 9 nodes of label small, max-servers of pool main allows 10", None),
        (1.0, "failed", "it allows 0 nodes of label small", None),
        # Launches go on without them.
        (error("AccessDeniedException"), "warning", "", "allow servicequotas:ListServiceQuotas"),
    ],
)
def test_limits(answer: Any, status: str, words: str, remedy: str | None) -> None:
    """AW-14: with what ``max-servers`` allows; a label that has no place at all fails."""
    answered = quotas((*LIMITS[0][:2], answer)) if isinstance(answer, float) else answer
    found = results(rig_of(list_service_quotas=answered))[-1]
    assert (found.subject, found.status) == ("quota", status)
    assert words in found.text
    assert remedy in (None, found.remedy)


METHODS = ("snapshot", "snapshot", "image", "ebs-direct")
LOOKS = ["list_objects_v2", "describe_import_snapshot_tasks", "list_objects_v2", "describe_import_image_tasks"]
BUCKET = error("NoSuchBucket", status=404)


@pytest.mark.parametrize(
    ("methods", "more", "answers", "remedy", "calls"),
    [
        # The same is asked once.
        (METHODS, {}, {}, "", LOOKS),
        (METHODS[:1], {}, {"list_objects_v2": BUCKET}, "create the bucket, or correct bucket-name", LOOKS[:1]),
        (METHODS[:1], {}, {"list_objects_v2": error("AccessDenied")}, POLICY, LOOKS[:1]),
        (METHODS[:1], {}, {"describe_import_snapshot_tasks": DENIED}, POLICY, LOOKS[:2]),
        # The format does not fit.
        (METHODS[3:], {"image-format": "vmdk"}, {}, None, []),
    ],
)
def test_images(
    tmp_path: Path, methods: Any, more: dict[str, Any], answers: dict[str, Any], remedy: str | None, calls: list[str]
) -> None:
    """AW-17, AW-18: a line for each image that is uploaded: the bucket, and what the credentials are allowed."""
    images = [{"name": f"image-{number}", "import-method": method} for number, method in enumerate(methods)]
    rig = ImageRig(tmp_path, None, **{"diskimages": [*images, {"name": "old", "pause": True}], **more})
    rig.region.answers |= {**THERE, **answers}
    found = [result for result in results(rig) if result.subject.startswith("diskimage")]
    assert [result.subject for result in found] == [f"diskimage image-{number}" for number in range(len(methods))]
    assert {result.status for result in found} == {"ok" if remedy == "" else "failed"}
    assert all(remedy in (None, result.remedy) and "Provider" not in result.text for result in found)
    assert [name for name, _ in rig.region.calls if "import" in name or "objects" in name] == calls
