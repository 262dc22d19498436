# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.aws.launch_calls`."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from nodepool.driver.aws.facts import places_of
from nodepool.driver.aws.launch_calls import instance_tags, run_arguments, with_tags
from nodepool.driver.aws.types import AwsImage
from tests.unit.driver.aws.support import IMAGE, LOG, METADATA, load, section


def label_of(label: dict[str, Any] | None = None, **pool: Any) -> Any:
    return load(section(label, pool=pool)).pools["main"].labels["small"]


def arguments(label: dict[str, Any] | None = None, image: dict[str, Any] = IMAGE, **pool: Any) -> dict[str, Any]:
    wanted = label_of(label, **pool)
    return with_tags(run_arguments(wanted, places_of(wanted)[0], AwsImage.of(image)), {"a": "b"}, "token-1")


def test_least() -> None:
    """AW-3: what is always sent, and nothing of what is not configured."""
    sent = arguments()
    tags = [{"Key": "a", "Value": "b"}]
    assert sent.pop("BlockDeviceMappings")
    assert sent == {
        "ClientToken": "token-1",
        "ImageId": "ami-1",
        "InstanceType": "t3.medium",
        "KeyName": "zuul",
        "EbsOptimized": False,
        "NetworkInterfaces": [{"DeviceIndex": 0, "AssociatePublicIpAddress": True}],
        "TagSpecifications": [
            {"ResourceType": "instance", "Tags": tags},
            {"ResourceType": "volume", "Tags": tags},
        ],
    }


def test_most() -> None:
    """AW-3: what is sent when it is configured."""
    wanted = {
        "ebs-optimized": True,
        "userdata": "#cloud-config",
        "iam-instance-profile": {"name": "ci"},
        "imdsv2": "required",
        "use-spot": True,
    }
    pool: dict[str, Any] = {"subnet-id": "subnet-1", "security-group-id": "sg-1", "public-ipv4": False}
    pool |= {"public-ipv6": True, "availability-zone": "eu-north-1a"}
    sent = arguments(wanted, **pool)
    assert sent["NetworkInterfaces"] == [
        {
            "DeviceIndex": 0,
            "AssociatePublicIpAddress": False,
            "SubnetId": "subnet-1",
            "Groups": ["sg-1"],
            "Ipv6AddressCount": 1,
        }
    ]
    assert (sent["EbsOptimized"], sent["UserData"]) == (True, "#cloud-config")
    assert (sent["IamInstanceProfile"], sent["Placement"]) == ({"Name": "ci"}, {"AvailabilityZone": "eu-north-1a"})
    assert sent["MetadataOptions"] == {"HttpTokens": "required", "HttpEndpoint": "enabled"}
    assert sent["InstanceMarketOptions"] == {
        "MarketType": "spot",
        "SpotOptions": {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"},
    }


def test_profile_by_arn() -> None:
    """AW-3."""
    sent = arguments({"iam-instance-profile": {"arn": "arn:aws:iam::1:instance-profile/x"}})
    assert sent["IamInstanceProfile"] == {"Arn": "arn:aws:iam::1:instance-profile/x"}


def test_volumes_go_with_the_instance() -> None:
    """AW-4: the root is as the label wants it, and no volume stays; whether one is encrypted says its snapshot."""
    sent = arguments({"volume-size": 40, "volume-type": "gp3", "iops": 4000, "throughput": 250})
    root, other = sent["BlockDeviceMappings"]
    assert root == {
        "DeviceName": "/dev/xvda",
        "Ebs": {
            "SnapshotId": "snap-1",
            "VolumeSize": 40,
            "VolumeType": "gp3",
            "Iops": 4000,
            "Throughput": 250,
            "DeleteOnTermination": True,
        },
    }
    assert other == {"DeviceName": "/dev/sdb", "Ebs": {"SnapshotId": "snap-2", "DeleteOnTermination": True}}


def test_image_without_volumes() -> None:
    """AW-4: no mapping is sent."""
    assert "BlockDeviceMappings" not in arguments(image={"ImageId": "ami-1"})


def test_order_of_tags(caplog: pytest.LogCaptureFixture) -> None:
    """CM-1, CM-2: label, dynamic, ours, the name; a dynamic one that cannot be formatted is left out."""
    request: Any = SimpleNamespace(id="200-7", tenant_name="t")
    label = label_of(
        {
            "tags": {"team": "ci", "year": 2026, "tenant": "x", "Name": "mine", "nodepool_node_id": "mine"},
            "dynamic-tags": {"tenant": "{request.tenant_name}", "bad": "{request.nothing}"},
        }
    )
    with caplog.at_level(logging.ERROR):
        tags = instance_tags("np42", label, METADATA, request, LOG)
    assert tags == {"team": "ci", "year": "2026", "tenant": "t", **METADATA, "Name": "np42"}
    assert [record.getMessage() for record in caplog.records] == [
        "Label small: dynamic-tags: bad cannot be formatted; it is left out"
    ]
