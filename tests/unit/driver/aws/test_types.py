# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.aws.types` and ``instance``."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.driver.aws.instances import AwsInstance, external_id, instance_of
from nodepool.driver.aws.types import AwsImage, AwsRecord, AwsVolume, InstanceType
from nodepool.model.quota import QuotaInformation
from tests.unit.driver.aws.support import IMAGE, METADATA, TYPE, instance

WHOLE = instance(
    Placement={"AvailabilityZone": "eu-north-1a", "HostId": "h-1"},
    InstanceLifecycle="spot",
    PublicIpAddress="198.51.100.7",
    PrivateIpAddress="10.0.0.7",
    NetworkInterfaces=[{"Ipv6Addresses": [{"Ipv6Address": "2001:db8::7"}, {"Ipv6Address": "2001:db8::8"}]}],
    BlockDeviceMappings=[{"DeviceName": "/dev/sda1", "Ebs": {"VolumeId": "vol-1"}}, {"DeviceName": "/dev/sdb"}],
    StateReason={"Code": "Server.SpotInstanceTermination", "Message": "taken away"},
)
NO_USE = QuotaInformation(instances=1)


def test_record() -> None:
    """Only what the driver uses."""
    record = AwsRecord.of(WHOLE)
    assert (record.id, record.status, record.metadata, record.type) == ("i-1", "running", METADATA, "t3.medium")
    assert (record.zone, record.host_id, record.spot) == ("eu-north-1a", "h-1", True)
    assert (record.public_ipv4, record.private_ipv4, record.ipv6) == ("198.51.100.7", "10.0.0.7", "2001:db8::7")
    assert record.volume_ids == ("vol-1",)
    assert (record.reason_code, record.reason) == ("Server.SpotInstanceTermination", "taken away")


@pytest.mark.parametrize(
    ("state", "gone"),
    [("pending", False), ("running", False), ("stopped", False), ("shutting-down", False), ("terminated", True)],
)
def test_gone(state: str, gone: bool) -> None:
    """AW-2: terminated instances stay in lists for a while."""
    assert AwsRecord.of(instance(state=state)).gone is gone


def test_instance() -> None:
    """AW-10: what the node says."""
    made = AwsInstance(AwsRecord.of(WHOLE), "eu-north-1", NO_USE)
    assert (made.cloud, made.region, made.az) == ("AWS", "eu-north-1", "eu-north-1a")
    assert (made.ready, made.deleted, made.metadata) == (True, False, METADATA)
    assert made.interface_ip == made.public_ipv4 == "198.51.100.7"
    assert (made.public_ipv6, made.private_ipv4, made.private_ipv6) == ("2001:db8::7", "10.0.0.7", None)
    assert made.node_properties == {"fleet": False, "spot": True}
    assert made.getQuotaInformation() is NO_USE


def test_what_is_never_set() -> None:
    """CM-3."""
    made = AwsInstance(AwsRecord.of(WHOLE), "eu-north-1", NO_USE)
    assert (made.host_id, made.slot, made.driver_data) == (None, None, None)


@pytest.mark.parametrize(
    ("without", "address"),
    [
        (["PublicIpAddress"], "2001:db8::7"),
        (["PublicIpAddress", "NetworkInterfaces"], "10.0.0.7"),
        (["PublicIpAddress", "NetworkInterfaces", "PrivateIpAddress"], None),
    ],
)
def test_interface_address(without: list[str], address: str | None) -> None:
    """AW-10: public IPv4, else public IPv6, else private IPv4."""
    data = {key: value for key, value in WHOLE.items() if key not in without}
    assert AwsInstance(AwsRecord.of(data), "r", NO_USE).interface_ip == address


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ({"instance": "i-1"}, "i-1"),
        ({"instance": "i-1", "host": "h-1"}, "i-1"),
        ("i-1", "i-1"),
        ({"host": "h-1"}, None),
        ({"instance": 7}, None),
        ("", None),
        (None, None),
        (["i-1"], None),
    ],
)
def test_external_id(stored: Any, expected: str | None) -> None:
    """AW-7, CM-8: an object; of old nodes a text."""
    assert instance_of(stored) == expected
    assert instance_of(external_id("i-1")) == "i-1"


def test_image() -> None:
    """The root is first, wherever it stands; what is no volume is left out."""
    image = AwsImage.of(IMAGE)
    assert (image.id, image.name, image.status) == ("ami-1", "debian", "available")
    assert [name for name, _ in image.devices] == ["/dev/xvda", "/dev/sdb"]
    assert AwsImage.of({"ImageId": "ami-2"}).devices == ()


def test_volume_and_type() -> None:
    volume = AwsVolume.of({"VolumeId": "vol-1", "State": "available", "Size": 8, "VolumeType": "gp3", "Iops": 3000})
    assert volume == AwsVolume("vol-1", "available", {}, 8, "gp3", 3000)
    assert InstanceType.of(TYPE) == InstanceType("t3.medium", 1, 2, 4096)
