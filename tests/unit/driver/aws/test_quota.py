# SPDX-License-Identifier: Apache-2.0
"""Which limits of the account count, what a label needs of them, and what is used (AW-11 to AW-14)."""

from __future__ import annotations

import math
from typing import Any

import pytest

from nodepool.driver.aws.instances import FILTERED_SECONDS, AccountLimits, AwsFacts
from nodepool.driver.aws.types import VOLUMES, AccountQuota, AwsRecord, QuotaCodes
from nodepool.exceptions import NotFound
from nodepool.model.node import QuotaInformation
from tests.unit.driver.aws import support as aws
from tests.unit.driver.aws.support import rows

ON_DEMAND, SPOT, GP3, MAC = "L-1216C47A", "L-34B43A08", "L-7A658B76", "L-MACMACMA"
TOLD = QuotaCodes(AccountQuota(*limit) for limit in aws.LIMITS)


def test_families() -> None:
    """AW-12: with the names of Service Quotas; what 11.0.0 knows also without them."""
    released = rows("families")
    for codes, known in ((QuotaCodes(), released), (TOLD, released), (TOLD, rows("later_families"))):
        for on_demand, spot, *names in map(str.split, known):
            for name in names:
                assert str(codes.of_instance(name, spot=False)).lower() == on_demand.lower()
                assert str(codes.of_instance(name, spot=True)).lower() == spot.lower()
    assert VOLUMES["io2"] == ("L-09BD8365", "L-8D977E7E")
    assert VOLUMES["gp3"] == (GP3, None)


def rig_of(label: dict[str, Any] | None = None, **answers: Any) -> aws.Rig:
    def known(arguments: dict[str, Any]) -> Any:
        return {"InstanceTypes": [{**aws.TYPE, "InstanceType": arguments["InstanceTypes"][0]}]}

    rig = aws.Rig(aws.section(label, pool={"availability-zone": "a"}), **{"describe_instance_types": known, **answers})
    rig.adapter.limits = rig.adapter.instances.limits = AccountLimits(rig.config, rig.adapter.client, rig.adapter.facts)
    return rig


def amounts(quota: QuotaInformation) -> dict[str, float]:
    """What is limited, or used; without zeros."""
    return {name: value for name, value in quota.quota["compute"].items() if value not in (math.inf, 0)}


ONE = {"instances": 1, "cores": 1, "ram": 4096}


@pytest.mark.parametrize(("label", "limits", "need"), rows("limits_of_labels"))
def test_limits_and_need_of_a_label(
    label: dict[str, Any], limits: dict[str, float] | None, need: dict[str, float]
) -> None:
    """AW-11, AW-14: cores, memory, one instance, and vCPUs of its quota; only limits that labels need count."""
    rig = rig_of(label)
    if limits is not None:
        assert amounts(rig.adapter.getQuotaLimits()) == limits
        sent = [{"ServiceCode": service, "MaxResults": 100} for service in ("ec2", "ebs")]
        assert rig.region.sent("list_service_quotas") == sent
    for _ in range(2):
        assert amounts(rig.adapter.getQuotaForLabel(rig.label)) == need
    assert rig.region.count("describe_instance_types") <= 1
    if label.get("volume-size"):
        assert amounts(rig.adapter.limits.use_of(AwsRecord(aws.instance()), label=rig.label)) == need


def test_use_of_others() -> None:
    """AW-14, AW-13: every instance of the region, by its host if it has one, with its volumes if they count."""
    disks = [{"Ebs": {"VolumeId": "vol-1"}}, {"Ebs": {"VolumeId": "vol-2"}}]
    volumes = [{"VolumeId": f"vol-{n}", "Size": 10 * n, "VolumeType": "gp3"} for n in (1, 2, 3)]
    found = aws.shown(
        aws.instance("i-1", Tags=[], BlockDeviceMappings=disks),
        aws.instance("i-2", Tags=[], InstanceLifecycle="spot"),
        aws.instance("i-3", InstanceType="mac2.metal", Placement={"HostId": "h-9"}),
    )
    used = {**ONE, ON_DEMAND: 2}
    for label, volume_use in (({"volume-type": "gp3"}, {GP3: 30}), ({}, {})):
        rig = rig_of(label, describe_instances=found, describe_volumes={"Volumes": volumes})
        rig.adapter.getQuotaLimits()
        assert [amounts(made.getQuotaInformation()) for made in rig.adapter.listInstances()] == [
            {**used, **volume_use},
            {**ONE, SPOT: 2},
            {"instances": 1, MAC: 1},
        ]
        assert rig.region.count("describe_volumes") == bool(label)
    assert amounts(rig_of().adapter.limits.use_of(AwsRecord(aws.instance()))) == {"instances": 1}


def test_newest_image() -> None:
    """reference/configuration: of the images for which all filters hold, the newest that can be used. It is looked up
    again after five minutes, or at once when a launch was refused.
    """

    def image(image_id: str, created: str, state: str = "available") -> dict[str, Any]:
        return {**aws.IMAGE, "ImageId": image_id, "CreationDate": created, "State": state}

    filters = [{"name": "name", "values": ["debian-*", "sid"]}, {"Name": "architecture", "Values": ["arm64"]}]
    images: Any = [{"name": "debian", "username": "admin", "image-filters": filters}]
    found = [image("ami-1", "2026-01"), image("ami-2", "2026-03"), image("ami-3", "2026-04", "pending")]
    answers = [{"Images": found}, *[{"Images": [image(f"ami-{n}", "2026")]} for n in (5, 6)], {"Images": []}]
    rig = aws.Rig(aws.section(None, **{"cloud-images": images}), describe_images=answers)
    facts = AwsFacts(rig.adapter.client)
    assert [facts.cloud_image_id(rig.label) for _ in range(2)] == ["ami-2", "ami-2"]
    assert rig.region.last("describe_images")["Filters"] == [
        {"Name": "name", "Values": ["debian-*", "sid"]},
        {"Name": "architecture", "Values": ["arm64"]},
    ]
    rig.clock.now += FILTERED_SECONDS + 1
    assert facts.cloud_image_id(rig.label) == "ami-5"
    facts.forget(rig.label)
    assert facts.cloud_image_id(rig.label) == "ami-6"
    facts.forget(rig.label)
    with pytest.raises(
        NotFound, match=r"no image has name=debian-\*,sid, architecture=arm64; correct image-filters of .*'debian'"
    ):
        facts.cloud_image_id(rig.label)
